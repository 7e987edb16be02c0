package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestOutagesAreLogged: why storage can't answer is in the log and not in the answers, once in a while and not for every
// request.
func TestOutagesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &Registry{}
		r.outages.log = slog.New(slog.NewTextHandler(&log, nil))
		e := &Endpoint{Res: &Resource{Registry: r}}
		fail := func(cause string) {
			t.Helper()
			err := e.Fail("a", fmt.Errorf("get %q: %w: %w", "a", storage.ErrUnavailable, errors.New(cause)))
			var answer apierrors.APIStatus
			if !errors.As(err, &answer) || answer.Status().Code != http.StatusServiceUnavailable || strings.Contains(answer.Status().Message, cause) {
				t.Errorf("the answer is %v", err)
			}
		}
		logged := func(want ...string) {
			t.Helper()
			lines := strings.Count(log.String(), "\n")
			for _, text := range want {
				if lines != 1 || !strings.Contains(log.String(), text) {
					t.Errorf("the log has %d lines: %q, want one with %q", lines, log.String(), text)
				}
			}
			if len(want) == 0 && lines > 0 {
				t.Errorf("the log has %q", log.String())
			}
			log.Reset()
		}
		fail("the first cause")
		logged("the first cause", "omitted=0")
		for range 1000 {
			fail("the same again")
		}
		logged()
		time.Sleep(outageInterval)
		fail("the second cause")
		logged("the second cause", "omitted=1000")
	})
}

// TestUnknownOutcomes: a write that storage hasn't answered is answered 504, without a word that would have
// clients repeat it; one that certainly didn't happen may be repeated.
func TestUnknownOutcomes(t *testing.T) {
	r := &Registry{}
	r.outages.log = slog.New(slog.DiscardHandler)
	e := &Endpoint{Res: &Resource{Registry: r}}
	for _, c := range []struct {
		name       string
		err        error
		code       int32
		retryAfter bool
	}{
		{"no answer", fmt.Errorf("%w (%w)", storage.ErrUnavailable, storage.ErrUnknownOutcome), http.StatusGatewayTimeout, false},
		{"the caller's end", context.DeadlineExceeded, http.StatusGatewayTimeout, false},
		{"not sent", storage.ErrUnavailable, http.StatusServiceUnavailable, true},
		{"no majority", fmt.Errorf("%w: %w", storage.ErrUnavailable, storage.ErrNoMajority), http.StatusServiceUnavailable, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var answer apierrors.APIStatus
			if err := e.Fail("a", c.err); !errors.As(err, &answer) {
				t.Fatal(err)
			}
			s := answer.Status()
			if again := s.Details != nil && s.Details.RetryAfterSeconds > 0; s.Code != c.code || again != c.retryAfter {
				t.Errorf("the answer is %+v, want %d", s, c.code)
			}
		})
	}
}
