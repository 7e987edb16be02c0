package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// example runs the three commands of an example's README: the server's, the controller's, and the one that gives the
// controller something to do.
type example struct {
	t        *testing.T
	commands []string
	config   string // the kubeconfig's path
	server   *process
	printed  *output // by the controller
}

// goRun is a command that builds a program in a module, and runs it.
var goRun = regexp.MustCompile(`go (-C \S+ )?run \S+`)

// startExample starts the server as the first command does, but on a port of its own, and the controller.
func startExample(t *testing.T, name string) *example {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "examples", name, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	e := &example{t: t, printed: &output{}, config: filepath.Join(t.TempDir(), "kubeconfig")}
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```\n").FindAllStringSubmatch(string(page), -1) {
		e.commands = append(e.commands, strings.TrimSpace(m[1]))
	}
	if len(e.commands) != 3 {
		t.Fatalf("the README has %d commands, want 3", len(e.commands))
	}
	flags := regexp.MustCompile(`^make run ARGS=("[^"]*"|\S+)$`).FindStringSubmatch(e.commands[0])
	if flags == nil {
		t.Fatalf("the first command is %s", e.commands[0])
	}
	e.server = start(t, strings.Fields(strings.Trim(e.place(flags[1]), `"`))...)
	if run := goRun.FindStringSubmatch(e.commands[1]); run != nil {
		// On a cold machine the build takes longer than any wait below. It leaves the caches full.
		build := e.shell(strings.Replace(run[0], " run ", " build -o "+filepath.Join(t.TempDir(), "controller")+" ", 1))
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", build, err, output)
		}
	}
	controller := e.shell(e.commands[1])
	controller.Stdout, controller.Stderr = e.printed, e.printed
	if err := controller.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-controller.Process.Pid, syscall.SIGKILL)
		controller.Wait()
		if t.Failed() {
			t.Logf("the controller printed\n%s", e.printed)
		}
	})
	return e
}

// place puts the test's kubeconfig in the place of a command's.
func (e *example) place(command string) string {
	return strings.NewReplacer("$PWD/bin/kubeconfig", e.config, "bin/kubeconfig", e.config).Replace(command)
}

// shell is a command as it's pasted in the repository's directory. Only the server's address and the kubeconfig are others.
func (e *example) shell(command string) *exec.Cmd {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", strings.ReplaceAll(e.place(command), "http://127.0.0.1:8080", e.server.base))
	cmd.Dir = ".."
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it starts ends with it
	return cmd
}

// paste runs the third command.
func (e *example) paste() {
	e.t.Helper()
	output, err := e.shell(e.commands[2]).CombinedOutput()
	if err != nil || strings.Contains(string(output), `"status": "Failure"`) {
		e.t.Fatalf("%s: %v\n%s", e.commands[2], err, output)
	}
}

// TestExampleChecks: the controller that is a shell script does what its README says, when Checks change too, and
// after its watch has ended.
func TestExampleChecks(t *testing.T) {
	t.Parallel()
	e := startExample(t, "checks")
	const checks = "/apis/example.com/v1/checks"
	eventually(t, "the controller watches", func() bool { return strings.Contains(e.printed.String(), "watching") })
	e.paste()
	// The file names the address of a server that was started as the README says; this one has another.
	e.server.do(http.StatusOK, "PATCH", checks+"/self", `{"spec": {"url": "`+e.server.base+`/readyz?a,b"}}`, "Content-Type", "application/merge-patch+json")
	eventually(t, "the check is done", func() bool {
		return strings.Contains(e.printed.String(), "self: "+e.server.base+"/readyz?a,b answered 200\n")
	})
	a := e.server.do(http.StatusOK, "GET", checks+"/self", "")
	if !strings.Contains(a.body, `"code":"200"`) || !strings.Contains(a.body, `"observedGeneration":2`) {
		t.Errorf("the check is %s", a.body)
	}
	e.server.do(http.StatusCreated, "POST", checks, `{"apiVersion": "example.com/v1", "kind": "Check", "metadata": {"name": "nobody"}, "spec": {"url": "http://127.0.0.1:1"}}`)
	// A changed definition ends the watches of its kind.
	e.server.do(http.StatusOK, "PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/checks.example.com",
		`{"spec": {"names": {"shortNames": ["ck"]}}}`, "Content-Type", "application/merge-patch+json")
	e.server.do(http.StatusCreated, "POST", checks, `{"apiVersion": "example.com/v1", "kind": "Check", "metadata": {"name": "later"}, "spec": {"url": "`+e.server.base+`/livez"}}`)
	eventually(t, "the controller watches again", func() bool {
		return strings.Contains(e.printed.String(), "later: "+e.server.base+"/livez answered 200\n")
	})
	eventually(t, "what doesn't answer is noted, too", func() bool {
		return strings.Contains(e.server.do(http.StatusOK, "GET", checks+"/nobody", "").body, `"code":"000"`)
	})
}

// TestExamplePages: the controller written with controller-runtime does what its README says, and looks after what it made.
func TestExamplePages(t *testing.T) {
	t.Parallel()
	e := startExample(t, "pages")
	const pages, maps = "/apis/example.com/v1/namespaces/default/pages", "/api/v1/namespaces/default/configmaps"
	shows := func(path, text string) func() bool {
		return func() bool {
			a, err := e.server.try("GET", path, "")
			return err == nil && strings.Contains(a.body, text)
		}
	}
	eventually(t, "Pages are defined", shows(pages, `"PageList"`))
	e.paste()
	eventually(t, "the ConfigMap is there", shows(maps+"/hello", "Hello world"))
	eventually(t, "the Page is ready", shows(pages+"/hello", `"reason":"Rendered"`))
	e.server.do(http.StatusOK, "PATCH", pages+"/hello", `{"spec": {"values": {"who": "you"}}}`, "Content-Type", "application/merge-patch+json")
	eventually(t, "the ConfigMap changes with its Page", shows(maps+"/hello", `Hello you`))
	e.server.do(http.StatusOK, "DELETE", maps+"/hello", "")
	eventually(t, "the ConfigMap is made again", shows(maps+"/hello", `Hello you`))
	e.server.do(http.StatusOK, "PATCH", pages+"/hello", `{"spec": {"template": "{{"}}`, "Content-Type", "application/merge-patch+json")
	eventually(t, "the Page's status says what is wrong", shows(pages+"/hello", `"reason":"BadTemplate"`))
	if a := e.server.do(http.StatusOK, "GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/pages.example.com", ""); !strings.Contains(a.body, "holderIdentity") {
		t.Errorf("the lease of the leader is %s", a.body)
	}
	e.server.do(http.StatusOK, "DELETE", pages+"/hello", "")
	eventually(t, "the ConfigMap goes with its Page", func() bool {
		a, err := e.server.try("GET", maps+"/hello", "")
		return err == nil && a.code == http.StatusNotFound
	})
}
