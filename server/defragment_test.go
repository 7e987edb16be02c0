package server_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// ballastMiB is the size of the database in TestAnswersBesideDatabase, and mostWait how long an answer may take there; 0 asks for
// the order only.
var (
	ballastMiB = 300
	mostWait   time.Duration
)

// TestAnswersBesideDatabase: while etcd writes its whole database anew, or somebody reads a snapshot of it, consistent reads,
// health and metrics are answered. Both are real, and so hold every lock that they hold.
func TestAnswersBesideDatabase(t *testing.T) {
	for _, c := range []struct {
		name   string
		member bool // of a cluster: reads ask raft, and nobody writes
		busy   func(t *testing.T, s *servertest.Server, answers func() bool)
	}{
		{"alone, beside writers", false, defragment},
		{"a member", true, defragment},
		{"a snapshot is read", false, readSlowly},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := servertest.New(t, func(s *server.Server) {
				if c.member {
					s.Data.Ephemeral, s.Cluster.Listen = false, loopback.Address(t)
				}
			})
			s.PostYAML(definitionsPath, widgets)
			s.PostYAML(widgetsPath, widget("a"))
			server.FillDatabase(s.Server, ballastMiB)
			ctx, cancel := context.WithCancel(t.Context())
			var writers sync.WaitGroup
			defer writers.Wait()
			defer cancel()
			for i := range 4 {
				if !c.member {
					writers.Go(func() { writeOn(ctx, s, i) })
				}
			}
			var longest time.Duration
			c.busy(t, s, func() bool {
				for _, path := range []string{widgetsPath + "/a", widgetsPath, "/readyz", "/healthz", "/metrics"} {
					began := time.Now()
					if err := answer(t.Context(), s, path); err != nil {
						t.Error(err)
						return false
					}
					longest = max(longest, time.Since(began))
				}
				return true
			})
			t.Log("the longest answer took", longest)
			if mostWait > 0 && longest > mostWait {
				t.Errorf("an answer took %v, more than %v", longest, mostWait)
			}
		})
	}
}

// defragment writes the database anew, and calls answers again and again meanwhile. At least one call must begin and end before
// the database is written.
func defragment(t *testing.T, s *servertest.Server, answers func() bool) {
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- server.Defragment(s.Server) }()
	within := 0
	for {
		ok := answers()
		select {
		case err := <-done:
			t.Logf("%d rounds of answers in %v", within, time.Since(began))
			if err != nil || within == 0 {
				t.Errorf("no round of answers ended before the database was written: %v", err)
			}
			return
		default:
		}
		if !ok {
			<-done
			return
		}
		within++
	}
}

// readSlowly has a snapshot of the database open until some rounds of answers have ended.
func readSlowly(t *testing.T, s *servertest.Server, answers func() bool) {
	open := server.Database(s.Server).Snapshot()
	reader, writer := io.Pipe()
	var sent sync.WaitGroup
	sent.Go(func() {
		_, err := open.WriteTo(writer)
		writer.CloseWithError(errors.Join(err, open.Close()))
	})
	defer sent.Wait()
	for range 3 {
		if _, err := io.CopyN(io.Discard, reader, 1<<20); err != nil {
			t.Error(err)
		}
		answers()
	}
	if _, err := io.Copy(io.Discard, reader); err != nil {
		t.Error(err)
	}
}

// writeOn updates a widget of its own until ctx ends. Writes wait for the database, and are asked nothing.
func writeOn(ctx context.Context, s *servertest.Server, writer int) {
	for n := 0; ctx.Err() == nil; n++ {
		w := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w%d"},"spec":{"size":%d}}`, writer, 1+n%1000)
		r, err := http.NewRequestWithContext(ctx, "PATCH", fmt.Sprintf("%s%s/w%d?fieldManager=test&force=true", s.URL, widgetsPath, writer), strings.NewReader(w))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
		if res, err := s.Client.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}
}

// answer gets a path, which must be there.
func answer(ctx context.Context, s *servertest.Server, path string) error {
	ctx, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
	if err != nil {
		return err
	}
	res, err := s.Client.Do(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(res.Body)
	if err = cmp.Or(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %w: %s", path, res.Status, err, body)
	}
	return nil
}
