package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEverythingHasASample: each kind that can be created has an object of its own to begin with, and discovery names no version that isn't
// asked for.
func TestEverythingHasASample(t *testing.T) {
	kinds, err := readUpstream("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if k.schema == nil && k.plural != "bindings" {
			t.Errorf("%s has no schema in the OpenAPI documents", k.name())
		}
	}
	lines, err := readRecording("testdata", "discovery")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if line.Step != "discovery/apis" {
			continue
		}
		var list struct {
			Groups []struct {
				Versions []struct{ GroupVersion string }
			}
		}
		if err := convert(line.Answer.Body, &list); err != nil {
			t.Fatal(err)
		}
		for _, group := range list.Groups {
			for _, v := range group.Versions {
				if !strings.Contains(" "+strings.Join(groupVersions, " ")+" ", " "+v.GroupVersion+" ") {
					t.Errorf("%s is served, and groupVersions hasn't it", v.GroupVersion)
				}
			}
		}
	}
}

// TestNothingIsOnPurposeWithoutEnd: the list of what stays different is short.
func TestNothingIsOnPurposeWithoutEnd(t *testing.T) {
	if n := len(onPurpose); n > mostOnPurpose {
		t.Errorf("onpurpose.go has %d lines, more than %d", n, mostOnPurpose)
	}
	for _, p := range onPurpose {
		if p.why == "" {
			t.Errorf("%s %s has no reason", p.step, p.path)
		}
	}
	if _, err := os.Stat("testdata/oracle"); err != nil {
		t.Error(err)
	}
}

// TestOnPurposeIsNarrow: what stays different of some answers hides neither what a watch says nor what an object is.
func TestOnPurposeIsNarrow(t *testing.T) {
	for _, tt := range []struct{ scenario, step, paths string }{
		{"definitions", "GET $W?watch=true&timeoutSeconds=1&resourceVersion=$now;", "code, events[0].type, events[0].object.spec.color, body"},
		{"definitions", "GET $W/a", "code, body.spec.color, body.metadata.labels.tier, body.metadata.name, header Content-Type"},
		{"definitions", "GET $W?limit=1", "code, body.items[0].spec.color, body.metadata.continue"},
		{"pods.v1", "create/minimal", "code, body.spec.containers[c].name, body.status.phase, body.metadata.managedFields, events[0].type"},
		{"webhooks", "asked/Mutating POST", "code, body.message"},
	} {
		for path := range strings.SplitSeq(tt.paths, ", ") {
			used := make([]bool, len(onPurpose))
			if isOnPurpose(tt.scenario, tt.step, difference{Path: path, Theirs: "theirs", Ours: "ours"}, &used) {
				t.Errorf("%s %s: any %s is taken for one on purpose: %s", tt.scenario, tt.step, path, onPurpose[slices.Index(used, true)].why)
			}
		}
	}
}

var update = flag.Bool("update", false, "write docs/wire.md's list anew")

// TestWirePage: docs/wire.md lists what stays different on purpose, as onpurpose.go has it.
func TestWirePage(t *testing.T) {
	const page, begin, end = "../../docs/wire.md", "<!-- on purpose: made from conformance/differential/onpurpose.go by `go test ./differential -run TestWirePage -update` -->\n", "<!-- end of on purpose -->"
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), begin)
	listed, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no list between %q and %q", page, begin, end)
	}
	want := ""
	for _, p := range onPurpose {
		want += "- " + p.why + "\n"
	}
	want += "\nAnd this, which no request of `make differential` shows, because it takes other flags, a failure, several processes or time:\n\n"
	for _, p := range unseen {
		want += "- " + p.why + "\n"
	}
	marks(t, before+after)
	if listed == want {
		return
	}
	if !*update {
		t.Fatalf("%s isn't what onpurpose.go has: run this test with -update", page)
	}
	if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// marks looks whether what a page marks as (ours) has a line with a reason, and whether each of these lines has its mark.
