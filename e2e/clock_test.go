package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestFakeClock: the program's clock stands still only if the flag says so, and it says that in its log.
func TestFakeClock(t *testing.T) {
	t.Parallel()
	p := start(t, "--ephemeral")
	p.do(http.StatusNotFound, "POST", "/debug/clock?advance=1h", "")
	if strings.Contains(p.stderr.String(), "CLOCK") {
		t.Errorf("the log speaks of a clock:\n%s", p.stderr)
	}
	p.stop()
	p = start(t, "--ephemeral", "--fake-clock")
	if !strings.Contains(p.stderr.String(), "THE CLOCK STANDS STILL") {
		t.Errorf("the log doesn't say that the clock stands still:\n%s", p.stderr)
	}
	before := p.do(http.StatusOK, "GET", "/debug/clock", "").body
	if after := p.do(http.StatusOK, "POST", "/debug/clock?advance=1h", "").body; !strings.HasPrefix(after, `{"time":"`) || after == before {
		t.Errorf("an hour after %s it's %s", before, after)
	}
	p.stop()
}
