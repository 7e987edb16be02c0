package e2e

import (
	"fmt"
	"sync"
	"testing"
)

// TestWatchesLeaveNothing opens a thousand watches and drops them: the server's goroutines and file
// descriptors come back to where they were.
func TestWatchesLeaveNothing(t *testing.T) {
	t.Parallel()
	const watches, atOnce = 1000, 20
	p := start(t, "--ephemeral")
	p.define()
	if p.metric("go_goroutines ") == 0 || p.metric("process_open_fds ") == 0 {
		t.Fatal("/metrics doesn't have the figures that this test is about")
	}
	p.watch(widgets + "?watch=true").body.Close()
	eventually(t, "the first watch is gone", func() bool { return p.metric(`apiserver_longrunning_requests{`) == 0 })
	goroutines, descriptors := p.metric("go_goroutines "), p.metric("process_open_fds ")

	streams := make([]*stream, watches)
	var opening sync.WaitGroup
	for worker := range atOnce {
		opening.Go(func() {
			for i := worker; i < watches; i += atOnce {
				// Of a hundred kinds; some live, some with bookmarks, some of one object.
				s, err := p.open(fmt.Sprintf("%s?watch=true&labelSelector=n=%d&allowWatchBookmarks=%t", widgets, i%100, i%3 == 0))
				if err != nil {
					t.Error(err)
					return
				}
				streams[i] = s
			}
		})
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	eventually(t, "all watches are open", func() bool { return p.metric(`apiserver_longrunning_requests{`) == watches })
	for i, s := range streams {
		if i%2 == 0 {
			s.body.Close()
		}
	}
	// The server may notice some that are gone only when it writes to them.
	for i := range 100 {
		object := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w%d","labels":{"n":"%d"}}}`, i, i)
		p.do(201, "POST", widgets, object)
	}
	for _, s := range streams {
		s.body.Close()
	}
	eventually(t, "no watch is open", func() bool { return p.metric(`apiserver_longrunning_requests{`) == 0 })
	eventually(t, "goroutines are back within a tenth", func() bool { return p.metric("go_goroutines ") <= goroutines*1.1 })
	eventually(t, "descriptors are back within a tenth", func() bool { return p.metric("process_open_fds ") <= descriptors*1.1 })
	p.stop()
}
