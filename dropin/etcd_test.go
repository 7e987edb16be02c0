package dropin

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// TestEtcd: with envtest's flags /health is answered until the end, and nothing is written.
func TestEtcd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close() // etcd's flags name a port, as envtest's do
	dir := t.TempDir()
	o, err := ParseEtcd([]string{"--advertise-client-urls=http://" + address, "--data-dir=" + dir, "--listen-client-urls=http://" + address, "--listen-peer-urls=http://127.0.0.1:1", "--unsafe-no-fsync=true"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- RunEtcd(ctx, o, slog.New(slog.DiscardHandler)) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(time.Minute)
	for path, want := range map[string]string{"/health": `"health":"true"`, "/version": `"etcdserver"`} {
		for {
			res, err := client.Get("http://" + address + path)
			if err == nil {
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
					t.Errorf("%s answers %d %s", path, res.StatusCode, body)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // until it listens
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestParseEtcd(t *testing.T) {
	for name, tc := range map[string]struct{ arg, want string }{
		"unknown":  {"--frob", "frob"},
		"argument": {"serve", `"serve"`},
		"TLS":      {"--listen-client-urls=https://127.0.0.1:1", "--listen-client-urls"},
	} {
		if _, err := ParseEtcd([]string{tc.arg}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for arg, want := range map[string]string{"--help": "\n  --unsafe-no-fsync\n", "--version": "etcd Version: 3."} {
		if o, err := ParseEtcd([]string{arg}); err != nil || !strings.Contains(o.Say, want) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	if o, err := ParseEtcd(nil); err != nil || len(o.Listen) != 1 || o.Listen[0] != "localhost:2379" {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestEtcdFlags: the list is what etcd has, in its package embed and its main package.
func TestEtcdFlags(t *testing.T) {
	upstream := flag.NewFlagSet("etcd", flag.ContinueOnError)
	embed.NewConfig().AddFlags(upstream)
	want := map[string]string{"config-file": "text", "discovery-fallback": "text", "initial-cluster-state": "text", "v2-deprecation": "text"}
	upstream.VisitAll(func(f *flag.Flag) {
		switch typ := fmt.Sprintf("%T", f.Value); {
		case strings.HasSuffix(typ, "boolValue"):
			want[f.Name] = "bool"
		case strings.HasSuffix(typ, "durationValue"):
			want[f.Name] = "duration"
		case strings.Contains(typ, "int"):
			want[f.Name] = "number"
		default:
			want[f.Name] = "text"
		}
	})
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(want)) {
		fmt.Fprintf(&lines, "%s %s\n", name, want[name])
	}
	if lines.String() != upstreamEtcd {
		t.Errorf("etcd-flags.txt isn't what etcd has, which is\n%s", &lines)
	}
}

// TestEtcdPortTaken: the error names the flag, and no listener stays.
func TestEtcdPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := &EtcdOptions{Listen: []string{"127.0.0.1:0", l.Addr().String()}}
	if err := RunEtcd(t.Context(), o, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--listen-client-urls") {
		t.Error(err)
	}
}
