package suites

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
)

const (
	resultsFile = "results.json"
	page        = "../../docs/testing.md"
)

// figures are what came of a module's suites.
type figures struct {
	Version     string
	Here, There outcome // with this program, and with upstream's
}

type outcome struct {
	Ran, Passed int     // specs
	Seconds     float64 // that the tests ran, without building them
}

func (o *outcome) add(r result) {
	o.Ran, o.Passed, o.Seconds = o.Ran+r.ran, o.Passed+r.ran-len(r.failed), o.Seconds+r.took.Seconds()
}

// results reads the figures, by the modules' paths.
func results() (map[string]figures, error) {
	all := map[string]figures{}
	content, err := os.ReadFile(resultsFile)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return all, err
	}
	return all, json.Unmarshal(content, &all)
}

// note keeps the figures of a module.
func note(module string, f figures) error {
	all, err := results()
	if err != nil {
		return err
	}
	f.Here.Seconds, f.There.Seconds = math.Round(f.Here.Seconds), math.Round(f.There.Seconds)
	all[module] = f
	content, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(resultsFile, append(content, '\n'), 0o644)
}

// TestTable: docs/testing.md has the figures of all modules, at the versions that are run.
func TestTable(t *testing.T) {
	all, err := results()
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| project | specs | pass here | pass with the real pair | seconds here | seconds there |\n|---|---|---|---|---|---|\n")
	for _, m := range modules {
		f, ok := all[m.path]
		if !ok || f.Version != m.version {
			t.Errorf("%s has no figures of %s@%s: run `make suites ONLY=%s`", resultsFile, m.path, m.version, m.path)
		}
		delete(all, m.path)
		fmt.Fprintf(&want, "| %s %s | %d | %d | %d | %.0f | %.0f |\n", m.path, m.version, f.Here.Ran, f.Here.Passed, f.There.Passed, f.Here.Seconds, f.There.Seconds)
	}
	for path := range all {
		t.Errorf("%s has figures of %s, which isn't run", resultsFile, path)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/testing.md doesn't have this table:\n%s", &want)
	}
}
