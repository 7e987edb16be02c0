package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const redAndBlue = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: blue, labels: {app: shop}}, spec: {color: blue, size: 1000000}}
---
{apiVersion: example.com/v1, kind: Widget, metadata: {name: red, labels: {app: shop}}, spec: {color: red, size: 3}}
`

// mustInvoke runs a command that ends with exit code 0, and returns its output.
func mustInvoke(t *testing.T, server, input string, args ...string) string {
	t.Helper()
	got := invoke(t, server, input, args...)
	if got.code != 0 {
		t.Fatalf("%q: exit %d, %s", args, got.code, got.stderr)
	}
	return got.out
}

// TestForms: what get prints with -o is what kubectl prints.
func TestForms(t *testing.T) {
	s := serve(t)
	mustInvoke(t, s.URL, "", "apply", "-f", widgets)
	mustInvoke(t, s.URL, redAndBlue, "apply", "-f", "-")
	for _, tt := range []struct {
		args   []string
		code   int
		out    string // exactly
		stderr string // a part
	}{
		{[]string{"widgets", "red", "-o", "jsonpath={.spec.color}{.spec.none}"}, 0, "red", ""},
		{[]string{"widgets", "-o", `jsonpath={range .items[*]}{.metadata.name}={.spec.size}{"\n"}{end}`}, 0, "blue=1000000\nred=3\n", ""},
		{[]string{"widgets", "red", "blue", "-o", "jsonpath={.items[*].metadata.name}"}, 0, "red blue", ""},
		{[]string{"widgets", "-o", "custom-columns=NAME:.metadata.name,SIZE:{.spec.size},PHASE:status.phase"}, 0, "NAME   SIZE      PHASE\nblue   1000000   <none>\nred    3         <none>\n", ""},
		{[]string{"widgets", "red", "-o", "jsonpath"}, 2, "", "need one"},
		{[]string{"widgets", "red", "-o", "json=x"}, 2, "", "take a text"},
		{[]string{"widgets", "red", "-o", "jsonpath={.a"}, 2, "", "-o jsonpath"},
		{[]string{"widgets", "-o", "custom-columns=NAME"}, 2, "", "HEADER:PATH"},
		{[]string{"widgets", "-o", "custom-columns=A:.b["}, 2, "", "A:.b["},
		{[]string{"widgets", "red", "blue", "-w"}, 2, "", "-w watches one object"},
		{[]string{"widgets", "-w", "--sort-by", "spec.size"}, 2, "", "--sort-by and -w"},
		{[]string{"widgets", "--fields", "spec.size", "-o", "name"}, 2, "", "--fields is for"},
	} {
		got := invoke(t, s.URL, "", append([]string{"get"}, tt.args...)...)
		if got.code != tt.code || got.out != tt.out || !strings.Contains(got.stderr, tt.stderr) {
			t.Errorf("%q: exit %d\n%q%s; want %d\n%q%s", tt.args, got.code, got.out, got.stderr, tt.code, tt.out, tt.stderr)
		}
	}
	yaml := mustInvoke(t, s.URL, "", "get", "widgets", "-o", "yaml")
	if !strings.HasPrefix(yaml, "---\napiVersion: example.com/v1\nkind: Widget\n") || strings.Count(yaml, "---\n") != 2 || !strings.Contains(yaml, "\n  size: 1000000\n") {
		t.Errorf("as YAML it's\n%s", yaml)
	}
}

// TestGetWatch: -w prints what there is and then what changes, in each form.
func TestGetWatch(t *testing.T) {
	for _, tt := range []struct {
		form  string
		first []string // lines before anything changes
		then  []string // after red is made green, and blue is deleted
	}{
		{"name", []string{"widgets.example.com/blue", "widgets.example.com/red"}, []string{"widgets.example.com/red", "widgets.example.com/blue"}},
		{"table", []string{"NAME COLOR SIZE AGE", "blue blue 1000000", "red red 3"}, []string{"red green 4", "blue blue 1000000"}},
		{"custom-columns=COLOR:.spec.color", []string{"COLOR", "blue", "red"}, []string{"green", "blue"}},
		{`jsonpath={.spec.color}{"\n"}`, []string{"blue", "red"}, []string{"green", "blue"}},
	} {
		t.Run(tt.form, func(t *testing.T) {
			s := serve(t)
			mustInvoke(t, s.URL, "", "apply", "-f", widgets)
			mustInvoke(t, s.URL, redAndBlue, "apply", "-f", "-")
			w := startLines(t, "get", "widgets", "-w", "-o", tt.form, "--server", s.URL)
			w.expect(t, tt.first)
			mustInvoke(t, s.URL, strings.ReplaceAll(strings.SplitAfter(redAndBlue, "---\n")[1], "color: red, size: 3", "color: green, size: 4"), "apply", "-f", "-")
			w.expect(t, tt.then[:1])
			mustInvoke(t, s.URL, "", "delete", "widgets", "blue")
			w.expect(t, tt.then[1:])
			if end := w.stop(); end.code != 0 || end.stderr != "" {
				t.Errorf("it ended with %d, %q", end.code, end.stderr)
			}
		})
	}
}

// expect waits for lines that begin as these do, however wide the gaps are.
func (w *watching) expect(t *testing.T, lines []string) {
	t.Helper()
	timeout := time.After(patience)
	for _, want := range lines {
		select {
		case line := <-w.lines:
			if got := strings.Join(strings.Fields(line), " "); !strings.HasPrefix(got, want) {
				t.Errorf("it printed %q, want %q", got, want)
			}
		case <-timeout:
			t.Fatalf("%q doesn't come", want)
		}
	}
}

// TestDiff: what would change is printed, nothing is stored, and the exit code says which.
func TestDiff(t *testing.T) {
	s := serve(t)
	definition, err := os.ReadFile(widgets)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(string(definition)+"---\n"+redAndBlue), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, s.URL, "", "diff", "-f", file)
	if got.code != 1 || !strings.Contains(got.out, "--- live/Widget/red\n+++ applied/Widget/red\n") || !strings.Contains(got.out, "+  color: red\n") || !strings.Contains(got.stderr, "3 objects would change") {
		t.Errorf("of what isn't there: exit %d\n%s%s", got.code, got.out, got.stderr)
	}
	mustInvoke(t, s.URL, "", "apply", "-f", file)
	if out := mustInvoke(t, s.URL, "", "diff", "-f", file); out != "" {
		t.Errorf("of what was applied: %s", out)
	}
	got = invoke(t, s.URL, strings.ReplaceAll(redAndBlue, "color: red, size: 3", "color: red"), "diff", "-f", "-")
	if want := "--- live/Widget/red\n+++ applied/Widget/red\n@@ -7,4 +7,3 @@\n   namespace: default\n spec:\n   color: red\n-  size: 3\n"; got.code != 1 || got.out != want {
		t.Errorf("of a field less: exit %d\n%s%s; want\n%s", got.code, got.out, got.stderr, want)
	}
	if got := mustInvoke(t, s.URL, "", "get", "widgets", "red", "-o", "jsonpath={.spec.size}"); got != "3" {
		t.Errorf("the size is %s after a diff", got)
	}
	const secret = `{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: first, b: hidden}}`
	mustInvoke(t, s.URL, secret, "apply", "-f", "-")
	got = invoke(t, s.URL, strings.ReplaceAll(secret, "first", "second"), "diff", "-f", "-")
	if got.code != 1 || !strings.Contains(got.out, "-  a: '*** (before)'\n+  a: '*** (after)'\n") || strings.Contains(got.out, "c2Vjb25k") || strings.Contains(got.out, "second") || !strings.Contains(got.out, "\n   b: '***'\n") {
		t.Errorf("of a Secret: exit %d\n%s%s", got.code, got.out, got.stderr)
	}
	for args, want := range map[string]string{"diff -f nowhere": "nowhere", "diff": "which file", "diff x -f -": "unexpected", "diff -f - --server http://127.0.0.1:1": "refused"} {
		if got := invoke(t, s.URL, redAndBlue, strings.Fields(args)...); got.code != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit %d, %s", args, got.code, got.stderr)
		}
	}
}

// TestPrune: what apply made before and is in no file any more goes, and nothing else.
func TestPrune(t *testing.T) {
	s := serve(t)
	mustInvoke(t, s.URL, "", "apply", "-f", widgets)
	red := strings.SplitAfter(redAndBlue, "---\n")[1]
	others := `{apiVersion: v1, kind: ConfigMap, metadata: {name: gone, labels: {app: shop}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: gone, labels: {app: shop}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: elsewhere, namespace: kube-public, labels: {app: shop}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, labels: {app: other}}}
