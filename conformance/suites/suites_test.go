package suites

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	all      = flag.Bool("all", false, "run every suite, not only the quick ones")
	only     = flag.String("only", "", "regular expression: the modules to run")
	upstream = flag.String("pair", "", "directory with upstream's kube-apiserver and etcd: every suite runs with these, too, and results.json gets the figures")
)

// module is a Go module whose tests start envtest.
type module struct {
	path, version string
	packages      []pkg
}

// pkg is one of its packages, by its directory.
type pkg struct {
	dir   string
	quick bool // for CI
}

// modules are what is run. The newest versions that this repository's Go version builds, of projects that Go's proxy has.
var modules = []module{
	{"sigs.k8s.io/controller-runtime", "v0.25.2", []pkg{
		{"pkg/client", true}, {"pkg/cache", true}, {"pkg/webhook", true}, {"pkg/envtest", true},
		{"pkg/builder", false}, {"pkg/client/apiutil", false}, {"pkg/cluster", false}, {"pkg/controller", false},
		{"pkg/controller/controllerutil", false}, {"pkg/handler", false}, {"pkg/internal/controller", false}, {"pkg/internal/recorder", false},
		{"pkg/internal/testing/controlplane", false}, {"pkg/manager", false}, {"pkg/metrics/filters", false}, {"pkg/reconcile", false},
		{"pkg/source", false},
	}},
	{"github.com/fluxcd/pkg/ssa", "v0.78.0", []pkg{{".", false}, {"jsondiff", false}}},
	{"github.com/fluxcd/pkg/runtime", "v0.110.3", []pkg{{"patch", false}, {"events", false}, {"controller", false}, {"acl", false}, {"client", false}, {"cel", false}, {"secrets", false}}},
	{"github.com/fluxcd/pkg/auth", "v0.54.3", []pkg{{".", false}, {"generic", false}}},
	{"github.com/fluxcd/pkg/kustomize", "v1.41.0", []pkg{{".", false}}},
	{"sigs.k8s.io/karpenter", "v1.14.0", []pkg{
		{"pkg/apis/v1", false}, {"pkg/controllers/nodeclaim/lifecycle", false}, {"pkg/controllers/nodepool/hash", false}, {"pkg/controllers/node/termination", false},
		{"pkg/controllers/state", false},
	}},
	{"github.com/open-policy-agent/cert-controller", "v0.16.0", []pkg{{"pkg/rotator", false}}},
	{"github.com/open-policy-agent/frameworks/constraint", "v0.0.0-20260616163050-e1eaa1bf6d62", []pkg{{"pkg/apis/externaldata/v1beta1", false}, {"pkg/apis/templates/v1", false}}},
	{"github.com/open-policy-agent/gatekeeper/v3", "v3.23.1", []pkg{
		{"pkg/controller/config", false}, {"pkg/controller/connectionstatus", false}, {"pkg/controller/mutators/core", false},
		{"pkg/watch", false},
	}},
	{"github.com/kubernetes-sigs/kro", "v0.9.4", []pkg{{"test/integration/suites/core", false}}},
	{"github.com/kedacore/keda/v2", "v2.20.2", []pkg{{"apis/eventing/v1alpha1", false}, {"apis/keda/v1alpha1", false}}},
	{"sigs.k8s.io/cluster-api", "v1.13.6", []pkg{{"controllers/crdmigrator", false}, {"util/patch", false}}},
}

// maxExceptions is how many specs may be listed as not passing. They don't pass with upstream's pair either.
const maxExceptions = 10

//go:embed exceptions.txt
var exceptionsFile string

// exception is a spec that can't pass: a line of exceptions.txt, with tabs between the parts.
type exception struct {
	in, spec, reason string
	seen             bool // it ran, and failed
}

// sometimes tells whether the spec may pass, too.
func (e exception) sometimes() bool { return strings.HasPrefix(e.reason, "Sometimes: ") }

func exceptions(t *testing.T) (listed []exception) {
	for line := range strings.Lines(exceptionsFile) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) != 3 || parts[2] == "" {
			t.Fatalf("exceptions.txt: %q isn't a package, a spec and a reason with tabs between them", line)
		}
		listed = append(listed, exception{in: parts[0], spec: parts[1], reason: parts[2]})
	}
	if len(listed) > maxExceptions {
		t.Fatalf("exceptions.txt has %d lines, %d are allowed", len(listed), maxExceptions)
	}
	return listed
}

// assets is the directory with the programs, made once.
var assets string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "suites-")
	if err == nil {
		defer os.RemoveAll(dir)
		assets, err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build builds the program that users get, and has it fill the directory.
func build(dir string) (string, error) {
	binary := filepath.Join(dir, "apiserver-lite")
	compile := exec.Command("make", "-s", "-C", filepath.Join("..", ".."), "build", "BIN="+dir)
	if output, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", compile, err, output)
	}
	said, err := exec.Command(binary, "envtest", filepath.Join(dir, "assets")).Output()
	return strings.TrimSpace(string(said)), err
}

// TestSuites runs the suites, one at a time. Every spec has to pass, apart from the listed ones.
func TestSuites(t *testing.T) {
	wanted, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-only: %v", err)
	}
	listed := exceptions(t)
	could := map[string]bool{} // packages that ran
	for _, m := range modules {
		packages := slices.DeleteFunc(slices.Clone(m.packages), func(p pkg) bool { return !p.quick && !*all })
		if len(packages) == 0 || !wanted.MatchString(m.path) {
			continue
		}
		t.Run(filepath.Base(m.path), func(t *testing.T) {
			copied := m.copy(t)
			sum := figures{Version: m.version}
			for _, p := range packages {
				t.Run(p.dir, func(t *testing.T) {
					in := path.Join(m.path, p.dir)
					could[in] = true
					built := copied.build(t, p.dir)
					ours := built.test(t, assets)
					sum.Here.add(ours)
					t.Logf("%d of %d specs passed in %v", ours.ran-len(ours.failed), ours.ran, ours.took.Round(time.Second))
					theirs := result{failed: ours.failed}
					if *upstream != "" {
						theirs = built.test(t, *upstream)
						sum.There.add(theirs)
						t.Logf("with the real pair %d of %d specs passed in %v", theirs.ran-len(theirs.failed), theirs.ran, theirs.took.Round(time.Second))
					}
					for _, failed := range ours.failed {
						i := slices.IndexFunc(listed, func(e exception) bool { return e.in == in && strings.Contains(failed, e.spec) })
						switch {
						case i < 0:
							t.Errorf("failed: %s", failed)
						case !slices.Contains(theirs.failed, failed) && !listed[i].sometimes():
							t.Errorf("failed, and passes with the real pair: %s", failed)
						default:
							t.Logf("%s: can't pass: %s", failed, listed[i].reason)
							listed[i].seen = true
						}
					}
					if t.Failed() {
						t.Logf("%s", ours.tail())
					}
				})
			}
			if *all && *upstream != "" && !t.Failed() {
				if err := note(m.path, sum); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, e := range listed {
		if could[e.in] && !e.seen && !e.sometimes() {
			t.Errorf("%s in %s doesn't fail: take its line out of exceptions.txt", e.spec, e.in)
		}
	}
}
