package dropin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
)

// kubectl is the third program that envtest looks for. Few suites run it.
const kubectl = "kubectl"

// FillAssets makes the directory if it's missing, puts the program at path self there under both names, and a link to the kubectl of
// PATH if there is one and the directory has none. It returns the directory's absolute path, which is what KUBEBUILDER_ASSETS wants.
func FillAssets(dir, self string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{KubeAPIServer, Etcd} {
		target := filepath.Join(dir, name)
		if err := checkOurs(target); err != nil {
			return "", err
		}
		if err := put(self, target); err != nil {
			return "", err
		}
	}
	if found, err := exec.LookPath(kubectl); err == nil {
		if found, err = filepath.Abs(found); err != nil {
			return "", err
		}
		if err := os.Symlink(found, filepath.Join(dir, kubectl)); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return dir, nil
}

// checkOurs refuses to replace another program, such as the real one, which somebody downloaded.
func checkOurs(path string) error {
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	us, ok := debug.ReadBuildInfo()
	if ok && holds(in, "\nmod\t"+us.Main.Path+"\t") { // every Go program says so of its main module
		return nil
	}
	return fmt.Errorf("%s is another program: remove it, or choose another directory", path)
}

// holds tells whether a text is in what r gives. (Package debug/buildinfo would link the decoders of all systems' executables.)
func holds(r io.Reader, text string) bool {
	buffer := make([]byte, 1<<20)
	for kept := 0; ; {
		n, err := io.ReadFull(r, buffer[kept:])
		if bytes.Contains(buffer[:kept+n], []byte(text)) {
			return true
		}
		if err != nil {
			return false
		}
		kept = copy(buffer, buffer[len(buffer)-len(text)+1:]) // the text may begin there
	}
}

// put leaves the program at target, whole or not at all: as a hard link, which outlives the file that `go run` removes, or as a copy
// where a link can't be.
func put(self, target string) error {
	dir, err := os.MkdirTemp(filepath.Dir(target), ".envtest-") // on target's file system
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fresh := filepath.Join(dir, filepath.Base(target))
	if os.Link(self, fresh) != nil {
		if err := copyProgram(self, fresh); err != nil {
			return err
		}
	}
	// Rename does nothing if both are links to one file, and RemoveAll then removes the fresh one.
	return os.Rename(fresh, target)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
