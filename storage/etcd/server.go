package etcd

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
)

// Options says where a store lives and how much it keeps. The zero value works.
type Options struct {
	// DataDir is the directory of the data, made if it's missing. Defaults to "./data". If Ephemeral is
	// set, a fresh directory is made inside it, or inside the system's temporary directory by default.
	DataDir string
	// Ephemeral makes a store that lives as long as the server: its fresh directory is removed by Close (or,
	// after a kill, by the next ephemeral server with the same DataDir), and nothing is fsynced. It
	// survives neither Close nor a power failure.
	Ephemeral bool
	// Bulk lets one request write as much as BulkBytes, of any number of keys. It takes Ephemeral: for others, space is
	// allocated before a write, and for less than that.
	Bulk bool
	// History is how long changes are kept for watches that resume. Time in which no server runs on the
	// directory doesn't count. Defaults to 1h.
	History time.Duration
	// HistoryBytes bounds the changes that are kept, keys and values, and may cut History short. Less is
	// kept if the database would reach its quota otherwise. Defaults to 512 MiB, at most a quarter of
	// QuotaBytes.
	HistoryBytes int64
	// QuotaBytes is the size of the database file at which writes are refused until something is
	// deleted. Defaults to 4 GiB; at least 16 MiB.
	QuotaBytes int64
	// Cluster makes the store one that other processes have, too. The zero value is a store of this process alone.
	Cluster ClusterOptions
	// Log gets etcd's warnings and what the keeper does. Defaults to slog.Default().
	Log *slog.Logger
}

const (
	defaultDataDir = "./data"
	// defaultHistory is longer than clients are away while they, or what they run on, are upgraded.
	defaultHistory = time.Hour
	// defaultHistoryBytes is some 170,000 changes of objects of 3 KB: three minutes at a thousand writes a second.
	defaultHistoryBytes = 512 << 20
	// defaultQuotaBytes is etcd's own default doubled, because history is a part of it. minQuotaBytes is what bbolt
	// allocates at a time.
	defaultQuotaBytes = 4 << 30
	minQuotaBytes     = 16 << 20
	// historyQuotaShare is the part of the quota that history may fill at most: live objects need the rest.
	historyQuotaShare = 4

	// MaxValueBytes is the largest value that a write can carry: with its key and etcd's own framing it
	// still fits into one of etcd's requests.
	MaxValueBytes = 3 << 19 // 1.5 MiB
	// requestOverhead is what a request may have besides its value: the key, comparisons and framing.
	requestOverhead = 64 << 10

	// BulkBytes is the largest request of a store with Bulk, with etcd's own framing. Such a request is in memory several
	// times on its way.
	BulkBytes = 256 << 20
	// bulkOperations is how many keys such a request may write: so many that BulkBytes is the bound.
	bulkOperations = math.MaxInt32

	// snapshotCount is how many log entries etcd applies between two snapshots, and so how many it
	// replays and keeps in memory after a restart. etcd's own 10,000 cost 16 MB more resident memory
	// and 40 ms of a restart with 1 KB objects; writes are no slower with 2,000.
	snapshotCount = 2000
	// catchUpEntries is how many applied entries etcd keeps in memory for members that lag. There are no such
	// members; etcd's own 5,000 entries would be 15 MB of 1 KB objects, or 7 GB of the largest.
	catchUpEntries = 64
	// segmentBytes is the size at which etcd begins a new file of the WAL, and what it preallocates: 8 MiB, as the
	// 64 MB that etcd has by default cost 20 ms per start where preallocating isn't free (tmpfs).
	segmentBytes = 8 << 20
	// keptWALFiles is how many files of the WAL stay, and how many snapshots, unless etcd still uses more of them. A
	// restart reads no older ones, so etcd's own 5 would only take space.
	keptWALFiles = 2

	memberName = "apiserver-lite"
	// peerURL is the address that etcd stores for the member. Nothing listens there.
	peerURL = "http://localhost:2380"

	// slowApply is how long an apply may take before etcd warns of it. Its default, 100 ms, is normal on a shared disk.
	slowApply = time.Second

	// kickInterval is how often a starting member is told to campaign, until it leads. A start takes some 15 ms, so half
	// a millisecond adds little to it.
	kickInterval = 500 * time.Microsecond
	// quietLooks is for members of whose raft nothing is known (see replayed): there, the replay of the WAL counts as
	// over after this many looks without news, which are 10 ms. What is missing then is one step of raft's loop.
	quietLooks = 20
	// stopReport is how often Close says what it still waits for. A stop takes some milliseconds, so five seconds mean that
	// something is wrong.
	stopReport = 5 * time.Second
	// startGrace is how long Open still waits for etcd's start after its context has ended: only an etcd that has
	// started can be stopped. A start takes some 15 ms, and on a slow disk a few syncs.
	startGrace = 5 * time.Second
	// brokenStop is how long Close waits for each part after a failure: the part may wait forever for the goroutine
	// that failed. There are three parts, and whoever stops the process kills it after ten seconds.
	brokenStop = time.Second
)

