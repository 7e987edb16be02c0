package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
)

// ErrInUse is returned by Examine for a directory on which a server runs.
var ErrInUse = errors.New("is in use: a server runs on it")

// Examine says whether a server could start on a data directory, as Open finds out, and changes nothing. A directory that isn't there would be made.
// It reads the log and the database, which takes as long as it takes a start after a kill, and locks the directory meanwhile. Of a directory that is
// ErrInUse it has looked at no file of etcd's.
func Examine(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := examine(path); err != nil {
		return fmt.Errorf("data directory %s %w", path, err)
	}
	return nil
}

func examine(path string) error {
	if there, err := isOurs(path); err != nil || !there {
		return err
	}
	d := &dataDir{path: path}
	marker, err := os.Open(d.file(markerName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it's empty
	}
	if err != nil {
		return fmt.Errorf("can't be read: %w", err)
	}
	defer marker.Close() // and gives back the lock
	if err := disk.Lock(marker, true); err != nil {
		return ErrInUse
	}
	var m storage.Marker
	if err := json.NewDecoder(marker).Decode(&m); err != nil || m.ID == "" {
		return fmt.Errorf("has a damaged %s: restore the directory from a backup, or move it away to start empty", markerName)
	}
	if err := m.Known(layoutEncrypted); err != nil {
		return err
	}
	if err := (check.Directory{Path: path, Used: exists(d.file(historyName)), Marker: d.file(markerName)}).Sound(); err != nil {
		return fmt.Errorf("can't be started on: %w", err)
	}
	return nil
}
