package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// projectTest is the test of a project that uses envtest, as kubebuilder would write it.
const projectTest = `package project

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func TestControlPlane(t *testing.T) {
	env := &envtest.Environment{}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer env.Stop()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"k": "v"}}
	if err := c.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil || m.Data["k"] != "v" {
		t.Errorf("%v, %v", m, err)
	}
}
`

// linesOfThisRepository are those of go.mod about this repository. The others are the versions that a project has, too.
var linesOfThisRepository = regexp.MustCompile(`(?m)^.*apiserver-lite.*\n`)

// TestReadmeMakefile: with the README's lines in its Makefile, and nothing else, a project's test with envtest runs against this
// program. Only where the program comes from differs: it's this tree's, and not the newest release.
func TestReadmeMakefile(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```make\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("the README has no lines for a Makefile")
	}
	guide, err := os.ReadFile("../docs/testing.md")
	if err != nil || !strings.Contains(string(guide), string(block[0])) {
		t.Errorf("docs/testing.md has other lines: %v", err)
	}
	read := func(name string) string {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	dir, temporary := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"Makefile":        string(block[1]),
		"project_test.go": projectTest,
		"go.mod":          "module example.com/project\n" + linesOfThisRepository.ReplaceAllString(read("go.mod"), ""),
		"go.sum":          read("go.sum"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("make", "test")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "APISERVER_LITE="+apiserverBinary, "CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath", "TMPDIR="+temporary, "GOTMPDIR="+os.TempDir())
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "ok  \texample.com/project") {
		t.Fatalf("make test: %v\n%s", err, output)
	}
	if left, err := filepath.Glob(filepath.Join(temporary, "apiserver-lite*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
