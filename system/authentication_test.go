package system

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
)

// TestAuthenticationData: the ConfigMap has the certificates of all authorities, each once, and what another server has said.
func TestAuthenticationData(t *testing.T) {
	one, other := credentials.NewAuthority(t, "one"), credentials.NewAuthority(t, "other")
	twice := filepath.Join(t.TempDir(), "twice.crt")
	if err := os.WriteFile(twice, append(one.PEM(), one.PEM()...), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &maker{Wiring: Wiring{ClientCAFile: twice, RequestHeader: access.RequestHeader{ClientCAFile: one.File, AllowedNames: []string{"front"}, UsernameHeaders: []string{"X-User"}}}}
	data, err := m.authenticationData(map[string]string{clientCA: string(other.PEM()), allowed: `["back","front"]`})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		clientCA: string(other.PEM()) + string(one.PEM()), headerCA: string(one.PEM()),
		allowed: `["back","front"]`, users: `["X-User"]`, groups: `[]`, extraNames: `[]`,
	}
	for name, text := range want {
		if data[name] != text {
			t.Errorf("%s is %q, want %q", name, data[name], text)
		}
	}
	if len(data) != len(want) {
		t.Errorf("%d names, want %d", len(data), len(want))
	}
	if data, err := (&maker{}).authenticationData(nil); err != nil || len(data) > 0 {
		t.Errorf("without flags it says %v, %v", data, err)
	}
}
