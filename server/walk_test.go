package server

import (
	"crypto"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/server/inflight"
	"github.com/apiserver-lite/apiserver-lite/server/secrets"
)

// TestEveryRouteAsks walks the router: no route does anything for a request that doesn't say who it comes from,
// nor for a wrong token, and neither does a path without a route.
func TestEveryRouteAsks(t *testing.T) {
	options := access.Options{TokenAuthFile: "/dev/null"}
	users, err := access.New(t.Context(), options, access.Wiring{Admin: new(secrets.Tokens).Has, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := users.Attach(access.Home{Key: func() (crypto.Signer, error) {
		key, _, err := access.NewSigningKey()
		return key, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := newGate(true, inflight.New())
	h.identity = &identity{on: true, access: users, accounts: accounts}
	paths := map[string]bool{"/nothing": true, "/api/v1/a/b/c/d/e/f": true}
	part := regexp.MustCompile(`\{[^}]*\}|\*`)
	if err := chi.Walk(h.routes.(chi.Routes), func(_, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		paths[part.ReplaceAllString(route, "x")] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(paths) < 30 || !paths["/api/x/watch/x"] {
		t.Fatalf("the router has %d paths", len(paths))
	}
	for path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "FROB"} {
			for _, header := range []string{"", "Bearer wrong", "Basic eDp5"} {
				r := httptest.NewRequest(method, path, strings.NewReader("{}"))
				r.Host = "localhost"
				if header != "" {
					r.Header.Set("Authorization", header)
				}
				answer := httptest.NewRecorder()
				h.ServeHTTP(answer, r) // which panics if it goes on: there's no registry
				if answer.Code != http.StatusUnauthorized {
					t.Errorf("%s %s with %q: %d", method, path, header, answer.Code)
				}
			}
		}
	}
	if _, _, err := users.Authenticate(httptest.NewRequest("GET", "/", nil), ""); !errors.Is(err, access.ErrNoCredential) {
		t.Errorf("nobody is refused with %v", err)
	}
}
