package etcd

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
)

const (
	// markerName is the file that makes a directory ours. It is the first one written, and the lock is
	// taken on it.
	markerName = "apiserver-lite.json"
	// pidName is the file with the process id of whoever has the lock, for the message that others get.
	pidName = "pid"
	// layoutVersion says how a directory is laid out. Raise it when an older program must not open what a
	// newer one wrote.
	layoutVersion = 1
	// layoutEncrypted is that of a directory whose values may be encrypted: a program that knows no encryption must not take them for objects.
	layoutEncrypted = 2
	// ephemeralPrefix begins the name of each ephemeral directory.
	ephemeralPrefix = "apiserver-lite-ephemeral-"
)

// dataDir is a directory that this process has locked.
type dataDir struct {
	path      string
	id        string
	layout    int // as the marker says
	ephemeral bool
	lock      *os.File    // the marker, open and locked
	spent     atomic.Bool // the spare was removed, and hasn't been made again
}

// files says where etcd's files are.
func (d *dataDir) files() check.Directory { return check.Directory{Path: d.path} }

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// check checks and mends etcd's files before etcd may start. They have to belong to the cluster with that id. commit is
// the WAL's last entry that is known to be committed, or 0.
func (d *dataDir) check(log *slog.Logger, clusterID uint64) (commit uint64, err error) {
	return check.Directory{
		Path:      d.path,
		Used:      exists(d.file(historyName)), // the first start that succeeds leaves the history's marks
		ClusterID: clusterID,
		Marker:    d.file(markerName),
	}.Open(log)
}

// openDir takes a directory for durable data, and makes it if it's missing. It refuses what isn't a
// directory, what it can't write, what is locked, and what holds something else than our data.
func openDir(path string, log *slog.Logger) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	d, err := openDirAbs(path, log)
	if err != nil {
		return nil, fmt.Errorf("data directory %s %w", path, err)
	}
	return d, nil
}

func openDirAbs(path string, log *slog.Logger) (*dataDir, error) {
	there, err := isOurs(path)
	if err == nil && !there {
		if err := makeDir(path); err != nil {
			return nil, fmt.Errorf("can't be made: %w", err)
		}
		_, err = isOurs(path) // somebody may have made it meanwhile
	}
	if err != nil {
		return nil, err
	}
	d := &dataDir{path: path}
	if err := d.takeLock(); err != nil {
		return nil, err
	}
	if err := d.readMarker(); err != nil {
		d.release()
		return nil, err
	}
	d.tighten(log)
	return d, nil
}

// isOurs tells whether there is a directory, and refuses what isn't ours or can't become ours.
func isOurs(path string) (there bool, err error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("can't be used: %w", err)
	case !info.IsDir():
		return false, errors.New("is a file: name a directory")
	}
	if err := private.Dir(path, markerName, pidName, spareName); err != nil { // etcd's own files are below member, whose owner is looked at
		return false, err
	}
	foreign, err := isForeign(path)
	if err != nil {
		return false, fmt.Errorf("can't be read: %w", err)
	}
	if foreign {
		return false, fmt.Errorf("isn't empty and has no %s: it holds something else; name another directory", markerName)
	}
	return true, nil
}

