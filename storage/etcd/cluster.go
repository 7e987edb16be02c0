package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
)

// ClusterOptions says who else has the data. The zero value is a store with one member and no port.
type ClusterOptions struct {
	// Listen is the address, host:port, at which the other members reach this one, and where others may join. It is the
	// member's name, too. Everything there takes TLS with certificates of the cluster's own, and joins take the token.
	Listen string
	// Join is the Listen of a member of the cluster to join. It's needed for the first start in a directory only, which
	// must be empty then.
	Join string
	// JoinTokenFile is the file with the token for that: join-token in the data directory of a member.
	JoinTokenFile string
	// Voters is how many members vote at most: 3 (the default) or 5. Further ones are learners. All members need the same.
	Voters int
}

// AddFlags adds the flags that set the options.
func (o *ClusterOptions) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&o.Listen, "cluster-listen", "", "address, host:port, at which other processes join this one's store and reach it as members; TLS with certificates of their own")
	set.StringVar(&o.Join, "join", "", "the --cluster-listen of a member of the store to join; needed for the first start, with an empty data directory")
	set.StringVar(&o.JoinTokenFile, "join-token-file", "", "file with the token for --join: join-token in a member's data directory")
	set.IntVar(&o.Voters, "cluster-voters", defaultVoters, "how many members vote at most, 3 or 5; further ones are learners, which serve everything")
}

const (
	// Three voters survive the loss of one, five that of two. More would make each write wait for more disks.
	defaultVoters = 3
	mostVoters    = 5
	// maxLearners is how many members may be learners at a time. etcd's own bound is 1: it wants them promoted soon.
	// Ours serve reads and watches. The leader sends each write to each of them.
	maxLearners = 32

	// clusterTick and clusterElection are raft's heartbeat, and how long followers wait for one at least, in
	// milliseconds. At 500 a new leader is there about a second after the last one died, and a machine that is busy for a
	// while doesn't lose its leader. Five heartbeats in that time are what etcd asks for: each wakes all members.
	clusterTick     = 100
	clusterElection = 500
	// clusterCatchUp is how many entries stay in memory for members that lag: a second or two of busy writing. Who lags
	// more gets the whole database.
	clusterCatchUp = 2000
)

// withDefaults fills in the defaults, and refuses options that can't work.
func (o ClusterOptions) withDefaults(ephemeral bool) (ClusterOptions, error) {
	o.Voters = cmp.Or(o.Voters, defaultVoters)
	switch {
	case o.Listen == "" && o.Join != "":
		return o, errors.New("--join needs --cluster-listen: the other members have to reach this one")
	case o.Listen == "" && o.JoinTokenFile != "":
		return o, errors.New("--join-token-file needs --cluster-listen and --join")
	case o.Voters != defaultVoters && o.Voters != mostVoters:
		return o, fmt.Errorf("--cluster-voters %d is neither %d nor %d", o.Voters, defaultVoters, mostVoters)
	case o.Listen == "":
		return o, nil
	case ephemeral:
		return o, errors.New("--cluster-listen with --ephemeral: members keep their data")
	case o.Join != "" && o.JoinTokenFile == "":
		return o, errors.New("--join needs --join-token-file: the file join-token from the data directory of a member")
	case o.Join == o.Listen:
		return o, fmt.Errorf("--join %s is this process itself, its --cluster-listen: name another member", o.Join)
	}
	if err := checkAddress(o.Listen); err != nil {
		return o, fmt.Errorf("--cluster-listen %q %w", o.Listen, err)
	}
	if o.Join != "" {
		if err := checkAddress(o.Join); err != nil {
			return o, fmt.Errorf("--join %q %w", o.Join, err)
		}
	}
	return o, nil
}

// maxAddressBytes is more than the longest name and a port have.
const maxAddressBytes = 260

// checkAddress tells what keeps others from reaching an address.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || len(address) > maxAddressBytes {
		return errors.New("is no address such as 127.0.0.1:7001")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("needs a port that stays: the other members keep the address")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() {
			return errors.New("is every address: name the one at which the other members reach this one")
		}
		return nil
	}
	if u, err := url.Parse("https://" + address); err != nil || u.Host != address {
		return errors.New("is no address such as 127.0.0.1:7001")
	}
	for _, c := range host {
		if c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return errors.New("is no name of a host")
		}
	}
	return nil
}

// urlAt is the peer URL for an address.
func urlAt(address string) string { return "https://" + address }

