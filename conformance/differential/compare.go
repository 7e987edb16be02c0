package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// difference is a field that isn't the same in two answers.
type difference struct {
	Path         string // into the answer, with places in lists
	Theirs, Ours string // as JSON; absent is ""
}

// compare returns where two answers differ, in order.
func compare(theirs, ours answer) (found []difference) {
	c := comparing{report: func(d difference) { found = append(found, d) }}
	if theirs.Code != ours.Code {
		c.report(difference{"code", theirs.Code, ours.Code})
	}
	if theirs.Code == timesOut || ours.Code == timesOut {
		return found
	}
	for _, name := range union(theirs.Header, ours.Header) {
		a, b := theirs.Header[name], ours.Header[name]
		if !slices.Equal(a, b) {
			c.report(difference{"header " + name, strings.Join(a, " | "), strings.Join(b, " | ")})
		}
	}
	if theirs.Form != ours.Form {
		c.report(difference{"form", theirs.Form, ours.Form})
	}
	c.values("body", theirs.Body, ours.Body)
	a, b := theirs.Events, ours.Events
	if body, ok := theirs.Body.(map[string]any); ok && body["items"] != nil { // of a collection's deletion
		a, b = byObject(a), byObject(b)
	}
	for i := range max(len(a), len(b)) {
		path := fmt.Sprintf("events[%d]", i)
		switch {
		case i >= len(a):
			c.report(difference{path, "", short(b[i])})
		case i >= len(b):
			c.report(difference{path, short(a[i]), ""})
		default:
			c.values(path, a[i], b[i])
		}
	}
	return found
}

// closest returns where ours differs from that of upstream's answers which is the most like it. Where upstream's differ from each other in
// the order of a refusal's causes alone, it finds them in a map of Go's, and their order means nothing. So it's where byChance is true.
func closest(theirs []answer, ours answer, byChance bool) []difference {
	if byChance || len(theirs) > 1 && !slices.ContainsFunc(theirs[1:], func(a answer) bool { return len(compare(inOrder(theirs[0]), inOrder(a))) > 0 }) {
		return compare(inOrder(theirs[0]), inOrder(ours))
	}
	best := compare(theirs[0], ours)
	for _, a := range theirs[1:] {
		if d := compare(a, ours); len(d) < len(best) {
			best = d
		}
	}
	return best
}

// byChance are the answers, by scenario and step, with causes whose order is that of a map of Go's, of which each run of upstream's came to the same: the
// sources of a metric that aren't of its type, and what several fields of a custom resource have against its schema.
var byChance = regexp.MustCompile(`^horizontalpodautoscalers\S* (as \S+ )?mistake everything/|^definitions creates/POST \$W#21$`)

// inOrder sorts the causes of a refusal, and what its message says of them.
func inOrder(a answer) answer {
	status, _ := a.Body.(map[string]any)
	details, _ := status["details"].(map[string]any)
	causes, ok := details["causes"].([]any)
	message, isText := status["message"].(string)
	if !ok || !isText {
		return a
	}
	status, details = maps.Clone(status), maps.Clone(details)
	about, what, _ := strings.Cut(message, " is invalid: ")
	parts := strings.Split(strings.NewReplacer("[", "", "]", "").Replace(what), ", ")
	slices.Sort(parts)
	details["causes"] = slices.SortedFunc(slices.Values(causes), func(a, b any) int { return strings.Compare(short(a), short(b)) })
	status["details"], status["message"] = details, about+": "+strings.Join(parts, ", ")
	a.Body = status
	return a
}

// byObject sorts events of a collection's deletion, which come in no order, by their objects' names. Those of one object stay in theirs.
func byObject(events []any) []any {
	name := func(e any) string {
		event, _ := e.(map[string]any)
		object, _ := event["object"].(map[string]any)
		meta, _ := object["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		return name
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b any) int { return strings.Compare(name(a), name(b)) })
	return events
}

type comparing struct{ report func(difference) }

