package suites

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// checkout is a module's copy, in which `go test` can be run.
type checkout struct {
	dir string
}

// copy downloads the module and copies it: the go command doesn't write in the module cache.
func (m *module) copy(t *testing.T) checkout {
	cmd := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.Dir = t.TempDir() // outside of our module
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	output, err := cmd.Output()
	var found struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(output, &found); err != nil || jsonErr != nil || found.Dir == "" {
		t.Fatalf("download %s@%s: %v, %s", m.path, m.version, err, found.Error)
	}
	dir := t.TempDir()
	if err := copyTree(found.Dir, dir); err != nil {
		t.Fatal(err)
	}
	c := checkout{dir}
	c.dropLocalReplacements(t)
	return c
}

// copyTree copies a module, and makes its scripts executable again: the module cache keeps no modes.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		mode := fs.FileMode(0o644)
		if filepath.Ext(path) == ".sh" {
			mode = 0o755
		}
		out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			out.Close()
			return err
		}
		return out.Close()
	})
}

// dropLocalReplacements has the module use released versions of its neighbours in the repository that it comes from.
func (c checkout) dropLocalReplacements(t *testing.T) {
	var mod struct {
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal(c.goCommand(t, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Replace {
		if strings.HasPrefix(r.New.Path, ".") {
			c.goCommand(t, "mod", "edit", "-dropreplace", r.Old.Path)
		}
	}
}

func (c checkout) goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = c.dir
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return output
}

// result is what a package's tests came to.
type result struct {
	ran    int
	tests  []string // of which no Ginkgo spec is one; ran counts these, too
	failed []string // names of specs and tests
	output []byte
	took   time.Duration // without what fails being tried again
}

// suite is a package's test program.
type suite struct {
	dir     string // of its source, in which it runs
	program string
	ginkgo  bool
}

// build compiles a package's tests.
func (c checkout) build(t *testing.T, dir string) *suite {
	t.Helper()
	s := &suite{dir: filepath.Join(c.dir, dir), program: filepath.Join(t.TempDir(), "suite.test")}
	cmd := exec.Command("go", "test", "-c", "-o", s.program, "./"+dir)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOTMPDIR="+os.TempDir())
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, output)
	}
	s.ginkgo = s.usesGinkgo(t)
	return s
}

// test runs the tests with the programs of a directory. What fails is tried again (a spec twice), because many have a second for what a
// busy machine may take longer for.
func (s *suite) test(t *testing.T, assets string) result {
	t.Helper()
	if s.ginkgo {
		r := s.run(t, assets, "-ginkgo.no-color", "-ginkgo.flake-attempts=3")
		if bytes.Contains(r.output, []byte("Your Test Panicked")) {
			// The process ended before Ginkgo could try again. controller-runtime's webhooks do that: a spec of theirs listens on the
			// port of the one before, whose server may not have let it go, and asserts in a goroutine that nobody recovers.
			r = s.run(t, assets, "-ginkgo.no-color", "-ginkgo.flake-attempts=3")
		}
		return r
	}
	r := s.run(t, assets)
	if len(r.failed) == 0 {
		return r
	}
	var top []string // tests share what their parents make
	for _, name := range r.failed {
		parent, _, _ := strings.Cut(name, "/")
		top = append(top, parent)
	}
	again := s.run(t, assets, "-test.run", "^("+strings.Join(top, "|")+")$")
	for _, name := range r.tests { // one that fails at its beginning doesn't come to the tests in it
		if parent, _, _ := strings.Cut(name, "/"); slices.Contains(top, parent) {
			r.ran--
		}
	}
	r.ran += again.ran
	r.failed = slices.DeleteFunc(r.failed, func(name string) bool { return !slices.Contains(again.failed, name) })
	return r
}

