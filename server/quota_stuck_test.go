package server_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/admission"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestQuotaOfStuckPod: a pod that is stuck in its deletion counts until its time is over, and then no more, although nothing else happens
// in its namespace.
func TestQuotaOfStuckPod(t *testing.T) {
	s := servertest.New(t, servertest.FakeClock, func(s *server.Server) {
		s.API.Builtin, s.Plugins = builtin.All, admission.Options{Enable: []string{"ResourceQuota"}}
	})
	s.PostYAML(namespaceDefault+"resourcequotas", `{metadata: {name: q}, spec: {hard: {pods: "1"}}}`)
	usedOf(t, s, "q") // it's counted before it's enforced
	const pod = `{metadata: {name: stuck, finalizers: [example.com/hold]}, spec: {nodeName: node, containers: [{name: c, image: i}]}}`
	s.PostYAML(namespaceDefault+"pods", pod)
	const grace = 10 * time.Second
	if res, text := s.Do(http.MethodDelete, namespaceDefault+"pods/stuck?gracePeriodSeconds=10", ""); res.StatusCode != http.StatusOK {
		t.Fatal(text)
	}
	for _, step := range []struct {
		what    string
		advance time.Duration
		want    string
	}{
		{"its deletion is due", grace, "1"},
		{"it should be gone by now", grace, "1"},
		{"it's stuck", time.Second, "0"},
	} {
		s.Advance(step.advance)
		if used := usedOf(t, s, "q"); string(used["pods"]) != step.want {
			t.Errorf("%s: %v, want %s", step.what, used, step.want)
		}
	}
	if code, text := post(s, namespaceDefault+"pods", "{metadata: {name: next}, spec: {containers: [{name: c, image: i}]}}"); code != http.StatusCreated {
		t.Errorf("the next pod: %d %s", code, text)
	}
}
