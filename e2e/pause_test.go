package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestPause stops the whole process for some seconds while watches are open and writes under way, as a machine
// that is suspended does: afterwards everything goes on, and nobody misses anything.
func TestPause(t *testing.T) {
	t.Parallel()
	const writers, watchers, pause = 4, 9, 3 * time.Second
	p := start(t, "--ephemeral")
	p.define()
	from := p.do(http.StatusOK, "GET", widgets, "").object.Metadata.ResourceVersion
	ends := make([]func(map[int64]write), watchers)
	var reading sync.WaitGroup
	for i := range watchers {
		bookmarks := i%2 == 0
		selector := []string{"", "&labelSelector=tier%3Dfront", "&labelSelector=tier+in+(front,back)"}[i%3]
		s := p.watch(fmt.Sprintf("%s?watch=true&resourceVersion=%s&allowWatchBookmarks=%t%s", widgets, from, bookmarks, selector))
		reading.Go(func() {
			events, err := s.rest()
			ends[i] = func(acked map[int64]write) { checkEnd(t, events, err, bookmarks, acked) }
		})
	}
	load := writeLoad(p.client, writers, 0)
	load.count(t, 100)
	p.signal(syscall.SIGSTOP)
	<-time.NewTimer(pause).C
	p.signal(syscall.SIGCONT)
	before := p.do(http.StatusOK, "GET", widgets, "").object.rv(t)
	eventually(t, "writes go on", func() bool { return p.do(http.StatusOK, "GET", widgets+"?limit=1", "").object.rv(t) > before+100 })
	p.stop()
	reading.Wait()
	load.end(t)
	acked, _ := load.all(t)
	for _, check := range ends {
		check(acked)
	}
}
