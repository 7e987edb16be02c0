package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// uncovered lists the fields that no object of the requests has which upstream takes, each with the reason.
const uncovered = "testdata/uncovered.txt"

// aside are requests that are taken whatever they have in these fields: their subresources look at others alone.
var aside = regexp.MustCompile(`^(resize|ephemeralcontainers absent) `)

// exception is a line of it.
type exception struct {
	kind   string
	fields *regexp.Regexp
	used   bool
}

// TestFields: every field of every kind's schema is in a request that upstream takes, but for those that uncovered lists.
func TestFields(t *testing.T) {
	kinds, err := readUpstream("testdata")
	if err != nil {
		t.Fatal(err)
	}
	exceptions := readExceptions(t)
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
				if taken[s.name] && !aside.MatchString(s.name) && json.Unmarshal([]byte(s.body), &body) == nil {
					covered("", k.schema, body, missing)
				}
			}
		}
		for _, path := range slices.Sorted(maps.Keys(missing)) {
			i := slices.IndexFunc(exceptions, func(e exception) bool { return e.kind == k.name() && e.fields.MatchString(path) })
			if i < 0 {
				t.Errorf("no request of %s has %s, and %s has no reason", k.name(), path, uncovered)
			} else {
				exceptions[i].used = true
			}
		}
	}
	for _, e := range exceptions {
		if !e.used {
			t.Errorf("%s: all that %s names of %s is in requests: remove the line", uncovered, e.fields, e.kind)
		}
	}
}

func readExceptions(t *testing.T) (all []exception) {
	t.Helper()
	content, err := os.ReadFile(uncovered)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, "\t")
		if len(parts) != 3 {
			t.Fatalf("%s: %q isn't a kind, an expression and a reason with tabs between", uncovered, line)
		}
		all = append(all, exception{kind: parts[0], fields: regexp.MustCompile("^(" + parts[1] + ")$")})
	}
	return all
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
	if v != nil {
		delete(missing, path)
	}
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
