package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// blocks are the commands that the pages show: each is in the list, and is executed as it's pasted, or has a reason for which it
// isn't.
var blocks = []struct {
	page, begins string // the page's name, and the first words of the block
	server       string // a command before it, for a block that needs a server and starts none
	want         string // among what is printed
	fails        bool   // the last command does, as the page says
	not          string // why it isn't executed
}{
	{page: "access", begins: "openssl req -x509", want: "ann"},
	{page: "access", begins: "kubectl create serviceaccount till", server: "apiserver-lite --tls", want: "\neyJ"},
	{page: "access", begins: "echo 'root-token", want: "\nconfigmaps "},
	{page: "audit", begins: "apiserver-lite --audit-policy-file=policy.yaml --audit-webhook", server: auditFiles, want: "listening on"},
	{page: "admission", begins: "apiserver-lite --webhook-addresses", want: "example created"},
	{page: "admission", begins: "apiserver-lite --builtin=all", want: "listening on"},
	{page: "policies", begins: "kubectl apply", server: "apiserver-lite --tls", want: "unknown color blue", fails: true},
	{page: "conversion", begins: "apiserver-lite --ephemeral", want: `"interval": "30s"`},
	{page: "conversion", begins: "apiserver-lite conversion-webhook", not: "it needs a cluster; conversionhook's tests serve one"},
	{page: "encryption", begins: "cat > encryption.yaml", want: "NDcxMQ==1\n"},
	{page: "faults", begins: "apiserver-lite --ephemeral --faults", want: `"fault":"status 503 after"`},
	{page: "history", begins: "export APISERVER_LITE_SERVER", server: "apiserver-lite --ephemeral", want: "yes"},
	{page: "testing", begins: "apiserver-lite --ephemeral --fake-clock", want: `"code": 404`},
	{page: "install", begins: "kubectl config", not: "TestKubeconfig executes it"},
	{page: "install", begins: "make build", not: "it installs the program on this machine"},
	{page: "install", begins: "sudo cp", not: "it starts a service of this machine"},
	{page: "install", begins: "docker build", not: "it needs Docker, and images from the network"},
	{page: "wire", begins: "curl -fG", server: widgetsServer, want: `"size": 4`},
	{page: "wire", begins: "curl -fsS", server: "apiserver-lite --console=false", want: "TransactionResult"},
	{page: "client", begins: "export GOCACHE", not: "it builds the standard library anew"},
	{page: "client", begins: "make build peer", not: "it builds kube-apiserver, and measures for minutes"},
	{page: "monitor", begins: "apiserver-lite --data-dir data", want: "CLIENT"},
	{page: "monitor", begins: "apiserver-lite --ephemeral --profiling", want: "go tool pprof"},
	{page: "operations", begins: "apiserver-lite snapshot", server: "apiserver-lite --data-dir data", want: "restored backup.db into restored: "},
	{page: "upgrade", begins: "apiserver-lite snapshot save", server: "apiserver-lite --data-dir data", want: "flags and files can be used"},
	{page: "upgrade", begins: "apiserver-lite rewrite", server: "apiserver-lite --data-dir data", want: "stored anew: "},
	{page: "upgrade", begins: "apiserver-lite snapshot restore", server: "apiserver-lite --data-dir data\napiserver-lite snapshot save before.db --server http://127.0.0.1:8080", want: "restored before.db into old: "},
	{page: "operations", begins: "apiserver-lite --data-dir data", want: "listening on"},
	{page: "operations", begins: "apiserver-lite export", server: "apiserver-lite --console=false\ncurl -sfo /dev/null -d '{\"metadata\":{\"name\":\"a\"}}' -H 'Content-Type: application/json' http://127.0.0.1:8080/api/v1/namespaces/default/configmaps\nexport APISERVER_LITE_SERVER=http://127.0.0.1:8080\n", want: "imported 1 object: 0 created, 0 changed, 1 unchanged"},
	{page: "operations", begins: "apiserver-lite record", not: "it needs two servers; e2e records one and replays into another"},
	{page: "operations", begins: "mkdir manifests", want: "listening on"},
	{page: "operations", begins: "apiserver-lite migrate", not: "it needs an etcd; e2e migrates"},
	{page: "operations", begins: "apiserver-lite --data-dir one", not: "it needs six ports; e2e starts members in the same way"},
}

// auditFiles writes a policy, and a kubeconfig of a collector that nobody runs.
const auditFiles = `printf 'apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n' > policy.yaml
echo '{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]}' > collector.kubeconfig
`

// widgetsServer starts a server with a widget that the page's selectors select.
const widgetsServer = `apiserver-lite --console=false
curl -sfo /dev/null -H 'Content-Type: application/yaml' --data-binary @"$TESTDATA/widgets.yaml" http://127.0.0.1:8080/apis/apiextensions.k8s.io/v1/customresourcedefinitions
curl -sfo /dev/null -d '{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"big"},"spec":{"size":4,"color":"red"}}' \
  -H 'Content-Type: application/json' http://127.0.0.1:8080/apis/example.com/v1/namespaces/default/widgets
`

// serves is a command of a block that starts a server, in the background or until somebody ends it.
var serves = regexp.MustCompile(`(?m)^(apiserver-lite --.*?)( &)?$`)

// TestDocsCommands executes the blocks of commands on the pages of docs, each in an empty directory and with a server of its own.
func TestDocsCommands(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```\n").FindAllStringSubmatch(string(text), -1) {
			executed := false
			for _, b := range blocks {
				if b.page+".md" != filepath.Base(page) || !strings.HasPrefix(m[1], b.begins) {
					continue
				}
				if executed, found = true, found+1; b.not != "" {
					continue
				}
				t.Run(b.page+": "+b.begins, func(t *testing.T) {
					output, err := paste(t, b.server+"\n"+m[1])
					if !strings.Contains(output, b.want) || (err != nil) != b.fails {
						t.Errorf("the block ends with %v, and doesn't print %q:\n%s", err, b.want, output)
					}
				})
			}
			if !executed {
				t.Errorf("%s has commands that no test knows:\n%s", page, m[1])
			}
		}
	}
	if found != len(blocks) {
		t.Errorf("%d of %d blocks are on the pages", found, len(blocks))
	}
}

// paste runs commands as a person does who waits until a server serves. The server has a port of its own, and kubectl finds it.
func paste(t *testing.T, commands string) (output string, err error) {
	t.Helper()
	dir := t.TempDir()
	address := loopback.Address(t)
	script := strings.NewReplacer("127.0.0.1:8080", address).Replace(serves.ReplaceAllString(commands, "$1 &\nuntil [ -s url ]; do sleep 0.05; done"))
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-O", "expand_aliases", "-c", "trap 'kill $(jobs -p); wait' EXIT\n"+script)
	cmd.Dir = dir
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = []string{
		"TESTDATA=" + testdata,
		"PATH=" + filepath.Dir(kubectlBinary) + ":" + os.Getenv("PATH"), "HOME=" + dir, "KUBECONFIG=" + filepath.Join(dir, "kubeconfig"),
		"APISERVER_LITE_LISTEN=" + address, "APISERVER_LITE_URL_FILE=url", "APISERVER_LITE_WRITE_KUBECONFIG=kubeconfig",
	}
	if ca, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=ca",
		"-keyout", filepath.Join(dir, "ca.key"), "-out", filepath.Join(dir, "ca.crt")).CombinedOutput(); err != nil { // which some blocks read
		t.Fatalf("openssl: %v\n%s", err, ca)
	}
	text, err := cmd.CombinedOutput()
	return string(text), err
}
