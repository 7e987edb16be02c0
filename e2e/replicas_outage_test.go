package e2e

import (
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// since is how a health check tells from when on something is wrong.
var since = regexp.MustCompile(`since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// TestEtcdCutOff: while a replica can't reach etcd, it gives what it has in memory to who takes that, refuses all else for
// now, and says since when. Afterwards it goes on, with the watches that it had.
func TestEtcdCutOff(t *testing.T) {
	t.Parallel()
	r := newRemote(t, 1)
	p := r.all[0].now()
	before := p.do(http.StatusCreated, "POST", widgets, widget("before", 1)).object
	old := p.watch(widgets + "?watch=true&resourceVersion=" + before.Metadata.ResourceVersion)
	l := r.links[r.all[0].name]
	l.split()
	for _, path := range []string{"/readyz", "/readyz/etcd", "/readyz/consistency"} {
		eventually(t, path+" says since when etcd can't be reached", func() bool {
			a, err := p.try("GET", path, "")
			return err == nil && a.code == http.StatusInternalServerError && since.MatchString(a.body)
		})
	}
	if p.metric("apiserver_lite_replica_lost ") != 1 {
		t.Error("the metrics don't say that the store is lost")
	}
	p.do(http.StatusOK, "GET", "/livez", "")
	if list := p.do(http.StatusOK, "GET", widgets+"?resourceVersion=0", "").object; len(list.Items) != 1 {
		t.Errorf("a list from memory has %+v", list.Items)
	}
	p.do(http.StatusOK, "GET", widgets+"/before?resourceVersion=0", "")
	fresh := p.watch(widgets + "?watch=true&resourceVersion=0")
	fresh.expect("ADDED", "before")
	for _, request := range []struct{ method, path, body string }{
		{"POST", widgets, widget("lost", 1)},
		{"PUT", widgets + "/before", widget("before", 2)},
		{"DELETE", widgets + "/before", ""},
		{"GET", widgets, ""},
		{"GET", widgets + "/before", ""},
	} {
		a := p.do(http.StatusServiceUnavailable, request.method, request.path, request.body)
		if a.header.Get("Retry-After") == "" || a.object.Message == "" {
			t.Errorf("%s %s answered %v\n%s", request.method, request.path, a.header, a.body)
		}
	}

	l.heal()
	r.ready()
	for _, path := range []string{"/readyz/etcd", "/readyz/consistency", "/readyz/lag"} {
		p.do(http.StatusOK, "GET", path, "")
	}
	r.insist("POST", widgets, widget("after", 1), http.StatusCreated, http.StatusConflict)
	for _, w := range []*stream{old, fresh} {
		w.expect("ADDED", "after") // so nothing that was refused has happened
	}
}

// TestEtcdAbsent: a server whose etcd isn't there ends and says so in one line, or waits for it if it's told to.
func TestEtcdAbsent(t *testing.T) {
	t.Parallel()
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		nobody := "127.0.0.1:" + loopback.Port(t)
		p := launch(t, run{args: []string{"--etcd-servers", "http://" + nobody, "--etcd-timeout", "1s"}})
		if code := p.wait(patience); code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		message := p.stderr.String()
		if strings.Count(message, "\n") != 1 || !strings.HasPrefix(message, "apiserver-lite: ") || !strings.Contains(message, nobody) || !strings.Contains(message, "--etcd-timeout") {
			t.Errorf("standard error is %q, want one line with %s", message, nobody)
		}
		if out := p.stdout.String(); out != "" {
			t.Errorf("standard output is %q, want none", out)
		}
	})
	t.Run("waits", func(t *testing.T) {
		t.Parallel()
		nobody, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer nobody.Close()
		l := newRelay(t, nobody.Addr().String())
		p := launch(t, run{args: []string{"--etcd-servers", "http://" + l.address(), "--etcd-timeout", "1ms", "--etcd-wait"}})
		for range 3 { // tries
			conn, err := nobody.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		l.to(startEtcd(t).address())
		p.ready()
		p.define()
		p.do(http.StatusCreated, "POST", widgets, widget("a", 1))
		p.stop()
	})
}

// TestEtcdKeepsAll: a replica over an etcd that is given no data directory leaves nothing on its machine.
func TestEtcdKeepsAll(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	where := map[string]string{"the working directory": t.TempDir(), "HOME": t.TempDir(), "TMPDIR": t.TempDir()}
	look := func(when string) {
		t.Helper()
		for name, dir := range where {
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) > 0 {
				t.Errorf("%s %s has %v, %v", when, name, entries, err)
			}
		}
	}
	p := launch(t, run{args: []string{"--etcd-servers", "http://" + etcd.address()}, env: []string{"HOME=" + where["HOME"]},
		tmp: where["TMPDIR"], dir: where["the working directory"]}).ready()
	p.define()
	for i := range 20 {
		p.do(http.StatusCreated, "POST", widgets, widget(string(rune('a'+i)), i))
	}
	look("while it runs")
	p.stop()
	look("afterwards")
}
