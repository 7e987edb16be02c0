//go:build ignore

// Makes kubernetes.zip of the OpenAPI documents that kube-apiserver was recorded to answer:
//
//	go run generate.go ../../conformance/differential/testdata/oracle/openapi.jsonl.gz
//
// In the archive, v3/PATH is what the document /openapi/v3/PATH has, v2/PATH what /openapi/v2 has below that path, and v2 its definitions
// and parameters.
package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"log"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

type object = map[string]json.RawMessage

// publication is an entry of the archive, as kubernetes.go reads it.
type publication struct {
	Paths      object `json:"paths,omitempty"`
	Schemas    object `json:"schemas,omitempty"`
	Parameters object `json:"parameters,omitempty"`
}

// placeholder is what the recording has instead of what differs from server to server. None may be in a document.
var placeholder = regexp.MustCompile(`<(now|uid|rv|random|hash|address) `)

func main() {
	entries := map[string]publication{}
	for step, body := range documents(os.Args[1]) {
		var document struct {
			Paths       object
			Definitions object
			Parameters  object
			Components  struct{ Schemas object }
		}
		if err := json.Unmarshal(body, &document); err != nil {
			log.Fatal(step, ": ", err)
		}
		if path, ok := strings.CutPrefix(step, "openapi/openapi/v3/"); ok {
			entries["v3/"+path] = publication{Paths: document.Paths, Schemas: document.Components.Schemas}
			continue
		}
		entries["v2"] = publication{Schemas: document.Definitions, Parameters: document.Parameters}
		for path, item := range document.Paths {
			name := "v2/" + above(path)
			if entries[name].Paths == nil {
				entries[name] = publication{Paths: object{}}
			}
			entries[name].Paths[path] = item
		}
	}
	if err := os.WriteFile("kubernetes.zip", archive(entries), 0o644); err != nil {
		log.Fatal(err)
	}
}

// documents returns the recorded documents by their requests.
func documents(file string) map[string]json.RawMessage {
	packed, err := os.Open(file)
	if err != nil {
		log.Fatal(err)
	}
	lines, err := gzip.NewReader(packed)
	if err != nil {
		log.Fatal(err)
	}
	found := map[string]json.RawMessage{}
	for decoder := json.NewDecoder(lines); decoder.More(); {
		var line struct {
			Step   string
			Answer struct {
				Code string
				Body json.RawMessage
			}
		}
		if err := decoder.Decode(&line); err != nil {
			log.Fatal(err)
		}
		if line.Answer.Code != "200" || line.Step == "openapi/openapi/v3" {
			continue
		}
		if at := placeholder.Find(line.Answer.Body); at != nil {
			log.Fatalf("%s has %q", line.Step, at)
		}
		found[line.Step] = line.Answer.Body
	}
	return found
}

// above is the document of version 3 in which a path is: "apis/apps/v1" for "/apis/apps/v1/deployments".
func above(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	n := map[string]int{"api": 2, "apis": 3}[parts[0]]
	if n == 0 {
		n = len(parts)
	}
	return strings.Join(parts[:min(n, len(parts))], "/")
}

func archive(entries map[string]publication) []byte {
	var out bytes.Buffer
	to := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		content, err := json.Marshal(entries[name]) // compact, and in the order of names
		if err != nil {
			log.Fatal(err)
		}
		w, err := to.Create(name)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			log.Fatal(err)
		}
	}
	if err := to.Close(); err != nil {
		log.Fatal(err)
	}
	return out.Bytes()
}
