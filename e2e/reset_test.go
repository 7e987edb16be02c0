package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestReset: the program's ephemeral servers are reset, others aren't, and a kill in the middle of a reset leaves nothing
// that the next server would have to look after.
func TestReset(t *testing.T) {
	t.Parallel()
	lasting := start(t, "--data-dir", t.TempDir())
	lasting.do(http.StatusNotFound, "POST", "/debug/reset", "")
	lasting.do(http.StatusNotFound, "POST", "/debug/snapshot?name=a", "")

	dir := t.TempDir()
	for range 3 {
		p := start(t, "--ephemeral", "--data-dir", dir)
		if dirs := subdirs(t, dir); len(dirs) != 1 {
			t.Errorf("the directories are %v", dirs)
		}
		p.do(http.StatusNotFound, "GET", widgets, "") // nothing of the one before
		p.define()
		p.do(http.StatusCreated, "POST", widgets, widget("a", 1))
		p.do(http.StatusOK, "POST", "/debug/snapshot?name=defined", "")
		p.do(http.StatusOK, "POST", "/debug/reset", "")
		p.do(http.StatusNotFound, "GET", widgets, "")
		p.do(http.StatusOK, "POST", "/debug/reset?to=defined", "")
		p.do(http.StatusOK, "GET", widgets+"/a", "")

		var clients sync.WaitGroup
		resets := make(chan struct{}, 1) // capacity 1: the client never waits for the test
		clients.Go(func() {
			for {
				if _, err := p.try("POST", "/debug/reset?to=defined", ""); err != nil {
					return // killed
				}
				select {
				case resets <- struct{}{}:
				default:
				}
			}
		})
		for i := range 4 {
			clients.Go(func() {
				for n := 0; ; n++ {
					if _, err := p.try("POST", widgets, widget(fmt.Sprintf("w%d-%d", i, n), 1)); err != nil {
						return
					}
				}
			})
		}
		for range 10 {
			<-resets
		}
		p.kill()
		clients.Wait()
		if log := p.stderr.String(); strings.Contains(log, "level=ERROR") {
			t.Errorf("the log has %s", log)
		}
	}
}
