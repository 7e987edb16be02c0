package etcd

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDirectoryOfSomebodyElse: a directory that another user prepared, or a file in it, is refused, and no link is followed.
func TestDirectoryOfSomebodyElse(t *testing.T) {
	const other = 12345
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		root bool // only root can give files away
		make func(dir string) error
		want string
	}{
		{"directory", true, func(dir string) error { return os.Chown(dir, other, -1) }, "belongs to user 12345"},
		{"key", true, func(dir string) error {
			key := filepath.Join(dir, "service-account.key")
			if err := os.WriteFile(key, nil, 0o600); err != nil {
				return err
			}
			return os.Chown(key, other, -1)
		}, "has service-account.key, which belongs to user 12345"},
		{"link for the pid", false, func(dir string) error { return os.Symlink(file, filepath.Join(dir, pidName)) }, "a link in the place of pid"},
		{"link for the marker", false, func(dir string) error {
			return os.Symlink(file, filepath.Join(dir, markerName))
		}, "a link in the place of " + markerName},
		{"pipe for the pid", false, func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, pidName), 0o600) }, "else than a file in the place of pid"},
	} {
		if tt.root && os.Geteuid() != 0 {
			t.Errorf("%s: only root can give files away: run this test as root, or leave it out with -skip '^TestDirectoryOfSomebodyElse$'", tt.name)
			continue
		}
		dir := t.TempDir()
		if d, err := openDir(dir, slog.New(slog.DiscardHandler)); err != nil || d.release() != nil {
			t.Fatal(err)
		}
		if tt.name == "link for the marker" {
			if err := os.Remove(filepath.Join(dir, markerName)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tt.make(dir); err != nil {
			t.Fatal(err)
		}
		if d, err := openDir(dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, %v", tt.name, d, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("the file behind a link is %q, %v", text, err)
	}
}
