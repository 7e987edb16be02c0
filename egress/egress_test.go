package egress_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/egress"
)

// TestRead: what a file says is there, and what can't be used is an error of one line that names the flag.
func TestRead(t *testing.T) {
	const head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"
	for name, test := range map[string]struct{ text, want string }{
		"direct":       {head + "- {name: cluster, connection: {proxyProtocol: Direct}}", ""},
		"over a file":  {head + "- {name: controlplane, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /run/proxy.sock}}}}", ""},
		"other name":   {head + "- {name: internet, connection: {proxyProtocol: Direct}}", "internet"},
		"twice":        {head + "- {name: etcd, connection: {proxyProtocol: Direct}}\n- {name: etcd, connection: {proxyProtocol: Direct}}", "Duplicate value"},
		"no transport": {head + "- {name: etcd, connection: {proxyProtocol: HTTPConnect}}", "Required value"},
		"protocol":     {head + "- {name: etcd, connection: {proxyProtocol: SOCKS}}", "SOCKS"},
		"other kind":   {"apiVersion: v1\nkind: Config", "Config"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "egress.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := egress.Read(egress.Options{ConfigFile: file})
			if test.want == "" && err != nil {
				t.Error(err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "--egress-selector-config-file: ") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("the error is %v, want one line with the flag and %q", err, test.want)
			}
		})
	}
	if _, err := egress.Read(egress.Options{ConfigFile: filepath.Join(t.TempDir(), "absent")}); err == nil {
		t.Error("a file that isn't there is read")
	}
	if ways, err := egress.Read(egress.Options{}); err != nil || ways.Cluster != nil || ways.ControlPlane != nil || ways.Etcd != nil {
		t.Errorf("without a file: %v, %v", ways, err)
	}
}
