// Package program builds the programs that tests start. The go command sees neither a build that a test runs nor what is
// built, so it answered from its cache that a test of the program had passed, whatever had become of the program. It does see
// which files are opened while tests run, as long as they're below the tests' go.mod: so whoever asks where a program is opens
// what it's made of. A test in another module than its program is run with -count 1 instead.
//
// It starts no goroutine and keeps nothing. A Program may be used by several goroutines.
package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
)

// Program is one that has been built.
type Program struct {
	path string
	made []string // the files of which it's made, apart from those of other modules, and the directories they're in
	open sync.Once
}

// Path returns the program's absolute path. It's called while tests run, which is after TestMain called Run: only then does
// the go command note what is opened.
func (p *Program) Path() string {
	p.open.Do(func() {
		for _, path := range p.made {
			if f, err := os.Open(path); err == nil { // what is missing is noted, too
				f.Close()
			}
		}
	})
	return p.path
}

// Build builds the main package in the directory dir and leaves it as output. Flags are those of go build, -race among them
// if Race says so; without, it's built as `make build` does, whose packages the go command has then. The error has what the go command said.
func Build(dir, output string, flags ...string) (*Program, error) {
	return BuildPackage(dir, ".", output, flags...)
}

// BuildPackage is Build for a main package by its path, which may be one of another module that the go.mod of dir requires.
func BuildPackage(dir, path, output string, flags ...string) (*Program, error) {
	output, err := filepath.Abs(output)
	if err != nil {
		return nil, err
	}
	// Without the version control's stamp, which a clone that belongs to someone else can't have.
	if _, err := run(dir, "build", flags, "-buildvcs=false", "-o", output, path); err != nil {
		return nil, err
	}
	made, err := madeOf(dir, path, flags)
	return &Program{path: output, made: made}, err
}

// Race returns the flag of a build with the race detector if the test was built with it, and none otherwise.
func Race() []string {
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return []string{"-race"}
	}
	return nil
}

// listed is what `go list -json` says about a package.
type listed struct {
	Dir        string
	Module     *struct{ Main bool }
	GoFiles    []string
	EmbedFiles []string
}

// madeOf returns the files of which the program in dir, or of a package's path, is made. A package's directory has the files that are added to it; that
// of the module has too much that comes and goes.
func madeOf(dir, path string, flags []string) ([]string, error) {
	out, err := run(dir, "list", flags, "-deps", "-json=Dir,Module,GoFiles,EmbedFiles", path)
	if err != nil {
		return nil, err
	}
	lines, err := run(dir, "list", flags, "-m", "-f", "{{.Dir}}\n{{.GoMod}}")
	if err != nil {
		return nil, err
	}
	module, mod, _ := strings.Cut(strings.TrimSpace(lines), "\n")
	if !filepath.IsAbs(mod) { // it's of -modfile
		mod = filepath.Join(dir, mod)
	}
	made := []string{mod, strings.TrimSuffix(mod, ".mod") + ".sum"}
	for decoder := json.NewDecoder(strings.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); err == io.EOF {
			return made, nil
		} else if err != nil {
			return nil, err
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		if p.Dir != module {
			made = append(made, p.Dir)
		}
		for _, name := range slices.Concat(p.GoFiles, p.EmbedFiles) {
			made = append(made, filepath.Join(p.Dir, name))
		}
	}
}

func run(dir, command string, flags []string, args ...string) (string, error) {
	env := os.Environ()
	if !slices.Contains(flags, "-race") {
		flags, env = append([]string{"-trimpath"}, flags...), append(env, "CGO_ENABLED=0")
	}
	cmd := exec.Command("go", slices.Concat([]string{command}, flags, args)...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, exit.Stderr)
	}
	return string(out), err
}