func init() { wal.SegmentSizeBytes = segmentBytes } // running servers read it, so it's set once for all

func (o Options) withDefaults() (Options, error) {
	if o.DataDir == "" && !o.Ephemeral {
		o.DataDir = defaultDataDir
	}
	if o.History == 0 {
		o.History = defaultHistory
	}
	if o.QuotaBytes == 0 {
		o.QuotaBytes = defaultQuotaBytes
	}
	if o.HistoryBytes == 0 {
		o.HistoryBytes = min(defaultHistoryBytes, o.QuotaBytes/historyQuotaShare)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	var err error
	if o.Cluster, err = o.Cluster.withDefaults(o.Ephemeral); err != nil {
		return o, err
	}
	switch {
	case o.History < 0:
		return o, fmt.Errorf("history of %v: it can't be negative", o.History)
	case o.Bulk && !o.Ephemeral:
		return o, errors.New("bulk requests: only an ephemeral store takes them")
	case o.QuotaBytes < minQuotaBytes:
		return o, fmt.Errorf("quota of %d bytes: the least is %d", o.QuotaBytes, minQuotaBytes)
	case o.HistoryBytes < 0 || o.HistoryBytes > o.QuotaBytes/historyQuotaShare:
		return o, fmt.Errorf("history of %d bytes: it can't be negative or over a quarter of the quota (%d)", o.HistoryBytes, o.QuotaBytes)
	}
	return o, nil
}

// Server is a running etcd. Its methods are safe for concurrent use.
type Server struct {
	// Client talks to Local by function calls.
	Client *clientv3.Client
	// Local is etcd itself, for what the client can't do.
	Local *etcdserver.EtcdServer

	dir     *dataDir
	log     *slog.Logger
	etcd    *embed.Etcd
	keeper  *keeper
	cluster *cluster // nil for a store of one member without a port

	stopKeeper context.CancelFunc
	background sync.WaitGroup // the keeper's goroutine, watchStop's and the cluster's

	failed chan struct{} // closed after err is set
	fail   func(error)   // the first call counts
	err    error

	hung      bool // a call hadn't returned when Open or Close, whose own this is, gave up: see waitFor
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
	var d *dataDir
	if o.Ephemeral {
		d, err = openEphemeral(o.DataDir)
	} else {
		d, err = openDir(o.DataDir, o.Log)
	}
	if err != nil {
		return nil, err
	}
	s := &Server{dir: d, log: o.Log, failed: make(chan struct{}), closed: make(chan struct{})}
	var once sync.Once
	s.fail = func(err error) {
		once.Do(func() {
			s.err = err
			close(s.failed)
		})
	}
	if err := s.start(ctx, o); err != nil {
		_ = s.Close() // the first error is the one that says why
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o Options) error {
	cfg, err := config(s.dir, o, s.fail)
	if err != nil {
		return err
	}
	var replay uint64
	if !o.Ephemeral {
		if replay, err = s.checkFiles(ctx, o, cfg); err != nil {
			return err
		}
	}
	if err := s.dir.orderWAL(); err != nil {
		return fmt.Errorf("data directory %s: %w", s.dir.path, err)
	}
	if err := s.startEtcd(ctx, cfg); err != nil {
		return fmt.Errorf("data directory %s: etcd can't start: %w", s.dir.path, err)
	}
	if err := s.awaitEtcd(ctx, replay); err != nil {
		return fmt.Errorf("data directory %s: etcd doesn't get ready: %w", s.dir.path, err)
	}
	var k *keeper
	if !s.waitFor("the keeper's start", func() { k, err = newKeeper(s, o) }) {
		return s.err
	}
	if err != nil {
		return err
	}
	s.keeper = k
	if !o.Ephemeral && !exists(s.dir.file(historyName)) {
		if err := errors.Join(s.keeper.save(), check.SyncDir(s.dir.path)); err != nil {
			return err
		}
	}
	s.Client = v3client.New(s.Local)
	s.Client.KV = roomyKV{s.Client.KV, k.room}
	if s.cluster != nil {
		s.Client.KV = clusterKV{s.Client.KV, s.cluster}
		s.SetActs(s.cluster.leads)
	}
	var kctx context.Context
	kctx, s.stopKeeper = context.WithCancel(context.Background())
	s.background.Go(func() { s.keeper.run(kctx) })
	s.background.Go(func() { s.watchStop(kctx) })
	if s.cluster != nil {
		s.background.Go(func() { s.cluster.run(kctx) })
	}
	return nil
}

// checkFiles has the directory's files checked, and makes the configuration that of a cluster's member if it's to be one.
func (s *Server) checkFiles(ctx context.Context, o Options, cfg *embed.Config) (replay uint64, err error) {
	state, err := s.dir.loadCluster()
	if err != nil {
		return 0, err
	}
	id := uint64(state.Cluster)
	if id == 0 {
		if id, err = clusterID(cfg); err != nil {
			return 0, err
		}
	}
	if replay, err = s.dir.check(o.Log, id); err != nil {
		return 0, err
	}
	if s.cluster, err = openCluster(ctx, o, s.dir, state); err != nil || s.cluster == nil {
		return replay, err
	}
	if err := s.cluster.configure(cfg); err != nil {
		return 0, err
	}
	return replay, s.cluster.found(cfg, id)
}

// awaitEtcd returns when etcd serves.
func (s *Server) awaitEtcd(ctx context.Context, replay uint64) error {
	if s.cluster == nil {
		if err := s.lead(ctx, replay); err != nil {
			return err
		}
		return s.awaitReady(ctx)
	}
	s.cluster.serve(s.Local)
	if s.cluster.alone() {
		if err := s.lead(ctx, replay); err != nil {
			return err
		}
	}
	if err := s.cluster.awaitMajority(ctx, s); err != nil {
		return err
	}
	return s.cluster.publish(ctx)
}

// config is etcd's configuration, for a single member without a port.
func config(d *dataDir, o Options, fail func(error)) (*embed.Config, error) {
	u, err := url.Parse(peerURL)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = d.path
	cfg.ListenClientUrls, cfg.ListenPeerUrls, cfg.AdvertiseClientUrls = nil, nil, nil
	cfg.AdvertisePeerUrls = []url.URL{*u}
	cfg.InitialCluster = memberName + "=" + peerURL
	cfg.InitialClusterToken = d.id
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(o.Log, fail, d.spendSpare))
	cfg.EnableGRPCGateway = false
	cfg.AuthToken = "" // nobody logs in through a function call
	cfg.QuotaBackendBytes = o.QuotaBytes
	cfg.MaxRequestBytes = MaxValueBytes + requestOverhead
	cfg.SnapshotCount = snapshotCount
	cfg.SnapshotCatchUpEntries = catchUpEntries
	cfg.MaxWalFiles, cfg.MaxSnapFiles = keptWALFiles, keptWALFiles
	cfg.WarningApplyDuration = slowApply
	cfg.UnsafeNoFsync = o.Ephemeral
	if o.Bulk {
		cfg.MaxRequestBytes, cfg.MaxTxnOps = BulkBytes, bulkOperations
	}
	return cfg, nil
}

// clusterID is the id that etcd derives from its configuration for a new cluster, and stores in the WAL.
func clusterID(cfg *embed.Config) (uint64, error) {
	urls, err := types.NewURLsMap(cfg.InitialCluster)
	if err != nil {
		return 0, err
	}
	cluster, err := membership.NewClusterFromURLsMap(nil, cfg.InitialClusterToken, urls)
	if err != nil {
		return 0, err
	}
	return uint64(cluster.ID()), nil
}

// startEtcd calls StartEtcd in a goroutine of its own: a fatal error ends the goroutine (see newLogger), a damaged file
// that passed the checks may fault, and a disk may not answer. If it gives up, an etcd that starts later is stopped.
func (s *Server) startEtcd(ctx context.Context, cfg *embed.Config) error {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	done := make(chan result) // nobody reads it after a failure
	go func() {
		defer func() {
			if r := recover(); r != nil {
				s.fail(fmt.Errorf("panic: %v", r))
			}
		}()
		debug.SetPanicOnFault(true)
		e, err := embed.StartEtcd(cfg)
		select {
		case done <- result{e, err}:
		case <-s.failed:
			if e != nil {
				e.Close()
			}
		}
	}()
	ended := ctx.Done()
	var giveUp <-chan time.Time
	for {
		select {
		case <-s.failed:
			s.hung = true
			return s.err
		case <-ended:
			ended, giveUp = nil, time.After(startGrace)
		case <-giveUp:
			s.fail(fmt.Errorf("etcd didn't start: %w", context.Cause(ctx)))
		case r := <-done:
			if r.err != nil {
				return r.err
			}
			s.etcd, s.Local = r.etcd, r.etcd.Server
			return nil
		}
	}
}

// pause waits for a tick, or for what ends the start.
func (s *Server) pause(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.failed:
		return s.err
	case <-tick:
		return nil
	}
}

