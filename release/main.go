// Command release makes what a release consists of, from the sources above it: a static binary for each system, Debian packages, an image for containers, what
// is in them (CycloneDX), and checksums. It needs Go and git alone: no daemon, no root, and no network but for Go's modules.
//
// The same sources, version and authorities give the same files, byte by byte.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

const program = "apiserver-lite"

// leanTag is the tag that binaries are built with: see the Makefile's BUILD.
const leanTag = "-tags=grpcnotrace"

// target is a system that there is a binary for.
type target struct{ os, arch string }

var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}}

func (t target) String() string { return t.os + "/" + t.arch }

// release is one that is being made.
type release struct {
	root, out string    // where the sources are, and where the files go
	version   string    // as git describes it: v0.1.0
	at        time.Time // of its commit
	cwd       string    // what is needed on the way, and goes at the end

	authorities string // the file with those of public certificates, for the image
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	set := flag.NewFlagSet("release", flag.ContinueOnError)
	version := set.String("version", "", "the release's version, such as v0.1.0")
	out := set.String("out", "../bin/release", "directory for the files; what is there goes")
	only := set.String("targets", "", "make these of the binaries alone, such as linux/amd64,linux/arm64")
	authorities := set.String("authorities", "/etc/ssl/certs/ca-certificates.crt", "PEM file with the authorities of public certificates, for the image")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 || *version == "" {
		return errors.New("--version says which release it is")
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	r, err := begin(*version, *out)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.cwd)
	r.authorities = *authorities
	return r.make(chosen)
}

// choose returns the targets with those names, or all.
func choose(names string) (chosen []target, err error) {
	if names == "" {
		return targets, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(targets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("--targets: there is no %s, but %v", name, targets)
		}
		chosen = append(chosen, targets[i])
	}
	return chosen, nil
}

// begin makes an empty directory for the files.
func begin(version, out string) (r *release, err error) {
	r = &release{version: version}
	if r.root, err = filepath.Abs(".."); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, err
	}
	if r.cwd, err = os.MkdirTemp("", "release"); err != nil {
		return nil, err
	}
	r.at = time.Unix(0, 0).UTC()
	if committed, err := r.command("git", "log", "-1", "--format=%cI").Output(); err == nil { // else there's no git here
		if at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(committed))); err == nil {
			r.at = at.UTC()
		}
	}
	return r, nil
}

func (r *release) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	return cmd
}

// make makes all files.
func (r *release) make(chosen []target) error {
	for _, t := range chosen {
		if err := r.build(t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	if err := r.manual(); err != nil {
		return err
	}
	var linux []target
	for _, t := range chosen {
		if err := r.bill(t); err != nil {
			return fmt.Errorf("the bill of materials for %s: %w", t, err)
		}
		if t.os == "linux" {
			linux = append(linux, t)
		}
	}
	for _, t := range linux {
		if err := r.debian(t.arch); err != nil {
			return fmt.Errorf("the Debian package for %s: %w", t, err)
		}
	}
	if len(linux) > 0 {
		if err := r.image(linux); err != nil {
			return fmt.Errorf("the image: %w", err)
		}
	}
	return r.checksums()
}

// binary is the path of a target's binary.
func (r *release) binary(t target) string {
	path := filepath.Join(r.out, fmt.Sprintf("%s-%s-%s", program, t.os, t.arch))
	if t.os == "windows" {
		path += ".exe"
	}
	return path
}

// build looks for mistakes that only this target has, and builds its binary, which is started if it can be.
func (r *release) build(t target) error {
	fmt.Println("building for", t)
	modules, err := r.leanModules()
	if err != nil {
		return err
	}
	stamp := "-s -w -X github.com/apiserver-lite/apiserver-lite/server/version.release=" + r.version
	for _, args := range [][]string{
		{"vet", leanTag, "-trimpath", "."}, // what it compiles is what build needs
		{"build", "-modfile", modules, leanTag, "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", r.binary(t), "."},
	} {
		cmd := r.command("go", args...)
		cmd.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOFLAGS=")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w", args[0], err)
		}
	}
	if (t != target{runtime.GOOS, runtime.GOARCH}) {
		return nil
	}
	said, err := r.command(r.binary(t), "--version").Output()
	if err != nil || !strings.Contains(string(said), r.version) {
		return fmt.Errorf("it says %q: %v", said, err)
	}
	return nil
}

// leanModules returns the file that stands for go.mod and has a stand-in for a package that makes binaries large: see the package cmp.
func (r *release) leanModules() (string, error) {
	modules := filepath.Join(r.cwd, "lean.mod")
	for from, as := range map[string]string{"go.mod": modules, "go.sum": filepath.Join(r.cwd, "lean.sum")} {
		content, err := os.ReadFile(filepath.Join(r.root, from))
		if err != nil {
			return "", err
		}
		if from == "go.mod" {
			content = append(content, "replace github.com/google/go-cmp => ./release/cmp\n"...)
		}
		if err := os.WriteFile(as, content, 0o644); err != nil {
			return "", err
		}
	}
	return modules, nil
}

// manual has this machine's build write the man pages, and what completes commands in bash.
func (r *release) manual() error {
	self := target{runtime.GOOS, runtime.GOARCH}
	if _, err := os.Stat(r.binary(self)); err != nil {
		return fmt.Errorf("the man pages are written by a binary for this machine: %w", err)
	}
	if err := r.command(r.binary(self), "man", filepath.Join(r.cwd, "man")).Run(); err != nil {
		return err
	}
	completion, err := r.command(r.binary(self), "completion", "bash").Output()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.cwd, "completion"), completion, 0o644)
}

// checksums writes the file that sha256sum --check reads.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(lines.String()), 0o644)
}

// numbered is a version that a package manager can order: 0.1.0 of v0.1.0, and 0.1.0-7-gabc of what comes seven commits after it. What has no number yet is
// before all that have.
func numbered(version string) string {
	if regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+`).MatchString(version) {
		return strings.TrimPrefix(version, "v")
	}
	return "0.0.0-" + version
}