`
	mustInvoke(t, s.URL, redAndBlue+"---\n"+others, "apply", "-f", "-")
	s.Do("POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"created","labels":{"app":"shop"}}}`)
	want := []string{"widgets.example.com/red applied", "configmaps/gone pruned", "widgets.example.com/blue pruned"}
	for _, dry := range []string{"--dry-run=server", "--dry-run=none"} {
		out, said := mustInvoke(t, s.URL, red, "apply", "--prune", "-l", "app=shop", "-f", "-", dry), "\n"
		if dry == "--dry-run=server" {
			said = " (dry run)\n"
		}
		for _, line := range want {
			if !strings.Contains(out, line+said) || strings.Count(out, "\n") != len(want) {
				t.Errorf("%s: it says\n%s, want %q", dry, out, want)
				break
			}
		}
	}
	mustInvoke(t, s.URL, "", "get", "namespace", "gone")
	if left := mustInvoke(t, s.URL, "", "get", "configmaps", "-A", "-l", "app", "-o", "name"); left != "configmaps/created\nconfigmaps/other\nconfigmaps/elsewhere\n" {
		t.Errorf("there are %s", left)
	}
	for args, want := range map[string]string{
		"apply --prune -f -": "need each other", "apply -l a=b -f -": "need each other", "apply --prune -l a=( -f -": "--selector", "apply --prune -l app=other -f -": "doesn't match --selector",
		"apply -k dir": "kubectl kustomize dir |", "apply -f - --dry-run=client": "must be server or none",
	} {
		if got := invoke(t, s.URL, red, strings.Fields(args)...); got.code != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit %d, %s", args, got.code, got.stderr)
		}
	}
}

