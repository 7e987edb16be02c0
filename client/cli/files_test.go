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
