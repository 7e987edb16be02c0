package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/server/metrics"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestNoFaultsCostNothing: without faults nothing stands before the routes.
func TestNoFaultsCostNothing(t *testing.T) {
	routes := http.NewServeMux()
	if got := new(handler).faulty(routes); got != http.Handler(routes) {
		t.Errorf("the routes are behind a %T", got)
	}
}

// TestInternalErrorsAreLogged: whatever is answered "internal error" is in the log once, and nothing else is.
func TestInternalErrorsAreLogged(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		code   int
		logged int
	}{
		{"no Status", errors.New("deliberate"), http.StatusInternalServerError, 1},
		{"a Status", apierrors.NewInternalError(errors.New("deliberate")), http.StatusInternalServerError, 1},
		{"not found", apierrors.NewNotFound(schema.GroupResource{Resource: "widgets"}, "deliberate"), http.StatusNotFound, 0},
		{"a full disk", status.Error(http.StatusInsufficientStorage, metav1.StatusReasonInternalError, "deliberate"), http.StatusInsufficientStorage, 0},
		{"unavailable", apierrors.NewServiceUnavailable("deliberate"), http.StatusServiceUnavailable, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			rec := httptest.NewRecorder()
			w := &response{ResponseWriter: rec, log: slog.New(slog.NewTextHandler(&log, nil)), auditID: "id-7"}
			w.fail(httptest.NewRequest(http.MethodGet, "/", nil), tc.err)
			if rec.Code != tc.code {
				t.Errorf("the answer is %d, want %d", rec.Code, tc.code)
			}
			lines := strings.Count(log.String(), "\n")
			if lines != tc.logged || lines > 0 && !(strings.Contains(log.String(), "deliberate") && strings.Contains(log.String(), "audit_id=id-7")) {
				t.Errorf("the log has %d lines, want %d: %s", lines, tc.logged, &log)
			}
		})
	}
}

// TestTakesOld: which requests go on while the store is lost.
func TestTakesOld(t *testing.T) {
	for target, want := range map[string]bool{
		"/api/v1/namespaces/a/configmaps?resourceVersion=0": true,
		"/api/v1/configmaps?watch":                          true,
		"/api/v1/watch/namespaces/a/configmaps":             true,
		"/apis/example.com/v1/watch/things":                 true,
		"/api/v1/namespaces/a/configmaps":                   false,
		"/api/v1/namespaces/watch/configmaps":               false,
		"/apis/example.com/v1/namespaces/watch/things/one":  false,
	} {
		if got := takesOld(httptest.NewRequest(http.MethodGet, target, nil)); got != want {
			t.Errorf("%s takes what is old: %t", target, got)
		}
	}
}

// TestVerifyNeedsAServer: what isn't running can't be verified, and the error says so.
func TestVerifyNeedsAServer(t *testing.T) {
	if err := new(Server).Verify(t.Context()); !errors.Is(err, errNotRunning) {
		t.Errorf("before the start: %v", err)
	}
}

// altered is a store that lists something else than what it has.
type altered struct {
	metrics.Store
	alter func(storage.Change) []storage.Change
}

func (a altered) List(ctx context.Context, keys storage.Range, at storage.Revision, fn func(storage.Change) error) (storage.Revision, error) {
	return a.Store.List(ctx, keys, at, func(c storage.Change) error {
		for _, c := range a.alter(c) {
			if err := fn(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestVerifyNamesDifferences: every way in which the caches can differ from etcd is told, with the object, and
// nothing else is.
func TestVerifyNamesDifferences(t *testing.T) {
	s := &Server{Serving: Serving{Listen: "127.0.0.1:0"}, Data: Data{Ephemeral: true, Dir: t.TempDir()}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Verify(t.Context()); err != nil {
		t.Fatalf("without a difference: %v", err)
	}
	key, err := storage.PrefixOf("", "namespaces").Key("", "default")
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := storage.PrefixOf("example.com", "unknowns").Key("", "a")
	if err != nil {
		t.Fatal(err)
	}
	kv, err := s.life.in.backing.store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		alter func(storage.Change) []storage.Change // what etcd has at the key
		want  string
	}{
		"none":             {func(c storage.Change) []storage.Change { return []storage.Change{c} }, ""},
		"not stored":       {func(storage.Change) []storage.Change { return nil }, fmt.Sprintf("%s: revision %d is cached and 0 is stored (0: none)", key, kv.Revision)},
		"another revision": {func(c storage.Change) []storage.Change { c.Revision++; return []storage.Change{c} }, fmt.Sprintf("%s: revision %d is cached and %d is stored (0: none)", key, kv.Revision, kv.Revision+1)},
		"another value": {func(c storage.Change) []storage.Change {
			c.Value = append(bytes.Clone(c.Value), ' ')
			return []storage.Change{c}
		}, fmt.Sprintf("%s: what is cached of revision %d isn't what is stored", key, kv.Revision)},
		"not cached": {func(c storage.Change) []storage.Change {
			more := c
			more.Key += "-2"
			return []storage.Change{c, more}
		}, fmt.Sprintf("%s-2: revision 0 is cached and %d is stored (0: none)", key, kv.Revision)},
		"not cached, of an unknown kind": {func(c storage.Change) []storage.Change {
			more := c
			more.Key = unknown
			return []storage.Change{c, more}
		}, fmt.Sprintf("%s: revision 0 is cached and %d is stored (0: none)", unknown, kv.Revision)},
	} {
		t.Run(name, func(t *testing.T) {
			in := &instance{cacher: s.life.in.cacher, registry: s.life.in.registry, backing: backing{store: altered{s.life.in.backing.store, func(c storage.Change) []storage.Change {
				if c.Key != key {
					return []storage.Change{c}
				}
				return test.alter(c)
			}}}}
			still, err := in.verify(t.Context())
			for n := 1; !still && n < verifyAttempts; n++ { // the controllers may write
				still, err = in.verify(t.Context())
			}
			if got := fmt.Sprint(err); !still || err == nil && test.want != "" || err != nil && got != test.want {
				t.Errorf("the difference is told as %q, want %q; it's real: %t", got, test.want, still)
			}
		})
	}
}

// A start that was told to stop is a failure if something couldn't be ended.
func TestStartError(t *testing.T) {
	told, failed, left := fmt.Errorf("etcd: %w", context.Canceled), errors.New("no etcd"), errors.New("--url-file: it's a directory")
	for _, tt := range []struct {
		name         string
		err, closing error
		want         string
		stopped      bool // as it was told
	}{
		{"told", told, nil, told.Error(), true},
		{"told, and something is left", told, left, left.Error(), false},
		{"failed", failed, nil, failed.Error(), false},
		{"failed, and something is left", failed, left, failed.Error() + "\n" + left.Error(), false},
	} {
		if err := startError(tt.err, tt.closing); err.Error() != tt.want || errors.Is(err, context.Canceled) != tt.stopped {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}
