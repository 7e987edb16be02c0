package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutantsApply: every mutant still applies to the sources, and its tests are there.
func TestMutantsApply(t *testing.T) {
	all, err := read(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("there are no mutants")
	}
	for _, m := range all {
		changed, err := m.apply("..")
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, changed, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		tests := testsOf(t, filepath.Join("..", m.pkg))
		for _, name := range m.tests {
			if !bytes.Contains(tests, []byte("\nfunc "+name+"(t *testing.T)")) {
				t.Errorf("%s: %s has no %s", m.name, m.pkg, name)
			}
		}
	}
}

// testsOf returns the text of a package's tests.
func testsOf(t *testing.T, dir string) (all []byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, '\n'), text...)
	}
	return all
}

// TestRun tries mutants of a small module: the one that a test catches is in the table, and the others are failures, by name.
func TestRun(t *testing.T) {
	files := map[string]string{
		"go.mod":       "module example.com/scratch\n\ngo 1.26.0\n",
		"sum.go":       "package scratch\n\nfunc sum(a, b int) int {\n\treturn a + b\n}\n\nfunc product(a, b int) int {\n\treturn a * b\n}\n",
		"sum_test.go":  "package scratch\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif sum(2, 2) != 4 {\n\t\tt.Error(sum(2, 2))\n\t}\n\t_ = product(2, 2)\n}\n",
		"away.mutant":  "-- is --\n\treturn a - b\n-- becomes --\n\treturn 0\n",
		"build.mutant": "-- is --\n\treturn a + b\n-- becomes --\n\treturn c\n",
		"less.mutant":  "-- is --\n\treturn a + b\n-- becomes --\n\treturn a - b\n",
		"lives.mutant": "-- is --\n\treturn a * b\n-- becomes --\n\treturn a / b\n",
	}
	t.Chdir(t.TempDir())
	if err := os.Mkdir("mutants", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if strings.HasSuffix(name, extension) {
			name, text = filepath.Join("mutants", name), "promise: It can count.\nfile: sum.go\ntest: . TestSum\n"+text
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	err := run(t.Context(), nil, &out)
	if err == nil {
		t.Fatalf("no mutant survived:\n%s", &out)
	}
	for _, want := range []string{"3 of 4 weren't caught", "away: it no longer applies", "build: no test failed, but the run did", "undefined: c", "lives: TestSum passes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it doesn't say %q:\n%v", want, err)
		}
	}
	if want := "less   It can count.  TestSum\n"; !strings.Contains(out.String(), want) {
		t.Errorf("the table has no line %q:\n%s", want, &out)
	}
}
