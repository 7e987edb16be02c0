package e2e

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const clusterExamples = "../examples/cluster"

// TestExampleManifests: a server that has the kinds of a cluster takes the manifests, without a field that it doesn't know. No
// container is ended while it may wait for its store.
func TestExampleManifests(t *testing.T) {
	t.Parallel()
	p := start(t, "--ephemeral", "--builtin=all", "--controllers=none")
	paths := map[string]string{
		"Service": "/api/v1/namespaces/%s/services", "PodDisruptionBudget": "/apis/policy/v1/namespaces/%s/poddisruptionbudgets",
		"StatefulSet": "/apis/apps/v1/namespaces/%s/statefulsets", "Deployment": "/apis/apps/v1/namespaces/%s/deployments",
	}
	for _, file := range []string{"members.yaml", "deployment.yaml"} {
		text, err := os.ReadFile(filepath.Join(clusterExamples, file))
		if err != nil {
			t.Fatal(err)
		}
		namespace := strings.TrimSuffix(file, ".yaml")
		p.do(http.StatusCreated, "POST", "/api/v1/namespaces", `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+namespace+`"}}`)
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var head struct{ Kind string }
			if err := yaml.UnmarshalStrict(document, &map[string]any{}); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if err := yaml.Unmarshal(document, &head); err != nil || paths[head.Kind] == "" {
				t.Fatalf("%s has a document of kind %q (%v)", file, head.Kind, err)
			}
			checkProbes(t, file, document)
			p.do(http.StatusCreated, "POST", strings.Replace(paths[head.Kind], "%s", namespace, 1)+"?fieldValidation=Strict", string(document), "Content-Type", "application/yaml")
		}
	}
}

// checkProbes: a container that is ended when it doesn't live has long enough to start before. It serves nothing until its
// store has a majority and has sent what there is.
func checkProbes(t *testing.T, file string, document []byte) {
	t.Helper()
	type probe struct{ PeriodSeconds, FailureThreshold int }
	var workload struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name                        string
						StartupProbe, LivenessProbe *probe
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(document, &workload); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	const least = 30 * 60 // seconds: the quota's 4 GiB at 2.5 MB/s, which is a slow network
	for _, c := range workload.Spec.Template.Spec.Containers {
		if c.LivenessProbe != nil && (c.StartupProbe == nil || c.StartupProbe.PeriodSeconds*c.StartupProbe.FailureThreshold < least) {
			t.Errorf("%s: the container %s has the startup probe %+v, and %d s are needed", file, c.Name, c.StartupProbe, least)
		}
	}
}

// TestExampleCommands: each way is three commands. What is read in a pod is there once the command before it has ended, and no
// secret is deleted that a pod needs at its next start.
func TestExampleCommands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(clusterExamples, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 3 {
		t.Errorf("there are %d ways, want 3", len(blocks))
	}
	reads := regexp.MustCompile(`kubectl exec (\S+)-0 `)
	for _, b := range blocks {
		commands := strings.Split(strings.TrimSpace(string(b[1])), "\n")
		if len(commands) != 3 {
			t.Errorf("these are %d commands, want 3:\n%s", len(commands), b[1])
		}
		for _, command := range commands {
			// Not the pod's phase: it's Running before the server has written anything, and before all containers run.
			if pod := reads.FindStringSubmatch(command); pod != nil && !strings.HasPrefix(command, "kubectl rollout status statefulset/"+pod[1]+" && ") {
				t.Errorf("this doesn't wait until the pod is ready: %s", command)
			}
		}
	}
	if regexp.MustCompile(`(?i)delete the secret`).Match(text) {
		t.Error("a secret is deleted that pods mount")
	}
}

// TestExampleCompose: the Compose file is YAML of the form that Compose reads, and each path that it mounts is a volume of its.
func TestExampleCompose(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(clusterExamples, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Command []string
			Volumes []string
			Ports   []string
			Build   struct{ Context, Dockerfile string }
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) != 3 {
		t.Errorf("there are %d services, want 3", len(file.Services))
	}
	for name, s := range file.Services {
		if _, err := os.Stat(filepath.Join(clusterExamples, s.Build.Context, s.Build.Dockerfile)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(s.Command) == 0 || len(s.Ports) != 1 {
			t.Errorf("%s has the command %q and the ports %q", name, s.Command, s.Ports)
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, ok := file.Volumes[volume]; !ok {
				t.Errorf("%s mounts %s, which isn't a volume", name, v)
			}
		}
	}
}

// TestExampleLocal runs the script that does with plain processes what the Compose file does with containers.
func TestExampleLocal(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(filepath.Join(clusterExamples, "local.sh"), binary())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
	output, err := cmd.CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^member 3 is back, and has what was written without it$`).Match(output) {
		t.Errorf("%v: %v\n%s", cmd, err, output)
	}
}