func union[V any](a, b map[string]V) []string {
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// short is a value as JSON.
func short(v any) string {
	encoded, _ := json.Marshal(v)
	return string(encoded)
}

// values compares two values of which either may be absent: nil. A null in JSON is "null".
func (c comparing) values(path string, a, b any) {
	switch ta := a.(type) {
	case map[string]any:
		if tb, ok := b.(map[string]any); ok {
			for _, name := range union(ta, tb) {
				va, inA := ta[name]
				vb, inB := tb[name]
				at := path + "." + name
				switch {
				case !inA:
					c.report(difference{at, "", short(vb)})
				case !inB:
					c.report(difference{at, short(va), ""})
				default:
					c.values(at, va, vb)
				}
			}
			return
		}
	case []any:
		if tb, ok := b.([]any); ok {
			c.lists(path, ta, tb)
			return
		}
	}
	if sa, sb := short(quoteInOrder(a)), short(quoteInOrder(b)); sa != sb {
		c.report(difference{path, sa, sb})
	}
}

// quoteInOrder returns a text that quotes an object with its managedFields in an order of their own: as in objects (see lists), theirs says when
// a second ended. Any other value is returned as it is.
func quoteInOrder(v any) any {
	const list, entry = `\"managedFields\":[`, `{\"manager\":`
	text, _ := v.(string)
	before, quoted, ok := strings.Cut(text, list+entry)
	if !ok {
		return v
	}
	depth := 2
	end := strings.IndexFunc(quoted, func(r rune) bool {
		switch r {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		return depth == 0
	})
	if end < 0 { // it's cut off before
		return v
	}
	entries := strings.Split(quoted[:end], ","+entry)
	slices.Sort(entries)
	return before + list + entry + strings.Join(entries, ","+entry) + quoted[end:]
}

// keys say what the elements of a list are told apart by, so that one that is missing doesn't shift all that follow. Their order
// counts all the same.
var keys = map[string][]string{
	"causes":                          {"field", "reason"},
	"managedFields":                   {"manager", "operation", "subresource", "apiVersion"},
	"conditions":                      {"type"},
	"columnDefinitions":               {"name"},
	"groups":                          {"name"},
	"versions":                        {"name", "version"},
	"resources":                       {"name", "resource"},
	"subresources":                    {"subresource"},
	"items":                           {"metadata"},
	"paths":                           {}, // texts
	"parameters":                      {"name", "in"},
	"x-kubernetes-group-version-kind": {"group", "version", "kind"},
}

// conflictReason is the reason of a cause that is a conflict of an apply.
const conflictReason = "FieldManagerConflict"

// key names an element of a list; "" if nothing does.
func key(list string, element any) string {
	if text, ok := element.(string); ok {
		return text
	}
	members, _ := element.(map[string]any)
	var parts []string
	for _, member := range keys[list] {
		switch v := members[member].(type) {
		case string:
			parts = append(parts, v)
			if v == conflictReason { // one for each manager
				message, _ := members["message"].(string)
				parts = append(parts, message)
			}
		case map[string]any: // metadata
			if name, ok := v["name"].(string); ok {
				parts = append(parts, name)
			}
		}
	}
	return strings.Join(parts, " ")
}

// unordered are lists that come in no order: the rules that a user has, which upstream finds in a map of bindings.
var unordered = []string{"body.status.resourceRules", "body.status.nonResourceRules"}

func (c comparing) lists(path string, a, b []any) {
	list := path[strings.LastIndexByte(path, '.')+1:]
	if slices.Contains(unordered, path) {
		inOrder := func(a, b any) int { return strings.Compare(short(a), short(b)) }
		a, b = slices.SortedFunc(slices.Values(a), inOrder), slices.SortedFunc(slices.Values(b), inOrder)
	}
	named := func(elements []any) (names []string) {
		for i, e := range elements {
			name := key(list, e)
			if slices.Contains(names, name) { // causes may come twice
				name += "#" + strconv.Itoa(i)
			}
			names = append(names, name)
		}
		return names
	}
	if keys[list] == nil {
		for i := range max(len(a), len(b)) {
			at := fmt.Sprintf("%s[%d]", path, i)
			switch {
			case i >= len(a):
				c.report(difference{at, "", short(b[i])})
			case i >= len(b):
				c.report(difference{at, short(a[i]), ""})
			default:
				c.values(at, a[i], b[i])
			}
		}
		return
	}
	na, nb := named(a), named(b)
	var both [2][]string
	for i, name := range na {
		if j := slices.Index(nb, name); j >= 0 {
			both[0] = append(both[0], name)
			c.values(fmt.Sprintf("%s[%s]", path, name), a[i], b[j])
		} else {
			c.report(difference{fmt.Sprintf("%s[%s]", path, name), short(a[i]), ""})
		}
	}
	for j, name := range nb {
		if slices.Contains(na, name) {
			both[1] = append(both[1], name)
		} else {
			c.report(difference{fmt.Sprintf("%s[%s]", path, name), "", short(b[j])})
		}
	}
	// managedFields are in the order of their times, which depends on when a second ended.
	// Conflicts come in the order of a map of Go's.
	if !slices.Equal(both[0], both[1]) && list != "managedFields" && !strings.Contains(both[0][0], conflictReason) {
		c.report(difference{path + " (order)", strings.Join(both[0], ", "), strings.Join(both[1], ", ")})
	}
}

var places = regexp.MustCompile(`\[[^\]]*\]`)

// class is a path without places in lists, and cut where a tree begins whose members are countless: it's what differences are counted by.
func class(path string) string {
	path = places.ReplaceAllString(path, "[]")
	for _, root := range []string{".fieldsV1", ".openAPIV3Schema", ".annotations", ".labels"} {
		if i := strings.Index(path, root); i >= 0 {
			return path[:i+len(root)]
		}
	}
	const deepest = 10
	if parts := strings.SplitN(path, ".", deepest+1); len(parts) > deepest {
		return strings.Join(parts[:deepest], ".") + "…"
	}
	return path
}
