package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
)

// RevisionBump is by how much a restore raises the revision: more than is written between a snapshot and its restore, at 10,000 writes a
// second for a day. It's what etcd's documentation proposes.
const RevisionBump = 1_000_000_000

// Restore makes a data directory of a snapshot's file. It may be missing or empty, and is a new cluster: its ids are new. Its revision is
// above all that clients of before have seen, and its history begins there: so they're told that theirs is gone, and never shown another
// object under an old version. A restore that is interrupted leaves a directory that no server starts on. The error says what is wrong,
// and with what.
func Restore(ctx context.Context, file, dir string, log *slog.Logger) (SnapshotStatus, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return SnapshotStatus{}, fmt.Errorf("data directory: %w", err)
	}
	if err := checkEmpty(dir); err != nil {
		return SnapshotStatus{}, fmt.Errorf("data directory %s %w", dir, err)
	}
	st, err := ReadSnapshot(file)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return SnapshotStatus{}, err
	}
	if err := restore(file, dir, log); err != nil {
		return SnapshotStatus{}, fmt.Errorf("restore %s into %s: %w; remove what is there before you try again", file, dir, err)
	}
	return st, nil
}

// checkEmpty refuses a directory that holds anything.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("can't be used: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "lost+found" {
			return fmt.Errorf("isn't empty: a snapshot is restored into a new one")
		}
	}
	return nil
}

// restore makes etcd's files, and then the marker, without which no server takes them for its own.
func restore(file, dir string, log *slog.Logger) error {
	m := storage.Marker{Layout: layoutVersion, ID: rand.Text()}
	d := &dataDir{path: dir, id: m.ID}
	cfg, err := config(d, Options{Log: log}, func(error) {}, nil)
	if err != nil {
		return err
	}
	if err := makeDir(dir); err != nil {
		return err
	}
	const making = "restoring" // below it etcd's files are made: etcd wants an empty directory, and a file system's root may not be
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: cfg.Name, OutputDataDir: d.file(making), PeerURLs: []string{peerURL},
		InitialCluster: cfg.InitialCluster, InitialClusterToken: cfg.InitialClusterToken,
		RevisionBump: RevisionBump, MarkCompacted: true,
	})
	if err == nil {
		err = os.Rename(filepath.Join(d.file(making), filepath.Base(d.files().Member())), d.files().Member())
	}
	if err == nil {
		err = os.Remove(d.file(making))
	}
	if err != nil {
		return err
	}
	return errors.Join(check.SyncDir(d.files().Snapshots()), check.SyncDir(d.files().Member()), check.SyncDir(dir),
		d.writeFile(markerName, append(m.Bytes(), '\n')), check.SyncDir(dir), check.SyncDir(filepath.Dir(dir)))
}
