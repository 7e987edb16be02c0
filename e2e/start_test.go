package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// refusal is a start that is refused.
type refusal struct {
	name string
	run  run
	code int
	want string // in the line
}

// TestRefusals: what can't work ends the program with one line on standard error that says why.
func TestRefusals(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	dir := t.TempDir()
	foreign, file, openToken, groupToken := filepath.Join(dir, "foreign"), filepath.Join(dir, "file"), filepath.Join(dir, "token"), filepath.Join(dir, "group")
	mustWrite(t, filepath.Join(foreign, "photo.jpg"), 0o600)
	mustWrite(t, file, 0o600)
	mustWrite(t, openToken, 0o644)
	mustWrite(t, groupToken, 0o660)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(openToken, link); err != nil {
		t.Fatal(err)
	}
	elsewhere := "--etcd-servers=https://" + taken.Addr().String()
	fresh := filepath.Join(dir, "fresh")

	tests := []refusal{
		{"unknown flag", run{args: []string{"--bogus"}}, 2, "unknown flag: --bogus"},
		{"argument", run{args: []string{"srve"}}, 2, `unknown command "srve" for "apiserver-lite": did you mean serve?`},
		{"flag's value", run{args: []string{"--history=soon"}}, 2, "--history"},
		{"console that is neither", run{args: []string{"--console=maybe"}}, 2, "--console"},
		{"negative history", run{args: []string{"--history=-1s"}}, 1, "--history must not be negative"},
		{"schedule", run{args: []string{"--snapshot-schedule=soon", "--snapshot-dir=" + dir}}, 2, "--snapshot-schedule"},
		{"schedule without a directory", run{args: []string{"--snapshot-schedule=6h"}}, 1, "--snapshot-schedule needs --snapshot-dir"},
		{"directory without a schedule", run{args: []string{"--snapshot-dir=" + dir}}, 1, "--snapshot-dir needs --snapshot-schedule"},
		{"no snapshot to keep", run{args: []string{"--snapshot-schedule=6h", "--snapshot-dir=" + dir, "--snapshot-keep=0"}}, 1, "--snapshot-keep"},
		{"snapshots into a file", run{args: []string{"--snapshot-schedule=6h", "--snapshot-dir=" + file}}, 1, "--snapshot-dir"},
		{"snapshots where no directory can be made", run{args: []string{"--snapshot-schedule=6h", "--snapshot-dir=" + dir + "/none/snapshots"}}, 1, "--snapshot-dir"},
		{"manifests that aren't there", run{args: []string{"--manifests=" + dir + "/none"}}, 1, "--manifests: "},
		{"manifests that are a file", run{args: []string{"--manifests=" + file}}, 1, "is no directory"},
		{"nothing to prune", run{args: []string{"--manifests-prune"}}, 1, "--manifests-prune needs --manifests"},
		{"encryption by a file that isn't there", run{args: []string{"--encryption-provider-config=" + dir + "/none"}}, 1, "--encryption-provider-config: "},
		{"encryption by a file that everybody has", run{args: []string{"--encryption-provider-config=" + openToken}}, 1, "chmod"},
		{"encryption by a file that says nothing", run{args: []string{"--encryption-provider-config=" + file}}, 1, "--encryption-provider-config: "},
		{"a reload of nothing", run{args: []string{"--encryption-provider-config-automatic-reload"}}, 1, "must be set with --encryption-provider-config"},
		{"traces by a file that isn't there", run{args: []string{"--tracing-config-file=" + dir + "/none"}}, 1, "--tracing-config-file: "},
		{"traces by a file of something else", run{args: []string{"--tracing-config-file=" + file}}, 1, "cannot unmarshal string into Go value of type tracing.Config"},
		{"proxies by a file of something else", run{args: []string{"--egress-selector-config-file=" + file}}, 1, "--egress-selector-config-file: "},
		{"authorizers by a file of something else", run{args: []string{"--tls", "--authorization-config=" + file}}, 1, "--authorization-config: "},
		{"webhook of tokens that isn't there", run{args: []string{"--tls", "--authentication-token-webhook-config-file=" + dir + "/none"}}, 1, "--authentication-token-webhook-config-file: "},
		{"log level", run{args: []string{"--log-level=loud"}}, 2, `--log-level "loud"`},
		{"environment", run{env: []string{"APISERVER_LITE_HISTORY=soon"}}, 2, "APISERVER_LITE_HISTORY"},
		{"no address", run{args: []string{"--listen=somewhere"}}, 1, `--listen "somewhere" is neither`},
		{"port in use", run{args: []string{"--listen=" + taken.Addr().String()}}, 1, "address already in use"},
		{"open to others without a token", run{args: []string{"--listen=0.0.0.0:0"}}, 1, "set --token-file"},
		{"data directory is a file", run{args: []string{"--data-dir=" + file}}, 1, "is a file"},
		{"data directory can't be made", run{args: []string{"--data-dir=" + file + "/data"}}, 1, "not a directory"},
		{"data directory is foreign", run{args: []string{"--data-dir=" + foreign}}, 1, "it holds something else"},
		{"a fake clock of what lasts", run{args: []string{"--fake-clock", "--data-dir=" + filepath.Join(t.TempDir(), "d")}}, 1, "--fake-clock is for tests, of a server that is alone: set --ephemeral"},
		{"ephemeral where it can't be", run{args: []string{"--ephemeral", "--data-dir=" + file}}, 1, "can't be made"},
		{"token file is missing", run{args: []string{"--token-file=" + dir + "/none"}}, 1, "--token-file"},
		{"certificate without its key", run{args: []string{"--tls-cert-file=" + file}}, 1, "--tls-key-file"},
		{"certificate that is none", run{args: []string{"--tls-cert-file=" + file, "--tls-key-file=" + file}}, 1, "--tls-cert-file"},
		{"file of users is missing", run{args: []string{"--token-auth-file=" + dir + "/none"}}, 1, "--token-auth-file"},
		{"file of users has none", run{args: []string{"--token-auth-file=" + file}}, 1, "--token-auth-file"},
		{"authorities are missing", run{args: []string{"--tls", "--client-ca-file=" + dir + "/none"}}, 1, "--client-ca-file"},
		{"authorities are none", run{args: []string{"--tls", "--client-ca-file=" + file}}, 1, "--client-ca-file"},
		{"proxies' authorities are none", run{args: []string{"--tls", "--requestheader-client-ca-file=" + file}}, 1, "--requestheader-client-ca-file"},
		{"configuration of users is none", run{args: []string{"--authentication-config=" + file}}, 1, "--authentication-config"},
		{"signing key is none", run{args: []string{"--service-account-signing-key-file=" + file}}, 1, "--service-account-signing-key-file"},
		{"audit policy is none", run{args: []string{"--audit-policy-file=" + file}}, 1, "--audit-policy-file"},
		{"origin is no expression", run{args: []string{"--cors-allowed-origins=("}}, 1, "--cors-allowed-origins"},
		{"unknown controller", run{args: []string{"--controllers=frob"}}, 1, "--controllers"},
		{"unknown plug-in", run{args: []string{"--enable-admission-plugins=Frob"}}, 1, "Frob"},
		{"configuration of plug-ins is missing", run{args: []string{"--admission-control-config-file=" + dir + "/none"}}, 1, "--admission-control-config-file"},
		{"configuration of plug-ins is none", run{args: []string{"--admission-control-config-file=" + file}}, 1, "--admission-control-config-file"},
		{"URL file's directory is missing", run{urlFile: dir + "/none/url"}, 1, "--url-file"},
		{"URL file is a directory", run{urlFile: foreign}, 1, "--url-file"},
		{"kubeconfig's directory is missing", run{args: []string{"--write-kubeconfig=" + dir + "/none/kubeconfig"}}, 1, "--write-kubeconfig"},
		{"kubeconfig of somebody else", run{args: []string{"--write-kubeconfig=" + file}}, 1, "isn't ours"},
		{"members' port in use", run{args: []string{"--cluster-listen=" + taken.Addr().String()}}, 1, "--cluster-listen"},
		{"members' port without a number", run{args: []string{"--cluster-listen=127.0.0.1"}}, 1, "--cluster-listen"},
		{"token for joining is missing", run{args: []string{"--cluster-listen=" + loopback.Address(t), "--join=" + taken.Addr().String(), "--join-token-file=" + dir + "/none"}}, 1, "--join-token-file"},
		{"token for joining is none", run{args: []string{"--cluster-listen=" + loopback.Address(t), "--join=" + taken.Addr().String(), "--join-token-file=" + file}}, 1, file},
		{"authorities of etcd are none", run{args: []string{elsewhere, "--etcd-cafile=" + file}}, 1, "--etcd-cafile"},
	}
	for flag, more := range map[string][]string{
		"--token-file": nil, "--tls-key-file": {"--tls-cert-file=" + file}, "--token-auth-file": nil, "--service-account-signing-key-file": nil,
		"--etcd-keyfile": {elsewhere, "--etcd-certfile=" + file}, "--etcd-password-file": {elsewhere, "--etcd-username=u"},
		"--join-token-file": {"--cluster-listen=" + loopback.Address(t), "--join=" + taken.Addr().String()},
	} {
		for _, secret := range []struct{ name, file, want string }{
			{"that all can read", openToken, "chmod 600"},
			{"that the group can write", groupToken, "chmod 600"},
			{"behind a link", link, "chmod 600"},
		} {
			tests = append(tests, refusal{flag + " " + secret.name, run{args: append([]string{flag + "=" + secret.file}, more...)}, 1, secret.want})
		}
	}
	if os.Geteuid() == 0 { // only root can give files away
		tests = append(tests, givenAway(t, dir, elsewhere)...)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(strings.Join(test.run.args, " "), "--data-dir") {
				test.run.args = append(test.run.args, "--data-dir="+fresh)
			}
			if !strings.Contains(strings.Join(test.run.args, " "), "--listen") {
				test.run.args = append(test.run.args, "--listen=127.0.0.1:0")
			}
			p := launch(t, test.run)
			if code := p.wait(patience); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			message := p.stderr.String()
			if strings.Count(message, "\n") != 1 || !strings.HasPrefix(message, "apiserver-lite: ") || !strings.Contains(message, test.want) {
				t.Errorf("standard error is %q, want one line with %q", message, test.want)
			}
			if out := p.stdout.String(); out != "" {
				t.Errorf("standard output is %q, want none", out)
			}
		})
	}
	t.Cleanup(func() { // after the subtests
		if exists(t, fresh) {
			t.Error("a refused start left a data directory")
		}
		if entries, _ := os.ReadDir(foreign); len(entries) != 1 {
			t.Errorf("the foreign directory has %v", entries)
		}
	})
}

