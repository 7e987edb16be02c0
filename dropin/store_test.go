package dropin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestChooseStore: where our stand-in answers the store is inside; whatever else is at the address is an etcd cluster.
func TestChooseStore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ours := l.Addr().String()
	l.Close() // flags name a port
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- RunEtcd(ctx, &EtcdOptions{Listen: []string{ours}}, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	answering := func(body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	etcd := answering(`{"etcdserver":"3.5.15","etcdcluster":"3.5.0"}`)
	for _, c := range []struct {
		name, servers string // none without the flag
		inside        bool
	}{
		{"no flag", "", true},
		{"the stand-in, which may begin to listen later", "http://" + ours, true},
		{"an etcd", etcd, false},
		{"something else", answering("hello"), false},
		{"TLS", strings.Replace(etcd, "http:", "https:", 1), false},
		{"two addresses of an etcd", etcd + "," + etcd, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"--bind-address=127.0.0.1"}
			if c.servers != "" {
				args = append(args, "--etcd-servers="+c.servers, "--etcd-prefix=/x")
			}
			a, err := ParseAPIServer(args, none)
			if err != nil {
				t.Fatal(err)
			}
			where, err := a.ChooseStore(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s := &a.Server
			if s.Data.Ephemeral != c.inside || s.Etcd.On() == c.inside || strings.HasPrefix(where, "inside") != c.inside || !c.inside && s.Etcd.Prefix != "/x" {
				t.Errorf("the store is %s: %+v", where, s.Etcd)
			}
			if named := slices.Contains(a.Unused, "--etcd-servers") && slices.Contains(a.Unused, "--etcd-prefix"); named != (c.inside && c.servers != "") {
				t.Errorf("without effect: %q", a.Unused)
			}
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	a, err := ParseAPIServer([]string{"--bind-address=127.0.0.1", "--etcd-servers=http://127.0.0.1:1"}, none)
	if err != nil {
		t.Fatal(err)
	}
	if where, err := a.ChooseStore(ended); err == nil || !strings.Contains(err.Error(), "--etcd-servers") {
		t.Errorf("where nobody listens the store is %q, %v", where, err)
	}
}
