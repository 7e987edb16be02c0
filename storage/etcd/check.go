package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
)

// check looks at etcd's files before etcd does. Afterwards they are whole, or the directory is as if it
// had never been started. It refuses, with a *damage that names the file, everything else: etcd would
// start with less than it acknowledged, or end the process. It returns the log's last entry that is known
// to be committed: etcd applies all up to it before it does anything else.
func (d *dataDir) check(log *slog.Logger, clusterID uint64) (commit uint64, err error) {
	defer catchFault(debug.SetPanicOnFault(true), d.member(), &err)
	// The first start that succeeds leaves the history's marks.
	used := exists(d.file(historyName))
	if !exists(d.member()) {
		if used {
			return 0, &damage{d.member(), -1, "it is missing"}
		}
		return 0, nil
	}
	sum, err := readWAL(d.wal())
	if err != nil {
		return 0, err
	}
	index, pages, err := d.checkDB(sum)
	if err != nil {
		return 0, err
	}
	switch {
	case index == 0 && sum.commit == 0 && !used:
		// Nothing was committed, so nothing was acknowledged: the first start was killed. etcd would wait
		// forever for a member that it never added.
		log.Info("the first start in this directory was interrupted; starting anew", "dir", d.path)
		return 0, os.RemoveAll(d.member())
	case sum.files == 0:
		return 0, &damage{d.wal(), -1, "the log is missing"}
	case index == 0 && sum.commit == 0:
		return 0, &damage{d.member(), -1, "nothing is in the log and the database any more"}
	case index > sum.lastIndex && sum.torn:
		return 0, &damage{sum.lastFile, sum.end, fmt.Sprintf("the log can be read up to entry %d, but the database has entry %d", sum.lastIndex, index)}
	case index > sum.lastIndex:
		return 0, &damage{d.wal(), -1, fmt.Sprintf("the log ends at entry %d, but the database has entry %d", sum.lastIndex, index)}
	case sum.clusterID != clusterID:
		return 0, fmt.Errorf("%s belongs to another cluster (%x) than %s (%x): put the directory's own files back, or move member away to start empty",
			d.member(), sum.clusterID, d.file(markerName), clusterID)
	}
	if sum.torn {
		log.Warn("a write that wasn't finished at the log's end was dropped; it was never acknowledged", "file", sum.lastFile, "offset", sum.end)
	}
	return sum.commit, errors.Join(sum.mend(), trim(d.db(), pages))
}

// checkDB checks the database. It returns the last log entry that it has (0 if it has none, or if it
// isn't a database yet because the first start was killed), and how many bytes its pages are.
func (d *dataDir) checkDB(sum walSummary) (index uint64, pages int64, err error) {
	db, unmap, err := openDB(d.db())
	var broken *damage
	switch {
	case errors.Is(err, fs.ErrNotExist) && sum.commit > 0:
		return 0, 0, &damage{d.db(), -1, "it is missing"}
	case errors.Is(err, fs.ErrNotExist):
		return 0, 0, nil
	case errors.As(err, &broken) && sum.commit == 0 && fileSize(d.db()) <= 4*maxPageSize:
		return 0, 0, nil // killed while the first four pages were written
	case err != nil:
		return 0, 0, err
	}
	defer unmap()
	s, err := d.readSeal()
	if err != nil {
		return 0, 0, err
	}
	if _, err := s.check(db); err != nil {
		return 0, 0, err
	}
	index, err = db.walk()
	return index, db.meta.bytes(), err
}

// trim gives back what a database file has beyond its pages: bbolt preallocates 16 MiB, and etcd maps
// all of the file into memory when it starts, which made an empty store 16 MB larger after a restart.
func trim(path string, pages int64) error {
	if fileSize(path) == pages {
		return nil
	}
	return os.Truncate(path, pages)
}

// catchFault, deferred, turns a fault into an error: files are mapped, and a sector that can't be read
// is one.
func catchFault(before bool, path string, err *error) {
	debug.SetPanicOnFault(before)
	if r := recover(); r != nil {
		*err = &damage{path, -1, fmt.Sprintf("it can't be read: %v", r)}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
