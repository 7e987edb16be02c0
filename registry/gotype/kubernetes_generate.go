//go:build ignore

// Makes kubernetes.txt of the OpenAPI documents in Kubernetes' own sources:
//
//	go run kubernetes_generate.go …/k8s.io/kubernetes@VERSION/api/openapi-spec/v3
//
// It keeps what says how objects merge and what they must have, of the kinds of all stable versions and of what they refer to.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type object = map[string]any

// kept are the members of a schema that say how values merge, and which ones an object must have.
var kept = []string{"type", "format", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
	"x-kubernetes-map-type", "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"}

var stable = regexp.MustCompile(`__v\d+_openapi\.json$`)

func main() {
	files, err := os.ReadDir(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	cut := map[string]object{}
	for _, file := range files {
		if stable.MatchString(file.Name()) {
			cutDocument(filepath.Join(os.Args[1], file.Name()), cut)
		}
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(cut)) {
		line, err := json.Marshal(cut[name])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\t%s\n", name, line)
	}
	if err := os.WriteFile("kubernetes.txt", out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}

// cutDocument adds the kinds of one document, and what they refer to.
func cutDocument(file string, cut map[string]object) {
	text, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	var document struct {
		Components struct{ Schemas map[string]object }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		log.Fatal(err)
	}
	var visit func(name string)
	visit = func(name string) {
		if cut[name] == nil {
			cut[name] = object{} // it may contain itself
			cut[name] = cutSchema(document.Components.Schemas[name], visit)
		}
	}
	for name, s := range document.Components.Schemas {
		kinds, _ := s["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) == 1 && !strings.HasSuffix(name, "List") { // DeleteOptions and the like are of many groups
			visit(name)
		}
	}
}

func cutSchema(s object, visit func(name string)) object {
	out := object{}
	for _, member := range kept {
		if v, ok := s[member]; ok {
			out[member] = v
		}
	}
	switch v := s["default"].(type) {
	case nil, object: // no list has a struct as its key
	default:
		out["default"] = v
	}
	ref, _ := s["$ref"].(string)
	if all, ok := s["allOf"].([]any); ok && len(all) == 1 { // a reference with something beside it
		ref, _ = all[0].(object)["$ref"].(string)
	}
	if ref != "" {
		out["$ref"] = ref
		visit(ref[strings.LastIndexByte(ref, '/')+1:])
	}
	for _, member := range []string{"items", "additionalProperties"} {
		if of, ok := s[member].(object); ok {
			out[member] = cutSchema(of, visit)
		}
	}
	if properties, ok := s["properties"].(object); ok {
		all := object{}
		for name, p := range properties {
			all[name] = cutSchema(p.(object), visit)
		}
		out["properties"] = all
	}
	return out
}
