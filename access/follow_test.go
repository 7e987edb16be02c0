package access

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/egress"
)

// TestReplacedIssuersAnswer: what a replaced configuration's issuers are asked isn't cut off before they must have answered.
func TestReplacedIssuersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, closes := range []bool{false, true} {
			asked, stop := context.WithCancel(t.Context())
			ctx, end := context.WithCancel(t.Context())
			go (&configured{issuers: &issuers{stop: stop}}).closeLater(ctx)
			time.Sleep(issuerTimeout - time.Nanosecond)
			synctest.Wait()
			if asked.Err() != nil {
				t.Error("a question was cut off")
			}
			if closes {
				end()
			} else {
				time.Sleep(time.Nanosecond)
			}
			synctest.Wait()
			if asked.Err() == nil {
				t.Errorf("the issuers are still asked; Close was called: %t", closes)
			}
			end()
		}
	})
}

// TestHalfWrittenConfiguration: a file that's being written is read when it has been the same at two looks, because half of it may say more than
// all of it.
func TestHalfWrittenConfiguration(t *testing.T) {
	const begins, ends = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous:\n  enabled: true\n", "  conditions: [{path: /livez}]\n"
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(begins, "true", "false", 1))
	f := newFollower(Options{AuthenticationConfigFile: file, AuthorizationMode: "RBAC"}, nil, egress.Ways{}, slog.New(slog.DiscardHandler))
	if _, err := f.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := func() *configured {
		c, err := f.changed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	write(begins)
	if look() != nil {
		t.Error("half of the file is read at the first look")
	}
	write(begins + ends)
	if look() != nil {
		t.Error("the file is read while it changes")
	}
	c := look()
	if c == nil || c.anonymous("/api") || !c.anonymous("/livez") {
		t.Errorf("at the second look of the whole file: %+v", c)
	}
}

// TestIssuerByNoWay: an issuer that is to be reached through a proxy which no file names is refused, and not reached past it.
func TestIssuerByNoWay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	const text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: 'https://issuer.example', audiences: [a], egressSelectorType: cluster}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFollower(Options{AuthenticationConfigFile: file}, nil, egress.Ways{}, slog.New(slog.DiscardHandler))
	if _, err := f.read(t.Context()); err == nil || !strings.Contains(err.Error(), `names no "cluster"`) {
		t.Errorf("the error is %v", err)
	}
}
