package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
)

func TestNegotiate(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, tc := range []struct {
		name   string
		accept []string
		by     negotiation.Accepter
		want   negotiation.Media // "": 406
	}{
		{"no header", nil, negotiation.Object, negotiation.JSON},
		{"empty", []string{""}, negotiation.Object, negotiation.JSON},
		{"anything", []string{"*/*"}, negotiation.Object, negotiation.JSON},
		{"any application", []string{"application/*"}, negotiation.Object, negotiation.JSON},
		{"json", []string{"application/json"}, negotiation.Object, negotiation.JSON},
		{"json with charset", []string{"application/json; charset=utf-8"}, negotiation.Object, negotiation.JSON},
		{"upper case", []string{"Application/JSON"}, negotiation.Object, negotiation.JSON},
		{"yaml", []string{"application/yaml"}, negotiation.Object, negotiation.YAML},
		{"first wins", []string{"application/yaml, application/json"}, negotiation.Object, negotiation.YAML},
		{"q wins over order", []string{"application/yaml;q=0.5, application/json;q=0.9"}, negotiation.Object, negotiation.JSON},
		{"several headers", []string{"text/html", "application/yaml"}, negotiation.Object, negotiation.YAML},
		{"q zero is a refusal", []string{"application/json;q=0"}, negotiation.Object, ""},
		{"bad q", []string{"application/json;q=x"}, negotiation.Object, ""},
		{"browser", []string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, negotiation.Object, negotiation.JSON},
		{"kubectl: Table falls through", []string{table + "," + strings.Replace(table, "v=v1", "v=v1beta1", 1) + ",application/json"}, negotiation.Object, negotiation.JSON},
		{"Table only", []string{table}, negotiation.Object, ""},
		{"protobuf then json", []string{"application/vnd.kubernetes.protobuf,application/json"}, negotiation.Object, negotiation.JSON},
		{"protobuf only", []string{"application/vnd.kubernetes.protobuf"}, negotiation.Object, ""},
		{"protobuf where there is some", []string{"application/vnd.kubernetes.protobuf,application/json"}, negotiation.Message, negotiation.Protobuf},
		{"json before protobuf", []string{"application/json, application/vnd.kubernetes.protobuf"}, negotiation.Message, negotiation.JSON},
		{"protobuf with a lower q", []string{"application/vnd.kubernetes.protobuf;q=0.5, application/json;q=0.9"}, negotiation.Message, negotiation.JSON},
		{"protobuf in another form", []string{"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"}, negotiation.Message, ""},
		{"aggregated discovery as protobuf", []string{string(negotiation.AggregatedProtobuf) + "," + string(negotiation.AggregatedJSON)}, negotiation.Discovery, negotiation.AggregatedProtobuf},
		{"html only", []string{"text/html"}, negotiation.Object, ""},
		{"garbage", []string{"///;;;,,="}, negotiation.Object, ""},
		{"yaml where only json is", []string{"application/yaml"}, negotiation.OnlyJSON, ""},
		{"yaml or json where only json is", []string{"application/yaml, application/json"}, negotiation.OnlyJSON, negotiation.JSON},
		{"aggregated discovery", []string{string(negotiation.AggregatedJSON) + ",application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"}, negotiation.Discovery, negotiation.AggregatedJSON},
		{"older aggregated discovery", []string{"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"}, negotiation.Discovery, negotiation.JSON},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := negotiation.Negotiate(tc.accept, tc.by)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("negotiation.Negotiate(%q) = %q, %v, want %q", tc.accept, got, err, tc.want)
			}
		})
	}
}

func TestNegotiateBoundsClauses(t *testing.T) {
	header := strings.Repeat("text/html,", 10*negotiation.MaxClauses) + "application/yaml"
	if got := len(negotiation.Parse([]string{header})); got != negotiation.MaxClauses {
		t.Errorf("%d clauses were kept, want %d", got, negotiation.MaxClauses)
	}
}

