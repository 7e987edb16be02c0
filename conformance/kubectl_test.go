package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// kubectl runs kubectl against a server, with a home directory of its own.
type kubectl struct {
	t      testing.TB
	binary string   // defaults to the newest
	flags  []string // how to reach the server
	dir    string
}

func newKubectl(t testing.TB, s *apiserver) *kubectl {
	k := &kubectl{t: t, flags: []string{"--server", s.url}, dir: t.TempDir()}
	if s.token != "" {
		k.flags = append(k.flags, "--token", s.token, "--certificate-authority", s.caFile)
	}
	return k
}

// command prepares a call.
func (k *kubectl) command(ctx context.Context, stdin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cmp.Or(k.binary, kubectlBinary), slices.Concat(k.flags, args)...)
	cmd.Env = append(os.Environ(), "HOME="+k.dir, "KUBECONFIG="+os.DevNull, "KUBECACHEDIR="+k.dir, "KUBE_EDITOR=sed -i s/size:.4/size:\\ 5/")
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

// call runs one call to its end.
func (k *kubectl) call(stdin string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := k.command(ctx, stdin, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return strings.TrimSpace(out.String()), strings.TrimSpace(errs.String()), err
}

// do runs a call that must succeed, and returns what it printed.
func (k *kubectl) do(stdin string, args ...string) string {
	k.t.Helper()
	stdout, stderr, err := k.call(stdin, args...)
	if err != nil {
		k.t.Fatalf("kubectl %s: %v\n%s\n%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout
}

// define creates the definition of widgets.
func (k *kubectl) define() {
	k.t.Helper()
	k.do("", "create", "-f", "testdata/widgets.yaml")
}

// step is one call of kubectl in a story.
type step struct {
	args      []string
	stdin     string
	want      string // what it prints, or part of it after "..."
	complains string // part of what it says on standard error all the same; nothing by default
	fails     string // if set: it fails and this is part of what it says
}

func args(words ...string) []string { return words }

// tell runs the steps in order, each as a subtest.
func (k *kubectl) tell(t *testing.T, steps []step) {
	for _, s := range steps {
		ok := t.Run(strings.Join(s.args, " "), func(t *testing.T) {
			stdout, stderr, err := k.call(s.stdin, s.args...)
			part, isPart := strings.CutPrefix(s.want, "...")
			switch {
			case s.fails != "":
				if err == nil || !strings.Contains(stderr, s.fails) {
					t.Errorf("ends with %v and says %q, want a failure and %q", err, stderr, s.fails)
				}
			case err != nil:
				t.Errorf("%v\n%s\n%s", err, stdout, stderr)
			case stderr != "" && (s.complains == "" || !strings.Contains(stderr, s.complains)):
				t.Errorf("complains: %s", stderr)
			case isPart && !strings.Contains(stdout, part) || !isPart && stdout != s.want:
				t.Errorf("prints\n%s\nwant\n%s", stdout, s.want)
			}
		})
		if !ok {
			return // what follows builds on it
		}
	}
}

const (
	gadget = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: g}, spec: {size: 1, color: blue}}`
	bigger = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: g}, spec: {size: 2, color: blue}}`
	plain  = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: g}, spec: {size: 2}}`
)

func TestKubectlAboutTheServer(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.define()
	k.tell(t, []step{
		{args: args("version"), want: "...Server Version: v1.37."},
		{args: args("version"), want: "...Client Version: " + kubectlVersion},
		{args: args("api-versions"), want: "...\nexample.com/v1\n"},
		{args: args("api-resources", "-o", "name"), want: "...\nwidgets.example.com"},
		{args: args("api-resources", "--api-group", "example.com", "--no-headers"), want: "widgets   wd    example.com/v1   true   Widget"},
		{args: args("api-resources", "--verbs", "list,watch", "--namespaced", "-o", "name"), want: "...widgets.example.com"},
		{args: args("api-resources", "--categories", "all", "-o", "name"), want: "widgets.example.com"},
		{args: args("explain", "widgets"), want: "...KIND:       Widget\nVERSION:    v1"},
		{args: args("explain", "namespaces.metadata"), want: "...FIELD: metadata "},
		{args: args("get", "--raw", "/readyz"), want: "ok"},
		{args: args("get", "--raw", "/apis/example.com/v1/namespaces/default/widgets"), want: `...,"items":[]}`},
		{args: args("get", "--raw", "/nowhere"), fails: "the server could not find the requested resource"},
		{args: args("get", "pods"), fails: `the server doesn't have a resource type "pods"`},
	})
}