// TestPruneOutsideOfNamespaces: what is in no namespace is pruned only by files that have such an object, and what holds others' objects never.
func TestPruneOutsideOfNamespaces(t *testing.T) {
	s := serve(t)
	gauge := func(name string) string {
		return `{apiVersion: example.com/v1, kind: Gauge, metadata: {name: ` + name + `, labels: {app: shop}}}`
	}
	mustInvoke(t, s.URL, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gauges.example.com, labels: {app: shop}}
spec:
  group: example.com
  scope: Cluster
  names: {plural: gauges, singular: gauge, kind: Gauge}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {app: shop}}}
---
`+gauge("old")+"\n---\n"+gauge("new"), "apply", "-f", "-")
	for _, tt := range []struct{ name, file, out string }{
		{"a file with what is in a namespace", configMap("a"), "configmaps/a applied\n"},
		{"a file with what is in none", gauge("new"), "gauges.example.com/new applied\ngauges.example.com/old pruned\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if out := mustInvoke(t, s.URL, tt.file, "apply", "--prune", "-l", "app=shop", "-f", "-"); out != tt.out {
				t.Errorf("it says\n%s, want\n%s", out, tt.out)
			}
		})
	}
	mustInvoke(t, s.URL, "", "get", "namespace", "shop")
	mustInvoke(t, s.URL, "", "get", "crd", "gauges.example.com")
}
