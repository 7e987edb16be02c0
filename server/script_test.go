package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

var updateScripts = flag.Bool("update", false, "write what the server answers into testdata/script")

// TestScripts plays the transcripts in testdata/script, each with a server of its own that serves widgets. A transcript is
// a list of steps, each with what the server says to it:
//
//	-- POST /apis/… --      a request, whose body follows, and the answer: its code, warnings and body
//	-- watch /apis/… --     opens the watch that the next steps read
//	-- event --             the next event of that watch
//
// What differs from run to run has a name: RV1 is the first resourceVersion that was seen, RV2 the second, UID1 the first
// uid, TIME any time. A body may use these names. -update writes the answers anew.
func TestScripts(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no transcripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			before := string(txtar.Format(archive))
			s := &script{t: t, server: servertest.New(t), names: map[string]string{}, values: map[string]string{}}
			s.server.PostYAML(definitionsPath, widgets)
			for i := range archive.Files {
				s.play(archive.Files, i)
			}
			if after := txtar.Format(archive); *updateScripts && string(after) != before {
				if err := os.WriteFile(path, after, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// script is a transcript that is being played.
type script struct {
	t      *testing.T
	server *servertest.Server
	watch  *servertest.Stream
	answer string            // to the last request
	names  map[string]string // of the values that differ from run to run
	values map[string]string // by their names
}

// play plays one step. Sections that the server fills are compared with what it says, or written with -update.
func (s *script) play(steps []txtar.File, i int) {
	s.t.Helper()
	step := &steps[i]
	verb, path, _ := strings.Cut(step.Name, " ")
	switch verb {
	case "watch":
		s.watch = s.server.Watch(path)
	case "event":
		line, err := s.watch.Next()
		if err != nil {
			s.t.Fatalf("step %d: the watch ended with %v", i, err)
		}
		s.compare(step, i, s.readable(line))
	case "answer":
		s.compare(step, i, s.answer)
	default:
		res, body := s.server.Do(verb, path, s.concrete(string(step.Data)), "Content-Type", mediaOf(verb), "User-Agent", "script")
		s.answer = res.Status + "\n"
		for _, warning := range res.Header.Values("Warning") {
			s.answer += "Warning: " + warning + "\n"
		}
		s.answer += s.readable(body)
		if i+1 == len(steps) || steps[i+1].Name != "answer" {
			s.t.Fatalf("step %d, %s: no answer follows", i, step.Name)
		}
	}
}

func mediaOf(method string) string {
	if method == "PATCH" {
		return "application/merge-patch+json"
	}
	return "application/yaml"
}

func (s *script) compare(step *txtar.File, i int, got string) {
	s.t.Helper()
	if *updateScripts {
		step.Data = []byte(got)
	} else if got != string(step.Data) {
		s.t.Errorf("step %d, %s:\n%s\nwant:\n%s", i, step.Name, got, step.Data)
	}
}

// varying matches what differs from run to run, in JSON.
var varying = regexp.MustCompile(`"(resourceVersion|uid|creationTimestamp)":"([^"]+)"`)

// readable returns JSON as YAML, with names for what differs from run to run.
func (s *script) readable(text string) string {
	s.t.Helper()
	if !json.Valid([]byte(text)) {
		s.t.Fatalf("the server says what isn't JSON: %s", text)
	}
	text = varying.ReplaceAllStringFunc(text, func(found string) string {
		m := varying.FindStringSubmatch(found)
		return fmt.Sprintf("%q:%q", m[1], s.nameOf(m[1], m[2]))
	})
	out, err := yaml.JSONToYAML([]byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(out)
}

func (s *script) nameOf(field, value string) string {
	if field == "creationTimestamp" {
		return "TIME"
	}
	if name := s.names[value]; name != "" {
		return name
	}
	prefix := map[string]string{"resourceVersion": "RV", "uid": "UID"}[field]
	for n := 1; ; n++ {
		name := fmt.Sprint(prefix, n)
		if s.values[name] == "" {
			s.names[value], s.values[name] = name, value
			return name
		}
	}
}

var nameOfValue = regexp.MustCompile(`\b(RV|UID)[0-9]+\b`)

// concrete puts values for the names in a body.
func (s *script) concrete(body string) string {
	return nameOfValue.ReplaceAllStringFunc(body, func(name string) string {
		if s.values[name] == "" {
			s.t.Fatalf("no answer before this has a %s", name)
		}
		return s.values[name]
	})
}
