package server

import (
	"cmp"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/kubeconfig"
	"github.com/apiserver-lite/apiserver-lite/server/secrets"
)

// checkFiles refuses paths at which the start couldn't leave its files when all is ready. What is to be in the data directory
// can't be looked at before that is there.
func (s *Server) checkFiles() error {
	if err := kubeconfig.Check(s.Serving.KubeconfigFile); err != nil {
		return err
	}
	for flag, path := range map[string]string{"--url-file": s.Serving.URLFile, "--write-kubeconfig": s.Serving.KubeconfigFile} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return fmt.Errorf("%s: %s is a directory: name a file", flag, path)
		}
		f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // as it's written later
		if errors.Is(err, os.ErrNotExist) && s.makes(filepath.Dir(path)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}

// makes tells whether a directory is one that the start makes: the data directory, or one above it.
func (s *Server) makes(dir string) bool {
	data := s.dataDir()
	if data == "" {
		return false
	}
	dir, errDir := filepath.Abs(dir)
	data, errData := filepath.Abs(data)
	return errDir == nil && errData == nil && strings.HasPrefix(data+string(filepath.Separator), dir+string(filepath.Separator))
}

// dataDir is where the data is to be; "" for a directory of the system's choice, or none.
func (s *Server) dataDir() string {
	if s.Data.Ephemeral || s.Etcd.On() {
		return s.Data.Dir
	}
	return cmp.Or(s.Data.Dir, DefaultDataDir)
}

// certificateHosts is what clients may call the server: loopback, the machine's name, and what the
// flags say.
func (s *Server) certificateHosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	if host, _, err := net.SplitHostPort(cmp.Or(s.Serving.Listen, DefaultListen)); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	for _, host := range s.Serving.AllowedHosts {
		hosts = append(hosts, guard.HostOnly(host))
	}
	return hosts
}

// accountKey returns the key that signs ServiceAccounts' tokens. An ephemeral server's is in memory only.
func (in *instance) accountKey(s *Server) (crypto.Signer, error) {
	dir := in.backing.dataDir
	if in.replica != nil {
		return secrets.SharedAccountKey(in.backing.store, dir, in.log)
	}
	if s.Data.Ephemeral {
		dir = ""
	}
	return secrets.AccountKey(in.backing.store, dir, in.log)
}

// writeKubeconfig leaves a kubeconfig, with an administrator's token: the one that was made for it, or else one that was given.
func (in *instance) writeKubeconfig(s *Server, token string, certificate *tls.Certificate) (err error) {
	if s.Serving.KubeconfigFile == "" {
		return nil
	}
	if token == "" {
		if token, err = secrets.FirstToken(s.Token, s.TokenFile, in.log); err != nil {
			return fmt.Errorf("--write-kubeconfig: %w", err)
		}
	}
	if in.left.kubeconfig, err = kubeconfig.Write(s.Serving.KubeconfigFile, in.url, token, certificate); err != nil {
		return err
	}
	if token != "" && certificate == nil {
		in.log.Warn("kubectl sends a token over HTTPS only: serve HTTPS, with --tls for example", "kubeconfig", s.Serving.KubeconfigFile)
	}
	return nil
}

// writeURLFile leaves the URL where scripts wait for it. The rename makes it appear whole.
func (in *instance) writeURLFile(path string) error {
	if path == "" {
		return nil
	}
	if err := secrets.ReplaceFile(path, []byte(in.url+"\n")); err != nil {
		return fmt.Errorf("--url-file: %w", err)
	}
	in.left.urlFile = path
	return nil
}

func removeURLFile(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--url-file: %w", err)
	}
	return nil
}