func TestWantsPretty(t *testing.T) {
	for _, tc := range []struct {
		name, query, agent string
		want               bool
	}{
		{"program", "", "kubectl/v1.37.0", false},
		{"curl", "", "curl/8.5.0", true},
		{"wget", "", "Wget/1.21", true},
		{"browser", "", "Mozilla/5.0 (X11; Linux)", true},
		{"asked for", "pretty=true", "Go-http-client/1.1", true},
		{"asked for without a value", "pretty", "Go-http-client/1.1", false},
		{"asked for by curl without a value", "pretty", "curl/8.5.0", true},
		{"turned off", "pretty=false", "curl/8.5.0", false},
		{"turned off by number", "pretty=0", "curl/8.5.0", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/?"+tc.query, nil)
			r.Header.Set("User-Agent", tc.agent)
			w := &response{ResponseWriter: httptest.NewRecorder()}
			if got := w.wantsPretty(r); got != tc.want {
				t.Errorf("wantsPretty = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestYAMLAnswersAreBounded(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 5000) + "[" + strings.Repeat("1,", 100_000) + "1]" + strings.Repeat("}", 5000)
	w := &response{capacity: &capacity{yaml: bound{Level: fair.NewLevel(fair.Limits{Most: 1, PerFlow: 9, Waiting: 9})}}}
	if _, err := w.toYAML(t.Context(), []byte(deep)); err == nil {
		t.Error("a document whose indentation alone is a gigabyte was turned into YAML")
	}
	if got, err := w.toYAML(t.Context(), []byte(`{"b":[1,2.5,"x"],"a":{}}`)); err != nil || string(got) != "a: {}\nb:\n- 1\n- 2.5\n- x\n" {
		t.Errorf("toYAML = %q, %v", got, err)
	}
	large := []byte(`["` + strings.Repeat("x", largeYAML) + `"]`)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	turn, err := w.capacity.yaml.Enter(t.Context(), fair.Flow{}, 1, 0) // somebody else's
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.toYAML(gone, large); !errors.Is(err, context.Canceled) {
		t.Errorf("a second large document was turned into YAML at the same time: %v", err)
	}
	if _, err := w.toYAML(gone, []byte(`{}`)); err != nil {
		t.Errorf("a small one has to wait: %v", err)
	}
	rec := httptest.NewRecorder()
	write := &response{ResponseWriter: rec, capacity: &capacity{yaml: w.capacity.yaml, large: bound{Level: fair.NewLevel(fair.Limits{Most: 1})}}}
	write.writeObject(httptest.NewRequest(http.MethodPut, "/", nil).WithContext(gone), http.StatusOK, negotiation.YAML, large)
	if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != string(negotiation.YAML) || rec.Body.Len() < len(large) {
		t.Errorf("a write that has happened is answered %d %.100s", rec.Code, rec.Body)
	}
	turn.Leave()
	for range 2 {
		if _, err := w.toYAML(t.Context(), large); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.toYAML(t.Context(), []byte(`["`+strings.Repeat("x", maxYAMLSource)+`"]`)); err == nil {
		t.Error("a document that is too large was turned into YAML")
	}
}

func TestWarnings(t *testing.T) {
	rec := httptest.NewRecorder()
	w := &response{ResponseWriter: rec}
	w.warn([]string{"plain", "plain", `a "quoted" \ one`, "line\r\nX-Evil: 1", strings.Repeat("x", 10_000)})
	got := rec.Header().Values("Warning")
	want := []string{`299 - "plain"`, `299 - "a \"quoted\" \\ one"`, `299 - "` + strings.Repeat("x", 256) + `"`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("Warning headers are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// FuzzNegotiate looks for headers that panic, or lead to a form that wasn't offered.
func FuzzNegotiate(f *testing.F) {
	for _, header := range []string{"*/*", "application/json;q=0.1, application/yaml", string(negotiation.AggregatedJSON), "application/yaml;as=Table;v=v1;g=meta.k8s.io, application/json", "*/*;as=Table;v=v1beta1;g=meta.k8s.io", `a/b;x="y,z"`, ";q=NaN,,", "application/json;q=1e999"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got, err := negotiation.Negotiate([]string{header}, negotiation.Discovery)
		if (err == nil) != (got == negotiation.JSON || got == negotiation.YAML || got == negotiation.Protobuf || got == negotiation.AggregatedJSON || got == negotiation.AggregatedProtobuf) {
			t.Errorf("negotiation.Negotiate(%q) = %q, %v", header, got, err)
		}
		custom := target{endpoint: &registry.Endpoint{}}
		got, wanted, err := custom.negotiateForm([]string{header}, negotiation.OnlyJSON, oneMetadata)
		if (err == nil) != (got == negotiation.JSON || got == negotiation.Protobuf) || (wanted == form.Form{}) != (wanted.Kind == form.Whole) ||
			err != nil && wanted.Kind != form.Whole || (got == negotiation.Protobuf) != (wanted.Encoding == form.Protobuf) {
			t.Errorf("negotiateForm(%q) = %q, %+v, %v", header, got, wanted, err)
		}
	})
}