// clusterState is what a directory knows about its cluster, in clusterStateName.
type clusterState struct {
	// Cluster is etcd's id of the cluster that the directory's files belong to.
	Cluster types.ID `json:"cluster"`
	// Shared says that others are, or were, members too: this directory isn't the whole store.
	Shared bool `json:"shared"`
}

const clusterStateName = "cluster.json"

// loadCluster reads the state; it's zero if the directory never was open to others.
func (d *dataDir) loadCluster() (s clusterState, err error) {
	b, err := os.ReadFile(d.file(clusterStateName))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil && s.Cluster == 0 {
		err = errors.New("it names no cluster")
	}
	if err != nil {
		return s, fmt.Errorf("%s is damaged: %w; restore the data directory from a backup", d.file(clusterStateName), err)
	}
	return s, nil
}

func (d *dataDir) saveCluster(s clusterState) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return errors.Join(d.writeFile(clusterStateName, b), check.SyncDir(d.path))
}

// cluster is this member's part in a cluster: its port, what it knows of the others, and who votes.
type cluster struct {
	o     ClusterOptions
	dir   *dataDir
	log   *slog.Logger
	state clusterState // written while the store opens, and then by add, with admitting held

	authority *authority
	token     joinToken
	tls       transport.TLSInfo
	port      *port
	client    *peerClient
	peers     string // for etcd's first start: the members' names and URLs; "" for others

	admitting chan struct{} // capacity 1: whoever has put a value in lets a member in, and may write state

	local atomic.Pointer[etcdserver.EtcdServer] // nil until etcd has started
	lost  atomic.Pointer[outage]                // nil while a majority answers

	bursts bursts // of this member's own writes
}

// prepareCluster takes a member's port, and refuses the file of the token for a join; the port is nil if there's to be none. It's
// called before there is a directory.
func prepareCluster(ctx context.Context, o Options) (*port, error) {
	c := o.Cluster
	if c.Listen == "" {
		return nil, nil
	}
	if c.Join != "" {
		_, err := c.joinToken(o.Log)
		member := exists(filepath.Join(o.DataDir, markerName)) // which may not need the file any more
		if err != nil && !(member && errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("--join-token-file: %w", err)
		}
	}
	p, err := openPort(ctx, c.Listen, o.Log)
	if err != nil {
		return nil, fmt.Errorf("--cluster-listen: %w", err)
	}
	return p, nil
}

// openCluster prepares the directory for a cluster. It returns nil if the store has one member and no port.
//
// The directory's files have been checked: what an interrupted first start left is gone, so it can't pass for data.
func openCluster(ctx context.Context, o Options, d *dataDir, p *port, state clusterState) (*cluster, error) {
	switch {
	case o.Cluster.Listen == "" && state.Shared:
		return nil, fmt.Errorf("data directory %s is a member of a cluster: start it with --cluster-listen", d.path)
	case o.Cluster.Listen == "":
		return nil, nil
	}
	c := &cluster{o: o.Cluster, dir: d, log: o.Log, state: state, port: p, admitting: make(chan struct{}, 1)}
	var err error
	if c.authority, err = d.loadAuthority(); err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(c.o.Listen) // withDefaults has looked at it
	info, pair, err := d.saveMember(c.authority, host)
	if err != nil {
		return nil, err
	}
	c.tls = info
	c.client = newPeerClient(c.authority, pair)
	c.port.serve(c, pair)
	return c, nil
}

// started reports whether etcd has started in the directory before.
func (c *cluster) started() bool { return exists(c.dir.files().Member()) }

// begin makes the directory one of a cluster: the one it belongs to, the one to join, or one of its own.
func (c *cluster) begin(ctx context.Context) (err error) {
	switch {
	case c.started() && c.o.Join != "" && !c.state.Shared:
		return fmt.Errorf("data directory %s has data of its own, which joining a cluster would replace: join with an empty directory", c.dir.path)
	case c.o.Join != "" && c.state.Shared:
		if err := c.sameCluster(); err != nil {
			return err
		}
		if !c.started() {
			return c.join(ctx)
		}
	case c.o.Join != "":
		return c.join(ctx)
	case !c.started() && c.state.Shared:
		return fmt.Errorf("data directory %s was let into a cluster, and hasn't got its data yet: start it with --join once more", c.dir.path)
	}
	if c.authority == nil {
		if c.authority, err = newAuthority(); err != nil {
			return err
		}
		if err := c.dir.saveAuthority(c.authority); err != nil {
			return err
		}
	}
	c.token, err = c.dir.loadToken(c.authority)
	return err
}

