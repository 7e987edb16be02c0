//go:build soak

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"
)

// killRounds is how many rounds TestSoakKill makes: the environment's KILLS, or 200.
func killRounds(t *testing.T) int {
	if os.Getenv("KILLS") == "" {
		return 200
	}
	n, err := strconv.Atoi(os.Getenv("KILLS"))
	if err != nil || n < 1 {
		t.Fatalf("KILLS must be a number above 0, not %q", os.Getenv("KILLS"))
	}
	return n
}

// TestSoakKill starts a server, writes, stops it cleanly, starts it again and kills it after 0 to 200 ms,
// again and again on one directory. Each start but the killed one must succeed, and what was acknowledged
// must be there.
func TestSoakKill(t *testing.T) {
	const longest = 200 * time.Millisecond
	rounds := killRounds(t)
	args := []string{"--data-dir", t.TempDir()}
	acked := map[string]int64{} // by name
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			p := start(t, args...)
			if round == 0 {
				p.define()
			}
			checkAcked(t, p, acked)
			for i := range 3 {
				name := fmt.Sprintf("kill-%d", (3*round+i)%100)
				if _, there := acked[name]; there {
					acked[name] = p.do(http.StatusOK, "PATCH", widgets+"/"+name, fmt.Sprintf(`{"spec":{"size":%d}}`, round), "Content-Type", "application/merge-patch+json").object.rv(t)
				} else {
					acked[name] = p.do(http.StatusCreated, "POST", widgets, widget(name, round)).object.rv(t)
				}
			}
			p.stop()
			p = launch(t, run{args: args})
			after := time.NewTimer(rand.N(longest))
			select {
			case <-after.C:
			case <-p.exited:
				t.Fatalf("round %d: the server ended with code %d:\n%s", round, p.cmd.ProcessState.ExitCode(), p.stderr)
			}
			p.kill()
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	p := start(t, args...)
	checkAcked(t, p, acked)
	p.stop()
}

// checkAcked fails the test if an acknowledged write isn't there.
func checkAcked(t *testing.T, p *process, acked map[string]int64) {
	t.Helper()
	there := map[string]int64{}
	for _, o := range p.do(http.StatusOK, "GET", widgets, "").object.Items {
		there[o.Metadata.Name] = o.rv(t)
	}
	for name, rv := range acked {
		if there[name] != rv {
			t.Fatalf("%s was acknowledged at %d and is there at %d (0: missing)", name, rv, there[name])
		}
	}
}