func TestKubectlWithTLSAndToken(t *testing.T) {
	s := startSecure(t)
	k := newKubectl(t, s)
	k.tell(t, []step{
		{args: args("create", "-f", "testdata/widgets.yaml"), want: "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created"},
		{args: args("create", "-f", "testdata/widget.yaml"), want: "widget.example.com/a created"},
		{args: args("delete", "widget", "a", "--wait"), want: `widget.example.com "a" deleted from default namespace`},
	})
	s.token = "wrong"
	newKubectl(t, s).tell(t, []step{
		{args: args("get", "namespaces"), fails: "You must be logged in to the server"},
	})
}

func TestKubectlDefinition(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.tell(t, []step{
		{args: args("apply", "-f", "testdata/widgets.yaml"), want: "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created"},
		{args: args("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s"), want: "customresourcedefinition.apiextensions.k8s.io/widgets.example.com condition met"},
		{args: args("apply", "-f", "testdata/widgets.yaml"), want: "customresourcedefinition.apiextensions.k8s.io/widgets.example.com unchanged"},
		{args: args("label", "crd", "widgets.example.com", "x=y"), want: "customresourcedefinition.apiextensions.k8s.io/widgets.example.com labeled"},
		{args: args("get", "crd", "-o", "name"), want: "customresourcedefinition.apiextensions.k8s.io/widgets.example.com"},
		{args: args("create", "-f", "testdata/widget.yaml"), want: "widget.example.com/a created"},
		{args: args("delete", "crd", "widgets.example.com"), want: `customresourcedefinition.apiextensions.k8s.io "widgets.example.com" deleted`},
		{args: args("get", "crd", "-o", "name"), want: ""},
		{args: args("get", "widgets.example.com"), fails: `the server doesn't have a resource type "widgets" in group "example.com"`},
		{args: args("api-resources", "--api-group", "example.com", "-o", "name"), want: ""},
		{args: args("create", "-f", "testdata/widgets.yaml"), want: "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created"},
		{args: args("get", "wd", "-A", "-o", "name"), want: ""},
	})
}

