// Command mutants breaks the program's promises, one at a time, and looks whether a test finds out. It fails if a mutant
// survives, which means that nothing tests its promise, or can't be tried. `make mutants` runs it.
//
// A mutant is a file of this directory:
//
//	promise: <one sentence, which is false of the mutant>
//	file: <what is changed, from the repo's root>
//	test: <the package whose test should fail, and those tests: ./storage/etcd TestKillAtEveryChange>
//	-- is --
//	<lines of the file, which it has once>
//	-- becomes --
//	<what they are in the mutant>
//
// The sources stay as they are: the go command gets the mutant's file by -overlay, in its environment, so builds inside of
// tests see it, too. Arguments are regular expressions; with any, only mutants with such a name are tried.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries the mutants in the directory mutants whose names match, and writes a table of them. The error says which survived.
func run(ctx context.Context, names []string, out io.Writer) error {
	all, err := read("mutants")
	if err != nil {
		return err
	}
	if len(names) > 0 {
		chosen, err := regexp.Compile(strings.Join(names, "|"))
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(m *mutant) bool { return !chosen.MatchString(m.name) })
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := sound(ctx, all, out); err != nil {
		return err
	}
	var survivors []string
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, m := range all {
		began := time.Now()
		by, err := m.try(ctx, dir)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			survivors = append(survivors, fmt.Sprintf("%s: %v", m.name, err))
			by = "-"
		}
		fmt.Fprintf(out, "%d of %d, %v: %s: %s\n", i+1, len(all), time.Since(began).Round(time.Second), m.name, by)
		fmt.Fprintf(table, "%s\t%s\t%s\n", m.name, m.promise, by)
	}
	fmt.Fprintln(out)
	if err := table.Flush(); err != nil {
		return err
	}
	if len(survivors) > 0 {
		return fmt.Errorf("%d of %d weren't caught:\n%s", len(survivors), len(all), strings.Join(survivors, "\n"))
	}
	return nil
}

// sound runs the tests as the sources are: a test that fails anyway would catch any mutant.
func sound(ctx context.Context, all []*mutant, out io.Writer) error {
	tests := map[string][]string{} // of each package
	for _, m := range all {
		tests[m.pkg] = append(tests[m.pkg], m.tests...)
	}
	for pkg, names := range tests {
		slices.Sort(names)
		began := time.Now()
		result, err := test(ctx, pkg, slices.Compact(names))
		if err != nil {
			return err
		}
		if !result.passed {
			return fmt.Errorf("%s fails without any mutant: %s\n%s", pkg, result.failed, result.output)
		}
		fmt.Fprintf(out, "without mutants, %v: %s passes\n", time.Since(began).Round(time.Second), pkg)
	}
	return nil
}

// try returns the test that caught the mutant. The error says that none did, or why it couldn't be tried.
func (m *mutant) try(ctx context.Context, dir string) (by string, err error) {
	changed, err := m.apply(".")
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	replacement, overlay := filepath.Join(dir, m.name+".go"), filepath.Join(dir, m.name+".json")
	if err := os.WriteFile(replacement, changed, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	result, err := test(ctx, m.pkg, m.tests, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	switch {
	case err != nil:
		return "", err
	case result.passed:
		return "", fmt.Errorf("%s passes: %s", strings.Join(m.tests, ", "), m.promise)
	case result.failed == "": // it wasn't built, or something else went wrong
		return "", fmt.Errorf("no test failed, but the run did:\n%s", result.output)
	}
	return result.failed, nil
}

// testTime is how long a test may take that meets a mutant: one that hangs is caught by this.
const testTime = "4m"

// result is what became of a run of tests.
type result struct {
	passed bool
	failed string // the first test that failed
	output string // the end of what was printed
}

// maxOutput is how many bytes of a run's output are kept, to be shown.
const maxOutput = 4 << 10

// test runs tests of a package. An error means that the go command couldn't be run.
func test(ctx context.Context, pkg string, names []string, env ...string) (r result, err error) {
	// Not from the cache: of a program that a test builds, the go command sees the sources as they are, not the mutant's.
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-failfast", "-count", "1", "-timeout", testTime, "-run", "^("+strings.Join(names, "|")+")$", pkg)
	cmd.Env = append(os.Environ(), env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return r, err
	}
	ran := false
	for lines := bufio.NewReader(stdout); ; {
		line, err := lines.ReadBytes('\n')
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			event.Output = string(line)
		}
		if r.output += event.Output; len(r.output) > maxOutput {
			r.output = r.output[len(r.output)-maxOutput:]
		}
		ran = ran || event.Action == "pass" && event.Test != ""
		switch {
		case r.failed != "":
		case event.Action == "fail":
			r.failed = event.Test
		case strings.HasPrefix(event.Output, "panic: test timed out"):
			r.failed = strings.Join(names, " or ") + ", which hangs"
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return r, nil
	}
	if r.passed = ran; err == nil && !ran {
		return r, fmt.Errorf("%s has no test %s", pkg, strings.Join(names, " or "))
	}
	return r, err
}
