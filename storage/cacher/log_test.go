package cacher

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// TestFeedNeverWaitsForRender: a reader that is slow to render an event doesn't hold up the feed, even when the log
// drops that event. The bytes of a frame that is made after that aren't counted.
func TestFeedNeverWaitsForRender(t *testing.T) {
	rendering, release := make(chan struct{}), make(chan struct{})
	view := &kube.View{Render: func(dst []byte, o *kube.Object) []byte {
		if o.Name() == "slow" {
			close(rendering)
			<-release
		}
		return append(dst, "{}"...)
	}}
	b := newBench(smallBounds)
	o := WatchOptions{View: view, Start: StartNow}
	b.mu.Lock()
	c := b.openLocked(o, o.groupKey(), nil)
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

// TestFramesOfOldEvents: the log keeps the frames of its newest events alone. Who reads an older one has it encoded once more, and
// whoever is as late shares that.
func TestFramesOfOldEvents(t *testing.T) {
	bounds := smallBounds
	bounds.framedEvents = 4
	b := newBench(bounds)
	o := WatchOptions{View: &kube.View{}, Start: StartNow}
	var cursors []*Cursor
	for range 3 {
		b.mu.Lock()
		c := b.openLocked(o, o.groupKey(), nil)
		b.mu.Unlock()
		defer c.Close()
		cursors = append(cursors, c)
	}
	read := func(c *Cursor, what string, events int, encoded int64) {
		t.Helper()
		before := b.cacher.Counts().Encoded
		for n := 0; n < events; {
			frames, _, err := c.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			n += bytes.Count(frames, []byte(`"type"`))
		}
		if got := b.cacher.Counts().Encoded - before; got != encoded {
			t.Errorf("for %s %d events are encoded, want %d", what, got, encoded)
		}
	}
	const events = 12
	for i := range events {
		b.put(widgetNamed(fmt.Sprint("w", i), "front"))
		read(cursors[0], "who reads at once", 1, 1)
	}
	read(cursors[1], "a late reader", events, events-int64(bounds.framedEvents)-1) // and the newest when the last one came
	read(cursors[2], "one that is as late", events, 0)
}
