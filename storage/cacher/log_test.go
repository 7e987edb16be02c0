package cacher

import (
	"fmt"
	"testing"
	"time"
)

// TestFeedNeverWaitsForRender: a reader that is slow to render an event doesn't hold up the feed, even when the log
// drops that event. The bytes of a frame that is made after that aren't counted.
func TestFeedNeverWaitsForRender(t *testing.T) {
	rendering, release := make(chan struct{}), make(chan struct{})
	view := &View{Render: func(dst []byte, o *Object) []byte {
		if o.Name() == "slow" {
			close(rendering)
			<-release
		}
		return append(dst, "{}"...)
	}}
	b := newBench(smallBounds)
	o := WatchOptions{View: view, Start: StartNow}
	b.mu.Lock()
	c := b.openLocked(o, o.groupKey())
	b.mu.Unlock()
	defer c.Close()

	b.put(widgetNamed("slow", "front"))
	read := make(chan error, 1)
	go func() {
		_, _, err := c.Next(t.Context(), nil)
		read <- err
	}()
	<-rendering
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		for i := range smallBounds.logEvents + 1 {
			b.put(widgetNamed(fmt.Sprint("w", i), "front"))
		}
	}()
	select {
	case <-fed:
	case <-time.After(time.Minute):
		t.Error("the feed waits for a reader that renders an event")
	}
	close(release)
	<-fed
	if err := <-read; err != nil {
		t.Error(err)
	}
	if b.trimLog(-1); b.log.bytes.Load() != 0 {
		t.Errorf("an empty log counts %d bytes", b.log.bytes.Load())
	}
}
