package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// kubeconfig is what tests look at in one.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Clusters       []struct {
		Cluster struct {
			Server        string
			CA            []byte `json:"certificate-authority-data"`
			TLSServerName string `json:"tls-server-name"`
		}
	}
	Users []struct{ User struct{ Token string } }
}

func readKubeconfig(t *testing.T, path string) (k kubeconfig) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v, want mode 0600", info, err)
	}
	content, err := os.ReadFile(path)
	if err == nil {
		content, err = yaml.YAMLToJSON(content)
	}
	if err == nil {
		err = json.Unmarshal(content, &k)
	}
	if err != nil || len(k.Clusters) != 1 || len(k.Users) != 1 || k.CurrentContext != "apiserver-lite" {
		t.Fatalf("%v: %+v", err, k)
	}
	return k
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// pairFor leaves a certificate for a name, signed by itself, and its key in a directory.
func pairFor(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeFile(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	writeFile(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key
}

// TestKubeconfig: what the file says is enough to use the server, and Close removes it.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	writeFile(t, tokens, "# who\n\nfrom-file\nsecond\n")
	cert, key := pairFor(t, dir, "api.test")
	for _, tc := range []struct {
		name           string
		option         func(*server.Server)
		scheme, token  string
		ca, serverName bool
	}{
		{"http", func(*server.Server) {}, "http", "", false, false},
		{"http and a token", func(s *server.Server) { s.Token = "s3cret" }, "http", "s3cret", false, false},
		{"TLS", func(s *server.Server) { s.TLS.On = true }, "https", "none", true, false},
		{"TLS and a token", func(s *server.Server) { s.TLS.On, s.Token = true, "s3cret" }, "https", "s3cret", true, false},
		{"tokens from a file", func(s *server.Server) { s.TLS.On, s.TokenFile = true, tokens }, "https", "from-file", true, false},
		{"a certificate for another name", func(s *server.Server) { s.TLS.CertFile, s.TLS.KeyFile = cert, key }, "https", "none", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			s := servertest.New(t, tc.option, func(s *server.Server) { s.Serving.KubeconfigFile = file })
			k := readKubeconfig(t, file)
			cluster, user := k.Clusters[0].Cluster, k.Users[0].User
			if cluster.Server != s.URL || !strings.HasPrefix(s.URL, tc.scheme+"://") || user.Token != tc.token || len(cluster.CA) > 0 != tc.ca || cluster.TLSServerName != map[bool]string{true: "api.test"}[tc.serverName] {
				t.Errorf("%+v", k)
			}
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool(), ServerName: cluster.TLSServerName}}
			transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(cluster.CA)
			s.Client = &http.Client{Transport: transport}
			defer transport.CloseIdleConnections()
			var headers []string
			if user.Token != "" {
				headers = []string{"Authorization", "Bearer " + user.Token}
			}
			if res, body := s.Do("GET", "/api/v1/namespaces", "", headers...); res.StatusCode != http.StatusOK {
				t.Errorf("with what it says: %s %s", res.Status, body)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Errorf("it's still there after the end: %v", err)
			}
		})
	}
}

// TestKubeconfigInPlace: what others wrote is neither replaced nor removed.
func TestKubeconfigInPlace(t *testing.T) {
	t.Parallel()
	start := func(s *server.Server) error {
		s.Serving.Listen, s.Data.Ephemeral, s.Data.Dir = "127.0.0.1:0", true, t.TempDir()
		return s.Start(context.Background())
	}
	for _, tc := range []struct {
		name string
		make func(path string) error
		want string
	}{
		{"another's", func(path string) error { return os.WriteFile(path, []byte("apiVersion: v1\n"), 0o600) }, "isn't ours"},
		{"empty", func(path string) error { return os.WriteFile(path, nil, 0o600) }, "isn't ours"},
		{"a directory", func(path string) error { return os.Mkdir(path, 0o700) }, "no ordinary file"},
		{"a link", func(path string) error { return os.Symlink("/dev/null", path) }, "no ordinary file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			if err := tc.make(file); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(file)
			s := &server.Server{Serving: server.Serving{KubeconfigFile: file}}
			err := start(s)
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--write-kubeconfig") {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if after, err := os.Lstat(file); err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
				t.Errorf("it's touched: %v, %v", after, err)
			}
		})
	}
	t.Run("ours, of a run that was killed", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "config")
		first, second := &server.Server{Serving: server.Serving{KubeconfigFile: file}}, &server.Server{Serving: server.Serving{KubeconfigFile: file}}
		if err := start(first); err != nil {
			t.Fatal(err)
		}
		if err := start(second); err != nil { // as if the first had been killed
			t.Fatal(err)
		}
		if got := readKubeconfig(t, file).Clusters[0].Cluster.Server; got != second.URL() {
			t.Errorf("it names %s, want %s", got, second.URL())
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		readKubeconfig(t, file) // the second's, which stays
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("replaced meanwhile", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "config")
		s := &server.Server{Serving: server.Serving{KubeconfigFile: file}}
		if err := start(s); err != nil {
			t.Fatal(err)
		}
		writeFile(t, file+".new", "another's")
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if content, err := os.ReadFile(file); err != nil || string(content) != "another's" {
			t.Errorf("%q, %v", content, err)
		}
	})
	for name, path := range map[string]string{"no such directory": filepath.Join(t.TempDir(), "no", "config")} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0", KubeconfigFile: path}, Data: server.Data{Ephemeral: true, Dir: dir}}
			if err := s.Start(context.Background()); err == nil || !strings.Contains(err.Error(), "--write-kubeconfig") {
				t.Errorf("%v", err)
			}
			left := 0
			fs.WalkDir(os.DirFS(dir), ".", func(string, fs.DirEntry, error) error { left++; return nil })
			if left != 1 {
				t.Errorf("%d files are left of a start that failed", left-1)
			}
		})
	}
	s := &server.Server{Serving: server.Serving{Listen: "unix:" + filepath.Join(t.TempDir(), "s"), KubeconfigFile: filepath.Join(t.TempDir(), "config")}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}}
	if err := s.Start(context.Background()); err == nil || !strings.Contains(err.Error(), "unix socket") {
		t.Errorf("with a socket: %v", err)
	}
}
