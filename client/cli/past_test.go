package cli_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestPastCommands: history, diff --from and get --at print what was.
func TestPastCommands(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const configMaps = "/api/v1/namespaces/default/configmaps"
	made := s.PostYAML(configMaps, "{metadata: {name: a}, data: {k: old}}")
	var object struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(made), &object); err != nil {
		t.Fatal(err)
	}
	version := object.Metadata.ResourceVersion
	for _, patch := range []string{`{"data":{"k":"new"}}`, `{"data":{"k":null,"l":"x"}}`} {
		if r, text := s.Do(http.MethodPatch, configMaps+"/a", patch, "Content-Type", "application/merge-patch+json"); r.StatusCode != http.StatusOK {
			t.Fatal(text)
		}
	}
	s.PostYAML(configMaps, "{metadata: {name: b}}")
	secret := s.PostYAML("/api/v1/namespaces/default/secrets", `{metadata: {name: s, annotations: {kubectl.kubernetes.io/last-applied-configuration: "hidden"}}, stringData: {k: hidden}}`)
	if err := json.Unmarshal([]byte(secret), &object); err != nil {
		t.Fatal(err)
	}
	if r, text := s.Do(http.MethodPatch, "/api/v1/namespaces/default/secrets/s", `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hidden, too"}},"stringData":{"k":"other"}}`, "Content-Type", "application/merge-patch+json"); r.StatusCode != http.StatusOK {
		t.Fatal(text)
	}
	for _, c := range []struct {
		name    string
		args    []string
		code    int
		out     string // a regular expression of all of it
		errsHas string
	}{
		{"history", []string{"history", "configmap", "a"}, 0,
			`VERSION +TIME +WITHIN +WHAT +BY +CHANGES\n\d+ +\S+Z +\S+s +changed +<unknown> +-data/k \+data/l\n\d+ +\S+ +\S+s +changed +<unknown> +data/k\n` + version + ` +\S+ +\S+s +created +<unknown> +\n`, ""},
		{"one version", []string{"history", "configmap", "a", "--limit", "1"}, 0, `VERSION.*\n\d+ .* -data/k \+data/l\n`, ""},
		{"from a version", []string{"history", "configmap", "a", "--from", version}, 0, `VERSION.*\n` + version + ` .*created.*\n`, ""},
		{"json", []string{"history", "configmap", "a", "--limit", "1", "-o", "json"}, 0, `\{"resourceVersion":"\d+","time":".*Z","within":".*s","change":"changed","uid":".*","patch":\[\{"op":"remove","path":"/data/k"\},\{"op":"add","path":"/data/l","value":"x"\}\]\}\n`, ""},
		{"of nothing", []string{"history", "configmap", "never"}, 1, ``, `configmaps "never" not found`},
		{"of no name", []string{"history", "configmap"}, 2, ``, "which object?"},
		{"diff", []string{"diff", "configmap", "a", "--from", version}, 1, `--- configmaps/a@` + version + `\n\+\+\+ configmaps/a@now\n(.*\n)*-  k: old\n\+  l: x\n(.*\n)*`, "the object has changed"},
		{"diff of a part", []string{"diff", "configmap", "a", "--from", version, "--to", version}, 0, ``, ""},
		{"diff of a secret", []string{"diff", "secret", "s", "--from", object.Metadata.ResourceVersion}, 1, `(.*\n)*-  k: '?\*\*\* \(before\)'?\n\+  k: '?\*\*\* \(after\)'?\n(.*\n)*`, ""},
		{"diff of nothing", []string{"diff", "configmap", "never", "--from", version}, 2, ``, `"never" was neither there at ` + version},
		{"diff of what wasn't there", []string{"diff", "configmap", "b", "--from", version}, 1, `(.*\n)*\+  name: b\n(.*\n)*`, ""},
		{"diff --to alone", []string{"diff", "--to", version, "-f", "x"}, 2, ``, "--to goes with --from"},
		{"diff --from of files", []string{"diff", "--from", version, "-f", "x"}, 2, ``, "--from is about the past"},
		{"get", []string{"get", "configmaps", "--at", version, "-o", "name"}, 0, `configmaps/a\n(.*\n)*`, ""},
		{"get one", []string{"get", "configmap", "a", "--at", version, "-o", "jsonpath={.data.k}"}, 0, `old\n?`, ""},
		{"a table", []string{"get", "configmap", "a", "--at", version}, 0, `NAME +DATA +AGE\na +1 +.*\n`, ""},
		{"get -w", []string{"get", "configmaps", "-w", "--at", version}, 2, ``, "--at and -w exclude each other"},
		{"a bad moment", []string{"get", "configmaps", "--at", "noon"}, 2, ``, "an instant as 2026-11-23T10:00:00Z"},
		{"long ago", []string{"get", "configmaps", "--at", "24h"}, 1, ``, "history reaches back to"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := invoke(t, s.URL, "", c.args...)
			if got.code != c.code || !regexp.MustCompile(`^`+c.out+`$`).MatchString(got.out) || !strings.Contains(got.stderr, c.errsHas) || strings.Contains(got.out, "hidden") {
				t.Errorf("%q ends with %d\n%s%s\nwant %d\n%s%s", c.args, got.code, got.out, got.stderr, c.code, c.out, c.errsHas)
			}
		})
	}
}
