package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProfiling: without users there are profiles only if the flag says so, and then the heap's have samples. Where rights count, those of
// the heap say what they lack.
func TestProfiling(t *testing.T) {
	t.Parallel()
	p := start(t, "--ephemeral")
	p.do(http.StatusNotFound, "GET", "/debug/pprof/heap", "")
	p.stop()
	users := filepath.Join(t.TempDir(), "users.csv")
	if err := os.WriteFile(users, []byte("root,root,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = start(t, "--ephemeral", "--authorization-mode=RBAC", "--token-auth-file="+users)
	r, _ := http.NewRequest("GET", p.url+"/debug/pprof/heap", nil)
	r.Header.Set("Authorization", "Bearer root")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusNotFound || !strings.Contains(string(body), "start the server with --profiling") {
		t.Errorf("the heap's without the flag: %s %s", res.Status, body)
	}
	p.stop()
	p = start(t, "--ephemeral", "--profiling", "--contention-profiling")
	for path, want := range map[string]string{
		"/debug/pprof/heap?debug=1":  "@ heap/1048576", // twice the distance of two samples
		"/debug/pprof/block?debug=1": "sync.",
	} {
		if body := p.do(http.StatusOK, "GET", path, "").body; !strings.Contains(body, want) {
			t.Errorf("%s: %.300q, want one with %q", path, body, want)
		}
	}
	p.stop()
}
