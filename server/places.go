package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checkPlaces refuses paths at which the start couldn't leave its files when all is ready. What is to be in the data directory
// can't be looked at before that is there.
func (s *Server) checkPlaces() error {
	if err := checkKubeconfig(s.Serving.KubeconfigFile); err != nil {
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
	data := s.Data.Dir
	if data == "" && !s.Data.Ephemeral && !s.Etcd.On() {
		data = DefaultDataDir
	}
	if data == "" {
		return false
	}
	dir, errDir := filepath.Abs(dir)
	data, errData := filepath.Abs(data)
	return errDir == nil && errData == nil && strings.HasPrefix(data+string(filepath.Separator), dir+string(filepath.Separator))
}

// writeURLFile leaves the URL where scripts wait for it. The rename makes it appear whole.
func (in *instance) writeURLFile(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("--url-file: %w", err)
	}
	_, err = f.WriteString(in.url + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
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
