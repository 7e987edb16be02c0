package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
)

// ErrInUse is returned by Examine for a directory on which a server runs.
var ErrInUse = errors.New("a server runs on it")

// Examine says whether a server could start on a data directory, as Open finds out, and changes nothing. A directory that isn't there would be made.
// It reads the log and the database, which takes as long as it takes a start after a kill, and locks the directory meanwhile. Of a directory that is
// ErrInUse it has looked at no file of etcd's.
func Examine(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := examine(path); err != nil {
		return fmt.Errorf("data directory %s: %w", path, err)
	}
	return nil
}

func examine(path string) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is a file: name a directory")
	}
	if err := private.Dir(path, markerName, pidName, spareName); err != nil {
		return fmt.Errorf("it %w", err)
	}
	if foreign, err := isForeign(path); err != nil || foreign {
		return errors.Join(err, fmt.Errorf("it isn't empty and has no %s: it holds something else; name another directory", markerName))
	}
	d := &dataDir{path: path}
	marker, err := os.Open(d.file(markerName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it's empty
	}
	if err != nil {
		return err
	}
	defer marker.Close() // and gives back the lock
	if err := syscall.Flock(int(marker.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return ErrInUse
	}
	var m storage.Marker
	if err := json.NewDecoder(marker).Decode(&m); err != nil || m.ID == "" {
		return fmt.Errorf("%s is damaged: restore the directory from a backup, or move it away to start empty", markerName)
	}
	if err := m.Known(layoutVersion); err != nil {
		return err
	}
	return check.Directory{Path: path, Used: exists(d.file(historyName)), Marker: d.file(markerName)}.Sound()
}