// givenAway returns starts with files and directories that belong to somebody else, or that he has led elsewhere.
func givenAway(t *testing.T, dir, elsewhere string) []refusal {
	t.Helper()
	const other = 12345 // a user who need not exist
	theirs, link, theirDir, prepared := filepath.Join(dir, "theirs"), filepath.Join(dir, "their-link"), filepath.Join(dir, "their-dir"), filepath.Join(dir, "prepared")
	mustWrite(t, theirs, 0o600)
	mustWrite(t, filepath.Join(dir, "ours"), 0o600)
	planted := filepath.Join(prepared, "service-account.key")
	mustWrite(t, planted, 0o600)
	for _, err := range []error{os.Symlink(filepath.Join(dir, "ours"), link), os.Mkdir(theirDir, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{theirs, link, theirDir, planted} {
		if err := os.Lchown(path, other, -1); err != nil {
			t.Fatal(err)
		}
	}
	const want = "belongs to user 12345"
	policy := filepath.Join(dir, "policy")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []refusal{
		{"somebody else's secret", run{args: []string{"--token-file=" + theirs}}, 1, want},
		{"somebody else's link to a secret", run{args: []string{"--token-file=" + link}}, 1, want},
		{"somebody else's file for the audit log", run{args: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + theirs}}, 1, want},
		{"somebody else's link for the audit log", run{args: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + link}}, 1, want},
		{"somebody else's data directory", run{args: []string{"--data-dir=" + theirDir}}, 1, want},
		{"somebody else's key in the data directory", run{args: []string{"--data-dir=" + prepared}}, 1, "has service-account.key, which " + want},
		{"somebody else's data directory beside an etcd elsewhere", run{args: []string{elsewhere, "--data-dir=" + theirDir}}, 1, want},
		{"somebody else's key beside an etcd elsewhere", run{args: []string{elsewhere, "--data-dir=" + prepared}}, 1, "has service-account.key, which " + want},
	}
}

