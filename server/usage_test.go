package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// TestGauges: what has a bound has a gauge.
func TestGauges(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for i := range 5 {
		s.Do("POST", widgetsPath, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w%d"},"spec":{"size":1}}`, i), "Content-Type", "application/json")
	}
	_, page := s.Do("GET", widgetsPath+"?limit=2", "") // whose snapshot is kept for the next
	if !strings.Contains(page, `"continue"`) {
		t.Fatalf("no page: %s", page)
	}
	s.Get("/openapi/v2") // which is kept
	s.Do("POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"late"},"spec":{"size":1}}`, "Content-Type", "application/json")
	wanted := []string{
		`apiserver_storage_objects{group="example.com",resource="widgets"} 7`,
		`apiserver_storage_objects{group="",resource="namespaces"} 4`,
		"apiserver_lite_kept_snapshots 1", "apiserver_lite_large_answers 0", "apiserver_lite_watch_history_bytes 0",
		"apiserver_lite_feed_tail_bytes 0", "apiserver_lite_history_short 0",
	}
	counting := []string{"apiserver_lite_watch_log_bytes", "apiserver_lite_kept_snapshot_bytes", "apiserver_lite_history_seconds", "apiserver_lite_openapi_bytes"}
	var lacking []string
	defer func() {
		if t.Failed() {
			t.Errorf("metrics lack %q", lacking)
		}
	}()
	// A write is answered before the caches have it, of which the gauges tell.
	until(t, "the gauges have their values", func() bool {
		lacking = nil
		metrics := s.Get("/metrics")
		for _, want := range wanted {
			if !strings.Contains(metrics, want+"\n") {
				lacking = append(lacking, want)
			}
		}
		for _, name := range counting {
			if strings.Contains(metrics, "\n"+name+" 0\n") || !strings.Contains(metrics, "\n"+name+" ") {
				lacking = append(lacking, name)
			}
		}
		return len(lacking) == 0
	})
}

// TestLeftovers: what is open is told, each by its name, and is gone when it has ended.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	release := server.OccupySeats(t, s.Server, "192.0.2.1")
	watch := s.Watch(allWidgets + "?watch=true")
	for _, want := range []string{"1 open watches", "1 groups of watches", "seats of requests", "places of connections"} {
		if err := s.Leftovers(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("there is no %q in: %v", want, err)
		}
	}
	release()
	watch.Close()
	until(t, "nothing is left but connections", func() bool {
		err := s.Leftovers()
		return err == nil || !strings.Contains(err.Error(), "\n") && strings.Contains(err.Error(), "places of connections")
	})
}
