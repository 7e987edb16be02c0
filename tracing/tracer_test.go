package tracing

import (
	"strings"
	"testing"
)

// TestParse: what a file gets wrong is named.
func TestParse(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n"
	for _, tc := range []struct{ name, text, want string }{
		{"all of it", head + "endpoint: unix:///run/otel.sock\nsamplingRatePerMillion: 1000000\n", ""},
		{"nothing but its kind", head, ""},
		{"another kind", "apiVersion: apiserver.config.k8s.io/v1\nkind: Tracing\n", `kind is "Tracing"`},
		{"another version", "apiVersion: apiserver.config.k8s.io/v2\nkind: TracingConfiguration\n", `apiVersion is "apiserver.config.k8s.io/v2"`},
		{"a field too many", head + "samplingRate: 1\n", `unknown field "samplingRate"`},
		{"a field twice", head + "endpoint: a:1\nendpoint: b:1\n", "line 4"},
		{"no YAML", head + "a: b: c\n", "line 3"},
		{"a rate that is none", head + "samplingRatePerMillion: 1000001\n", "samplingRatePerMillion: Invalid value: 1000001"},
		{"a rate below none", head + "samplingRatePerMillion: -1\n", "samplingRatePerMillion: Invalid value: -1"},
		{"no endpoint of gRPC", head + "endpoint: http://localhost:4317\n", "unsupported scheme: http"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse([]byte(tc.text))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("the error is %v, want one with %q", err, tc.want)
			}
		})
	}
}

// TestRouteOf: names aren't in the names of spans.
func TestRouteOf(t *testing.T) {
	for _, tc := range []struct{ path, namespace, name, want string }{
		{"/api/v1/namespaces/api/pods/pods/status", "api", "pods", "/api/v1/namespaces/{:namespace}/pods/{:name}/status"},
		{"/api/v1/namespaces/shop", "", "shop", "/api/v1/namespaces/{:name}"},
		{"/apis/example.com/v1/widgets", "", "", "/apis/example.com/v1/widgets"},
	} {
		if got := routeOf(tc.path, tc.namespace, tc.name); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.path, got, tc.want)
		}
	}
}
