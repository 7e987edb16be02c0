package server_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"

func allKinds(s *server.Server) { s.API.Builtin = builtin.All }

// endpoints returns where default/kubernetes leads to, by the name of the EndpointSlice.
func endpoints(t *testing.T, s *servertest.Server, headers ...string) map[string][]string {
	t.Helper()
	_, text := s.Do(http.MethodGet, slicesPath+"?labelSelector="+discoveryv1.LabelServiceName+"%3Dkubernetes", "", headers...)
	all := map[string][]string{}
	for _, slice := range decode[discoveryv1.EndpointSliceList](t, text).Items {
		for _, e := range slice.Endpoints {
			for _, p := range slice.Ports {
				all[slice.Name] = append(all[slice.Name], net.JoinHostPort(e.Addresses[0], fmt.Sprint(*p.Port)))
			}
		}
	}
	return all
}

// awaitEndpoints waits until default/kubernetes leads to these replicas, to each one once, and to nothing else.
func awaitEndpoints(t *testing.T, s *servertest.Server, replicas []*servertest.Server) {
	t.Helper()
	var want []string
	for _, r := range replicas {
		want = append(want, strings.TrimPrefix(r.URL, "http://"))
	}
	slices.Sort(want)
	until(t, fmt.Sprintf("default/kubernetes leads to %v", want), func() bool {
		var got []string
		for _, at := range endpoints(t, s) {
			got = append(got, at...)
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// TestReplicasAreListed: default/kubernetes leads to each replica while it runs, whichever of them acts.
func TestReplicasAreListed(t *testing.T) {
	all := newReplicas(t, 3, allKinds)
	awaitEndpoints(t, all[0], all)
	foreign := `{"metadata":{"name":"kubernetes-mine","labels":{"kubernetes.io/service-name":"other"}},"addressType":"IPv4","endpoints":[{"addresses":["10.1.0.1"]}]}`
	if res, text := all[0].Do(http.MethodPost, slicesPath, foreign, "Content-Type", "application/json"); res.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s", res.Status, text)
	}
	for len(all) > 1 {
		// By turns one that doesn't act, and the one that does.
		at := (leader(t, all) + len(all)) % 2
		if err := all[at].Close(); err != nil {
			t.Error(err)
		}
		all = append(all[:at:at], all[at+1:]...)
		awaitEndpoints(t, all[0], all)
	}
	if at := endpoints(t, all[0]); len(at["kubernetes"]) != 1 || len(at) != 1 {
		t.Errorf("the last one is listed as %v", at)
	}
	all[0].Get(slicesPath + "/kubernetes-mine")
	if service := decode[corev1.Service](t, all[0].Get("/api/v1/namespaces/default/services/kubernetes")); service.Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("the service is %+v", service.Spec)
	}
}

// TestReplicasOfOnePort: replicas at the same port of different addresses are in one EndpointSlice, as in Kubernetes.
func TestReplicasOfOnePort(t *testing.T) {
	shared := overOneEtcd(t)
	first := servertest.New(t, shared, allKinds)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(first.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	second := servertest.New(t, shared, allKinds, func(s *server.Server) { s.Serving.Listen = "127.0.0.2:" + port })
	awaitEndpoints(t, second, []*servertest.Server{first, second})
	want := []string{"127.0.0.1:" + port, "127.0.0.2:" + port}
	if at := endpoints(t, second); len(at) != 1 || !slices.Equal(at["kubernetes"], want) {
		t.Errorf("they're listed as %v, want %v", at, want)
	}
}

// TestReplicaAtAllAddresses: a replica that listens on all addresses is listed with one at which others reach it.
func TestReplicaAtAllAddresses(t *testing.T) {
	ip, err := utilnet.ChooseHostInterface()
	if err != nil {
		t.Fatalf("this test needs a default route, whose interface has the address that others reach (%v): give the machine one, or leave the test out with -skip '^TestReplicaAtAllAddresses$'", err)
	}
	token := "secret-of-this-test"
	s := servertest.New(t, overOneEtcd(t), allKinds, func(s *server.Server) { s.Serving.Listen, s.Token = "0.0.0.0:0", token })
	until(t, "the replica is listed as "+ip.String(), func() bool {
		at := endpoints(t, s, "Authorization", "Bearer "+token)["kubernetes"]
		return len(at) == 1 && strings.HasPrefix(at[0], net.JoinHostPort(ip.String(), ""))
	})
}
