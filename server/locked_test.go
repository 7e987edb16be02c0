package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// stuck begins a write that etcd has announced and can't finish until finish is called: the locks of its database are
// taken as if a commit or a defragmentation had them. It returns the name of the widget that is written.
func stuck(t *testing.T, s *servertest.Server) (name string, finish func() (answer string)) {
	t.Helper()
	for n := range 20 {
		name, before := fmt.Sprint("late-", n), server.Position(s.Server)
		tx := server.Database(s.Server).ReadTx()
		tx.RLock() // the write waits for this, and whoever wants to read etcd then waits for the write
		written := make(chan string, 1)
		go func() {
			res, body := s.Do("POST", widgetsPath, widget(name))
			written <- res.Status + " " + body
		}()
		finish = sync.OnceValue(func() string {
			tx.RUnlock()
			return <-written
		})
		t.Cleanup(func() { finish() }) // before the server's: a failed test mustn't keep it locked
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if server.Position(s.Server) > before {
				return name, finish
			}
		}
		finish() // a commit was first, and the write waited for that one
	}
	t.Fatal("no write could be caught between its announcement and its end")
	return "", nil
}

// TestReadsWithoutDisk: while a write can't finish, because a commit or a defragmentation has the locks of etcd's
// database, gets, lists and watches are answered, and show that write.
func TestReadsWithoutDisk(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	open := s.Watch(widgetsPath + "?watch=true")
	late, finish := stuck(t, s)
	for next(t, open).Object.Metadata.Name != late {
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for _, c := range []struct{ name, path, accept, want string }{
		{"get", widgetsPath + "/" + late, "", `"name":"` + late + `"`},
		{"get of what isn't there", widgetsPath + "/nobody", "", `"code":404`},
		{"get as a table", widgetsPath + "/" + late, "application/json;as=Table;v=v1;g=meta.k8s.io", `"name":"` + late + `"`},
		{"list", widgetsPath, "", `"name":"` + late + `"`},
		{"list of a page", widgetsPath + "?limit=1", "", `"continue":"`},
		{"list with a selector", widgetsPath + "?fieldSelector=metadata.name%3D" + late, "", `"name":"` + late + `"`},
		{"list of another resource", "/api/v1/namespaces", "", `"name":"default"`},
		{"watch", widgetsPath + "?watch=true&timeoutSeconds=1", "", `"name":"` + late + `"`},
		{"watch from now on", widgetsPath + "?watch=true&timeoutSeconds=1&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "", `"BOOKMARK"`},
		{"discovery", "/apis/example.com/v1", "", `"widgets"`},
		{"readiness", "/readyz", "", "ok"},
		{"metrics", "/metrics", "", "apiserver_lite_feed_revision"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(ctx, "GET", s.URL+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.accept != "" {
				req.Header.Set("Accept", c.accept)
			}
			res, err := s.Client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(body), c.want) {
				t.Errorf("%s, %v: %s", res.Status, err, body)
			}
		})
	}
	if answer := finish(); !strings.HasPrefix(answer, "201") {
		t.Errorf("the write was answered %s", answer)
	}
}
