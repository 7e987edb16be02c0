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
	"runtime/debug"
	"slices"
	"time"

	etcdsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// RevisionBump is by how much a restore raises the revision at least: more than is written between a snapshot and its restore, at 10,000
// writes a second for a day. It's what etcd's documentation proposes.
const RevisionBump = 1_000_000_000

// bump returns by how much a restore raises a revision. The time is in it, 10,000 for each second, so that a second restore of one file
// begins above all that was written after the first.
func bump(now time.Time, from storage.Revision) uint64 {
	const perSecond = 10_000
	return uint64(max(RevisionBump, now.UnixNano()/(int64(time.Second)/perSecond)-int64(from)))
}

// restoring is where a restore makes etcd's files, in the data directory: etcd wants an empty one, and a file system's root may not be. While
// it's there, and until the marker is, no server starts on the directory.
const restoring = "restoring"

// Restore makes a data directory of a snapshot's file. It may be missing or empty, and is a new cluster: its ids are new. Its revision is
// above all that clients of before have seen, and its history begins there: so they're told that theirs is gone, and never shown another
// object under an old version. A restore that is interrupted leaves a directory that no server starts on. The error says what is wrong,
// and with what.
func Restore(ctx context.Context, file, dir string, log *slog.Logger) (snapshot.Status, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return snapshot.Status{}, fmt.Errorf("data directory: %w", err)
	}
	if err := checkEmpty(dir); err != nil {
		return snapshot.Status{}, fmt.Errorf("data directory %s %w", dir, err)
	}
	st, err := snapshot.Read(ctx, file)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return snapshot.Status{}, err
	}
	d := &dataDir{path: dir, id: rand.Text()}
	if err := d.beginRestore(log); err != nil {
		return snapshot.Status{}, fmt.Errorf("data directory %s %w", dir, err)
	}
	if err = d.makeMember(ctx, file, st.Revision, log); err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = d.endRestore()
	}
	if err != nil {
		return snapshot.Status{}, fmt.Errorf("restore %s into %s: %w; remove what the directory has before you try again", file, dir, err)
	}
	return st, nil
}

// checkEmpty refuses a directory that holds anything.
func checkEmpty(dir string, but ...string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("can't be used: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "lost+found" && !slices.Contains(but, e.Name()) {
			return fmt.Errorf("isn't empty: a snapshot is restored into a new one")
		}
	}
	return nil
}

// beginRestore makes the directory, and in it what keeps servers and other restores away. It looks again whether it's empty.
func (d *dataDir) beginRestore(log *slog.Logger) error {
	if !exists(d.path) {
		if err := makeDir(d.path); err != nil {
			return fmt.Errorf("can't be made: %w", err)
		}
	}
	if err := private.Dir(d.path); err != nil {
		return err
	}
	d.tighten(log)
	if err := os.Mkdir(d.file(restoring), 0o700); err != nil {
		return fmt.Errorf("can't be used: %w", err)
	}
	err := checkEmpty(d.path, restoring)
	if err == nil {
		return errors.Join(check.SyncDir(d.path), check.SyncDir(filepath.Dir(d.path)))
	}
	return errors.Join(err, os.Remove(d.file(restoring)))
}

// makeMember has etcd's files made. etcd ends the goroutine that meets a fatal error, as newLogger says.
func (d *dataDir) makeMember(ctx context.Context, file string, from storage.Revision, log *slog.Logger) error {
	done := make(chan error, 2) // the first one counts
	fail := func(err error) { done <- err }
	cfg, err := etcdConfig(d, Options{Log: log}, fail, nil)
	if err != nil {
		return err
	}
	go func() {
		defer func() {
			if r := recover(); r != nil {
				fail(fmt.Errorf("panic: %v", r))
			}
		}()
		debug.SetPanicOnFault(true)
		done <- etcdsnapshot.NewV3(newLogger(log, fail, nil)).Restore(etcdsnapshot.RestoreConfig{
			SnapshotPath: file, Name: cfg.Name, OutputDataDir: d.file(restoring), PeerURLs: []string{peerURL},
			InitialCluster: cfg.InitialPeerURLsMap.String(), InitialClusterToken: cfg.InitialClusterToken,
			RevisionBump: bump(time.Now(), from), MarkCompacted: true,
		})
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done(): // nothing ends the copying, which goes on until the process ends: no server starts on what it leaves
		return ctx.Err()
	}
}

// endRestore puts etcd's files in their place, and then the marker, without which no server takes them for its own. With the history's file
// the directory isn't taken for one whose first start was killed.
func (d *dataDir) endRestore() error {
	if err := os.Rename(filepath.Join(d.file(restoring), filepath.Base(d.files().Member())), d.files().Member()); err != nil {
		return err
	}
	m := storage.Marker{Layout: layoutVersion, ID: d.id}
	return errors.Join(check.SyncDir(d.files().WAL()), check.SyncDir(d.files().Snapshots()), check.SyncDir(d.files().Member()),
		os.Remove(d.file(restoring)), d.writeFile(historyName, []byte("{}\n")), check.SyncDir(d.path),
		d.writeFile(markerName, append(m.Bytes(), '\n')), check.SyncDir(d.path))
}
