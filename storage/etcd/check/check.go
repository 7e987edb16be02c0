package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/sync/errgroup"
)

// A Directory is a data directory with etcd's files. The caller holds its lock, and etcd doesn't run on it.
type Directory struct {
	Path string
	// Used says that a start in the directory has succeeded: etcd's files must be there.
	Used bool
	// ClusterID is etcd's id for the cluster that the files must belong to.
	ClusterID uint64
	// Marker is the path of the file that ClusterID comes from.
	Marker string
}

// Member is the directory that has all of etcd's files.
func (d Directory) Member() string { return filepath.Join(d.Path, "member") }

// WAL is the directory of etcd's write-ahead log.
func (d Directory) WAL() string { return filepath.Join(d.Member(), "wal") }

// Snapshots is the directory of etcd's snapshots.
func (d Directory) Snapshots() string { return filepath.Join(d.Member(), "snap") }

// WALFiles returns the paths of the WAL's files, oldest first; none if there's no WAL.
func (d Directory) WALFiles() ([]string, error) { return filesOf(d.WAL(), ".wal") }

// SnapshotFiles returns the paths of etcd's snapshots, oldest first; none if their directory is missing.
func (d Directory) SnapshotFiles() ([]string, error) { return filesOf(d.Snapshots(), ".snap") }

