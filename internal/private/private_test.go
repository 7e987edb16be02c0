package private

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSecret has what the program's table of refused starts (package e2e) can't show: what is taken, and with which words.
func TestSecret(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path string
		mode       os.FileMode
		says       string // in the log
	}{
		{"ours alone", "", 0o600, ""},
		{"not even ours to write", "", 0o400, ""},
		{"mounted for a group", "", 0o440, "can be read by its group"},
		{"envtest's", "", 0o640, "can be read by its group"},
		{"device", os.DevNull, 0, ""},
		{"pipe", pipe, 0, ""},
	} {
		path := tc.path
		if path == "" {
			path = filepath.Join(dir, tc.name)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tc.mode); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		if err := Secret(path, slog.New(slog.NewTextHandler(&log, nil))); err != nil || (log.Len() > 0) != (tc.says != "") || !strings.Contains(log.String(), tc.says) {
			t.Errorf("%s: %v, and the log has %q", tc.name, err, log.String())
		}
	}
	if err := Place(filepath.Join(dir, "none")); err != nil {
		t.Errorf("a file that is going to be made: %v", err)
	}
}