func mustWrite(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("content\n"), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

// TestSecondServer: a data directory has one server, and the other one says which.
func TestSecondServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, "--data-dir", dir)
	second := launch(t, run{args: []string{"--data-dir", dir}})
	if code := second.wait(patience); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	want := fmt.Sprintf("locked by pid %d:", first.cmd.Process.Pid)
	if message := second.stderr.String(); strings.Count(message, "\n") != 1 || !strings.Contains(message, want) {
		t.Errorf("standard error is %q, want one line with %q", message, want)
	}
	first.do(http.StatusOK, "GET", "/readyz", "")
	first.stop()
	start(t, "--data-dir", dir).stop() // the lock is free
}

// TestBanner: the first lines tell where the server and its data are, and what can be pasted.
func TestBanner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	p := start(t, "--data-dir", dir)
	eventually(t, "the banner is there", func() bool { return len(p.stdout.lines()) >= 4 })
	lines := p.stdout.lines()
	if lines[0] != "listening on "+p.base || lines[1] != "data in "+dir {
		t.Errorf("the banner begins with %q", lines[:2])
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory is %v, %v; want mode 0700", info, err)
	}
	if output, err := exec.Command("bash", "-c", lines[2]+" --fail --silent --show-error").CombinedOutput(); err != nil || !strings.Contains(string(output), "kube-system") {
		t.Errorf("%q: %v\n%s", lines[2], err, output)
	}
	watch := exec.Command("bash", "-c", "exec "+lines[3]+" --fail --silent --show-error")
	output, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	events := bufio.NewReader(output)
	if line, err := events.ReadString('\n'); err != nil || !strings.HasPrefix(line, `{"type":"ADDED","object":{`) {
		t.Errorf("%q printed %q, %v", lines[3], line, err)
	}
	p.stop()                                               // ends the watch cleanly
	if _, err := io.Copy(io.Discard, events); err != nil { // before Wait closes the pipe
		t.Error(err)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("%q: %v", lines[3], err)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	p := launch(t, run{args: []string{"--version"}})
	if code := p.wait(patience); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if out := p.stdout.String(); !regexp.MustCompile(`^apiserver-lite v1\.\d+\.\d+-lite\S* \(go\S+, \w+/\w+\)\n$`).MatchString(out) {
		t.Errorf("standard output is %q", out)
	}
}

