// Package kubeconfig has the file with what a client needs to use a server, which the server leaves when it's ready, and removes.
package kubeconfig

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/server/secrets"
)

const (
	// mark begins each kubeconfig that we write, so that we overwrite and remove no other.
	mark = "# Written by apiserver-lite, which removes it when it ends.\n"
	// name is what cluster, user and context are called there.
	name = "apiserver-lite"
	// noToken is in a kubeconfig for HTTPS without a token, because kubectl, when it has no credentials at all, asks for a
	// name at the terminal. A server without tokens looks at none.
	noToken = "none"
)

// File is a kubeconfig of ours that lies in its place.
type File struct {
	path    string
	content []byte
}

// Clear removes the kubeconfig of a run that was killed. Any other file in its place is an error.
func Clear(path string) error {
	if err := Check(path); err != nil || path == "" {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--write-kubeconfig: %w", err)
	}
	return nil
}

// Check refuses a file that isn't ours where a kubeconfig is to be.
func Check(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--write-kubeconfig: %w", err)
	case !file.Mode().IsRegular():
		return fmt.Errorf("--write-kubeconfig: %s is no ordinary file", path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--write-kubeconfig: %w", err)
	}
	if !bytes.HasPrefix(content, []byte(mark)) {
		return fmt.Errorf("--write-kubeconfig: %s isn't ours, and stays as it is: name a file that isn't there, and kubectl both with KUBECONFIG=%[1]s:FILE", path)
	}
	return nil
}

// Write leaves a kubeconfig with what a client needs: the address, whom to trust, and a token.
func Write(path, address, token string, certificate *tls.Certificate) (File, error) {
	content, err := kubeconfig(address, token, certificate)
	if err == nil {
		err = secrets.ReplaceFile(path, content)
	}
	if err != nil {
		return File{}, fmt.Errorf("--write-kubeconfig: %w", err)
	}
	return File{path, content}, nil
}

// Remove removes the file unless another one has taken its place. The content tells: it has our URL, while the number of
// a removed file's inode soon belongs to another file.
func (f File) Remove() error {
	if f.path == "" {
		return nil
	}
	if content, err := os.ReadFile(f.path); err != nil || !bytes.Equal(content, f.content) {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--write-kubeconfig: %w", err)
	}
	return nil
}

// kubeconfig returns a file for clients of a URL. token may be empty, and certificate nil.
func kubeconfig(address, token string, certificate *tls.Certificate) ([]byte, error) {
	cluster := map[string]any{"server": address}
	if certificate == nil {
		cluster["insecure-skip-tls-verify"] = true // without it @kubernetes/client-node refuses plain HTTP
	} else {
		token = cmp.Or(token, noToken)
		if err := trust(cluster, address, certificate); err != nil {
			return nil, err
		}
	}
	user := map[string]any{}
	if token != "" {
		user["token"] = token
	}
	body, err := yaml.Marshal(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"clusters":        []any{map[string]any{"name": name, "cluster": cluster}},
		"users":           []any{map[string]any{"name": name, "user": user}},
		"contexts":        []any{map[string]any{"name": name, "context": map[string]any{"cluster": name, "user": name}}},
		"current-context": name,
	})
	return append([]byte(mark), body...), err
}

// trust writes into a kubeconfig's cluster by what its clients know the server: nothing if the machine trusts the
// certificate, or else the certificates that the server shows, the first of which is trusted for itself. A certificate
// that doesn't name the address is looked for by a name that it has.
func trust(cluster map[string]any, address string, certificate *tls.Certificate) error {
	leaf := certificate.Leaf
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	host := u.Hostname()
	if leaf.VerifyHostname(host) != nil && len(leaf.DNSNames) > 0 {
		host = strings.Replace(leaf.DNSNames[0], "*", "apiserver", 1)
		cluster["tls-server-name"] = host
	}
	intermediates := x509.NewCertPool()
	var shown bytes.Buffer
	for _, der := range certificate.Certificate {
		if c, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(c)
		}
		pem.Encode(&shown, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // to memory
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Intermediates: intermediates}); err != nil {
		cluster["certificate-authority-data"] = base64.StdEncoding.EncodeToString(shown.Bytes())
	}
	return nil
}
