package e2e

import (
	"net/http"
	"strings"
	"testing"
)

const faultsPath = "/apiserver-lite/v1/faults"

// TestFaults: the program fails on purpose only if the flag says so, and says that in its log and its metrics. A restart has no rules.
func TestFaults(t *testing.T) {
	t.Parallel()
	p := start(t, "--ephemeral")
	p.do(http.StatusNotFound, "PUT", faultsPath+"/a", `{"times": 1, "status": {"code": 503}}`)
	if metrics := p.do(http.StatusOK, "GET", "/metrics", "").body; !strings.Contains(metrics, "\napiserver_lite_faults_on 0\n") || !strings.Contains(metrics, "\napiserver_lite_fake_clock_on 0\n") {
		t.Error("the metrics don't say that there are no faults, and that the clock goes")
	}
	if strings.Contains(p.stderr.String(), "FAULTS") {
		t.Errorf("the log speaks of faults:\n%s", p.stderr)
	}
	p.stop()

	data := t.TempDir()
	for range 2 {
		p = start(t, "--data-dir="+data, "--faults")
		if !strings.Contains(p.stderr.String(), "FAULTS ARE ON") {
			t.Errorf("the log doesn't say that there are faults:\n%s", p.stderr)
		}
		if rules := p.do(http.StatusOK, "GET", faultsPath, "").body; rules != `{"items":[]}`+"\n" {
			t.Errorf("the rules of a start are %s", rules)
		}
		p.do(http.StatusCreated, "PUT", faultsPath+"/a", `{"times": 1, "match": {"names": ["default"]}, "status": {"code": 504}}`)
		p.do(http.StatusGatewayTimeout, "GET", "/api/v1/namespaces/default", "")
		p.do(http.StatusOK, "GET", "/api/v1/namespaces/default", "")
		if metrics := p.do(http.StatusOK, "GET", "/metrics", "").body; !strings.Contains(metrics, "\napiserver_lite_faults_on 1\n") || !strings.Contains(metrics, `apiserver_lite_faults_total{fault="status"} 1`) {
			t.Error("the metrics don't say that there was a fault")
		}
		p.stop()
	}
}

// TestFaultsEnd: requests that wait on purpose don't hold up the end of the program.
func TestFaultsEnd(t *testing.T) {
	t.Parallel()
	p := launch(t, run{args: []string{"--ephemeral"}, env: []string{"APISERVER_LITE_FAULTS=true"}}).ready()
	p.do(http.StatusCreated, "PUT", faultsPath+"/late", `{"match": {"names": ["default"]}, "delay": {"mean": "1m"}}`)
	for range 8 {
		go func() {
			if res, err := http.Get(p.url + "/api/v1/namespaces/default"); err == nil { // or the connection was closed
				res.Body.Close()
			}
		}()
	}
	eventually(t, "the requests wait", func() bool {
		return strings.Count(p.do(http.StatusOK, "GET", "/apiserver-lite/v1/faultlog", "").body, "delay 1m0s") == 8
	})
	p.stop()
}

// TestFaultsAsKubeAPIServer: a suite for envtest has faults by the environment.
func TestFaultsAsKubeAPIServer(t *testing.T) {
	t.Parallel()
	k := newKubeAPIServer(t)
	k.start([]string{"APISERVER_LITE_FAULTS=true"})
	for _, step := range []struct {
		method, path, body string
		code               int
	}{
		{"PUT", faultsPath + "/a", `{"times": 1, "match": {"resources": ["pods"]}, "status": {"code": 503}}`, http.StatusCreated},
		{"GET", "/api/v1/pods", "", http.StatusServiceUnavailable},
		{"GET", "/api/v1/pods", "", http.StatusOK},
	} {
		if res, body, err := k.send(&k.client, step.method, step.path, step.body); err != nil || res.StatusCode != step.code {
			t.Fatalf("%s %s: %v, want %d: %s", step.method, step.path, err, step.code, body)
		}
	}
}
