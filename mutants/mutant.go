package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is a change of a source file that makes a promise false.
type mutant struct {
	name    string
	promise string   // one sentence
	file    string   // from the repo's root
	pkg     string   // whose tests should catch it
	tests   []string // their names
	edits   []edit
}

// edit replaces lines that the file has once.
type edit struct{ is, becomes []byte }

// extension is that of a mutant's file.
const extension = ".mutant"

// The lines before what an edit looks for, and before what it puts there.
var isLine, becomesLine = []byte("-- is --\n"), []byte("-- becomes --\n")

// read reads all mutants of a directory, by name.
func read(dir string) (all []*mutant, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name, is := strings.CutSuffix(f.Name(), extension)
		if !is {
			continue
		}
		path := filepath.Join(dir, f.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parse(name, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// parse reads one mutant. The package comment has the format.
func parse(name string, text []byte) (*mutant, error) {
	m := &mutant{name: name}
	parts := bytes.Split(text, isLine)
	for line := range strings.Lines(string(parts[0])) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch key {
		case "promise":
			m.promise = value
		case "file":
			m.file = value
		case "test":
			if words := strings.Fields(value); len(words) > 1 {
				m.pkg, m.tests = words[0], words[1:]
			}
		default:
			return nil, fmt.Errorf("it has a line %q; there are promise, file and test", key)
		}
	}
	if m.promise == "" || m.file == "" || m.pkg == "" {
		return nil, fmt.Errorf("it needs a promise, a file, and a test with a package and a name")
	}
	for _, part := range parts[1:] {
		is, becomes, found := bytes.Cut(part, becomesLine)
		if !found || len(is) == 0 {
			return nil, fmt.Errorf("it needs lines before and after %q", becomesLine)
		}
		m.edits = append(m.edits, edit{is, becomes})
	}
	if len(m.edits) == 0 {
		return nil, fmt.Errorf("it changes nothing")
	}
	return m, nil
}

// apply returns the file with the mutant's changes. root is the repo's.
func (m *mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	for _, e := range m.edits {
		if n := bytes.Count(text, e.is); n != 1 {
			return nil, fmt.Errorf("it no longer applies: %s has these lines %d times, want once:\n%s", m.file, n, e.is)
		}
		text = bytes.Replace(text, e.is, e.becomes, 1)
	}
	return text, nil
}