// run runs the program once, with further arguments.
func (s *suite) run(t *testing.T, assets string, further ...string) result {
	t.Helper()
	temporary := t.TempDir()
	cmd := exec.Command("go", append([]string{"tool", "test2json", "-t", s.program, "-test.v=test2json", "-test.timeout=1h"}, further...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets, "GOFLAGS=-mod=mod", "TMPDIR="+temporary, "APISERVER_LITE_EXIT_WITH_PARENT=true",
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=2m") // 20 s are too few for upstream's on a busy machine
	began := time.Now()
	output, err := cmd.Output()
	r, parseErr := parse(output)
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	r.took = time.Since(began)
	if err != nil && len(r.failed) == 0 {
		t.Fatalf("%v: %v\n%s", cmd, err, r.tail())
	}
	if r.ran == 0 {
		t.Errorf("%v ran nothing\n%s", cmd, r.tail())
	}
	checkLeft(t, temporary)
	return r
}

// checkLeft fails the test if servers leave their directories. Some tests of others don't stop what they started: that ends by itself,
// with the test's process.
func checkLeft(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left, err := filepath.Glob(filepath.Join(dir, "apiserver-lite*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the server left %q", left)
			return
		}
	}
}

func (s *suite) usesGinkgo(t *testing.T) bool {
	files, err := filepath.Glob(filepath.Join(s.dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file)
		return err == nil && bytes.Contains(source, []byte(`"github.com/onsi/ginkgo`))
	})
}

// maxTail is how much of a failed run's output is shown. Ginkgo's summary is at its end.
const maxTail = 64 << 10

func (r *result) tail() []byte { return r.output[max(0, len(r.output)-maxTail):] }

// What Ginkgo prints.
var (
	specsLine = regexp.MustCompile(`Ran (\d+) of \d+ Specs in `)
	failLine  = regexp.MustCompile(`^\s*\[(?:FAIL|PANICKED!|TIMEDOUT|INTERRUPTED)\] (.+)$`)
)

// parse reads the output of `go test -json`. A test that runs Ginkgo's specs counts as these; another counts as one, without its parents.
func parse(output []byte) (result, error) {
	r := result{}
	holders := map[string]bool{} // tests that ran specs
	ended := map[string]string{} // by test
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var event struct{ Action, Test, Output string }
		if err := decoder.Decode(&event); err == io.EOF {
			break
		} else if err != nil {
			return r, fmt.Errorf("the output of go test: %w", err)
		}
		switch event.Action {
		case "output":
			r.output = append(r.output, event.Output...)
			if m := specsLine.FindStringSubmatch(event.Output); m != nil {
				n, _ := strconv.Atoi(m[1]) // digits
				r.ran += n
				holders[event.Test] = true
			}
			if m := failLine.FindStringSubmatch(strings.TrimRight(event.Output, "\n")); m != nil && !slices.Contains(r.failed, m[1]) {
				r.failed = append(r.failed, m[1])
			}
		case "pass", "fail":
			if event.Test != "" {
				ended[event.Test] = event.Action
			}
		}
	}
	for test, action := range ended {
		if holders[test] || hasChild(ended, test) {
			continue
		}
		r.ran++
		r.tests = append(r.tests, test)
		if action == "fail" {
			r.failed = append(r.failed, test)
		}
	}
	slices.Sort(r.failed)
	return r, nil
}

func hasChild(tests map[string]string, parent string) bool {
	for test := range tests {
		if strings.HasPrefix(test, parent+"/") {
			return true
		}
	}
	return false
}

// TestParse: specs, tests and tables are counted once each.
func TestParse(t *testing.T) {
	output := strings.Join([]string{
		`{"Action":"output","Test":"TestSuite","Output":"  [FAIL] Client [It] creates\n"}`,
		`{"Action":"output","Test":"TestSuite","Output":"Ran 3 of 4 Specs in 0.1 seconds\n"}`,
		`{"Action":"fail","Test":"TestSuite"}`,
		`{"Action":"pass","Test":"TestTable/a"}`,
		`{"Action":"fail","Test":"TestTable/b"}`,
		`{"Action":"fail","Test":"TestTable"}`,
		`{"Action":"skip","Test":"TestSkipped"}`,
		`{"Action":"fail"}`,
	}, "\n")
	r, err := parse([]byte(output))
	if err != nil || r.ran != 5 || !slices.Equal(r.failed, []string{"Client [It] creates", "TestTable/b"}) {
		t.Errorf("%d, %q, %v", r.ran, r.failed, err)
	}
}
