package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
)

// listeningEtcd is an etcd at an address, whose data can be replaced.
type listeningEtcd struct {
	address string
	stop    func() // idempotent
}

func (e *listeningEtcd) start(t *testing.T, dir, token string) {
	t.Helper()
	config := embed.NewConfig()
	config.Dir, config.InitialClusterToken = dir, token
	config.LogLevel, config.LogOutputs, config.UnsafeNoFsync = "panic", []string{filepath.Join(t.TempDir(), "etcd.log")}, true
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: e.address}}
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	running, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	<-running.Server.ReadyNotify()
	e.stop, e.address = sync.OnceFunc(running.Close), running.Clients[0].Addr().String()
}

// TestReplacedEtcd: when an etcd elsewhere becomes an older copy of itself, or another one, open watches are told
// 410 and end, and what is served is what it has now. A watch from before is told 410, too.
func TestReplacedEtcd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		replace func(t *testing.T, e *listeningEtcd, backup string)
		kept    bool
	}{
		{"by an older copy", func(t *testing.T, e *listeningEtcd, backup string) { e.start(t, backup, "one") }, true},
		{"by another one", func(t *testing.T, e *listeningEtcd, _ string) { e.start(t, t.TempDir(), "another") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, dir, backup := &listeningEtcd{address: "127.0.0.1:0"}, t.TempDir(), t.TempDir()
			e.start(t, dir, "one")
			t.Cleanup(func() { e.stop() }) // of the last one
			s := servertest.New(t, func(s *server.Server) {
				s.Data.Ephemeral, s.Data.Dir = false, ""
				s.Etcd = remote.Options{Servers: []string{"http://" + e.address}}
			})
			named := func(name string) string { return fmt.Sprintf(`{"metadata":{"name":%q}}`, name) }
			kept := value(s.PostYAML(configMaps, named("kept")), "metadata.resourceVersion")
			e.stop()
			if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			e.start(t, dir, "one")
			until(t, "etcd is found again", func() bool {
				res, _ := s.Do("GET", configMaps, "")
				return res.StatusCode == http.StatusOK
			})
			lost := value(s.PostYAML(configMaps, named("lost")), "metadata.resourceVersion")
			for i := range 20 { // so that the other one's revision is lower for sure, also after what the server itself writes to it
				lost = value(s.PostYAML(configMaps, named(fmt.Sprint("more", i))), "metadata.resourceVersion")
			}
			watches := []*servertest.Stream{s.Watch(configMaps + "?watch=true&resourceVersion=" + kept), s.Watch(configMaps + "?watch=true&labelSelector=nobody")}
			for range 21 {
				if line, err := watches[0].Next(); err != nil || !strings.Contains(line, `"type":"ADDED"`) {
					t.Fatalf("%s, %v", line, err)
				}
			}
			e.stop()
			c.replace(t, e, backup)
			for i, w := range watches {
				if line, err := w.Next(); err != nil || !strings.Contains(line, `"type":"ERROR"`) || !strings.Contains(line, `"code":410`) {
					t.Errorf("watch %d: %s, %v", i, line, err)
				}
				if line, err := w.Next(); err != io.EOF {
					t.Errorf("watch %d goes on: %s, %v", i, line, err)
				}
			}
			var list string
			until(t, "a consistent list", func() bool {
				res, body := s.Do("GET", configMaps, "")
				list = body
				return res.StatusCode == http.StatusOK
			})
			if strings.Contains(list, `"lost"`) || strings.Contains(list, `"kept"`) != c.kept {
				t.Errorf("there is %s", list)
			}
			if line, err := s.Watch(configMaps + "?watch=true&resourceVersion=" + lost).Next(); err != nil || !strings.Contains(line, `"code":410`) {
				t.Errorf("a watch from before: %s, %v", line, err)
			}
		})
	}
}
