package faketime

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/server/status"
)

// FuzzParse: a query is refused with a Status, or says something within the bounds.
func FuzzParse(f *testing.F) {
	for _, query := range []string{"advance=1h", "advance=1h&timeout=5s", "advance=-1s", "advance=9999999h", "advance=1h&advance=2h", "timeout=1s", "a=", "advance=1ns"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		const longest = time.Minute
		by, timeout, err := parse(query, longest)
		var refused *apierrors.StatusError
		switch {
		case err == nil && by > 0 && by <= maxAdvance && timeout > 0 && timeout <= longest:
		case errors.As(err, &refused) && refused.ErrStatus.Code == http.StatusBadRequest:
			if _, err := json.Marshal(refused.ErrStatus); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("%q: %v, %v, %v", text, by, timeout, err)
		}
	})
}

// TestLate: who isn't answered in time is told whether the clock was moved, and what it waits for.
func TestLate(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	done := func(context.Context) error { return nil }
	busy := func(context.Context) error {
		return status.Error(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "something is left")
	}
	for _, tc := range []struct {
		name          string
		before, after func(context.Context) error
		now           time.Time
		message       string
	}{
		{"before", hang, done, begin, "the clock wasn't moved; after 10ms still waiting for the thing"},
		{"after", done, hang, begin.Add(time.Hour), "the clock was moved, and says 2026-05-01T13:00:00Z; after 10ms still waiting for the thing"},
		{"says what", nil, busy, begin.Add(time.Hour), "the clock was moved, and says 2026-05-01T13:00:00Z; something is left"},
	} {
		own := clock.StandAt(begin)
		c := New(own, time.Minute, slog.New(slog.DiscardHandler), Step{Name: "the thing", Before: tc.before, After: tc.after})
		err := c.Answer(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path+"?advance=1h&timeout=10ms", nil))
		var refused *apierrors.StatusError
		if !errors.As(err, &refused) || refused.ErrStatus.Code != http.StatusGatewayTimeout || refused.ErrStatus.Message != tc.message {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.message)
		}
		if now := own.Now(); now != tc.now {
			t.Errorf("%s: it's %v", tc.name, now)
		}
	}
}

// TestTurns: one moves the clock at a time, and whoever waits for his turn gives up with his time.
func TestTurns(t *testing.T) {
	t.Parallel()
	own := clock.StandAt(time.Unix(0, 0))
	begun, goOn := make(chan struct{}), make(chan struct{})
	c := New(own, time.Minute, slog.New(slog.DiscardHandler), Step{Name: "the first", After: func(context.Context) error {
		close(begun)
		<-goOn
		return nil
	}})
	ask := func(query string) error {
		return c.Answer(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path+query, nil))
	}
	first := make(chan error)
	go func() { first <- ask("?advance=1h") }()
	<-begun
	if err := ask("?advance=1h&timeout=10ms"); err == nil || !strings.Contains(err.Error(), "the clock wasn't moved; after 10ms still waiting for another request") {
		t.Errorf("the second: %v", err)
	}
	close(goOn)
	if err := <-first; err != nil || own.Now().Unix() != 3600 {
		t.Errorf("the first: %v, at %v", err, own.Now())
	}
}

// TestMachine: without a fake clock there is nothing to ask.
func TestMachine(t *testing.T) {
	t.Parallel()
	c := New(nil, time.Minute, slog.New(slog.DiscardHandler))
	if c.Then(Step{}); c != nil {
		t.Error("there is a clock")
	}
}
