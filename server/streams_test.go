package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestStreamsOfPods: who wants to get at a pod's containers is told what kube-apiserver says of a pod on no node, and of containers. Of a
// pod on a node it's told that nothing runs here.
func TestStreamsOfPods(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, allKinds)
	const pods = namespaceDefault + "pods"
	s.PostYAML(pods, "{metadata: {name: one}, spec: {containers: [{name: a, image: i}]}}")
	s.PostYAML(pods, "{metadata: {name: two}, spec: {initContainers: [{name: first, image: i}], containers: [{name: a, image: i}, {name: b, image: i}]}}")
	s.PostYAML(pods, "{metadata: {name: placed}, spec: {nodeName: node, containers: [{name: a, image: i}]}}")
	const (
		nowhere = `"message":"pod one does not have a host assigned","reason":"BadRequest"`
		choose  = `"message":"a container name must be specified for pod two, choose one of: [first a b]","reason":"BadRequest"`
		invalid = `"message":"container x is not valid for pod one","reason":"BadRequest"`
	)
	for _, tt := range []struct {
		request string
		code    int
		says    string
	}{
		{"GET one/exec?command=a", 400, nowhere},
		{"POST one/exec", 400, nowhere},
		{"GET one/attach", 400, nowhere},
		{"POST one/portforward?ports=80", 400, nowhere},
		{"GET one/log", 204, ""},
		{"GET one/exec?container=a", 400, nowhere},
		{"GET one/exec?container=x", 400, invalid},
		{"GET one/log?container=x", 400, invalid},
		{"GET one/portforward?container=x", 400, nowhere},
		{"GET two/exec", 400, choose},
		{"GET two/attach?container=first", 400, "pod two does not have a host assigned"},
		{"GET two/portforward", 400, "pod two does not have a host assigned"},
		{"GET two/log?container=b", 204, ""},
		{"GET two/log", 400, choose},
		{"GET two/log?tailLines=1&limitBytes=1&sinceSeconds=1&container=b", 204, ""},
		{"GET one/log?tailLines=-1", 422, `"message":"PodLogOptions \"one\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0"`},
		{"GET placed/log?limitBytes=0", 422, `"message":"PodLogOptions \"placed\" is invalid: limitBytes: Invalid value: 0: must be greater than 0"`},
		{"GET none/log?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422, "at most one of `sinceTime` or `sinceSeconds` may be specified"},
		{"GET one/log?stream=All", 422, "stream: Forbidden: may not be specified"},
		{"GET one/log?tailLines=x", 400, "invalid syntax"},
		{"GET one/log?sinceTime=x", 400, "cannot parse"},
		{"GET one/portforward?ports=x", 400, "cannot convert to []int32"},
		{"GET placed/exec", 404, "there is no kubelet: nothing runs on this server, so exec isn't served"},
		{"GET placed/log", 404, "there is no kubelet"},
		{"GET placed/log?container=x", 400, "container x is not valid for pod placed"},
		{"GET one/proxy", 404, "there is no kubelet"},
		{"GET none/exec", 404, `"message":"pods \"none\" not found"`},
		{"PUT one/exec", 405, "the server does not allow this method on the requested resource"},
		{"POST one/log", 405, "the server does not allow this method on the requested resource"},
	} {
		t.Run(strings.ReplaceAll(tt.request, "/", " "), func(t *testing.T) {
			method, at, _ := strings.Cut(tt.request, " ")
			res, body := s.In(t).Do(method, pods+"/"+at, "")
			if res.StatusCode != tt.code || !strings.Contains(body, tt.says) || tt.code == http.StatusNoContent && body != "" {
				t.Errorf("%s: %s", res.Status, body)
			}
		})
	}
}

// TestRightToConnect: who may only read a stream doesn't get it, and is told so before anybody looks for the pod.
func TestRightToConnect(t *testing.T) {
	t.Parallel()
	s := newRuled(t, allKinds)
	s.role("reads", "ann", "["+aRule("", "pods/exec pods/log", "get")+"]")
	s.role("connects", "bob", "["+aRule("", "pods/exec", "get create")+"]")
	s.expect("ann", "GET "+namespaceDefault+"pods/none/exec", "", http.StatusForbidden, `pods "none" is forbidden: `)
	s.expect("ann", "GET "+namespaceDefault+"pods/none/log", "", http.StatusNotFound, `pods "none" not found`)
	s.expect("bob", "GET "+namespaceDefault+"pods/none/exec", "", http.StatusNotFound, `pods "none" not found`)
}