// joinToken reads the file of the token that lets in.
func (o ClusterOptions) joinToken(log *slog.Logger) (joinToken, error) {
	if err := private.Secret(o.JoinTokenFile, log); err != nil {
		return joinToken{}, err
	}
	return readToken(o.JoinTokenFile)
}

// sameCluster refuses a token of another cluster than the directory's, if there's one: whoever names it expects to be
// there.
func (c *cluster) sameCluster() error {
	t, err := c.o.joinToken(c.log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it isn't needed any more
	}
	if err != nil {
		return fmt.Errorf("--join-token-file: %w", err)
	}
	if c.authority == nil || t.authority != c.authority.fingerprint() {
		return fmt.Errorf("data directory %s is a member of another cluster than the one that %s is for: join with an empty directory", c.dir.path, c.o.JoinTokenFile)
	}
	return nil
}

// configure makes etcd's configuration that of a member.
func (c *cluster) configure(cfg *config.ServerConfig) (err error) {
	members := c.o.Listen + "=" + urlAt(c.o.Listen)
	if c.peers != "" {
		cfg.NewCluster, members = false, c.peers
	}
	if cfg.InitialPeerURLsMap, err = types.NewURLsMap(members); err != nil {
		return err
	}
	if cfg.PeerURLs, err = types.NewURLs([]string{urlAt(c.o.Listen)}); err != nil {
		return err
	}
	cfg.Name = c.o.Listen
	cfg.PeerTLSInfo = c.tls
	cfg.PeerTLSInfo.MinVersion = tls.VersionTLS13
	cfg.TickMs, cfg.ElectionTicks = clusterTick, clusterElection/clusterTick
	cfg.SnapshotCatchUpEntries = clusterCatchUp
	cfg.MaxLearners = maxLearners
	return nil
}

// found notes which cluster a directory belongs to that hasn't joined one. founder is the id that its files had so far.
func (c *cluster) found(cfg *config.ServerConfig, founder uint64) error {
	switch {
	case c.state.Shared, c.started() && c.state.Cluster != 0:
		return nil
	case !c.started():
		id, err := clusterID(cfg)
		if err != nil {
			return err
		}
		founder = id
	}
	c.state.Cluster = types.ID(founder)
	return c.dir.saveCluster(c.state)
}

// serve begins to answer the other members, now that etcd runs.
func (c *cluster) serve(local *etcdserver.EtcdServer) {
	c.local.Store(local)
	c.port.peers.Store(newPeerHandler(local))
}

// alone reports whether this member is the only one that votes. Then it may campaign at once.
func (c *cluster) alone() bool {
	local := c.local.Load()
	voters := local.Cluster().(*membership.RaftCluster).VotingMemberIDs()
	return len(voters) == 1 && voters[0] == local.MemberID()
}

// majorityReport is how often a start says that it waits for the other members: for people who look at the log meanwhile.
const majorityReport = 10 * time.Second

// awaitMajority returns when this member has everything that was acknowledged before the call.
func (c *cluster) awaitMajority(ctx context.Context, s *Server) error {
	report := time.Now().Add(majorityReport)
	for {
		try, cancel := context.WithTimeout(ctx, answerTimeout)
		err := s.Local.LinearizableReadNotify(try)
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(report) {
			report = time.Now().Add(majorityReport)
			c.log.Warn("waiting for a majority of the cluster's members", "error", err)
		}
		if err := s.pause(ctx, time.After(answerPoll)); err != nil {
			return err
		}
	}
}

// publishAttempt is how long one try of publish waits. A try takes some syncs.
const publishAttempt = time.Second

// publish tells the cluster where this member is, if it knows another address. It tries again and again until ctx ends: raft
// takes one change of the members at a time. It forgets one that comes too early, such as right after the start of a leader
// whose log isn't applied, and tells nobody (pendingConfIndex in go.etcd.io/raft).
func (c *cluster) publish(ctx context.Context, listen string) error {
	local, here := c.local.Load(), []string{urlAt(listen)}
	for {
		m := local.Cluster().Member(local.MemberID())
		if m == nil || slices.Equal(m.PeerURLs, here) {
			return nil
		}
		moved := membership.Member{ID: m.ID, RaftAttributes: membership.RaftAttributes{PeerURLs: here, IsLearner: m.IsLearner}}
		try, cancel := context.WithTimeout(ctx, publishAttempt)
		_, err := local.UpdateMember(try, moved)
		forgotten := try.Err() != nil
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || !forgotten:
			return fmt.Errorf("tell the other members that this one is at %s: %w", listen, err)
		}
		c.log.Info("the cluster is told again where this member is", "address", listen)
	}
}
