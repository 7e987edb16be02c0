package server_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestAskedTimeout: a client may give its request less time than the server does, and no more.
func TestAskedTimeout(t *testing.T) {
	t.Parallel()
	var left atomic.Int64 // that a write has, in nanoseconds
	s := servertest.New(t, func(s *server.Server) {
		s.API.Admission = []registry.Admission[unstructured.Unstructured]{registry.AdmissionFunc[unstructured.Unstructured](func(ctx context.Context, _ *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
			deadline, _ := ctx.Deadline()
			left.Store(int64(time.Until(deadline)))
			if time.Until(deadline) > time.Second {
				return pass, nil
			}
			<-ctx.Done()
			return pass, ctx.Err()
		})}
	})
	for _, test := range []struct {
		timeout string
		code    int
		most    time.Duration
	}{
		{"1ms", 504, time.Millisecond}, {"20s", 201, 20 * time.Second}, {"5h", 201, 34 * time.Second}, {"0s", 201, 34 * time.Second}, {"-3s", 201, 34 * time.Second}, {"soon", 400, 0},
	} {
		left.Store(0)
		res, body := s.Do("POST", "/api/v1/namespaces/default/configmaps?dryRun=All&timeout="+test.timeout, `{"metadata":{"name":"a"}}`)
		got := time.Duration(left.Load())
		if res.StatusCode != test.code || got > test.most {
			t.Errorf("timeout=%s: %s with %v, want %d with at most %v: %s", test.timeout, res.Status, got, test.code, test.most, body)
		}
	}
}

// TestEndedRequest: a request whose time is over is told so in kube-apiserver's words, and that a write may have happened alone if it may have.
func TestEndedRequest(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(configMaps, "metadata: {name: a}")
	const want = `"message":"Timeout: request did not complete within the allotted timeout"`
	for _, ask := range []struct{ method, path, body string }{
		{"GET", configMaps + "/a", ""}, {"GET", configMaps, ""}, {"GET", "/version", ""}, {"GET", "/none", ""}, {"POST", configMaps, `{"metadata":{"name":"b"}}`},
	} {
		if res, body := s.Do(ask.method, ask.path+"?timeout=1ns", ask.body); res.StatusCode != 504 || !strings.Contains(body, want) {
			t.Errorf("%s %s: %s, want 504 with %s: %s", ask.method, ask.path, res.Status, want, body)
		}
	}
	if res, body := s.Do("GET", configMaps+"/b", ""); res.StatusCode != 404 {
		t.Errorf("what ended before it was written: %s: %s", res.Status, body)
	}
}
