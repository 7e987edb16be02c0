package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
)

const (
	// stopReport is how often Close says what it still waits for. A stop takes some milliseconds, so five seconds mean that
	// something is wrong.
	stopReport = 5 * time.Second
	// brokenStop is how long Close waits for each part after a failure: the part may wait forever for the goroutine
	// that failed. There are three parts, in a cluster four, and whoever stops the process kills it after ten seconds.
	brokenStop = time.Second
	// rewriteStop is how long Close waits for a database that is being written anew. A small one is done by then, and it leaves
	// most of the ten seconds to the rest of the process.
	rewriteStop = 2 * time.Second
)

// Server is a running etcd. Its methods are safe for concurrent use.
type Server struct {
	// Client talks to Local by function calls.
	Client *clientv3.Client
	// Local is etcd itself, for what the client can't do.
	Local *etcdserver.EtcdServer

	dir     *dataDir
	log     *slog.Logger
	keeper  *keeper
	port    *port    // the cluster's
	cluster *cluster // nil for a store of one member without a port

	stopKeeper context.CancelFunc
	background sync.WaitGroup // the keeper's goroutine, watchStop's and the cluster's

	// snapshots counts the databases of other members that have taken the place of this one's. etcd's logger adds to it, and
	// an acknowledged write that came with one is read only after that.
	snapshots atomic.Int64
	// takeover is held for writing while another member's database takes the place of this one's, by etcd's logger, and for reading by who
	// opens a Snapshot: etcd would fail at a database that has just been closed.
	takeover sync.RWMutex

	failed chan struct{} // closed after err is set
	fail   func(error)   // the first call counts
	err    error

	hung bool // a call hadn't returned when Open or Close, whose own this is, gave up: see waitFor
	ending
}

// ending is how far Close is.
type ending struct {
	closeOnce sync.Once
	closed    chan struct{} // closed when Close begins
	closeErr  error
}

// Open starts etcd on a directory and returns when it serves, or soon after ctx has ended. It refuses a directory that
// is locked, foreign, made by a newer version, unusable, or damaged, in one line that says what to do. A write that a
// crash interrupted at the WAL's end was never acknowledged: it is dropped and logged.
func Open(ctx context.Context, o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	// Before there is a directory, so that flags which are refused leave none, and a taken port is reported before anybody lets
	// this process in.
	p, err := prepareCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	var d *dataDir
	if o.Ephemeral {
		d, err = openEphemeral(o.DataDir)
	} else {
		d, err = openDir(o.DataDir, o.Log)
	}
	if err != nil {
		if p != nil {
			p.close()
		}
		return nil, err
	}
	s := &Server{dir: d, port: p, log: o.Log, failed: make(chan struct{}), ending: ending{closed: make(chan struct{})}}
	var once sync.Once
	s.fail = func(err error) {
		once.Do(func() {
			s.err = err
			close(s.failed)
		})
	}
	err = s.start(ctx, o)
	if err == nil && o.Encrypted {
		err = d.raise(layoutEncrypted)
	}
	if err != nil {
		_ = s.Close() // the first error is the one that says why
		return nil, err
	}
	return s, nil
}

// watchStop closes Done when etcd ends without being asked.
func (s *Server) watchStop(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.failed:
	case <-s.Local.StopNotify():
		s.fail(errors.New("etcd stopped by itself"))
	}
}

// Dir is the directory that the data is in.
func (s *Server) Dir() string { return s.dir.path }

// WriteFile puts a file of its caller's into the directory, readable by the owner only. After a crash the file is whole or isn't
// there. Once WriteFile has returned, the file survives a power failure.
func (s *Server) WriteFile(name string, data []byte) error {
	return errors.Join(s.dir.writeFile(name, data), check.SyncDir(s.dir.path))
}

// Done is closed when etcd has failed by itself, for example because an fsync failed: Err says why. The
// process must then end with an exit code that isn't zero; a restart finds all that was acknowledged.
func (s *Server) Done() <-chan struct{} { return s.failed }

// Err is why Done is closed; nil while it's open.
func (s *Server) Err() error {
	select {
	case <-s.failed:
		return s.err
	default:
		return nil
	}
}

// SetFloor makes compaction stop at the revision that floor returns: the last one that the reader of history has read.
// 0 stops compaction. Without a floor only the bounds count. The keeper's goroutine calls floor at each look.
func (s *Server) SetFloor(floor func() storage.Revision) { s.keeper.floor.Store(&floor) }

// Times returns when revisions were written.
func (s *Server) Times() *history.Times { return &s.keeper.marks.times }

// SetCompacted says who is told up to which revision this process has dropped history, each time. The keeper's goroutine calls
// it, and it returns at once.
func (s *Server) SetCompacted(compacted func(storage.Revision)) { s.keeper.tell.Store(&compacted) }

// Health is nil, or says why writes fail now. Reads go on if the reason is space. It returns at once. That
// the quota is reached, or isn't any more, it knows from the keeper's last look, about a second ago.
func (s *Server) Health() error {
	select {
	case <-s.closed:
		return errors.New("the store is closed")
	case <-s.failed:
		return fmt.Errorf("the store has failed: %w", s.err)
	default:
		if s.cluster != nil {
			if o := s.cluster.lost.Load(); o != nil {
				return o.error()
			}
		}
		return s.keeper.health()
	}
}

