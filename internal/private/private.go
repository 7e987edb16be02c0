// Package private tells whether files and directories that a server trusts are in its user's hands alone. All that the
// server reads as a secret, or keeps in a directory of its own, is looked at by it when the server starts.
//
// Root counts as oneself: root can change anything in any case. A link counts by its own owner and by what it leads to,
// because secrets are mounted in containers as links.
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
)

// Secret refuses a file of secrets that belongs to somebody else, that everybody can use, or that its group can write. That
// its group can read it is how secrets are mounted in containers; it's a warning in the log. What is no regular file, as a
// pipe of the shell's <(…), has no mode that says anything. The error names the file and says what to do; of a file that
// isn't there it's fs.ErrNotExist.
func Secret(path string, log *slog.Logger) error {
	file, err := owned(path)
	if err != nil || !file.Mode().IsRegular() {
		return err
	}
	switch mode := file.Mode().Perm(); {
	case mode&0o007 != 0:
		return fmt.Errorf("%s has mode %04o, so that everybody can use it: chmod 600 it", path, mode)
	case mode&0o020 != 0:
		return fmt.Errorf("%s has mode %04o, so that its group can write it: chmod 600 it", path, mode)
	case mode&0o040 != 0:
		log.Warn("a file of secrets can be read by its group", "file", path, "mode", fmt.Sprintf("%04o", mode))
	}
	return nil
}

// Place refuses a path where a file of ours is going to be written, if there is a file of somebody else's, or his link to
// one. Nothing there is right.
func Place(path string) error {
	if _, err := owned(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// owned returns what is at a path. It's an error if that, or the link to it, belongs to somebody else. Devices and pipes
// may belong to anybody: a terminal is whose login it is.
func owned(path string) (fs.FileInfo, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	link, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if link.Mode()&fs.ModeSymlink != 0 {
		if whose, ok := foreign(link); ok {
			return nil, fmt.Errorf("%s is a link, which belongs to %s: put the file itself there", path, whose)
		}
	}
	if whose, ok := foreign(file); ok && (file.Mode().IsRegular() || file.IsDir()) {
		return nil, fmt.Errorf("%s belongs to %s: who else can change it could plant another one; chown it, or copy it", path, whose)
	}
	return file, nil
}

// Dir refuses a directory that belongs to somebody else, and one in which somebody else has put a file: who prepared it
// knows what is in it, as a key that he planted, and can change what is written there. It looks no deeper than at the
// entries. A link or a pipe in the place of one of the names in written is refused, whoever made it: files of those
// names are written as they are, not put there by a rename. The error goes on after the directory's path.
func Dir(path string, written ...string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("can't be read: %w", err)
	}
	for _, name := range append([]string{"."}, names(entries)...) {
		info, err := os.Lstat(filepath.Join(path, name))
		if errors.Is(err, fs.ErrNotExist) { // a file of another process's
			continue
		}
		if err != nil {
			return fmt.Errorf("can't be read: %w", err)
		}
		if whose, ok := foreign(info); ok {
			what := ""
			if name != "." {
				what = fmt.Sprintf("has %s, which ", name)
			}
			return fmt.Errorf("%sbelongs to %s: who else can write there could plant keys; chown it, or name another directory", what, whose)
		}
		switch at := info.Mode(); {
		case !slices.Contains(written, name):
		case at&fs.ModeSymlink != 0:
			return fmt.Errorf("has a link in the place of %s: put the file itself there, or name another directory", name)
		case !at.IsRegular(): // as a pipe, at which opening hangs
			return fmt.Errorf("has something else than a file in the place of %s: remove it, or name another directory", name)
		}
	}
	return nil
}

// foreign tells whether something belongs to somebody else than this process's user or root, and who the two are.
func foreign(info fs.FileInfo) (whose string, is bool) {
	uid, known := disk.Owner(info)
	if !known || uid == 0 || uid == os.Geteuid() {
		return "", false
	}
	return fmt.Sprintf("user %d, and this process is user %d", uid, os.Geteuid()), true
}

func names(entries []fs.DirEntry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
