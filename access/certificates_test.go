package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
)

// TestRefusalsAreRemembered: a chain that isn't believed is verified once in a while, whoever asks how often, and one that is
// too long never.
func TestRefusalsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, others := credentials.NewAuthority(t, "ours"), credentials.NewAuthority(t, "others")
		a, err := newAuthorities(ours.File, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		shown := func(certificates ...*tls.Certificate) (all []*x509.Certificate) {
			for _, c := range certificates {
				parsed, err := x509.ParseCertificate(c.Certificate[0])
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, parsed)
			}
			return all
		}
		good, bad := ours.Issue(t, "ann", nil, nil), others.Issue(t, "eve", nil, nil)
		_, long := a.verify(shown(others.Issue(t, strings.Repeat("e", 100_000), nil, nil)))
		if long == nil || len(long.Error()) > maxRefusal+len("…") || errors.As(long, new(x509.UnknownAuthorityError)) {
			t.Errorf("a refusal is remembered with the certificate, or with %d bytes of it", len(long.Error()))
		}
		_, first := a.verify(shown(bad))
		_, second := a.verify(shown(bad))
		time.Sleep(refusedFor)
		_, third := a.verify(shown(bad))
		if first == nil || second != first || third == nil || third == first {
			t.Errorf("refused with %p, %p, and after %v %p: %v", first, second, refusedFor, third, third)
		}
		if cert, err := a.verify(shown(good)); cert == nil || err != nil {
			t.Errorf("a good one: %v", err)
		}
		chain := []*tls.Certificate{good}
		for range maxChain {
			chain = append(chain, bad)
		}
		if cert, err := a.verify(shown(chain[:maxChain]...)); cert == nil || err != nil {
			t.Errorf("%d certificates: %v", maxChain, err)
		}
		if _, err := a.verify(shown(chain...)); err == nil || !strings.Contains(err.Error(), "a chain may have 8") {
			t.Errorf("%d certificates: %v", len(chain), err)
		}
	})
}