// lead makes the member campaign at once, and returns when it leads. By itself, etcd would wait for most of a second
// whether another member leads; here there is no other that votes. replay is the last entry of the WAL that the member applies
// before it may campaign, or 0 for a new member.
func (s *Server) lead(ctx context.Context, replay uint64) error {
	ticker := time.NewTicker(kickInterval)
	defer ticker.Stop()
	if err := s.replayed(ctx, replay, ticker.C); err != nil {
		return err
	}
	id := uint64(s.Local.MemberID())
	for s.Local.Leader() == 0 && (s.cluster == nil || s.cluster.alone()) { // the log may tell of other voters
		m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &id, To: &id}
		// Process would wait while raft is busy, and forever if raft has died: then pause returns the error.
		step, cancel := context.WithTimeout(ctx, kickInterval)
		err := s.Local.Process(step, m)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err := s.pause(ctx, ticker.C); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady returns when etcd is ready: until then a restarted member replays entries, and answers "too many requests".
func (s *Server) awaitReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.failed:
		return s.err
	case <-s.Local.ReadyNotify():
		return nil
	}
}

// replayed waits until raft has noted that the WAL's entries up to replay are applied. Raft must not be told to campaign
// earlier: if etcd has dropped those entries from memory by then, raft panics.
func (s *Server) replayed(ctx context.Context, replay uint64, tick <-chan time.Time) error {
	for quiet := 0; replay > 0 && s.Local.Leader() == 0; {
		applied, known := raftApplied(uint64(s.Local.MemberID()))
		if known && applied >= replay {
			return nil
		}
		if !known && s.Local.AppliedIndex() >= replay {
			if quiet++; quiet > quietLooks {
				return nil
			}
		}
		if err := s.pause(ctx, tick); err != nil {
			return err
		}
	}
	return nil
}

