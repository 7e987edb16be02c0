package program_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCache: a test that builds a program is answered from the cache of the go command as long as nothing that the
// program is made of has changed, and not after that.
func TestCache(t *testing.T) {
	source, err := os.ReadFile("program.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	written := time.Now().Add(-time.Hour) // no file counts that is a few seconds old
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		written = written.Add(time.Minute)
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/scratch\n\ngo 1.26.0\n")
	write("program/program.go", string(source))
	write("main.go", "package main\n\nimport \"example.com/scratch/lib\"\n\nfunc main() { println(lib.Text) }\n")
	write("lib/lib.go", "package lib\n\nimport _ \"embed\"\n\n//go:embed text/text\nvar Text string\n")
	write("lib/text/text", "one")
	write("test/build_test.go", `package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"example.com/scratch/program"
)

var scratch *program.Program

func TestMain(m *testing.M) {
	var err error
	if scratch, err = program.Build("..", filepath.Join(os.TempDir(), "scratch"), program.Race()...); err != nil {
		panic(err)
	}
	m.Run()
}

func TestBuild(t *testing.T) {
	if err := exec.Command(scratch.Path()).Run(); err != nil {
		t.Fatal(err)
	}
}
`)
	tmp := t.TempDir()
	steps := []struct {
		name   string
		change func()
		want   string // among what go test prints
		cached bool
	}{
		{"first", func() {}, "ok", false},
		{"nothing changed", func() {}, "ok", true},
		{"main.go", func() {
			write("main.go", "package main\n\nimport \"example.com/scratch/lib\"\n\nfunc main() { print(lib.Text) }\n")
		}, "ok", false},
		{"nothing changed since", func() {}, "ok", true},
		{"an embedded file", func() { write("lib/text/text", "two") }, "ok", false},
		{"a new file", func() { write("lib/new.go", "package lib\n\nfunc init() { undefined() }\n") }, "undefined: undefined", false},
	}
	for _, s := range steps {
		s.change()
		cmd := exec.Command("go", "test", "./test")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "TMPDIR="+tmp)
		out, _ := cmd.CombinedOutput() // the output says whether it failed
		if cached := strings.Contains(string(out), "(cached)"); cached != s.cached || !strings.Contains(string(out), s.want) {
			t.Errorf("%s: cached: %t, want %t, with %q:\n%s", s.name, cached, s.cached, s.want, out)
		}
	}
}
