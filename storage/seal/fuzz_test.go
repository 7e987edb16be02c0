package seal

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzLocated: whatever is in the file and in the error, the line is one of the file's.
func FuzzLocated(f *testing.F) {
	f.Add(header+"resources:\n- resources: [secrets]\n  providers:\n  - identity: {}\n", "resources[0].providers[0].identity: no")
	f.Add("resources: &a [*a]\n", "resources[0].resources[9]")
	f.Add("- a\n- b: {c: 1}\n", "resources[1].b[0].c")
	f.Fuzz(func(t *testing.T, content, text string) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := located(path, textError(text))
		if err == nil || len(err.Error()) < len(text) {
			t.Errorf("%q became %v", text, err)
		}
	})
}

type textError string

func (e textError) Error() string { return string(e) }
