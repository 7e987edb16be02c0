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
)

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
		{"a full disk", statusError(http.StatusInsufficientStorage, metav1.StatusReasonInternalError, "deliberate"), http.StatusInsufficientStorage, 0},
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