// makeDir makes a directory for the owner only, whatever the umask, and those above it that are missing. The names of these are
// on disk when it returns; that of the directory itself is once its marker is.
func makeDir(path string) error {
	if above := filepath.Dir(path); !exists(above) {
		if err := makeDir(above); err != nil {
			return err
		}
		if err := check.SyncDir(filepath.Dir(above)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(path, 0o700)
}

// isForeign reports whether a directory has files but no marker. A new file system's lost+found doesn't count.
func isForeign(path string) (bool, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return false, err
	}
	foreign := false
	for _, e := range entries {
		switch e.Name() {
		case markerName:
			return false, nil
		case "lost+found":
		default:
			foreign = true
		}
	}
	return foreign, nil
}

// takeLock opens the marker and locks it. The lock ends with the process, however that ends.
func (d *dataDir) takeLock() error {
	f, err := os.OpenFile(d.file(markerName), os.O_RDWR|os.O_CREATE|disk.NoFollow, 0o600)
	if err != nil {
		return fmt.Errorf("can't be written: %w", err)
	}
	if err := disk.Lock(f, false); err != nil {
		f.Close()
		if errors.Is(err, disk.ErrLocked) {
			return fmt.Errorf("is locked by %s: stop that server first, or use another directory", d.holder())
		}
		return fmt.Errorf("can't be locked: %w", err)
	}
	d.lock = f
	// Best effort: it's only read for the message above.
	_ = d.writePid()
	return nil
}

// writePid notes which process has the lock. It follows no link.
func (d *dataDir) writePid() error {
	f, err := os.OpenFile(d.file(pidName), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|disk.NoFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	return errors.Join(err, f.Close())
}

// holder says which process has the lock, as far as its pid file tells.
func (d *dataDir) holder() string {
	b, err := os.ReadFile(d.file(pidName))
	pid, perr := strconv.Atoi(strings.TrimSpace(string(b)))
	switch {
	case err != nil || perr != nil:
		return "another process"
	case pid == os.Getpid():
		return fmt.Sprintf("pid %d (this process)", pid)
	}
	return fmt.Sprintf("pid %d", pid)
}

// readMarker reads the marker's layout and id. It writes a marker if the directory is new, or if its first start was
// killed before the marker was whole.
func (d *dataDir) readMarker() error {
	b, err := os.ReadFile(d.file(markerName))
	if err != nil {
		return fmt.Errorf("can't be read: %w", err)
	}
	var m storage.Marker
	if err := json.Unmarshal(b, &m); err == nil && m.Layout > 0 && m.ID != "" {
		d.id, d.layout = m.ID, m.Layout
		return m.Known(layoutEncrypted)
	}
	if exists(d.files().Member()) {
		return fmt.Errorf("has data, but %s is damaged: restore the directory from a backup, or move it away to start empty", markerName)
	}
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("can't be written: %w", err)
	}
	if err := d.writeMarker(storage.Marker{Layout: layoutVersion, ID: rand.Text()}); err != nil || d.ephemeral {
		return err
	}
	return errors.Join(d.lock.Sync(), check.SyncDir(d.path), check.SyncDir(filepath.Dir(d.path)))
}

// writeMarker writes the marker in its place, because the lock is on that file. Between two layouts of one digit it changes a single byte.
func (d *dataDir) writeMarker(m storage.Marker) error {
	if _, err := d.lock.WriteAt(append(m.Bytes(), '\n'), 0); err != nil {
		return fmt.Errorf("can't be written: %w", err)
	}
	d.id, d.layout = m.ID, m.Layout
	return nil
}

// raise gives the directory a layout that older programs refuse, unless it has that. It stays so.
func (d *dataDir) raise(layout int) error {
	if d.layout >= layout {
		return nil
	}
	return errors.Join(d.writeMarker(storage.Marker{Layout: layout, ID: d.id}), d.lock.Sync())
}

// tighten takes everybody else's access away, as the data may be secret. If it can't, because the directory is a
// volume's root and belongs to someone else, it only warns: what etcd makes inside is for the owner in any case.
func (d *dataDir) tighten(log *slog.Logger) {
	info, err := os.Stat(d.path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(d.path, 0o700)
	}
	if err != nil {
		log.Warn("the data directory can't be closed to others", "dir", d.path, "error", err)
	}
}

// release gives the lock back and, if the directory is ephemeral, removes it.
func (d *dataDir) release() error {
	var err error
	if d.ephemeral {
		err = os.RemoveAll(d.path)
	} else if rerr := os.Remove(d.file(pidName)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = rerr
	}
	return errors.Join(err, d.lock.Close())
}

// abandon keeps the lock until the process ends, in place of release. An etcd that failed still has its files locked: a
// second one on the same files would wait forever, without a word.
func (d *dataDir) abandon() {
	disk.KeepLock(d.lock)
}

// ephemeralTries is how often openEphemeral tries again after another server's removeLeftovers has removed its new
// directory before it was locked. A try fails only if a server starts in the same instant, so ten are plenty.
const ephemeralTries = 10

// openEphemeral makes and locks a fresh directory inside base; "" is the system's temporary directory. It removes what
// killed ephemeral servers left in base, and touches nothing else there.
func openEphemeral(base string) (*dataDir, error) {
	if base == "" {
		base = os.TempDir()
	} else if _, err := os.Stat(base); errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(base); err != nil {
			return nil, fmt.Errorf("data directory %s can't be made: %w", base, err)
		}
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	removeLeftovers(base)
	for try := 0; ; try++ {
		path, err := os.MkdirTemp(base, ephemeralPrefix)
		if err != nil {
			return nil, fmt.Errorf("ephemeral directory in %s can't be made: %w", base, err)
		}
		d := &dataDir{path: path, ephemeral: true}
		if err = d.takeLock(); err == nil && d.lockIsThere() {
			if err = d.readMarker(); err == nil {
				return d, nil
			}
		}
		if d.lock != nil {
			d.release()
		}
		if try == ephemeralTries {
			return nil, fmt.Errorf("ephemeral directory %s: %w", path, errors.Join(err, errors.New("it was removed while it was made")))
		}
	}
}

// lockIsThere reports whether the marker in the directory is the one that is locked. Another server's removeLeftovers may
// have removed it after it was made and before it was locked.
func (d *dataDir) lockIsThere() bool {
	mine, err := d.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(d.file(markerName))
	return err == nil && os.SameFile(mine, there)
}

// removeLeftovers removes the ephemeral directories in base whose lock nobody has. What can't be removed stays for the
// next time.
func removeLeftovers(base string) {
	dir, err := os.Open(base)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, ephemeralPrefix) })
	for _, name := range names {
		removeLeftover(filepath.Join(base, name))
	}
}

// removeLeftover removes one of them. A directory without a marker is removed only if it's empty: its server was killed
// right after it made the directory.
func removeLeftover(path string) {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return
	}
	f, err := os.OpenFile(filepath.Join(path, markerName), os.O_RDWR|disk.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(path) // fails if it isn't empty
		return
	}
	if err != nil {
		return
	}
	defer f.Close()
	if disk.Lock(f, false) == nil {
		_ = os.RemoveAll(path)
	}
}

// writeFile replaces a file of the directory in one step: after a crash it's the old one or the new one.
func (d *dataDir) writeFile(name string, data []byte) error {
	tmp := d.file(name + ".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|disk.NoFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o600)) // of a file that was there
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, d.file(name))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
