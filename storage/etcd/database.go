package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// database is the one in which etcd keeps everything. etcd has locks of its own around it, and holds them during a whole
// defragmentation, and while it takes another member's database for its own. No context ends a wait for them. So of
// this package only this file, and raise.go, calls what takes them (TestEtcdsLocks, in the root), and the methods say which of them
// wait. Who may not wait gets what was published: size for the figures, and snapshots for whether it's still the same
// database.
type database struct {
	local     *etcdserver.EtcdServer
	snapshots *atomic.Int64 // see Server.snapshots
	published atomic.Pointer[databaseSize]
	rewriting atomic.Bool  // etcd is writing it anew
	defrag    func() error // etcd's Defragment; tests have their own
	copies    sync.RWMutex // held for reading by each Snapshot that is open, and for writing by what etcd can't do beside one
	cuts      atomic.Int64 // how often those who read one have been cut off
	takeover  *sync.RWMutex
}

// databaseSize is how large the database was when somebody last looked, in bytes.
type databaseSize struct {
	file  int64 // the file has, with free pages
	inUse int64 // of it isn't free
}

func newDatabase(s *Server) *database {
	d := &database{local: s.Local, snapshots: &s.snapshots, takeover: &s.takeover, defrag: s.Local.Defragment}
	d.look()
	return d
}

// size returns the size at the last look, which was about diskInterval ago, or before a rewrite that isn't over. It waits for
// nothing.
func (d *database) size() databaseSize { return *d.published.Load() }

// look returns the size now, and publishes it. It may wait for the database.
func (d *database) look() databaseSize {
	be := d.local.Backend()
	now := databaseSize{be.Size(), be.SizeInUse()}
	d.published.Store(&now)
	return now
}

// forget takes the database's pages out of the process's memory. etcd reads all of them when it opens or enlarges the file, and few of them again:
// the caches have the newest values. It does nothing while the database is written anew or replaced, and at the end.
func (d *database) forget() error {
	if !d.takeover.TryRLock() {
		return nil
	}
	defer d.takeover.RUnlock()
	if !d.copies.TryRLock() {
		return nil
	}
	defer d.copies.RUnlock()
	tx := d.local.Backend().ConcurrentReadTx()
	tx.RLock()
	defer tx.RUnlock() // until then bbolt maps the file where it does now
	var at uintptr
	_ = tx.UnsafeForEach(schema.Key, func(_, v []byte) error {
		at = reflect.ValueOf(v).Pointer()
		return io.EOF // the first is enough: it's in the file, and only what was written last is in a buffer
	})
	return disk.Forget(func(from, to uintptr, may, _ string) bool { return from <= at && at < to && may == "r--s" })
}

// commit has etcd commit what it has taken. It waits for the disk.
func (d *database) commit() { d.local.Backend().ForceCommit() }

// open opens what is stored now for reading; nil while the database is written anew or replaced by another member's, and after the end. It
// waits for the disk.
func (d *database) open() *reading {
	if !d.takeover.TryRLock() {
		return nil
	}
	defer d.takeover.RUnlock()
	if !d.copies.TryRLock() {
		return nil
	}
	be := d.local.Backend()
	return &reading{be.Snapshot(), d, be, d.cuts.Load()}
}

// reading is the content of a Snapshot that is open.
type reading struct {
	backend.Snapshot
	database *database
	of       backend.Backend
	cuts     int64 // of the database, when it was opened
}

// What ends a reading.
var (
	errCutOff   = errors.New("what is read keeps space that the store needs: try again")
	errReplaced = errors.New("another member's database has taken the place of the one that was read: try again")
)

// WriteTo writes the content. bbolt opens the file by its name, which is that of another database once one has taken this one's place.
func (r *reading) WriteTo(w io.Writer) (int64, error) {
	n, err := r.Snapshot.WriteTo(uncut{r, w})
	if err == nil && r.database.local.Backend() != r.of {
		err = errReplaced
	}
	return n, err
}

// Close ends the reading.
func (r *reading) Close() error {
	defer r.database.copies.RUnlock()
	return r.Snapshot.Close()
}

// uncut fails once its reading has been cut off.
type uncut struct {
	*reading
	to io.Writer
}

func (u uncut) Write(p []byte) (int, error) {
	if u.database.cuts.Load() != u.cuts {
		return 0, errCutOff
	}
	return u.to.Write(p)
}

// cut ends each Snapshot that is open, when it writes the next piece.
func (d *database) cut() { d.cuts.Add(1) }

// Snapshot opens a snapshot of what is stored now, with its history, which must be closed. The pages that it reads aren't used again before
// that: the database may grow by as much. The error is snapshot.ErrRewriting.
func (s *Server) Snapshot(context.Context) (*snapshot.Snapshot, error) {
	d := s.keeper.database
	content := d.open()
	if content == nil {
		return nil, snapshot.ErrRewriting
	}
	return snapshot.New(content, content.Close), nil
}

// read tells whether a Snapshot is open.
func (d *database) read() bool {
	if !d.copies.TryLock() {
		return true
	}
	d.copies.Unlock()
	return false
}

// rewrite writes the database anew, without its free pages. It takes as long as the disk needs for that. While a Snapshot is open it does
// nothing: etcd would wait for the Snapshot's end, and all writes with it.
func (d *database) rewrite() error {
	if !d.copies.TryLock() {
		return nil
	}
	defer d.copies.Unlock()
	d.rewriting.Store(true)
	err := d.defrag()
	d.rewriting.Store(false)
	d.look()
	if err != nil {
		return fmt.Errorf("defragment the database: %w", err)
	}
	return nil
}

// alarms returns the alarms that are raised. It may wait for the database. In a cluster they're read from there, because etcd
// replaces its own list without a lock when a snapshot comes from another member.
func (d *database) alarms(shared bool) (all []*pb.AlarmMember) {
	if !shared {
		return d.local.Alarms()
	}
	be := d.local.Backend()
	tx := be.ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	if d.local.Backend() != be { // it has just been replaced, and there may be nothing to read from: the next look reads the new one
		return nil
	}
	_ = tx.UnsafeForEach(schema.Alarm, func(key, _ []byte) error { // the error is that of the function
		var a pb.AlarmMember
		if proto.Unmarshal(key, &a) == nil {
			all = append(all, &a)
		}
		return nil
	})
	return all
}
