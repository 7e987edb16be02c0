package dropin

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
)

// TestParseAPIServer: what envtest gives, and the defaults of the name.
func TestParseAPIServer(t *testing.T) {
	a, err := ParseAPIServer([]string{
		"--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1", "--cert-dir=/certs", "--client-ca-file=/certs/ca.crt",
		"--disable-admission-plugins=ServiceAccount", "--etcd-servers=http://127.0.0.1:1", "--secure-port=7", "--service-account-issuer=https://127.0.0.1:7/",
		"--service-account-key-file=/certs/sa.crt", "--service-account-signing-key-file=/certs/sa.key", "--service-cluster-ip-range=10.1.0.0/24,fd00::/112",
		"--tls_min_version=VersionTLS13", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "-v4", "--feature-gates=PodsAPI=true,OpenAPIEnums=false",
	}, none)
	if err != nil {
		t.Fatal(err)
	}
	s := &a.Server
	if s.Serving.Listen != "127.0.0.1:7" || !s.TLS.On || s.TLS.Dir != "/certs" || !s.Data.Ephemeral || !s.API.ManagedFieldsAlways || s.API.Builtin != builtin.All || s.API.Controllers != "none" {
		t.Errorf("%+v", s)
	}
	if s.Access.ClientCAFile != "/certs/ca.crt" || !strings.Contains(s.Access.AuthorizationMode, "RBAC") || s.API.ServiceIPs != netip.MustParsePrefix("10.1.0.0/24") || a.LogLevel != slog.LevelDebug {
		t.Errorf("%+v, %v", s.Access, s.API.ServiceIPs)
	}
	if s.TLS.Config.MinVersion != tls.VersionTLS13 || !slices.Equal(s.TLS.Config.CipherSuites, []uint16{tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256}) {
		t.Errorf("%+v", s.TLS.Config)
	}
	if !slices.Equal(a.Server.Etcd.Servers, []string{"http://127.0.0.1:1"}) || a.Server.Etcd.Prefix != "/registry" {
		t.Errorf("%+v", a.Server.Etcd)
	}
	if slices.Contains(a.Unused, "--etcd-servers") || !slices.Contains(a.Unused, "--feature-gates=OpenAPIEnums=false") || slices.Contains(a.Unused, "--feature-gates=PodsAPI=true") {
		t.Errorf("without effect: %q", a.Unused)
	}
	if s.API.Faults {
		t.Error("the server fails on purpose, though nobody asked for it")
	}
	if !s.Serving.NoConsole {
		t.Error("the console is on, though nobody asked for it")
	}
	if len(s.API.WebhookAddresses) == 0 {
		t.Error("on loopback, webhooks on loopback may not be called")
	}
}

