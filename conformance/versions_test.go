package conformance

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestVersions holds versions.json, which lists all clients, to where each one's version is fixed. clients/main_test.go takes
// the version of Debian's kubectl from there.
func TestVersions(t *testing.T) {
	var want map[string]string
	readJSON(t, "versions.json", &want)
	have := map[string]string{"kubernetes-client": want["kubernetes-client"]}
	for file, modules := range map[string][]string{
		"go.mod": {"k8s.io/client-go", "k8s.io/kubectl", "sigs.k8s.io/controller-runtime"}, "clients/go.mod": {"helm.sh/helm/v4"},
	} {
		text, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range modules {
			if found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` (\S+)`).FindSubmatch(text); found != nil {
				have[module] = string(found[1])
			}
		}
	}
	var lock struct {
		Packages map[string]struct{ Version string }
	}
	readJSON(t, "node/package-lock.json", &lock)
	have["@kubernetes/client-node"] = lock.Packages["node_modules/@kubernetes/client-node"].Version
	version, err := exec.Command(pythonBinary(), "-c", "import kubernetes; print(kubernetes.__version__)").Output()
	if err != nil {
		t.Fatalf("Debian's package python3-kubernetes: %v", err)
	}
	have["python3-kubernetes"] = strings.TrimSpace(string(version))
	for client, v := range want {
		if have[client] != v {
			t.Errorf("%s is %q, and versions.json says %q", client, have[client], v)
		}
	}
	if len(want) != len(have) {
		t.Errorf("versions.json has %d clients, and the tests use %d", len(want), len(have))
	}
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
