package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/apiserver-lite/apiserver-lite"

// floors lists our packages from the ground up, by their path in the module, each with those of ours
// that its production code may import: these stand above it, so that the arrow points down only. A name that ends in /... stands for
// a package and everything below it; a package that is in no floor fails the test, so that whoever adds
// one decides where it stands.
var floors = []floor{
	{"selectors", nil},
	{"watchstream", nil},
	{"internal/clock", nil},
	{"internal/disk", nil},
	{"internal/private", []string{"internal/disk"}},
	{"tracing", nil},
	{"internal/jsonscan", nil},
	{"internal/connections", nil},
	{"egress", nil},
	{"internal/callout", []string{"egress", "internal/connections"}},
	{"internal/exit", nil},
	{"internal/reload", nil},
	{"audit", []string{"egress", "internal/callout", "internal/reload", "internal/private"}},
	{"backup/document", nil}, // YAML
	{"kubeproto", nil},
	{"fair", nil},
	{"storage", nil},
	{"storage/kv", []string{"tracing", "storage"}},
	{"storage/transaction", []string{"storage"}},
	{"storage/embedded", []string{"tracing", "storage", "storage/kv"}},
	{"storage/history", []string{"storage"}},
	{"storage/etcd/check", []string{"internal/disk"}},
	{"storage/snapshot", []string{"internal/disk", "storage", "storage/etcd/check"}},
	{"storage/remote", []string{"tracing", "storage", "storage/kv", "storage/history", "storage/snapshot", "internal/private"}},
	{"internal/loglimit", nil},
	{"storage/etcd", []string{"internal/clock", "internal/disk", "storage", "storage/etcd/check", "storage/snapshot", "storage/history", "storage/kv", "internal/loglimit", "internal/private"}},
	{"storage/election", []string{"storage"}},
	{"storage/kube", []string{"internal/jsonscan", "selectors", "watchstream", "kubeproto", "storage"}},
	{"storage/cacher", []string{"tracing", "selectors", "watchstream", "storage", "storage/kube"}},
	{"storage/seal", []string{"internal/private", "internal/reload", "storage", "storage/cacher", "storage/kube"}},
	{"registry/clip", nil},
	{"registry/jsontree", nil},
	{"registry/gotype", nil},
	{"registry/schema", nil}, // pure, as registry/crd is
	{"registry/managed", []string{"internal/clock", "registry/clip", "registry/jsontree", "registry/gotype"}},
	{"registry/object", []string{"registry/clip", "registry/jsontree"}},
	{"registry/hookclient", []string{"egress", "tracing", "fair", "internal/connections", "registry/object"}},
	{"registry/conversion", []string{"registry/hookclient"}},
	{"registry/conversion/ruleset", []string{"registry/clip", "registry/jsontree", "registry/schema"}}, // pure, likewise
	{"registry/form", []string{"internal/clock", "internal/jsonscan", "registry/clip", "registry/jsontree", "storage/kube"}},
	{"registry/crd", nil},
	{"registry/quota", []string{"registry/jsontree", "storage/kube"}},
	{"registry/expression", nil}, // pure, likewise
	{"registry", []string{"egress", "internal/clock",
		"selectors", "watchstream", "kubeproto", "storage", "storage/history", "storage/cacher", "storage/kube", "registry/clip", "registry/jsontree", "registry/object", "registry/form",
		"registry/crd", "registry/schema", "registry/hookclient", "registry/conversion", "registry/conversion/ruleset", "registry/managed", "registry/gotype",
	}},
	{"registry/reads", []string{
		"kubeproto", "registry", "registry/clip", "registry/form", "registry/gotype", "registry/jsontree", "registry/managed", "registry/object",
		"registry/schema", "selectors", "storage", "storage/cacher", "storage/kube", "watchstream",
	}},
	{"registry/writes", []string{
		"tracing",
		"audit", "kubeproto", "registry", "registry/clip", "registry/crd", "registry/form", "registry/jsontree", "registry/managed", "registry/object",
		"registry/reads", "registry/schema", "storage", "storage/kube", "storage/transaction",
	}},
	{"controllers", []string{"internal/clock", "watchstream", "storage", "storage/cacher", "storage/kube", "registry/clip", "registry/crd", "registry/quota", "registry", "registry/reads", "registry/writes"}},
	{"registry/builtin/column", []string{"registry", "registry/form", "registry/jsontree"}},
	{"registry/builtin/line", []string{"registry", "registry/builtin/column"}},
	{"registry/builtin/rules", []string{"registry"}},
	{"registry/builtin/configs", []string{"registry", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules"}},
	{"registry/builtin/events", []string{"registry", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules", "registry/jsontree"}},
	{"registry/builtin/rights", []string{"internal/clock", "registry", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules"}},
	{"registry/builtin/hooks", []string{"registry", "registry/reads", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules", "registry/expression", "storage"}},
	{"registry/builtin/controlplane", []string{"internal/clock", "registry", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules", "registry/form"}},
	{"registry/builtin/certificates", []string{"internal/clock", "registry", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules"}},
	{"registry/builtin/volumes", []string{"internal/clock", "registry", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules", "registry/form"}},
	{"registry/builtin/devices", []string{"internal/clock", "registry", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules"}},
	{"registry/builtin/network", []string{"registry", "registry/reads", "registry/writes", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules", "storage", "storage/cacher", "storage/kube"}},
	{"registry/builtin/pods", []string{"internal/clock", "registry", "registry/writes", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules", "registry/builtin/certificates", "registry/builtin/volumes", "registry/quota"}},
	{"registry/builtin/workloads", []string{"registry", "registry/form", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules", "registry/builtin/volumes", "registry/builtin/pods"}},
	{"registry/builtin/capacity", []string{"registry", "registry/builtin/column", "registry/builtin/line", "registry/builtin/rules", "registry/builtin/pods", "registry/quota"}},
	{"registry/builtin", []string{"internal/clock", "registry", "registry/reads", "registry/writes", "registry/builtin/..."}},
	{"storage/storagetest", []string{"storage", "storage/embedded", "storage/etcd"}},
	{"access", []string{"audit", "egress", "internal/callout", "internal/private", "internal/reload", "selectors", "storage", "storage/cacher", "storage/kube", "registry", "registry/clip", "registry/reads", "registry/writes"}},
	{"client", []string{"internal/jsonscan", "selectors", "watchstream"}},
	{"backup/own", []string{"access", "backup/document", "client"}}, // what a server makes by itself
	{"backup/recording", []string{"backup/document", "backup/own", "client"}},
	{"system", []string{"storage", "storage/cacher", "storage/kube", "registry", "registry/reads", "registry/writes", "registry/builtin/network", "controllers", "access"}},
	{"admission/match", []string{"registry", "registry/object", "registry/reads", "registry/writes", "registry/expression"}},
	{"admission/plugins", []string{"access", "audit", "storage", "storage/kube", "storage/transaction", "registry", "registry/reads", "registry/writes", "registry/jsontree", "registry/quota"}},
	{"admission/policy", []string{"audit", "storage", "storage/kube", "registry", "registry/reads", "registry/writes", "registry/...", "admission/match"}},
	{"admission/webhook", []string{"tracing", "audit", "storage", "storage/kube", "registry", "registry/reads", "registry/writes", "registry/...", "admission/match"}},
	{"admission", []string{"tracing", "audit", "storage", "storage/kube", "registry", "registry/reads", "registry/writes", "registry/...", "admission/..."}},
	{"aggregator", []string{"egress", "fair", "internal/connections", "internal/private", "registry", "registry/reads", "registry/writes", "registry/clip", "registry/hookclient", "storage", "storage/kube"}},
	{"server/wire", []string{"internal/disk", "watchstream"}},
	{"server/status", []string{"registry", "registry/clip"}},
	{"server/guard", []string{"registry", "registry/clip", "server/wire"}},
	{"server/flowcontrol", []string{"access", "fair", "registry", "server/wire", "storage", "storage/kube"}},
	{"server/profile", []string{"server/status"}},
	{"server/inflight", nil},
	{"server/traffic", nil},
	{"server/health", nil},
	{"server/stack", nil},
	{"server/packed", nil},
	{"server/resets", []string{"registry", "server/guard", "server/status"}},
	{"server/backups", []string{"internal/disk", "internal/private", "storage/snapshot"}},
	{"server/manifests", []string{"backup/document", "registry", "registry/writes", "storage"}},
	{"server/bounds", []string{"registry/builtin/events"}},
	{"server/bulk", []string{"internal/jsonscan", "registry", "registry/clip", "registry/object", "registry/reads", "server/stack", "storage", "storage/transaction"}},
	{"server/negotiation", []string{"kubeproto", "watchstream"}},
	{"server/quiescence", []string{"controllers", "registry/clip", "server/status", "storage"}},
	{"server/faketime", []string{"internal/clock", "registry/clip", "server/status"}},
	{"server/framing", []string{"kubeproto", "server/negotiation", "server/status", "server/wire", "watchstream"}},
	{"server/watches", []string{"access", "fair", "registry/clip", "server/wire", "storage/cacher", "watchstream"}},
	{"server/faults", []string{"access", "registry", "registry/clip", "registry/reads", "server/faketime", "server/health", "server/watches", "server/wire", "watchstream"}},
	{"server/recheck", []string{"access", "internal/loglimit", "registry/clip", "server/watches", "watchstream"}},
	{"server/replica", []string{"controllers", "storage", "storage/kv", "storage/cacher", "storage/election"}},
	{"server/secrets", []string{"access", "internal/private", "internal/reload", "storage"}},
	{"server/kubeconfig", []string{"server/secrets"}},
	{"server/markup", []string{"registry/clip"}},
	{"server/version", nil},
	{"server/console", nil}, // files of a page
	{"server/metrics", []string{"audit", "controllers", "fair", "registry", "server/flowcontrol", "server/replica", "storage", "storage/cacher", "storage/etcd"}},
	{"server/discovery", []string{"aggregator", "kubeproto", "registry", "registry/reads", "registry/writes", "registry/form", "registry/gotype", "registry/jsontree"}},
	{"server", []string{"egress", "tracing", "server/status", "server/wire", "server/guard", "server/flowcontrol", "server/inflight", "server/profile", "server/traffic", "server/health", "server/stack", "server/version", "server/faketime", "server/faults", "server/packed", "server/backups", "server/manifests", "server/bounds", "server/bulk", "server/recheck", "server/resets", "server/negotiation", "server/framing", "server/quiescence", "server/watches", "server/replica", "server/secrets", "server/kubeconfig", "server/markup", "server/console", "server/metrics", "server/discovery", "aggregator", "fair", "selectors", "watchstream", "kubeproto", "storage", "storage/kv", "storage/transaction", "storage/embedded", "storage/history", "storage/etcd", "storage/snapshot", "storage/remote", "storage/election", "storage/seal", "storage/cacher", "storage/kube", "registry/...", "controllers", "access", "system", "admission", "audit", "internal/clock", "internal/loglimit", "internal/private"}},
	{"server/servertest", []string{"backup/recording", "client", "selectors", "watchstream", "storage", "storage/etcd", "registry/...", "server/faults", "server"}},
	{"server/width", nil}, // measures its own process
	{"client/kubeconfig", []string{"client"}},
	{"internal/commandline", []string{"internal/exit"}},
	{"client/cli", []string{"backup/document", "internal/commandline", "internal/exit", "selectors", "watchstream", "client", "client/kubeconfig"}},
	{"internal/program", nil},     // builds the programs that tests start
	{"internal/credentials", nil}, // what clients of tests show
	{"internal/await", nil},       // what tests of servers wait with
	{"internal/loopback", nil},    // addresses for tests
	{"internal/faultproxy", nil},  // between clients and servers in tests
	{"mutants", nil},              // breaks promises, and runs the tests
	{"e2e", nil},                  // runs the binary
	{"bench", []string{"client"}}, // runs the binary, or measures a server that runs; tries the client at either
	{"examples/...", []string{"client", "server", "registry"}}, // programs of others
	{"dropin", []string{"server", "registry/builtin"}},         // the names kube-apiserver and etcd
	{"migrate", []string{"internal/commandline", "internal/exit", "storage", "storage/etcd", "storage/remote"}},
	{"backup", []string{"internal/commandline", "internal/exit", "client", "client/cli", "storage/etcd", "storage/snapshot"}},
	{"backup/text", []string{"internal/exit", "client", "client/cli", "backup/document", "backup/own"}},
	{"backup/undo", []string{"selectors", "client", "client/cli", "backup/document", "backup/own"}},
	{"backup/playback", []string{"internal/exit", "client", "client/cli", "backup/recording"}},
	{"conversionhook", []string{"internal/exit", "internal/reload", "backup/document", "registry/clip", "registry/conversion/ruleset", "registry/crd", "registry/jsontree"}},
	{"commands", []string{"conversionhook", "internal/commandline", "internal/exit", "client/cli", "dropin", "migrate", "backup", "backup/text", "backup/undo", "backup/playback"}},
	{"", []string{"controllers", "internal/commandline", "internal/exit", "server", "client/cli", "commands", "dropin", "storage/etcd", "internal/disk"}}, // main
}

// light are the packages that a Go client links, and the one with the words of storage: of what isn't ours they import the standard library only.
var light = []string{"selectors", "watchstream", "internal/jsonscan", "client", "storage"}

type floor struct {
	name string
	may  []string
}

// Foreign packages that production code of ours must not import: client-go and the machinery of
// kube-apiserver that this server replaces.
var (
	forbidden = []string{
		"k8s.io/client-go/...",
		"k8s.io/apiserver/pkg/storage/...",
		"k8s.io/apiserver/pkg/registry/...",
		"k8s.io/apiserver/pkg/endpoints/...",
		"k8s.io/apiserver/pkg/server/...",
	}
	exempt = []string{
		"k8s.io/client-go/util/jsonpath",
		// Kubeconfigs of webhooks, in the form that upstream's authenticator and authorizer take (internal/callout).
		"k8s.io/client-go/rest",
		"k8s.io/client-go/tools/clientcmd",
		// Encryption at rest: kube-apiserver has to read what this server encrypts, and the other way round.
		"k8s.io/apiserver/pkg/storage/value",
		"k8s.io/apiserver/pkg/server/options/encryptionconfig",
		// Proxies that kube-apiserver's users have: konnectivity's two protocols.
		"k8s.io/apiserver/pkg/server/egressselector",
	}
)

// listed is what `go list -json` says about a package. Imports leaves out those of its tests.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

// TestFloorsAreInOrder: what a package may import stands above it.
func TestFloorsAreInOrder(t *testing.T) {
	for i, f := range floors {
		for _, later := range floors[i:] {
			if later.name != f.name && matches(f.may, later.name) {
				t.Errorf("package %q may import %q, which stands below it in floors", f.name, later.name)
			}
		}
	}
}

// TestPackagesHaveRows: the table of packages has a row for each package that has a floor in imports_test.go, and for no other.
func TestPackagesHaveRows(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "| package | owns |\n|---|---|\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	rows := map[string]bool{"": strings.Contains(table, "| `main.go`")}
	for line := range strings.Lines(table) {
		first, _, _ := strings.Cut(line, " | ")
		above := ""
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
			name := m[1]
			if same, ok := strings.CutPrefix(name, "…/"); ok {
				name = path.Join(above, same)
			}
			above = path.Dir(name)
			if !strings.HasSuffix(name, ".go") && name != "conformance" { // which is a module of its own
				rows[name] = true
			}
		}
	}
	for _, f := range floors {
		name := strings.TrimSuffix(f.name, "/...")
		if !rows[name] {
			t.Errorf("docs/architecture.md has no row for package %q", f.name)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("docs/architecture.md has a row for %s, which is no package on a floor", name)
	}
}

func TestImportsPointDown(t *testing.T) {
	packages, err := goList()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(packages, func(p listed) bool { return p.ImportPath == module+"/selectors" }) {
		t.Fatalf("go list doesn't name our packages among its %d", len(packages))
	}
	for _, problem := range importProblems(packages) {
		t.Error(problem)
	}
}

// goList returns our packages and all that they depend on, which tells what is standard library.
func goList() ([]listed, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports", "./...")
	output, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("%v: %w\n%s", cmd, err, exit.Stderr)
		}
		return nil, fmt.Errorf("%v: %w", cmd, err)
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p listed
		switch err := decoder.Decode(&p); err {
		case nil:
			packages = append(packages, p)
		case io.EOF:
			return packages, nil
		default:
			return nil, fmt.Errorf("%v: %w", cmd, err)
		}
	}
}

// importProblems returns a sentence for each import of our packages that breaks a rule.
func importProblems(packages []listed) (problems []string) {
	standard := map[string]bool{}
	for _, p := range packages {
		standard[p.ImportPath] = p.Standard
	}
	for _, p := range packages {
		name, ours := nameInModule(p.ImportPath)
		if !ours {
			continue
		}
		problems = append(problems, floorProblems(name, p.Imports, standard)...)
		for _, imported := range p.Imports {
			if matches(forbidden, imported) && !matches(exempt, imported) {
				problems = append(problems, fmt.Sprintf("package %q must not import %q: production code does without it", name, imported))
			}
		}
	}
	return problems
}

// floorProblems returns a sentence for each import of our package that its floor doesn't allow.
func floorProblems(name string, imports []string, standard map[string]bool) (problems []string) {
	i := slices.IndexFunc(floors, func(f floor) bool { return matches([]string{f.name}, name) })
	if i < 0 {
		return []string{fmt.Sprintf("package %q is on no floor: add it to floors in imports_test.go, with what it may import", name)}
	}
	for _, imported := range imports {
		if other, ours := nameInModule(imported); ours && !matches(floors[i].may, other) {
			problems = append(problems, fmt.Sprintf("package %q must not import %q; of ours it may import only %q", name, other, floors[i].may))
		}
		if _, ours := nameInModule(imported); slices.Contains(light, name) && !ours && !standard[imported] {
			problems = append(problems, fmt.Sprintf("package %q must not import %q: of what isn't ours, the standard library only", name, imported))
		}
	}
	return problems
}

// nameInModule returns the package's path in our module, "" for main, and whether it's there.
func nameInModule(path string) (name string, ours bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// matches reports whether one of the patterns is path, or ends in /... and has path below it.
func matches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		tree, isTree := strings.CutSuffix(pattern, "/...")
		return path == tree || isTree && strings.HasPrefix(path, tree+"/")
	})
}

// TestImportProblems shows that the rules catch what they're for.
func TestImportProblems(t *testing.T) {
	tests := []struct {
		name, from, to string
		want           string // part of the only problem; empty if there is none
	}{
		{"down", "storage/cacher", module + "/watchstream", ""},
		{"up", "watchstream", module + "/storage", `"watchstream" must not import "storage"`},
		{"beside", "storage", module + "/storage/etcd", `"storage" must not import "storage/etcd"`},
		{"registry to etcd", "registry/crd", module + "/storage/etcd", `"registry/crd" must not import "storage/etcd"`},
		{"registry to a package below", "registry", module + "/registry/object", ""},
		{"registry to a package above", "registry", module + "/registry/builtin", `"registry" must not import "registry/builtin"`},
		{"a package above to registry", "registry/builtin", module + "/registry", ""},
		{"a package below to registry", "registry/object", module + "/registry", `"registry/object" must not import "registry"`},
		{"server to its test helper", "server", module + "/server/servertest", `"server" must not import "server/servertest"`},
		{"main to server", "", module + "/server", ""},
		{"main past server", "", module + "/registry", `"" must not import "registry"`},
		{"selectors to the standard library", "selectors", "strings", ""},
		{"selectors to a library", "selectors", "k8s.io/apimachinery/pkg/labels", "the standard library only"},
		{"watchstream to a library", "watchstream", "github.com/json-iterator/go", "the standard library only"},
		{"client to a library", "client", "sigs.k8s.io/yaml", "the standard library only"},
		{"client to storage", "client", module + "/storage", `"client" must not import "storage"`},
		{"watchstream to selectors", "watchstream", module + "/selectors", `"watchstream" must not import "selectors"`},
		{"no floor", "util", "strings", `"util" is on no floor`},
		{"name that begins alike", "registryx", "strings", `"registryx" is on no floor`},
		{"client-go", "server", "k8s.io/client-go/kubernetes", `"server" must not import "k8s.io/client-go/kubernetes"`},
		{"client-go itself", "server", "k8s.io/client-go", `"server" must not import "k8s.io/client-go"`},
		{"client-go's jsonpath", "server", "k8s.io/client-go/util/jsonpath", ""},
		{"storage to etcd", "storage", "go.etcd.io/etcd/client/v3", "the standard library only"},
		{"apiserver's storage", "storage/kv", "k8s.io/apiserver/pkg/storage/etcd3", `"storage/kv" must not import "k8s.io/apiserver/pkg/storage/etcd3"`},
		{"apiserver's CEL", "registry", "k8s.io/apiserver/pkg/cel/environment", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			packages := []listed{
				{ImportPath: "strings", Standard: true},
				{ImportPath: strings.TrimSuffix(module+"/"+test.from, "/"), Imports: []string{test.to}},
				{ImportPath: test.to, Standard: test.to == "strings"},
			}
			problems := importProblems(packages)
			if test.want == "" && len(problems) > 0 {
				t.Errorf("problems are %q, want none", problems)
			}
			if test.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], test.want)) {
				t.Errorf("problems are %q, want one with %q", problems, test.want)
			}
		})
	}
}
