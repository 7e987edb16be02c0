package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/conformance/cluster"
)

const (
	testdata   = "kubernetes/testdata" // in the module's directory, where the command runs
	containers = testdata + "/containers.txt"
)

// result is what came of a test.
type result struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`          // that the test took
	Reason  string  `json:"reason,omitempty"` // why it didn't pass
}

// tests are the conformance tests and what is known of them.
type tests struct {
	names      []string // sorted
	containers map[string]string
	results    map[string]map[string]result // by side and name
}

// spec is a line of e2e.test's list, as "    path/to/file.go:12: [sig-x] name".
var spec = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*\[Conformance\].*)$`)

// load asks e2e.test which tests there are, and reads what is known of them. What is known of a test that isn't there is a
// mistake.
func load(ctx context.Context, program string) (*tests, error) {
	list, err := exec.CommandContext(ctx, program, "--list-tests").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", program, err)
	}
	t, err := read()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(list)) {
		if m := spec.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			t.names = append(t.names, m[1])
		}
	}
	if slices.Sort(t.names); len(t.names) == 0 {
		return nil, fmt.Errorf("%s lists no test of conformance", program)
	}
	known := []map[string]result{t.results["pair"], t.results["ours"]}
	for name := range t.containers {
		known = append(known, map[string]result{name: {}})
	}
	for _, results := range known {
		for name := range results {
			if _, is := slices.BinarySearch(t.names, name); !is {
				return nil, fmt.Errorf("%s has something of %q, which is no test of conformance", testdata, name)
			}
		}
	}
	return t, nil
}

// read reads what is known, without the names of all tests.
func read() (*tests, error) {
	t := &tests{containers: map[string]string{}, results: map[string]map[string]result{}}
	err := lines(containers, func(line string) error {
		name, why, ok := strings.Cut(line, "\t")
		if !ok || why == "" {
			return fmt.Errorf("%q has no reason", line)
		}
		t.containers[name] = why
		return nil
	})
	for _, side := range cluster.Sides {
		t.results[side] = map[string]result{}
		err = errors.Join(err, lines(resultsOf(side), func(line string) error {
			var r result
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return fmt.Errorf("%q is no result: %w", line, err)
			}
			t.results[side][r.Name] = r // a later one counts
			return nil
		}))
	}
	return t, err
}

func resultsOf(side string) string { return testdata + "/" + side + ".jsonl" }

// lines reads a file that may not be there.
func lines(path string, read func(line string) error) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if err := read(scanner.Text()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return scanner.Err()
}

// where returns the names of which a condition is true.
func (t *tests) where(is func(name string) bool) (names []string) {
	for _, name := range t.names {
		if is(name) {
			names = append(names, name)
		}
	}
	return names
}

// left tells whether a side has yet to run a test.
func (t *tests) left(side, name string) bool {
	_, done := t.results[side][name]
	return !done && t.containers[name] == ""
}

// quickest returns n tests of sig-api-machinery, those that passed with the pair in the shortest time.
func (t *tests) quickest(n int) []string {
	quick := t.where(func(name string) bool {
		return strings.HasPrefix(name, "[sig-api-machinery]") && t.results["pair"][name].Passed
	})
	slices.SortFunc(quick, func(a, b string) int {
		return cmp.Compare(t.results["pair"][a].Seconds, t.results["pair"][b].Seconds)
	})
	return quick[:min(n, len(quick))]
}

// note keeps a result.
func (t *tests) note(side string, r result) error {
	t.results[side][r.Name] = r
	file, err := os.OpenFile(resultsOf(side), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	return json.NewEncoder(file).Encode(r)
}