// filesOf lists the files of a directory whose names end so, by name. It's no pattern: the directory's own name may be anything.
func filesOf(dir, suffix string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// Database is the file of etcd's database.
func (d Directory) Database() string { return filepath.Join(d.Snapshots(), "db") }

// Open says whether the directory is sound. If it is, etcd may start there: its files are whole, or the
// directory is as if it had never been started, and there is no seal any more. It returns the WAL's last
// entry that is known to be committed, because etcd applies all up to it before it does anything else.
//
// Everything else is refused, with an error that names the file: etcd would start with less than it
// acknowledged, or end the process.
func (d Directory) Open(log *slog.Logger) (commit uint64, err error) {
	if commit, err = d.check(log); err != nil {
		return 0, err
	}
	if err := sealOf(d).remove(); err != nil {
		return 0, fmt.Errorf("data directory %s: %s can't be removed: %w", d.Path, sealName, err)
	}
	return commit, nil
}

// Applied says whether the database of a stopped server has all that is in its log, and whether both are whole. It changes nothing.
func (d Directory) Applied() (err error) {
	defer catchFaults(d.Member(), &err)()
	sum, err := readWAL(d)
	if err != nil {
		return err
	}
	index, _, err := d.checkDB(sum)
	switch {
	case err != nil:
		return err
	case sum.files == 0:
		return &damage{d.WAL(), wholeFile, "the WAL is missing"}
	case sum.clusterID != d.ClusterID:
		return fmt.Errorf("%s belongs to another cluster (%x) than %s (%x)", d.Member(), sum.clusterID, d.Marker, d.ClusterID)
	case index < sum.commit:
		return fmt.Errorf("%s was killed: its log has entry %d, and its database is at %d. Start the server once and stop it, or save from the server of any member", d.Path, sum.commit, index)
	}
	return nil
}

// Sound says whether the directory is sound, as Open does, but for the cluster that the files belong to. It changes nothing.
func (d Directory) Sound() (err error) {
	defer catchFaults(d.Member(), &err)()
	_, err = d.judge()
	return err
}

// check looks at the files, and repairs what a crash can leave.
func (d Directory) check(log *slog.Logger) (commit uint64, err error) {
	defer catchFaults(d.Member(), &err)()
	v, err := d.judge()
	switch {
	case err != nil || v.empty:
		return 0, err
	case v.unbegun:
		log.Info("the first start in this directory was interrupted; starting anew", "dir", d.Path)
		return 0, os.RemoveAll(d.Member())
	case v.wal.clusterID != d.ClusterID:
		return 0, fmt.Errorf("%s belongs to another cluster (%x) than %s (%x): put the directory's own files back, or move member away to start empty",
			d.Member(), v.wal.clusterID, d.Marker, d.ClusterID)
	}
	if v.wal.torn {
		log.Warn("a write that wasn't finished at the log's end was dropped; it was never acknowledged", "file", v.wal.lastFile, "offset", v.wal.end)
	}
	return v.wal.commit, errors.Join(v.wal.mend(), trim(d.Database(), v.pages))
}

// verdict is what the files of a sound directory are.
type verdict struct {
	empty   bool // there are none, and never were
	unbegun bool // the first start was killed before anything was acknowledged
	wal     walSummary
	pages   int64 // of the database
}

// judge looks at the files. It changes nothing. Its error is that the directory isn't sound.
func (d Directory) judge() (v verdict, err error) {
	if _, err := os.Lstat(d.Member()); errors.Is(err, fs.ErrNotExist) {
		if d.Used {
			return v, &damage{d.Member(), wholeFile, "it is missing"}
		}
		return verdict{empty: true}, nil
	}
	sum, err := readWAL(d)
	if err != nil {
		return v, err
	}
	index, pages, err := d.checkDB(sum)
	if err != nil {
		return v, err
	}
	switch {
	case sum.commit == 0 && (index == 0 || index == 1 && sum.lastIndex == 0) && !d.Used:
		// Nothing was committed, so nothing was acknowledged: the first start was killed. etcd would wait
		// forever for a member that it never added. The entry that adds the first member, and no other, may come into the database
		// before it's in the WAL, because etcd takes it for committed from the beginning.
		return verdict{unbegun: true}, nil
	case sum.files == 0:
		return v, &damage{d.WAL(), wholeFile, "the WAL is missing"}
	case index == 0 && sum.commit == 0:
		return v, &damage{d.Member(), wholeFile, "nothing is in the WAL and the database any more"}
	case index > sum.lastIndex && sum.torn:
		return v, &damage{sum.lastFile, sum.end, fmt.Sprintf("the WAL can be read up to entry %d, but the database has entry %d", sum.lastIndex, index)}
	case index > sum.lastIndex:
		return v, &damage{d.WAL(), wholeFile, fmt.Sprintf("the WAL ends at entry %d, but the database has entry %d", sum.lastIndex, index)}
	}
	return verdict{wal: sum, pages: pages}, nil
}

// damage says what is wrong in which file.
type damage struct {
	file   string
	offset int64 // where it is, or wholeFile
	what   string
}

// wholeFile is the offset of damage that is in no single place.
const wholeFile = -1

func (d *damage) Error() string {
	at := ""
	if d.offset != wholeFile {
		at = fmt.Sprintf(" at offset %d", d.offset)
	}
	return fmt.Sprintf("%s is damaged%s: %s; restore the data directory from a backup, or move it away to start empty", d.file, at, d.what)
}

// newer says what in which file only a newer version can read.
type newer struct {
	file   string
	offset int64
	what   string
}

func (n *newer) Error() string {
	return fmt.Sprintf("%s at offset %d: %s: run the newer version that wrote it, or restore the data directory from a backup if there was none", n.file, n.offset, n.what)
}

// checkDB checks the database. It returns the last WAL entry that it has (0 if it has none, or if it
// isn't a database yet because the first start was killed), and how many bytes its pages are.
func (d Directory) checkDB(sum walSummary) (index uint64, pages int64, err error) {
	db, unmap, err := openDB(d.Database())
	var broken *damage
	switch {
	case errors.Is(err, fs.ErrNotExist) && sum.commit > 0:
		return 0, 0, &damage{d.Database(), wholeFile, "it is missing"}
	case errors.Is(err, fs.ErrNotExist):
		return 0, 0, nil
	case errors.As(err, &broken) && sum.commit == 0 && fileSize(d.Database()) <= 4*maxPageSize:
		return 0, 0, nil // killed while the first four pages were written
	case err != nil:
		return 0, 0, err
	}
	defer unmap()
	var sealed errgroup.Group // it takes longer than the tree
	sealed.Go(func() (err error) {
		defer catchFaults(db.name, &err)()
		return sealOf(d).compare(db)
	})
	index, err = db.walk()
	return index, db.meta.bytes(), cmp.Or(sealed.Wait(), err)
}

// Database says whether the file of a database is whole: its pages, and the order of its keys. What comes after the pages doesn't count. The
// error says what is wrong, without the file's name, or is ctx's.
func Database(ctx context.Context, path string) (err error) {
	defer func() {
		var broken *damage
		if errors.As(err, &broken) {
			err = fmt.Errorf("at offset %d: %s", broken.offset, broken.what)
		}
	}()
	defer catchFaults(path, &err)()
	db, unmap, err := openDB(path)
	if err != nil {
		return err
	}
	defer unmap()
	db.ended = ctx.Err
	_, err = db.walk()
	return cmp.Or(ctx.Err(), err)
}

// trim gives back what a database file has beyond its pages: bbolt preallocates 16 MiB, and etcd maps
// all of the file into memory when it starts, which made an empty store 16 MB larger after a restart.
func trim(path string, pages int64) error {
	if fileSize(path) == pages {
		return nil
	}
	return os.Truncate(path, pages)
}

// catchFaults makes faults panic, and returns a function that the caller defers, which turns such a panic into an error:
// files are mapped, and a sector that can't be read is a fault.
func catchFaults(path string, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if r := recover(); r != nil {
			*err = &damage{path, wholeFile, fmt.Sprintf("it can't be read: %v", r)}
		}
	}
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