func marks(t *testing.T, page string) {
	t.Helper()
	const mark, beside = "(ours", 170 // characters
	lines := slices.Concat(onPurpose, unseen)
	lines = slices.DeleteFunc(lines, func(p purpose) bool { return p.at == "" })
	page = strings.Replace(page, "**"+mark+")** marks", "", 1)
	for at := strings.Index(page, mark); at >= 0; at = strings.Index(page, mark) {
		around := page[max(0, at-beside):min(len(page), at+beside)]
		i := slices.IndexFunc(lines, func(p purpose) bool { return strings.Contains(around, p.at) })
		if i < 0 {
			t.Errorf("onpurpose.go has no line about what docs/wire.md marks here: %q", around)
		} else {
			lines = slices.Delete(lines, i, i+1)
		}
		page = page[:at] + page[at+len(mark):]
	}
	for _, p := range lines {
		t.Errorf("docs/wire.md doesn't mark %q: %s", p.at, p.why)
	}
}

// TestOrderOfCauses: the order of causes counts, unless upstream's own is another one each time.
func TestOrderOfCauses(t *testing.T) {
	refusal := func(first, second string) answer {
		return answer{Code: "422", Body: parse(asJSON, []byte(fmt.Sprintf(`{"message":"X is invalid: [%[1]s: bad, %[2]s: bad]","details":{"causes":[{"field":%[1]q},{"field":%[2]q}]}}`, first, second)))}
	}
	ab, ba := refusal("a", "b"), refusal("b", "a")
	for _, tt := range []struct {
		name     string
		theirs   []answer
		ours     answer
		byChance bool
		want     int
	}{
		{"one order", []answer{ab}, ba, false, 2}, // of the causes, and of the message
		{"one order, by chance", []answer{ab}, ba, true, 0},
		{"another cause, by chance", []answer{ab}, refusal("a", "c"), true, 3},
		{"any order", []answer{ab, ba}, ba, false, 0},
		{"another cause", []answer{ab, ba}, refusal("a", "c"), false, 3},
		{"another answer", []answer{ab, refusal("a", "c")}, ba, false, 2},
	} {
		if got := closest(tt.theirs, tt.ours, tt.byChance); len(got) != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestCompare: what is different is found, and named by what elements are told apart by.
func TestCompare(t *testing.T) {
	tree := func(s string) any { return parse(asJSON, []byte(s)) }
	quoted := func(managed string) string {
		return text(map[string]any{"m": "Invalid value: " + strconv.Quote(`{"metadata":{"managedFields":`+managed+`,"name":"n"}}`)})
	}
	for _, tt := range []struct{ name, theirs, ours, want string }{
		{"equal", `{"a":1}`, `{"a":1}`, ""},
		{"other value", `{"a":{"b":1}}`, `{"a":{"b":2}}`, "body.a.b"},
		{"other type", `{"a":"1"}`, `{"a":1}`, "body.a"},
		{"null isn't nothing", `{"a":null}`, `{}`, "body.a"},
		{"empty isn't nothing", `{"a":{}}`, `{}`, "body.a"},
		{"cause by field", `{"causes":[{"field":"a","reason":"r","message":"1"},{"field":"b","reason":"r"}]}`, `{"causes":[{"field":"b","reason":"r"},{"field":"a","reason":"r","message":"2"}]}`, "body.causes[a r].message body.causes (order)"},
		{"cause that is missing", `{"causes":[{"field":"a"},{"field":"b"}]}`, `{"causes":[{"field":"b"}]}`, "body.causes[a]"},
		{"element by place", `{"l":[1,2]}`, `{"l":[1]}`, "body.l[1]"},
		{"quoted managedFields in another order", quoted(`[{"manager":"a","f":{"x":{}}},{"manager":"b"}]`), quoted(`[{"manager":"b"},{"manager":"a","f":{"x":{}}}]`), ""},
		{"other quoted managedFields", quoted(`[{"manager":"a","f":{"x":{}}},{"manager":"b"}]`), quoted(`[{"manager":"b"},{"manager":"a","f":{"y":{}}}]`), "body.m"},
		{"quoted managedFields that are cut off", quoted(`[{"manager":"a"},{"manager":"b`), quoted(`[{"manager":"b"},{"manager":"a`), "body.m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var paths []string
			for _, d := range compare(answer{Code: "200", Body: tree(tt.theirs)}, answer{Code: "200", Body: tree(tt.ours)}) {
				paths = append(paths, d.Path)
			}
			if got := strings.Join(paths, " "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
