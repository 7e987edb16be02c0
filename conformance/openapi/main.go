// Command openapi makes what the program has of the OpenAPI documents that kube-apiserver was recorded to answer:
// server/discovery/kubernetes.zip, and registry/gotype/kubernetes.txt (see merging).
//
//	go -C conformance run ./openapi
//
// In the archive, v3/PATH is what the document /openapi/v3/PATH has, v2/PATH what /openapi/v2 has below that path, and all2 its definitions
// and parameters. A value that is there twice stands in the entry "shared" instead, in a line of its own, and the line's number between two
// bytes of 1 where the value was: the archive takes less than a third of the room.
package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
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

// The recording, and what is made of it.
const (
	recording   = "differential/testdata/oracle/openapi.jsonl.gz"
	archiveFile = "../server/discovery/kubernetes.zip"
	mergingFile = "../registry/gotype/kubernetes.txt"
)

// placeholder is what the recording has instead of what differs from server to server. None may be in a document.
var placeholder = regexp.MustCompile(`<(now|uid|rv|random|hash|address) `)

func main() {
	recorded := documents(recording)
	text, err := merging(recorded)
	if err == nil {
		err = os.WriteFile(mergingFile, text, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
	entries := map[string]publication{}
	for step, body := range recorded {
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
		entries["all2"] = publication{Schemas: document.Definitions, Parameters: document.Parameters}
		for path, item := range document.Paths {
			name := "v2/" + above(path)
			if entries[name].Paths == nil {
				entries[name] = publication{Paths: object{}}
			}
			entries[name].Paths[path] = item
		}
	}
	if err := os.WriteFile(archiveFile, archive(entries), 0o644); err != nil {
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
	texts := map[string]string{}
	for name, entry := range entries {
		content, err := json.Marshal(entry) // compact, and in the order of names
		if err != nil {
			log.Fatal(err)
		}
		texts[name] = string(content)
	}
	texts["shared"] = strings.Join(share(texts), "\n")
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		w, err := to.Create(name)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := io.WriteString(w, texts[name]); err != nil {
			log.Fatal(err)
		}
	}
	if err := to.Close(); err != nil {
		log.Fatal(err)
	}
	return out.Bytes()
}

// worth is how long a value must be to be shared, in bytes.
const worth = 30

// share puts references into texts where there are values that come twice, and returns these values.
func share(texts map[string]string) (shared []string) {
	uses, lines := map[string]int{}, map[string]int{}
	var count, refer func(value string) string
	count = func(value string) string {
		if uses[value]++; uses[value] == 1 || len(value) < worth {
			within(value, count)
		}
		return ""
	}
	refer = func(value string) string {
		if uses[value] == 1 || len(value) < worth {
			return within(value, refer)
		}
		if _, known := lines[value]; !known {
			text := within(value, refer)
			lines[value], shared = len(shared), append(shared, text)
		}
		return fmt.Sprintf("\x01%d\x01", lines[value])
	}
	names := slices.Sorted(maps.Keys(texts))
	for _, name := range names {
		count(texts[name])
	}
	for _, name := range names {
		texts[name] = refer(texts[name])
	}
	return shared
}

// within returns a compact value of JSON with others instead of the values that are directly in it.
func within(value string, instead func(value string) string) string {
	if value[0] != '{' && value[0] != '[' {
		return value
	}
	var out strings.Builder
	depth, start, quoted := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth == 1 {
				out.WriteByte(c)
				start = i + 1
			}
		case depth > 1 && (c == '}' || c == ']'):
			depth--
		case depth == 1 && strings.IndexByte(":,}]", c) >= 0:
			piece := value[start:i]
			if piece != "" && c != ':' { // what comes before a colon is a name
				piece = instead(piece)
			}
			out.WriteString(piece)
			out.WriteByte(c)
			start = i + 1
		}
	}
	return out.String()
}
