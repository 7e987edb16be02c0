package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/secrets"
)

func TestTokensAllow(t *testing.T) {
	all, err := secrets.ReadTokens("s3cret", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, header string
		want         bool
	}{
		{"right", "Bearer s3cret", true},
		{"scheme in lower case", "bearer s3cret", true},
		{"none", "", false},
		{"wrong", "Bearer secret", false},
		{"truncated", "Bearer s3cre", false},
		{"longer", "Bearer s3crett", false},
		{"empty", "Bearer ", false},
		{"other scheme", "Basic s3cret", false},
		{"no scheme", "s3cret", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/api?token=s3cret&access_token=s3cret", nil)
			r.Header.Set("Authorization", tc.header)
			h := &handler{gate: gate{identity: &identity{tokens: all}}}
			_, err := h.identify(&response{ResponseWriter: httptest.NewRecorder()}, r)
			if got := err == nil; got != tc.want {
				t.Errorf("identify with %q lets in: %v, want %v", tc.header, got, tc.want)
			}
		})
	}
}
