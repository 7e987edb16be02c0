package etcd

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/crypto/bcrypt"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
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
	// Encrypted says that values may be encrypted before they come here. Then programs that know no encryption refuse the directory from now on.
	Encrypted bool
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
	// Clock is by what history gets older if it stands still (see Server.KeepHistory). It takes Ephemeral. Nil is the time that servers run.
	Clock *clock.Clock
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

	// maxOperations is how many conditions a transaction of etcd may have, and as many writes: eight for each operation of the largest
	// transaction of a client, which has 128. etcd's own 128 would do for some forty.
	maxOperations = 1024
	// tick is a step of raft's clock, and election what passes without a leader before a member campaigns: milliseconds. etcd's own tick of 100
	// is for followers, who wait for it: here it would wake the process for nothing.
	tick, election = 500, 1000
	// hashCheckInterval is how often members compare what they have compacted, and downgradeCheckInterval how often they look whether
	// all of them can be downgraded: etcd's defaults.
	hashCheckInterval      = time.Minute
	downgradeCheckInterval = 5 * time.Second

	// slowApply is how long an apply may take before etcd warns of it. Its default, 100 ms, is normal on a shared disk.
	slowApply = time.Second
)

func init() { wal.SegmentSizeBytes = segmentBytes } // running servers read it, so it's set once for all

func (o Options) withDefaults() (Options, error) {
	if o.DataDir == "" && !o.Ephemeral {
		o.DataDir = defaultDataDir
	}
	o.History = cmp.Or(o.History, defaultHistory)
	o.QuotaBytes = cmp.Or(o.QuotaBytes, defaultQuotaBytes)
	o.HistoryBytes = cmp.Or(o.HistoryBytes, min(defaultHistoryBytes, o.QuotaBytes/historyQuotaShare))
	o.Log = cmp.Or(o.Log, slog.Default())
	var err error
	if o.Cluster, err = o.Cluster.withDefaults(o.Ephemeral); err != nil {
		return o, err
	}
	switch {
	case o.History < 0:
		return o, fmt.Errorf("history of %v: it can't be negative", o.History)
	case o.Bulk && !o.Ephemeral:
		return o, errors.New("bulk requests: only an ephemeral store takes them")
	case o.Clock.Stands() && !o.Ephemeral:
		return o, errors.New("a clock that stands still: only an ephemeral store goes by it")
	case o.QuotaBytes < minQuotaBytes:
		return o, fmt.Errorf("quota of %d bytes: the least is %d", o.QuotaBytes, minQuotaBytes)
	case o.HistoryBytes < 0 || o.HistoryBytes > o.QuotaBytes/historyQuotaShare:
		return o, fmt.Errorf("history of %d bytes: it can't be negative or over a quarter of the quota (%d)", o.HistoryBytes, o.QuotaBytes)
	}
	return o, nil
}

// etcdConfig is etcd's configuration, for a single member without a port. What isn't said is etcd's default, as its package embed
// has it. That package also listens, logs, and speaks gRPC and HTTP, of which this program needs nothing. notes are for newLogger.
func etcdConfig(d *dataDir, o Options, fail func(error), notes map[string]func()) (*config.ServerConfig, error) {
	members, err := types.NewURLsMap(memberName + "=" + peerURL)
	if err != nil {
		return nil, err
	}
	log := newLogger(o.Log, fail, notes)
	cfg := &config.ServerConfig{
		Name:                memberName,
		DataDir:             d.path,
		PeerURLs:            members[memberName],
		InitialPeerURLsMap:  members,
		InitialClusterToken: d.id,
		NewCluster:          true,
		Logger:              log,

		QuotaBackendBytes:      o.QuotaBytes,
		MaxRequestBytes:        MaxValueBytes + requestOverhead,
		MaxTxnOps:              maxOperations,
		SnapshotCount:          snapshotCount,
		SnapshotCatchUpEntries: catchUpEntries,
		MaxWALFiles:            keptWALFiles,
		MaxSnapFiles:           keptWALFiles,
		WarningApplyDuration:   slowApply,
		UnsafeNoFsync:          o.Ephemeral,

		TickMs:                     tick,
		ElectionTicks:              election / tick,
		InitialElectionTickAdvance: true,
		PreVote:                    true,
		StrictReconfigCheck:        true,
		MaxLearners:                membership.DefaultMaxLearners,
		BackendFreelistType:        bbolt.FreelistMapType,
		BcryptCost:                 uint(bcrypt.DefaultCost), // of passwords, which there are none of; without it etcd warns
		CompactHashCheckTime:       hashCheckInterval,
		DowngradeCheckTime:         downgradeCheckInterval,
		ServerFeatureGate:          features.NewDefaultServerFeatureGate(memberName, log),
		V2Deprecation:              config.V2DeprDefault,
		Metrics:                    "basic",
	}
	if o.Bulk {
		cfg.MaxRequestBytes, cfg.MaxTxnOps = BulkBytes, bulkOperations
	}
	return cfg, nil
}

// clusterID is the id that etcd derives from its configuration for a new cluster, and stores in the WAL.
func clusterID(cfg *config.ServerConfig) (uint64, error) {
	cluster, err := membership.NewClusterFromURLsMap(nil, cfg.InitialClusterToken, cfg.InitialPeerURLsMap)
	if err != nil {
		return 0, err
	}
	return uint64(cluster.ID()), nil
}
