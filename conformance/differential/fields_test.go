package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// uncovered lists the fields that no object of the requests has which upstream takes.
const uncovered = "testdata/uncovered.txt"

// TestFields: every field of every kind's schema is in a request that upstream takes, but for those that uncovered lists.
func TestFields(t *testing.T) {
	kinds, err := readUpstream("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var list bytes.Buffer
	for _, k := range kinds {
		if k.schema == nil || !slices.Contains(k.verbs, "create") {
			continue
		}
		missing := map[string]bool{}
		k.fields("", k.schema, map[string]int{}, func(path string) { missing[path] = true })
		for _, sc := range k.scenarios() {
			taken := takenSteps(t, sc.name)
			for _, s := range sc.steps {
				var body any
				if taken[s.name] && json.Unmarshal([]byte(s.body), &body) == nil {
					covered("", k.schema, body, missing)
				}
			}
		}
		for _, path := range slices.Sorted(maps.Keys(missing)) {
			list.WriteString(k.name() + " " + path + "\n")
		}
	}
	want, err := os.ReadFile(uncovered)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if bytes.Equal(want, list.Bytes()) {
		return
	}
	if !*update {
		t.Fatalf("%s isn't what the requests leave out: run this test with -update, and see that fewer lines are in it", uncovered)
	}
	if err := os.WriteFile(uncovered, list.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fields calls found with the path of each field that is no object or list itself.
func (k kind) fields(path string, s *schema, above map[string]int, found func(string)) {
	s = s.resolve()
	if s == nil || path == ".metadata" || k.sample.Template && strings.HasSuffix(path, ".template") {
		return
	}
	if s.named != "" {
		if above[s.named] > 0 {
			return
		}
		above[s.named]++
		defer func() { above[s.named]-- }()
	}
	switch {
	case s.Properties != nil:
		for name, sub := range s.Properties {
			k.fields(path+"."+name, sub, above, found)
		}
	case s.Items != nil:
		k.fields(path+"[]", s.Items, above, found)
	case s.Additional != nil:
		k.fields(path+"{}", s.Additional, above, found)
	default:
		found(path)
	}
}

// covered takes out of a list what an object has.
func covered(path string, s *schema, v any, missing map[string]bool) {
	delete(missing, path)
	if s = s.resolve(); s == nil {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for name, inside := range v {
			if s.Properties != nil {
				covered(path+"."+name, s.Properties[name], inside, missing)
			} else {
				covered(path+"{}", s.Additional, inside, missing)
			}
		}
	case []any:
		for _, inside := range v {
			covered(path+"[]", s.Items, inside, missing)
		}
	}
}

// takenSteps are those whose requests upstream took.
func takenSteps(t *testing.T, scenario string) map[string]bool {
	t.Helper()
	type code struct {
		Step   string
		Answer struct{ Code string }
	}
	lines, err := readLines[code]("testdata", scenario)
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]bool{}
	for _, line := range lines {
		taken[line.Step] = strings.HasPrefix(line.Answer.Code, "2")
	}
	return taken
}
