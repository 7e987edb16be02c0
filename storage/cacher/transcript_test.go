package cacher

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

var update = flag.Bool("update", false, "write what is answered into the transcripts of testdata")

// TestTranscripts runs the transcripts in testdata, each against a store of its own. A transcript is blocks of
// commands, each block with what it answers after a line "----". After a change that's meant, write the answers anew:
//
//	go test ./storage/cacher -run TestTranscripts -update
//
// The commands:
//
//	bounds ring=N log=N             how many events a group's ring and the log hold; before all others
//	put NAME [tier=T]               create or change a widget; it's one revision, and the first is 2
//	delete NAME
//	compact REVISION                history now begins at the revision
//	watch WATCH [OPTION ...]        open a watch, from now on
//	read WATCH                      everything that the watch has to give, and what a bookmark would say
//	once [OPTION ...]               open a watch, read it in one line, and close it
//
// The options of a watch: name=N, namespace=N, labels=SELECTOR, fields=SELECTOR; after=REVISION for the events after
// it, state=yes for the objects that there are. A value with spaces is quoted.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts:", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runTranscript(t, string(text))
			switch {
			case got == string(text):
			case *update:
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s: %s", file, firstDifference(string(text), got))
			}
		})
	}
}

// firstDifference shows where two texts part.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("line %d differs; want\n%s\ngot\n%s", i+1, strings.Join(w[i:], "\n"), strings.Join(g[min(i, len(g)):], "\n"))
		}
	}
	return "there is more than in the file:\n" + strings.Join(g[len(w):], "\n")
}

// transcript is a running one.
type transcript struct {
	t       *testing.T
	bounds  bounds
	rig     *rig // made by the first command besides bounds
	watches map[string]*Cursor
}

// runTranscript runs the commands of a text, and returns the text with the answers that they get.
func runTranscript(t *testing.T, text string) string {
	tr := &transcript{t: t, bounds: smallBounds, watches: map[string]*Cursor{}}
	var out, answers strings.Builder
	inAnswer := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "----":
			fmt.Fprintf(&out, "----\n%s", answers.String())
			answers.Reset()
			inAnswer = true
		case line == "":
			out.WriteString("\n")
			inAnswer = false
		case inAnswer: // the file's answer, which isn't copied
		default:
			fmt.Fprintln(&out, line)
			if !strings.HasPrefix(line, "#") {
				answers.WriteString(tr.run(line))
			}
		}
	}
	if answers.Len() > 0 {
		fmt.Fprintf(&out, "----\n%s", answers.String())
	}
	for _, c := range tr.watches {
		c.Close()
	}
	return out.String()
}

var option = regexp.MustCompile(`(\w+)=("[^"]*"|\S+)`)

// run does one command, and returns the lines that it answers.
func (tr *transcript) run(line string) string {
	t := tr.t
	verb, rest, _ := strings.Cut(line, " ")
	options := map[string]string{}
	for _, m := range option.FindAllStringSubmatch(rest, -1) {
		options[m[1]] = strings.Trim(m[2], `"`)
	}
	if verb == "bounds" {
		tr.bounds.groupEntries, tr.bounds.logEvents = uint64(number(t, options["ring"])), uint64(number(t, options["log"]))
		return ""
	}
	if tr.rig == nil {
		tr.rig = newRig(t, tr.bounds)
	}
	subject, _, _ := strings.Cut(rest, " ")
	switch verb {
	case "put":
		tr.put(widgetNamed(subject, options["tier"]))
	case "delete":
		key := widgetNamed(subject, "").key
		if _, err := tr.rig.store.Delete(t.Context(), key, tr.at(key)); err != nil {
			t.Fatal(err)
		}
	case "compact":
		if _, err := tr.rig.server.Client.Compact(t.Context(), number(t, subject)); err != nil {
			t.Fatal(err)
		}
	case "watch":
		c, err := tr.open(options)
		if err != nil {
			return err.Error() + "\n"
		}
		tr.watches[subject] = c
	case "read":
		return strings.Join(tr.read(tr.watches[subject]), "\n") + "\n"
	case "once":
		c, err := tr.open(options)
		if err != nil {
			return err.Error() + "\n"
		}
		defer c.Close()
		return strings.Join(tr.read(c), ", ") + "\n"
	default:
		t.Fatalf("no such command: %s", line)
	}
	return ""
}

// at returns the revision of a key's last write, 0 if there's none.
func (tr *transcript) at(key string) storage.Revision {
	kv, err := tr.rig.store.Get(tr.t.Context(), key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		tr.t.Fatal(err)
	}
	return kv.Revision
}

func (tr *transcript) put(o *thing) {
	var err error
	if at := tr.at(o.key); at == 0 {
		_, err = tr.rig.store.Create(tr.t.Context(), o.key, []byte(o.json(0)))
	} else {
		_, err = tr.rig.store.Update(tr.t.Context(), o.key, []byte(o.json(0)), at)
	}
	if err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *transcript) open(options map[string]string) (*Cursor, error) {
	o := query{namespace: options["namespace"], name: options["name"], labels: options["labels"], fields: options["fields"]}.options(tr.t)
	o.Start = StartNow
	if after, ok := options["after"]; ok {
		o.Start, o.After = StartAfter, storage.Revision(number(tr.t, after))
	}
	if options["state"] != "" {
		o.Start = StartState
	}
	return tr.rig.cacher.Resource(widgets).Open(tr.t.Context(), o)
}

// read returns a line for each event that a watch gives now, and at last where it is.
func (tr *transcript) read(c *Cursor) (answers []string) {
	if _, err := tr.rig.cacher.Barrier(tr.t.Context()); err != nil {
		tr.t.Fatal(err)
	}
	for {
		out, wait, err := c.Next(tr.t.Context(), nil)
		for _, frame := range lines(out) {
			answers = append(answers, readable(tr.t, frame))
		}
		switch {
		case errors.Is(err, io.EOF):
			return append(answers, "the end")
		case errors.Is(err, watchstream.ErrExpired):
			return append(answers, "410 Expired")
		case err != nil:
			tr.t.Fatal(err)
		case wait != nil:
			return append(answers, fmt.Sprint("bookmark at ", c.Revision()))
		}
	}
}

// readable is what matters of a frame: the event's type, and the object's name, tier and resourceVersion.
func readable(t *testing.T, frame string) string {
	var event struct {
		Type   string
		Object struct {
			Metadata struct {
				Name, ResourceVersion string
				Labels                map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(frame), &event); err != nil {
		t.Fatalf("%s: %v", frame, err)
	}
	m := event.Object.Metadata
	return fmt.Sprintf("%s %s tier=%s resourceVersion=%s", event.Type, m.Name, m.Labels["tier"], m.ResourceVersion)
}

func number(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(cmp.Or(s, "missing"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
