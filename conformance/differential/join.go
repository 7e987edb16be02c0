package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// kube-apiserver answers the write of a definition or of a policy, and writes what follows from it some moments later, in changes of
// its own. Ours writes both at once. So the later changes are joined with the one that they follow, in what either server said: the
// events of one request show each object once, as it was at last, and the resourceVersions of the later changes are that of the first.

// joinedKinds are the kinds of which that is so.
var joinedKinds = []string{"CustomResourceDefinition", "ValidatingAdmissionPolicy"}

var givenVersion = regexp.MustCompile(`<rv (\S+) \d+>`)

// joiner joins the answers to one scenario's requests, in their order.
type joiner struct {
	names   map[string]bool   // of objects of those kinds
	as      map[string]string // what a resourceVersion is called, by what it was called
	last    map[string]string // the last resourceVersion of an object
	counts  map[string]int    // how many an object has
	written map[string]bool   // objects that the request has changed, by what has been seen of it
}

// joined returns the answers to a scenario's requests with later changes joined. It changes none.
func joined(sc scenario, answers []answer) []answer {
	j := &joiner{names: map[string]bool{}, as: map[string]string{}, last: map[string]string{}, counts: map[string]int{}}
	for _, a := range answers {
		j.find(a.Body)
		j.find(a.Events)
	}
	if len(j.names) == 0 {
		return answers
	}
	out := make([]answer, len(answers))
	for i, a := range answers {
		j.written = map[string]bool{}
		changes := sc.steps[i].changes()
		a.Body = j.rename(j.joinBody(a.Body), changes)
		events := j.joinEvents(a.Events)
		a.Events = nil
		for _, e := range events {
			event, _ := e.(map[string]any)
			if event["type"] == "DELETED" {
				j.written = map[string]bool{}
			}
			a.Events = append(a.Events, j.rename(e, changes))
		}
		out[i] = a
	}
	return out
}

// find notes the names of the objects that are joined.
func (j *joiner) find(v any) {
	switch v := v.(type) {
	case map[string]any:
		if kind, _ := v["kind"].(string); slices.Contains(joinedKinds, kind) {
			meta, _ := v["metadata"].(map[string]any)
			name, _ := meta["name"].(string)
			j.names[name] = true
		}
		for _, inside := range v {
			j.find(inside)
		}
	case []any:
		for _, inside := range v {
			j.find(inside)
		}
	}
}

// rename numbers the resourceVersions anew. One that is new is of the change that the request made, and only the first one is: what
// comes after it, or of a request that changes nothing, follows from the change before.
func (j *joiner) rename(v any, changes bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out[name] = j.rename(v[name], changes)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = j.rename(v[i], changes)
		}
		return out
	case string:
		return givenVersion.ReplaceAllStringFunc(v, func(version string) string {
			name := givenVersion.FindStringSubmatch(version)[1]
			if !j.names[name] {
				return version
			}
			if j.as[version] == "" {
				if j.last[name] == "" || changes && !j.written[name] {
					j.counts[name]++
					j.last[name] = fmt.Sprintf("<rv %s %d>", name, j.counts[name])
				}
				j.written[name] = true
				j.as[version] = j.last[name]
			}
			return j.as[version]
		})
	}
	return v
}

// joinBody joins the events of an answer to a watch.
func (j *joiner) joinBody(body any) any {
	events, ok := body.([]any)
	if !ok {
		return body
	}
	if events = j.joinEvents(events); len(events) == 1 { // as parse does
		return events[0]
	}
	return events
}

// joinEvents returns events of which each shows an object for the last time before its end. What isn't a list of events stays as it is.
func (j *joiner) joinEvents(events []any) (out []any) {
	at := map[string]int{} // where the event of an object is
	for _, e := range events {
		event, _ := e.(map[string]any)
		object, _ := event["object"].(map[string]any)
		name := shownName(object)
		i, before := at[name]
		switch {
		case !j.names[name]:
			out = append(out, e)
		case event["type"] == "DELETED":
			out = append(out, e)
			delete(at, name)
		case !before:
			at[name] = len(out)
			out = append(out, e)
		default:
			first, _ := out[i].(map[string]any)
			was, _ := first["object"].(map[string]any)
			object = maps.Clone(object)
			if columns := was["columnDefinitions"]; columns != nil { // only a watch's first Table has them
				object["columnDefinitions"] = columns
			}
			out[i] = map[string]any{"type": first["type"], "object": object}
		}
	}
	return out
}

// shownName names an object, or the one of a Table's row.
func shownName(object map[string]any) string {
	rows, _ := object["rows"].([]any)
	for _, r := range rows {
		row, _ := r.(map[string]any)
		if inside, ok := row["object"].(map[string]any); ok {
			object = inside
		}
	}
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name
}
