package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
)

// TestKill kills the server while eight clients write, at a random moment, several times on one data
// directory: what was acknowledged is there afterwards, with its resourceVersion, and versions go on.
func TestKill(t *testing.T) {
	t.Parallel()
	const rounds, writers = 5, 8
	dir := t.TempDir()
	var highest int64
	for round := range rounds {
		p := start(t, "--data-dir", dir)
		if round == 0 {
			p.define()
		}
		before := p.do(http.StatusOK, "GET", widgets, "").object.rv(t)
		load := writeLoad(p.client, writers, round)
		load.count(t, 20+rand.IntN(400))
		p.kill()
		load.end(t)
		acked, last := load.all(t)
		t.Logf("round %d: killed after %d acknowledged writes, at about revision %d", round, len(acked), last)

		p = start(t, "--data-dir", dir)
		list := p.do(http.StatusOK, "GET", widgets, "").object
		items := map[string]object{}
		for _, o := range list.Items {
			items[o.Metadata.Name] = o
		}
		load.checkState(t, items)
		checkHistory(t, p, before, list.rv(t), acked)

		next := p.do(http.StatusCreated, "POST", widgets, widget(fmt.Sprintf("after-%d", round), 1)).object.rv(t)
		if next <= last || next <= highest {
			t.Errorf("the first write after the restart has resourceVersion %d; before it was %d, and %d in the round before", next, last, highest)
		}
		highest = next
		p.kill() // while idle
	}
}

// checkHistory watches from a version of the killed process to the present: each acknowledged write is there
// once, as it was answered, and in order.
func checkHistory(t *testing.T, p *process, from, to int64, acked map[int64]write) {
	t.Helper()
	s := p.watch(widgets + "?watch=true&resourceVersion=" + strconv.FormatInt(from, 10))
	defer s.body.Close()
	seen, last := map[int64]bool{}, from
	for last < to && len(seen) < len(acked) {
		e, err := s.next()
		if err != nil {
			t.Errorf("the watch from %d: after %d: %v", from, last, err)
			return
		}
		rv := e.Object.rv(t)
		if rv <= last {
			t.Errorf("the watch has %d after %d", rv, last)
		}
		last = rv
		if a, ok := acked[rv]; ok {
			seen[rv] = true
			if e.Object.Metadata.Name != a.name || e.Object.Spec.Size != a.size {
				t.Errorf("the watch has %s with size %d at %d; acknowledged was %s with size %d", e.Object.Metadata.Name, e.Object.Spec.Size, rv, a.name, a.size)
			}
		}
	}
	for rv, a := range acked {
		if !seen[rv] {
			t.Errorf("%s was acknowledged at %d and isn't in the history", a.name, rv)
		}
	}
}