// TestEnvironment: each flag is also an environment variable, and the flag wins.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	p := launch(t, run{
		args: []string{"--history=30m"},
		env: []string{"APISERVER_LITE_LISTEN=127.0.0.1:0", "APISERVER_LITE_EPHEMERAL=true", "APISERVER_LITE_DATA_DIR=" + base,
			"APISERVER_LITE_AUTO_CREATE_NAMESPACES=1", "APISERVER_LITE_HISTORY=not looked at", "APISERVER_LITE_LOG_LEVEL=debug"},
	}).ready()
	eventually(t, "the banner is there", func() bool { return len(p.stdout.lines()) >= 2 })
	if line := p.stdout.lines()[1]; !strings.HasPrefix(line, "data in "+base+"/") || !strings.Contains(line, "ephemeral") {
		t.Errorf("the banner says %q", line)
	}
	p.define()
	p.do(http.StatusCreated, "POST", strings.Replace(widgets, "default", "shop", 1), widget("a", 1))
	eventually(t, "requests are logged", func() bool { return strings.Contains(p.stderr.String(), "level=DEBUG") })
	p.stop()
}

// TestConsoleFlag: the console is there, unless the flag turns it off.
func TestConsoleFlag(t *testing.T) {
	t.Parallel()
	for flag, code := range map[string]int{"--console": http.StatusOK, "--console=false": http.StatusNotFound} {
		p := launch(t, run{args: []string{"--listen=127.0.0.1:0", "--ephemeral", flag}}).ready()
		p.do(code, "GET", "/console", "")
		p.stop()
	}
}

// TestURLFile: the file is there, whole, when the server is ready, and never before or after.
func TestURLFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "server.url")
	mustWrite(t, file, 0o644) // of a server that was killed
	p := launch(t, run{args: []string{"--ephemeral"}, urlFile: file})
	// The old one must go first: it would be taken for the new one.
	eventually(t, "the file has a new content", func() bool {
		content, err := os.ReadFile(file)
		return err == nil && string(content) != "content\n"
	})
	p.ready()
	p.do(http.StatusOK, "GET", "/readyz", "")
	p.stop()
	if exists(t, file) {
		t.Error("the file is there after the end")
	}
}

// TestUnixSocket: only the owner can open it, and it goes with the server; one left by a killed server is
// replaced, one in use isn't.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "s") // a socket's path has at most some hundred bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	p := start(t, "--ephemeral", "--listen=unix:"+socket)
	p.do(http.StatusOK, "GET", "/api/v1/namespaces/default", "")
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v; want mode 0600", info, err)
	}
	second := launch(t, run{args: []string{"--ephemeral", "--listen=unix:" + socket}})
	if code := second.wait(patience); code != 1 || !strings.Contains(second.stderr.String(), "in use") {
		t.Errorf("a second server on the socket ended with %d: %s", code, second.stderr)
	}
	p.do(http.StatusOK, "GET", "/readyz", "")
	p.kill()
	p = start(t, "--ephemeral", "--listen=unix:"+socket)
	p.do(http.StatusOK, "GET", "/readyz", "")
	p.stop()
	if exists(t, socket) {
		t.Error("the socket is there after the end")
	}
}

// TestExitWithParent kills the server's parent, which can't pass that on.
func TestExitWithParent(t *testing.T) {
	t.Parallel()
	urlFile, base := filepath.Join(t.TempDir(), "url"), t.TempDir()
	parent := exec.Command("bash", "-c", `"$0" "$@"; exit $?`, // no exec: bash stays as the parent
		binary(), "--ephemeral", "--listen=127.0.0.1:0", "--data-dir="+base, "--url-file="+urlFile, "--exit-with-parent")
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is ready", func() bool { return exists(t, urlFile) })
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The pipe ends when its last writer, the server, is gone.
	if _, err := io.ReadAll(output); err != nil {
		t.Fatal(err)
	}
	parent.Wait()
	if exists(t, urlFile) {
		t.Error("the server left its URL file")
	}
	if entries, _ := os.ReadDir(base); len(entries) > 0 {
		t.Errorf("the server left %v", entries)
	}
}
