package secrets

import (
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var discard = slog.New(slog.DiscardHandler)

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

func TestTokenFile(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		mode       os.FileMode
		want       int
		err        string
	}{
		{"one", "abc\n", 0o600, 1, ""},
		{"several, comments, empty lines, no newline at the end", "# team a\nabc\n\n  def\t\r\nghi", 0o600, 3, ""},
		{"none", "# nothing\n\n", 0o600, 0, "holds no token"},
		{"two words", "abc\nde f\n", 0o600, 0, "line 2: the token has a character"},
		{"readable for the group", "abc\n", 0o640, 1, ""},
		{"writable for the group", "abc\n", 0o620, 0, "chmod 600"},
		{"writable for all", "abc\n", 0o602, 0, "chmod 600"},
		{"readable for all", "abc\n", 0o604, 0, "chmod 600"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ReadTokens("", write(t, "tokens", tc.text, tc.mode), discard)
			n := 0
			if got != nil && got.inFile.Load() != nil {
				n = len(*got.inFile.Load())
			}
			if n != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("tokens = %d of them, %v, want %d, %q", n, err, tc.want, tc.err)
			}
			if err != nil && strings.Contains(err.Error(), "de f") {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

func TestSelfSigned(t *testing.T) {
	dir := t.TempDir()
	hosts := []string{"localhost", "127.0.0.1", "::1", "api.test"}
	now := time.Now()
	first, err := selfSigned(dir, hosts, now, discard)
	if err != nil {
		t.Fatal(err)
	}
	serial := func(hosts []string, now time.Time) string {
		t.Helper()
		pair, err := selfSigned(dir, hosts, now, discard)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.String()
	}
	if first.Leaf.IsCA || first.Leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("the certificate can sign others: whoever has its key could be any server for a client that trusts it")
	}
	was := first.Leaf.SerialNumber.String()
	if got := serial(hosts, now); got != was {
		t.Error("the kept certificate was not used again")
	}
	for _, name := range []string{certFile, keyFile} {
		if file, err := os.Stat(filepath.Join(dir, name)); err != nil || file.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", name, file.Mode(), err)
		}
	}
	if got := serial(append(hosts, "other.test"), now); got == was {
		t.Error("a certificate without one of the names was kept")
	}
	was = serial(hosts, now)
	if got := serial(hosts, now.Add(certificateLifetime-certificateRenew/2)); got == was {
		t.Error("a certificate that is about to end was kept")
	}
	if err := os.WriteFile(filepath.Join(dir, keyFile), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	serial(hosts, now)
	if err := os.Chmod(filepath.Join(dir, keyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := selfSigned(dir, hosts, now, discard); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that all can read was taken: %v", err)
	}
}

// TestCertDir: a pair is made once, and one that is there is used, whatever it says; half of one is an error.
func TestCertDir(t *testing.T) {
	o := TLS{On: true, Dir: filepath.Join(t.TempDir(), "new")}
	now := time.Now()
	if none, err := o.Read(discard); none != nil || err != nil {
		t.Fatalf("before there is one: %v, %v", none, err)
	}
	made, err := o.Make("unused", nil, now, discard)
	if err != nil {
		t.Fatal(err)
	}
	used, err := o.Read(discard)
	if err != nil || used.Leaf.SerialNumber.Cmp(made.Leaf.SerialNumber) != 0 {
		t.Errorf("the pair that is there wasn't used: %v", err)
	}
	if err := os.Remove(filepath.Join(o.Dir, certDirKey)); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Read(discard); err == nil || !strings.Contains(err.Error(), "--cert-dir") {
		t.Errorf("a certificate without its key: %v", err)
	}
}
