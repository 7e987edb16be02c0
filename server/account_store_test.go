package server_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// bearers is a server that is one of several over its store, with tokens of the ServiceAccount default/robot that are bound to
// what the keys name.
type bearers struct {
	*ruled
	barriers *server.Barriers
	tokens   map[string]string
}

func newBearers(t *testing.T) *bearers {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.csv")
	if err := os.WriteFile(file, []byte("root,root,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bearers{tokens: map[string]string{}}
	shared := overOneEtcd(t)
	s := servertest.New(t, shared, func(s *server.Server) {
		s.Access.TokenAuthFile, s.API.Builtin = file, builtin.All
		b.barriers = server.WatchBarriers(s)
	})
	b.ruled = &ruled{s, t}
	const space = "/api/v1/namespaces/default"
	for path, object := range map[string]string{
		space + "/serviceaccounts": `{"metadata":{"name":"robot"}}`,
		space + "/secrets":         `{"metadata":{"name":"drawer"}}`,
		"/api/v1/nodes":            `{"metadata":{"name":"desk"}}`,
	} {
		b.expect("root", "POST "+path, object, 201, "")
	}
	b.expect("root", "POST "+space+"/pods", `{"metadata":{"name":"arm"},"spec":{"serviceAccountName":"robot","nodeName":"desk","containers":[{"name":"c","image":"i"}]}}`, 201, "")
	for kind, name := range map[string]string{"Pod": "arm", "Secret": "drawer", "Node": "desk"} {
		answer := b.expect("root", "POST "+space+"/serviceaccounts/robot/token", fmt.Sprintf(`{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":%q,"name":%q}}}`, kind, name), 201, "")
		b.tokens[kind] = decode[authenticationv1.TokenRequest](t, answer).Status.Token
	}
	return b
}

// TestAccountTokensTakeOneBarrier: whether a token counts takes the store one answer, however many objects it's bound to. Paths
// that nothing stored answers are the ones where nothing else has asked the store for the request before.
func TestAccountTokensTakeOneBarrier(t *testing.T) {
	t.Parallel()
	b := newBearers(t)
	for kind, token := range b.tokens {
		const requests = 100
		before := b.barriers.Seen()
		for range requests {
			b.expect(token, "GET /version", "", 200, "")
		}
		// Others ask in the background, once a second.
		if n := b.barriers.Seen() - before; n < requests || n > requests*3/2 {
			t.Errorf("%d requests with a token that is bound to a %s took %d barriers", requests, kind, n)
		}
	}
}

// TestAccountTokensRestored: tokens of before count on a server that is alone on what was restored from a snapshot of several.
func TestAccountTokensRestored(t *testing.T) {
	t.Parallel()
	b := newBearers(t)
	res, body := b.Do("GET", backupPath, "", "Authorization", "Bearer root")
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, body)
	}
	dir, saved, users := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "saved"), filepath.Join(t.TempDir(), "users.csv")
	if err := errors.Join(os.WriteFile(saved, []byte(body), 0o600), os.WriteFile(users, []byte("root,root,1,system:masters\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Restore(t.Context(), saved, dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	restored := &ruled{servertest.New(t, func(s *server.Server) {
		s.Data.Ephemeral, s.Data.Dir, s.Access.TokenAuthFile, s.API.Builtin = false, dir, users, builtin.All
	}), t}
	for _, token := range b.tokens {
		restored.expect(token, "GET /version", "", 200, "")
	}
}

// TestAccountTokensWithoutStore: while the store doesn't answer, nobody can say whether a ServiceAccount's token counts. That is a
// 503 to come back after, and no 401, after which clients would drop the token.
func TestAccountTokensWithoutStore(t *testing.T) {
	t.Parallel()
	b := newBearers(t)
	const old = "/api/v1/namespaces/default/secrets?resourceVersion=0" // which is served from memory
	b.barriers.Fail(true)
	until(t, "the server notices", func() bool {
		code, _, _ := b.as("root", "GET", "/readyz", "")
		return code != http.StatusOK
	})
	b.expect("root", "GET "+old, "", 200, "")
	for kind, token := range b.tokens {
		for _, path := range []string{old, "/api/v1/namespaces/default/secrets", "/version", "/nothing"} {
			res, body := b.Do("GET", path, "", "Authorization", "Bearer "+token)
			if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
				t.Errorf("GET %s with a token that is bound to a %s: %s, Retry-After %q: %s", path, kind, res.Status, res.Header.Get("Retry-After"), body)
			}
		}
	}
	b.barriers.Fail(false)
	for _, token := range b.tokens {
		b.expect(token, "GET /version", "", 200, "")
	}
}