// TestParseAPIServerAlternatives: what else flags may say.
func TestParseAPIServerAlternatives(t *testing.T) {
	variables := func(name string) string {
		return map[string]string{ControllersVariable: "all", ConsoleVariable: "true", FaultsVariable: "true", FakeClockVariable: "true"}[name]
	}
	a, err := ParseAPIServer([]string{"--tls-cert-file=a", "--tls-private-key-file=b", "--authorization-mode=Node,RBAC", "--max-requests-inflight=10", "--enable-priority-and-fairness=false"}, variables)
	if err != nil {
		t.Fatal(err)
	}
	if s := &a.Server; s.API.Controllers != "all" || !s.API.Faults || !s.API.FakeClock || s.Serving.NoConsole || s.TLS.On || s.TLS.CertFile != "a" || s.TLS.KeyFile != "b" || s.Serving.Listen != "0.0.0.0:6443" || s.TLS.Config != nil || s.API.WebhookAddresses != nil || s.Bounds.MaxReads+s.Bounds.MaxWrites != 210 {
		t.Errorf("%+v", s)
	}
	if !slices.Equal(a.Unused, []string{"--enable-priority-and-fairness=false"}) {
		t.Errorf("without effect: %q", a.Unused)
	}
	for flag, want := range map[string]string{"--help": "--secure-port", "-h": "--secure-port", "--version": "Kubernetes v1.37"} {
		a, err := ParseAPIServer([]string{flag}, none)
		if err != nil || !strings.Contains(a.Say, want) || strings.Contains(a.Say, "insecure-port") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// TestParseAPIServerAddresses: a variable names private networks in which webhooks and aggregated servers are.
func TestParseAPIServerAddresses(t *testing.T) {
	networks := "10.0.0.0/8, fd00::/8"
	getenv := func(name string) string {
		if name == AddressesVariable {
			return networks
		}
		return ""
	}
	args := []string{"--tls-cert-file=a", "--tls-private-key-file=b", "--authorization-mode=RBAC"}
	a, err := ParseAPIServer(args, getenv)
	if err != nil || !slices.Equal(a.Server.API.WebhookAddresses, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}) {
		t.Errorf("%v, %v", a, err)
	}
	networks = "10.0.0.0/8,everywhere"
	if _, err := ParseAPIServer(args, getenv); err == nil || !strings.Contains(err.Error(), AddressesVariable) || !strings.Contains(err.Error(), `"everywhere"`) {
		t.Errorf("%v", err)
	}
}

// TestParseAPIServerRefuses: each error names the flag.
func TestParseAPIServerRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ arg, want string }{
		"unknown":             {"--frob", "--frob"},
		"argument":            {"serve", `"serve"`},
		"address":             {"--bind-address=localhost", "--bind-address"},
		"open to everybody":   {"--bind-address=0.0.0.0", "--bind-address"},
		"port 0":              {"--secure-port=0", "--secure-port"},
		"large port":          {"--secure-port=65536", "--secure-port"},
		"no network":          {"--service-cluster-ip-range=x", "--service-cluster-ip-range"},
		"version of TLS":      {"--tls-min-version=VersionSSL30", "--tls-min-version"},
		"half a certificate":  {"--tls-cert-file=x", "--tls-private-key-file"},
		"cipher suite":        {"--tls-cipher-suites=ROT13", "--tls-cipher-suites"},
		"feature gate":        {"--feature-gates=WatchList=perhaps", "--feature-gates"},
		"gate without value":  {"--feature-gates=WatchList", "--feature-gates"},
		"unknown gate":        {"--feature-gates=Frob=true", "Frob"},
		"another's gate":      {"--feature-gates=wardle:WatchList=true", "wardle:WatchList"},
		"locked gate":         {"--feature-gates=CustomResourceFieldSelectors=false", "locked"},
		"part of the API":     {"--runtime-config==true", "--runtime-config"},
		"no version":          {"--runtime-config=v1=true", "--runtime-config"},
		"unknown group":       {"--runtime-config=api/v1=true", `"api"`},
		"unknown version":     {"--runtime-config=apps/v3=true", `"v3"`},
		"set of versions":     {"--runtime-config=api/all=1", "api/all"},
		"nothing at all":      {"--runtime-config=api/all=false", "--runtime-config"},
		"resource in capital": {"--runtime-config=apps/v1/Deployments=false", "lower case"},
		"neither on nor off":  {"--runtime-config=apps/v1=perhaps", "--runtime-config"},
		"ports of nodes":      {"--service-node-port-range=9-1", "--service-node-port-range"},
		"half of OIDC":        {"--oidc-client-id=x", "--oidc-issuer-url"},
		"ABAC":                {"--authorization-policy-file=x", "--authorization-policy-file"},
		"flag of old":         {"--insecure-port=8080", "--insecure-port"},
		"no requests":         {"--max-requests-inflight=0 --max-mutating-requests-inflight=0", "--max-mutating-requests-inflight=0"},
		"fewer than none":     {"--max-requests-inflight=-1", "must not be negative"},
		"many connections":    {"--goaway-chance=0.5", "--goaway-chance"},
		"another controller":  {"--controllers=all", "--controllers"},
		"old admission":       {"--admission-control=x", "--admission-control"},
		"signer elsewhere":    {"--service-account-signing-endpoint=x", "--service-account-signing-endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ParseAPIServer(append([]string{"--bind-address=::1"}, strings.Fields(tc.arg)...), none)
			if err == nil {
				err = a.Check()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want one that names %s", err, tc.want)
			}
		})
	}
}

// TestHistory: what is older than the interval of compaction is gone, and with 0 nothing ever is.
func TestHistory(t *testing.T) {
	for flag, want := range map[string]time.Duration{"": 5 * time.Minute, "--etcd-compaction-interval=90s": 90 * time.Second, "--etcd-compaction-interval=0": endless} {
		a, err := ParseAPIServer(strings.Fields("--bind-address=127.0.0.1 "+flag), none)
		if err != nil {
			t.Fatal(err)
		}
		if a.Server.Data.History != want || slices.Contains(a.Unused, "--"+compactionFlag) {
			t.Errorf("%q: history of %v, without effect: %q", flag, a.Server.Data.History, a.Unused)
		}
	}
}

// TestExplain: an error of the server names no flag that kube-apiserver doesn't have.
func TestExplain(t *testing.T) {
	for given, want := range map[string]string{
		"--listen 127.0.0.1:1: address already in use": "--bind-address and --secure-port 127.0.0.1:1: address already in use",
		"--tls-key-file: key.pem has mode 0644":        "--tls-private-key-file: key.pem has mode 0644",
		"--tls-cert-file: no such file":                "--tls-cert-file: no such file",
	} {
		if got := Explain(errors.New(given)).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