// raftApplied is the last entry that a member's raft has noted as applied. etcd publishes that only for the member that
// this process started last; known is false for others.
func raftApplied(id uint64) (index uint64, known bool) {
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return 0, false
	}
	status, ok := published.Value().(raft.Status)
	return status.Applied, ok && status.ID == id
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
func (s *Server) SetFloor(floor func() int64) { s.keeper.floor.Store(&floor) }

// SetActs says which process compacts, if several have the store: the one for which acts returns true. The keeper's
// goroutine calls it, and it returns at once. Without it the leader of the cluster does.
func (s *Server) SetActs(acts func() bool) { s.keeper.acts.Store(&acts) }

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
// call, on any member; nil if there's only this one, whose store always has. Errors: etcd's ErrNoLeader if no majority
// answers, ErrStopped, and ctx's.
func (s *Server) ReadIndex() func(ctx context.Context) error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.readIndex
}

// Stats is what there is to measure.
type Stats struct {
	DatabaseBytes int64         // the file's size
	HistoryKept   time.Duration // how far back changes are kept
	HistoryBytes  int64         // of those changes, keys and values
	HistoryShort  bool          // the bounds have cut history below 5 minutes, or below Options.History if that's less
}

// Stats reads the figures. It returns at once.
func (s *Server) Stats() Stats {
	be, k := s.Local.Backend(), s.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	return Stats{
		DatabaseBytes: be.Size(),
		HistoryKept:   k.marks.age(k.clock()),
		HistoryBytes:  k.marks.size(),
		HistoryShort:  k.marks.short,
	}
}

// Close stops the keeper, the client and etcd, and gives the directory back: an ephemeral one is
// removed. It waits for all of it, and logs what it waits for after 5 seconds. Requests under way get an error.
//
// After a failure it returns Err's error, and waits no longer than a second for each part. If a part still hasn't ended
// then, the directory stays locked until the process ends. Calling Close again returns the same error.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		close(s.closed)
		s.closeErr = s.close()
	})
	return s.closeErr
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
	if s.etcd != nil {
		s.waitFor("etcd", s.etcd.Close)
	}
	if s.cluster != nil {
		s.waitFor("the cluster's port", s.cluster.close)
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