func TestKubectlObjects(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.define()
	k.tell(t, []step{
		{args: args("create", "-f", "testdata/widget.yaml"), want: "widget.example.com/a created"},
		{args: args("create", "-f", "testdata/widget.yaml"), fails: `(AlreadyExists): error when creating "testdata/widget.yaml": widgets.example.com "a" already exists`},
		{args: args("create", "-f", "-"), stdin: gadget, want: "widget.example.com/g created"},
		{args: args("create", "-f", "-", "-n", "nowhere"), stdin: gadget, fails: `namespaces "nowhere" not found`},
		{args: args("create", "-f", "-"), stdin: strings.Replace(gadget, "name: g", "name: x, nickname: y", 1), fails: `unknown field "metadata.nickname"`},
		{args: args("get", "widgets"), want: "...NAME   AGE\na"},
		{args: args("get", "wd", "a", "-o", "jsonpath={.kind} {.metadata.namespace} {.metadata.generation} {.spec.size}"), want: "Widget default 1 1"},
		{args: args("get", "widget/a", "-o", "yaml"), want: "...  namespace: default\n"},
		{args: args("get", "all", "-o", "name"), want: "widget.example.com/a\nwidget.example.com/g"},
		{args: args("get", "wd", "-A", "--no-headers"), want: "...default   g     "},
		{args: args("get", "wd", "-l", "tier in (front,back)", "-o", "name"), want: "widget.example.com/a"},
		{args: args("get", "wd", "-l", "!tier", "-o", "name"), want: "widget.example.com/g"},
		{args: args("get", "wd", "--field-selector", "metadata.name!=a", "-o", "name"), want: "widget.example.com/g"},
		{args: args("get", "wd", "--field-selector", "spec.color=red", "-o", "name"), want: "widget.example.com/a"},
		{args: args("get", "wd", "--field-selector", "spec.size=1"), fails: "field label not supported: spec.size"},
		{args: args("get", "wd", "--chunk-size", "1", "-o", "name"), want: "widget.example.com/a\nwidget.example.com/g"},
		{args: args("get", "wd/a", "wd/x"), fails: `(NotFound): widgets.example.com "x" not found`},
		{args: args("wait", "--for=create", "wd/a", "--timeout=10s"), want: "widget.example.com/a condition met"},
		{args: args("label", "wd", "a", "x=y", "--resource-version=1"), fails: "(Conflict): Operation cannot be fulfilled"},
		{args: args("label", "wd", "a", "x=y", "tier-"), want: "widget.example.com/a modified"},
		{args: args("label", "wd", "--all", "z=1"), want: "widget.example.com/a labeled\nwidget.example.com/g labeled"},
		{args: args("annotate", "wd", "a", "note=some words"), want: "widget.example.com/a annotated"},
		{args: args("get", "wd", "a", "-o", "jsonpath={.metadata.labels} {.metadata.annotations}"), want: `{"x":"y","z":"1"} {"note":"some words"}`},
		{args: args("patch", "wd", "a", "--type=merge", "-p", `{"spec":{"size":3}}`), want: "widget.example.com/a patched"},
		{args: args("patch", "wd", "a", "--type=merge", "-p", `{"spec":{"size":3}}`), want: "widget.example.com/a patched (no change)"},
		{args: args("patch", "wd", "a", "--type=json", "-p", `[{"op":"test","path":"/spec/size","value":3},{"op":"replace","path":"/spec/size","value":4}]`), want: "widget.example.com/a patched"},
		{args: args("patch", "wd", "a", "--type=json", "-p", `[{"op":"test","path":"/spec/size","value":3}]`), fails: "The request is invalid: the server rejected our request due to an error in our request"},
		{args: args("patch", "wd", "a", "-p", `{}`), fails: "application/strategic-merge-patch+json is not supported by example.com/v1, Kind=Widget"},
		{args: args("patch", "wd", "a", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Ready"},"spec":{"size":9}}`), want: "widget.example.com/a patched"},
		{args: args("get", "wd", "a", "--subresource=status", "-o", "jsonpath={.spec.size} {.status.phase} {.metadata.generation}"), want: "4 Ready 3"},
		{args: args("wait", "--for=jsonpath={.status.phase}=Ready", "wd/a", "--timeout=10s"), want: "widget.example.com/a condition met"},
		{args: args("replace", "-f", "-"), stdin: bigger, want: "widget.example.com/g replaced"},
		{args: args("replace", "-f", "-"), stdin: strings.Replace(gadget, "name: g", `name: g, resourceVersion: "1"`, 1), fails: "(Conflict): error when replacing"},
		{args: args("replace", "-f", "-"), stdin: strings.Replace(gadget, "name: g", "name: x", 1), fails: `(NotFound): error when replacing "STDIN": widgets.example.com "x" not found`},
		{args: args("replace", "--force", "-f", "-"), stdin: gadget, want: "widget.example.com \"g\" deleted from default namespace\nwidget.example.com/g replaced"},
		{args: args("edit", "wd", "a"), want: "widget.example.com/a edited"},
		{args: args("get", "wd", "a", "-o", "jsonpath={.spec.size}"), want: "5"},
		{args: args("describe", "wd", "a"), want: "...\nStatus:\n  Phase:  Ready\n"},
		{args: args("delete", "wd", "a", "--wait"), want: `widget.example.com "a" deleted from default namespace`},
		{args: args("delete", "wd", "a"), fails: `(NotFound): widgets.example.com "a" not found`},
		{args: args("delete", "wd", "a", "--ignore-not-found"), want: ""},
		{args: args("delete", "-f", "-"), stdin: gadget, want: `widget.example.com "g" deleted from default namespace`},
		{args: args("get", "wd", "g"), fails: `(NotFound): widgets.example.com "g" not found`},
	})
}

func TestKubectlApply(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.define()
	k.tell(t, []step{
		{args: args("apply", "-f", "-"), stdin: gadget, want: "widget.example.com/g created"},
		{args: args("apply", "-f", "-"), stdin: gadget, want: "widget.example.com/g unchanged"},
		{args: args("apply", "-f", "-"), stdin: bigger, want: "widget.example.com/g configured"},
		{args: args("apply", "-f", "-"), stdin: plain, want: "widget.example.com/g configured"},
		{args: args("get", "wd", "g", "-o", "jsonpath={.spec}"), want: `{"size":2}`},
		{args: args("apply", "view-last-applied", "wd", "g", "-o", "json"), want: `..."size": 2`},
		{args: args("apply", "-f", "-", "--namespace", "nowhere"), stdin: gadget, fails: `namespaces "nowhere" not found`},
	})
}

func TestKubectlNamespaces(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.define()
	const team = `{apiVersion: v1, kind: Namespace, metadata: {name: team}}`
	k.tell(t, []step{
		{args: args("get", "namespaces", "-o", "name"), want: "namespace/default\nnamespace/kube-node-lease\nnamespace/kube-public\nnamespace/kube-system"},
		{args: args("create", "-f", "-"), stdin: team, want: "namespace/team created"},
		{args: args("label", "ns", "team", "x=y"), want: "namespace/team labeled"},
		{args: args("annotate", "ns", "team", "x=y"), want: "namespace/team annotated"},
		{args: args("wait", "--for=jsonpath={.status.phase}=Active", "ns/team", "--timeout=10s"), want: "namespace/team condition met"},
		{args: args("get", "ns", "--field-selector", "status.phase=Active", "-l", "x=y", "-o", "name"), want: "namespace/team"},
		{args: args("describe", "ns", "team"), want: "...Status:       Active"},
		{args: args("create", "-n", "team", "-f", "testdata/widget.yaml"), want: "widget.example.com/a created"},
		{args: args("delete", "ns", "team", "--wait"), want: `namespace "team" deleted`},
		{args: args("get", "ns", "team"), fails: `(NotFound): namespaces "team" not found`},
		{args: args("get", "wd", "-A", "-o", "name"), want: ""},
		{args: args("delete", "ns", "default"), fails: `(Forbidden): namespaces "default" is forbidden`},
	})
}

// TestKubectlGetWatch follows objects in a terminal, with a selector that they enter and leave.
func TestKubectlGetWatch(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.define()
	k.do("", "create", "-f", "testdata/widget.yaml")
	lines := k.follow("get", "widgets", "-w", "-l", "tier=front", "--output-watch-events")
	expect := func(want string) {
		t.Helper()
		line, ok := <-lines
		if !ok || !strings.HasPrefix(strings.Join(strings.Fields(line), " "), want) {
			t.Fatalf("the watch prints %q (or ended: %t), want %q", line, !ok, want)
		}
	}
	expect("EVENT NAME AGE")
	expect("ADDED a ")
	k.do(gadget, "create", "-f", "-")
	k.do("", "label", "wd", "g", "tier=front")
	expect("ADDED g ")
	k.do("", "patch", "wd", "a", "--type=merge", "-p", `{"spec":{"size":7}}`)
	expect("MODIFIED a ")
	k.do("", "label", "wd", "g", "tier=back", "--overwrite")
	expect("DELETED g ")
	k.do("", "delete", "wd", "a")
	expect("DELETED a ")
}

// TestKubectlWatchOnly follows changes without the state before them.
func TestKubectlWatchOnly(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.do("", "create", "configmap", "before")
	lines := k.follow("get", "configmaps", "--watch-only", "-o", "name")
	eventually(t, "the watch is open", func(context.Context) bool {
		return strings.Contains(k.do("", "get", "--raw", "/metrics"), `apiserver_longrunning_requests{group="",resource="configmaps",verb="WATCH",version="v1"} 1`)
	})
	k.do("", "create", "configmap", "after")
	if line := <-lines; line != "configmap/after" {
		t.Errorf("the first line is %q", line)
	}
}

// follow starts a call that goes on until the test ends, and returns the lines it prints.
func (k *kubectl) follow(args ...string) <-chan string {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.t.Context()), patience)
	var errs bytes.Buffer
	cmd := k.command(ctx, "", args...)
	cmd.Stderr = &errs
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	lines, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
		io.Copy(io.Discard, stdout)
	}()
	k.t.Cleanup(func() {
		cancel()
		<-done
		cmd.Wait() // it was killed
		if k.t.Failed() {
			k.t.Logf("kubectl %s complains: %s", strings.Join(args, " "), errs.String())
		}
	})
	return lines
}