// ReadIndex returns a function that returns when this member's store has everything that was acknowledged before the
// call, on any member; nil if there's only this one, whose store always has. snapshots is how often another member's
// database had taken the place of this one's by then: with a write that came so, it has grown. It takes none of the locks of
// etcd's database. Errors: etcd's ErrNoLeader if no majority answers, ErrStopped, and ctx's.
func (s *Server) ReadIndex() func(ctx context.Context) (snapshots int64, err error) {
	if s.cluster == nil {
		return nil
	}
	return func(ctx context.Context) (int64, error) {
		err := s.cluster.readIndex(ctx)
		return s.snapshots.Load(), err
	}
}

// Stats is what there is to measure.
type Stats struct {
	DatabaseBytes int64         // the file's size, as the keeper last saw it
	HistoryKept   time.Duration // how far back changes are kept
	HistoryBytes  int64         // of those changes, keys and values
	HistoryShort  bool          // the bounds have cut history below 5 minutes, or below Options.History if that's less
}

// Stats reads the figures. It returns at once.
func (s *Server) Stats() Stats {
	m := s.keeper.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{DatabaseBytes: s.keeper.database.size().file, HistoryKept: m.age(), HistoryBytes: m.size(), HistoryShort: m.short}
}

// Close stops the keeper, the client and etcd, and gives the directory back: an ephemeral one is
// removed. It waits for all of it, and logs what it waits for after 5 seconds. Requests under way get an error.
//
// It doesn't wait for a database that is being written anew, which nothing can interrupt. Then it returns nil after
// rewriteStop, and the rest happens when the database is written, or never if the process ends first: as after a kill,
// nothing that was acknowledged is lost, and the next start finds the old file or the new one.
//
// After a failure it returns Err's error, and waits no longer than a second for each part. If a part still hasn't ended
// then, the directory stays locked until the process ends. Calling Close again returns the same error.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		close(s.closed)
		done := make(chan error, 1) // capacity 1, because Close may have returned
		go func() { done <- s.close() }()
		s.closeErr = s.awaitClose(done)
	})
	return s.closeErr
}

// awaitClose waits for close, but not for a database that is being written anew.
func (s *Server) awaitClose(done <-chan error) error {
	timer := time.NewTimer(rewriteStop)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	if s.keeper == nil || !s.keeper.database.rewriting.Load() { // the keeper has been told to stop: it won't begin now
		return <-done
	}
	s.log.Info("the database is still being written anew to give space back: the store is closed without waiting for that", "dir", s.dir.path)
	return nil
}

func (s *Server) close() error {
	var errs []error
	if s.stopKeeper != nil {
		s.stopKeeper()
		s.waitFor("the keeper of history and space", s.background.Wait)
		s.waitFor("the keeper's watch", s.keeper.writes.Close)
	}
	if s.Client != nil {
		_ = s.Client.Close() // its error is that its context has ended
	}
	if s.keeper != nil {
		s.keeper.database.cut()
		s.waitFor("snapshots that are being read", s.keeper.database.copies.Lock) // for ever: there will be no others
	}
	if s.Local != nil {
		s.waitFor("etcd", s.Local.Stop)
	}
	if s.cluster != nil {
		s.cluster.client.close()
	}
	if s.port != nil {
		s.waitFor("the cluster's port", s.port.close)
	}
	if s.hung {
		s.dir.abandon()
		return fmt.Errorf("etcd failed and can't be stopped: %w", s.err)
	}
	if err := s.Err(); err != nil {
		errs = append(errs, fmt.Errorf("etcd failed: %w", err))
	} else if s.keeper != nil && !s.dir.ephemeral {
		errs = append(errs, s.forNextStart("the history's marks", s.keeper.save()), s.forNextStart("the database's checksums", check.Seal(s.dir.path)))
	}
	return errors.Join(append(errs, s.dir.release())...)
}

// forNextStart takes the error of writing a file for the next start. If there was no space or no time, it logs that and returns
// nil: nothing that was acknowledged is lost.
func (s *Server) forNextStart(what string, err error) error {
	if errors.Is(err, check.ErrUnsealed) || errors.Is(err, syscall.ENOSPC) {
		s.log.Info(what+" weren't saved", "error", err)
		return nil
	}
	return err
}

// waitFor calls f and waits until it returns. It gives up, sets hung, and returns false if etcd has failed and f still
// hasn't returned after brokenStop. Then f's goroutine may go on for as long as the process.
func (s *Server) waitFor(what string, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	began := time.Now()
	report := time.NewTicker(stopReport)
	defer report.Stop()
	var giveUp <-chan time.Time
	failed := s.failed
	for {
		select {
		case <-done:
			return true
		case <-failed:
			failed, giveUp = nil, time.After(brokenStop)
		case <-giveUp:
			s.hung = true
			return false
		case <-report.C:
			s.log.Warn("the store is still busy", "waiting_for", what, "since", time.Since(began).Round(time.Second))
		}
	}
}
