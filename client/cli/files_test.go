package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// configMap is an object as get -o json prints it.
func configMap(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"app":"shop"}}}`, name)
}

// TestFilesWithSeveral: each object of a file is applied, compared and deleted, however they're told apart, and nothing that can't be read is passed over.
func TestFilesWithSeveral(t *testing.T) {
	s := serve(t)
	for _, tt := range []struct{ name, text, refused string }{
		{"lines of JSON", configMap("a") + "\n" + configMap("b") + "\n", ""},
		{"JSON without a space", configMap("a") + configMap("b"), ""},
		{"JSON over lines", strings.ReplaceAll(configMap("a")+configMap("b"), `"metadata"`, "\n\t\"metadata\""), ""},
		{"a List", `{"apiVersion":"v1","kind":"List","items":[` + configMap("a") + "," + configMap("b") + "]}", ""},
		{"the end of a document", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: shop}}\n...\n" + configMap("b"), ""},
		{"garbage behind JSON", configMap("a") + "\n}}}\n", "objects.yaml: line 2: "},
		{"a second object in braces", configMap("a") + "\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b}} {}", "objects.yaml: line 2: something follows"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "objects.yaml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, command := range []struct {
				args, out string // a part
				code      int
			}{
				{"diff", "b", 1},
				{"apply", "configmaps/a applied\nconfigmaps/b applied\n", 0},
				{"apply --prune -l app=shop", "configmaps/a applied\nconfigmaps/b applied\n", 0},
				{"delete", "configmaps/a deleted\nconfigmaps/b deleted\n", 0},
			} {
				if tt.refused != "" {
					command.code, command.out = 2, ""
				}
				got := invoke(t, s.URL, "", append(strings.Fields(command.args), "-f", file)...)
				if got.code != command.code || !strings.Contains(got.out, command.out) || !strings.Contains(got.stderr, tt.refused) || tt.refused != "" && got.out != "" {
					t.Errorf("%s: exit %d\n%s%s", command.args, got.code, got.out, got.stderr)
				}
			}
		})
	}
}

// TestOthersGoOn: what can't be done for one object is said and done for the others, unless the server can't be reached.
func TestOthersGoOn(t *testing.T) {
	s := serve(t)
	missing := `{"apiVersion":"v1","kind":"Gizmo","metadata":{"name":"g"}}`
	for _, tt := range []struct {
		name, args, input string
		out               string   // exactly
		stderr            []string // parts of lines, in their order
	}{
		{"apply", "apply -f -", missing + configMap("a") + configMap("UPPER") + configMap("c"), "configmaps/a applied\nconfigmaps/c applied\n", []string{"no Gizmo", "UPPER"}},
		{"apply --prune", "apply --prune -l app=shop -f -", strings.ReplaceAll(missing, `"name"`, `"labels":{"app":"shop"},"name"`) + configMap("a"), "configmaps/a applied\n", []string{"no Gizmo"}},
		{"get of names", "get configmaps x a y c -o name", "", "configmaps/a\nconfigmaps/c\n", []string{`"x" not found`, `"y" not found`}},
		{"get of columns", "get configmaps x a c -o custom-columns=N:.metadata.name", "", "N\na\nc\n", []string{`"x" not found`}},
		{"get of a table without any", "get configmaps x y", "", "", []string{`"x" not found`, `"y" not found`}},
		{"get of columns without any", "get configmaps x -o custom-columns=N:.metadata.name", "", "", []string{`"x" not found`}},
		{"delete of names", "delete configmaps x a y", "", "configmaps/a deleted\n", []string{`"x" not found`, `"y" not found`}},
		{"delete -f", "delete -f -", missing + configMap("a") + configMap("c"), "configmaps/c deleted\n", []string{"no Gizmo", `"a" not found`}},
		{"a server that's away", "delete configmaps x a --server http://127.0.0.1:1", "", "", []string{"connection refused"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := invoke(t, s.URL, tt.input, strings.Fields(tt.args)...)
			lines := strings.Split(strings.TrimSuffix(got.stderr, "\n"), "\n")
			if got.code != 1 || got.out != tt.out || len(lines) != len(tt.stderr) {
				t.Fatalf("exit %d\n%s%s, want 1\n%s and %q", got.code, got.out, got.stderr, tt.out, tt.stderr)
			}
			for i, part := range tt.stderr {
				if !strings.HasPrefix(lines[i], "apiserver-lite: ") || !strings.Contains(lines[i], part) {
					t.Errorf("line %d is %q, want %q in it", i, lines[i], part)
				}
			}
		})
	}
	mustInvoke(t, s.URL, configMap("d"), "apply", "-f", "-")
	if table := invoke(t, s.URL, "", "get", "configmaps", "x", "d"); table.code != 1 || !strings.Contains(table.out, "\nd ") || !strings.Contains(table.stderr, `"x" not found`) {
		t.Errorf("a table: exit %d\n%s%s", table.code, table.out, table.stderr)
	}
}