// TestKubectlWaitsForDeletion shows that kubectl notices when a finalizer lets go of an object.
func TestKubectlWaitsForDeletion(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"delete", args("delete", "widget", "a", "--wait", "--timeout=30s"), `widget.example.com "a" deleted from default namespace`},
		{"wait", args("wait", "--for=delete", "widget/a", "--timeout=30s"), "widget.example.com/a condition met"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			k := newKubectl(t, startEphemeral(t))
			k.define()
			k.do("", "create", "-f", "testdata/widget.yaml")
			k.do("", "patch", "wd", "a", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
			if test.name == "wait" {
				k.do("", "delete", "wd", "a", "--wait=false")
			}
			type result struct {
				stdout, stderr string
				err            error
			}
			done := make(chan result, 1)
			go func() {
				stdout, stderr, err := k.call("", test.args...)
				done <- result{stdout, stderr, err}
			}()
			eventually(t, "the deletion has begun", func(context.Context) bool {
				return k.do("", "get", "wd", "a", "-o", "jsonpath={.metadata.deletionTimestamp}") != ""
			})
			eventually(t, "kubectl watches", func(context.Context) bool {
				return slices.ContainsFunc(strings.Split(k.do("", "get", "--raw", "/metrics"), "\n"), func(line string) bool {
					return strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `resource="widgets"`) && strings.HasSuffix(line, " 1")
				})
			})
			k.do("", "patch", "wd", "a", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
			if r := <-done; r.err != nil || r.stdout != test.want {
				t.Errorf("it ends with %v, %q, %q; want %q", r.err, r.stdout, r.stderr, test.want)
			}
		})
	}
}
