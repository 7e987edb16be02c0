package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/apiserver-lite/apiserver-lite/conformance/cluster"
)

const (
	// fewNodes are enough: no test of conformance asks for more.
	fewNodes = 3
	// testPatience ends a test that hangs. Those that wait for a continue token to expire take ten minutes.
	testPatience = 25 * time.Minute
	// endPatience is for a test that is interrupted, which deletes its namespace.
	endPatience = time.Minute
	// reasonLength is how much of a failure is kept, in bytes.
	reasonLength = 300
)

// runner runs tests against a cluster.
type runner struct {
	tests *tests
	side  string // of cluster.Sides
	e2e   string // the program
	in    *cluster.Cluster
}

// all runs tests until the time, those that are Serial last and one at a time. It returns those that failed here and passed with
// the pair, and how many have no result, because the time came first.
func (r *runner) all(ctx context.Context, names []string, atOnce int, until time.Time) (failed []string, left int, err error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	var together, alone []string
	for _, name := range names {
		if strings.Contains(name, "[Serial]") || strings.Contains(name, "[Disruptive]") {
			alone = append(alone, name)
		} else {
			together = append(together, name)
		}
	}
	var mu sync.Mutex // guards r.tests, failed, err and done
	done := 0
	run := func(name string) {
		if ctx.Err() != nil {
			return
		}
		got, failure := r.one(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil { // it was interrupted
			return
		}
		if failure == nil {
			failure = r.tests.note(r.side, got)
		}
		err = errors.Join(err, failure)
		done++
		how := "passed"
		if !got.Passed {
			how = "FAILED: " + got.Reason
			if r.side != "pair" && r.tests.results["pair"][name].Passed {
				failed = append(failed, name)
			}
		}
		fmt.Printf("%d/%d %5.1f s %s %s\n", done, len(names), got.Seconds, name, how)
	}
	queue := make(chan string)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for name := range queue {
				run(name)
			}
		})
	}
	for _, name := range together {
		queue <- name
	}
	close(queue)
	workers.Wait()
	for _, name := range alone {
		run(name)
	}
	return failed, len(names) - done, err
}

// one runs a test in a process of its own.
func (r *runner) one(ctx context.Context, name string) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, testPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.e2e, "--kubeconfig="+r.in.Server.Kubeconfig, "--provider=skeleton", "--num-nodes="+strconv.Itoa(fewNodes), "--allowed-not-ready-nodes=10",
		"--dump-logs-on-failure=false", "--ginkgo.no-color", "--ginkgo.focus=suite "+regexp.QuoteMeta(name)+"$")
	cmd.Dir = r.in.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = endPatience
	out, err := cmd.CombinedOutput() // its code says no more than what it prints
	got, ok := parse(name, string(out))
	if !ok {
		return got, fmt.Errorf("%s didn't come to an end: %w: %s", name, err, out[max(0, len(out)-reasonLength):])
	}
	return got, nil
}

var (
	counts = regexp.MustCompile(`(?m)^Ran (\d+) of \d+ Specs in ([\d.]+) seconds\n.*?(\d+) Passed`)
	why    = regexp.MustCompile(`(?m)^ +\[(?:FAILED|SKIPPED|PANICKED|TIMEDOUT)\] `) // the last one has the message
	where  = regexp.MustCompile(`(?m)^\s*(?:In \[|--)`)                             // after it
)

// parse reads what e2e.test prints of a test; ok says that it came to its end.
func parse(name, out string) (got result, ok bool) {
	m := counts.FindStringSubmatch(out)
	if m == nil {
		return result{}, false
	}
	got = result{Name: name, Passed: m[1] == "1" && m[3] == "1"}
	got.Seconds, _ = strconv.ParseFloat(m[2], 64) // the expression lets no other text through
	if got.Passed {
		return got, true
	}
	got.Reason = "no test, or more than one, was selected by the name"
	if all := why.FindAllStringIndex(out, -1); all != nil {
		got.Reason = out[all[len(all)-1][1]:]
		if end := where.FindStringIndex(got.Reason); end != nil {
			got.Reason = got.Reason[:end[0]]
		}
		got.Reason = strings.Join(strings.Fields(got.Reason), " ")
		got.Reason = strings.ToValidUTF8(got.Reason[:min(len(got.Reason), reasonLength)], "")
	}
	return got, true
}
