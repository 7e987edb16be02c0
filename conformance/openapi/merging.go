package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// kept are the members of a schema that say how values merge, and which ones an object must have.
var kept = []string{"type", "format", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
	"x-kubernetes-map-type", "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"}

// stable are the requests for documents of stable versions.
var stable = regexp.MustCompile(`/v\d+$`)

// merging returns what says how objects merge and what they must have, of the kinds of all stable versions and of what they refer to: in
// each line the name of a schema, and the schema.
func merging(documents map[string]json.RawMessage) ([]byte, error) {
	cut := map[string]tree{}
	for _, step := range slices.Sorted(maps.Keys(documents)) {
		if !stable.MatchString(step) {
			continue
		}
		var document struct {
			Components struct{ Schemas map[string]tree }
		}
		if err := json.Unmarshal(documents[step], &document); err != nil {
			return nil, err
		}
		cutDocument(document.Components.Schemas, cut)
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(cut)) {
		line, err := json.Marshal(cut[name])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%s\t%s\n", name, line)
	}
	return out.Bytes(), nil
}

type tree = map[string]any

// cutDocument adds the kinds of one document, and what they refer to.
func cutDocument(schemas, cut map[string]tree) {
	var visit func(name string)
	visit = func(name string) {
		if cut[name] == nil {
			cut[name] = tree{} // it may contain itself
			cut[name] = cutSchema(schemas[name], visit)
		}
	}
	for name, s := range schemas {
		kinds, _ := s["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) == 1 && !strings.HasSuffix(name, "List") { // DeleteOptions and the like are of many groups
			visit(name)
		}
	}
}

func cutSchema(s tree, visit func(name string)) tree {
	out := tree{}
	for _, member := range kept {
		if v, ok := s[member]; ok {
			out[member] = v
		}
	}
	switch v := s["default"].(type) {
	case nil, tree: // no list has a struct as its key
	default:
		out["default"] = v
	}
	ref, _ := s["$ref"].(string)
	if all, ok := s["allOf"].([]any); ok && len(all) == 1 { // a reference with something beside it
		ref, _ = all[0].(tree)["$ref"].(string)
	}
	if ref != "" {
		out["$ref"] = ref
		visit(ref[strings.LastIndexByte(ref, '/')+1:])
	}
	for _, member := range []string{"items", "additionalProperties"} {
		if of, ok := s[member].(tree); ok {
			out[member] = cutSchema(of, visit)
		}
	}
	if properties, ok := s["properties"].(tree); ok {
		all := tree{}
		for name, p := range properties {
			all[name] = cutSchema(p.(tree), visit)
		}
		out["properties"] = all
	}
	return out
}
