package remote_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// memberEnv makes the test binary a member of an etcd cluster, which can be killed. Its value is a memberConfig.
const memberEnv = "ETCD_TEST_MEMBER"

func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		os.Exit(runMember(text))
	}
	os.Exit(m.Run())
}

// memberConfig is what a member is told.
type memberConfig struct{ Name, Dir, Token, Client, Peer, Cluster string }

// What a member does when it reads such a line. It answers each with a line.
const (
	cutOff = "cut"  // drop what goes to the other members, and what comes from them; clients still reach it
	mended = "mend" // no longer
)

// runMember runs a member until its standard input ends, and returns the exit code.
func runMember(text string) int {
	var m memberConfig
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	config := embed.NewConfig()
	config.Name, config.Dir, config.InitialClusterToken, config.InitialCluster = m.Name, m.Dir, m.Token, m.Cluster
	config.LogLevel, config.UnsafeNoFsync = "panic", true
	client, peer := []url.URL{{Scheme: "http", Host: m.Client}}, []url.URL{{Scheme: "http", Host: m.Peer}}
	config.ListenClientUrls, config.AdvertiseClientUrls = client, client
	config.ListenPeerUrls, config.AdvertisePeerUrls = peer, peer
	e, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-e.Server.ReadyNotify()
	fmt.Println("ready")
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		for _, other := range e.Server.Cluster().Members() {
			switch {
			case other.ID == e.Server.MemberID():
			case commands.Text() == cutOff:
				e.Server.CutPeer(other.ID)
			default:
				e.Server.MendPeer(other.ID)
			}
		}
		fmt.Println("done")
	}
	return 0
}

// cluster is three etcds, each a process.
type cluster struct {
	members [3]*memberProcess
	urls    []string
	dir     string
}

type memberProcess struct {
	config memberConfig
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	log    *strings.Builder
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{dir: t.TempDir()}
	var all []string
	for i := range c.members {
		m := &memberProcess{config: memberConfig{Name: fmt.Sprint("m", i), Client: loopback.Address(t), Peer: loopback.Address(t)}}
		c.members[i], c.urls = m, append(c.urls, "http://"+m.config.Client)
		all = append(all, m.config.Name+"=http://"+m.config.Peer)
	}
	for _, m := range c.members {
		m.config.Cluster = strings.Join(all, ",")
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.kill()
		}
	})
	c.begin(t, "one")
	return c
}

// begin starts all members with empty directories, as a cluster whose id is made from a token.
func (c *cluster) begin(t testing.TB, token string) {
	t.Helper()
	for _, m := range c.members {
		m.kill()
		m.config.Dir, m.config.Token = filepath.Join(c.dir, token, m.config.Name), token
		m.start(t)
	}
	for _, m := range c.members {
		m.await(t) // none is ready without another one
	}
}

// start runs a member, which isn't ready yet.
func (m *memberProcess) start(t testing.TB) {
	t.Helper()
	text, err := json.Marshal(m.config)
	if err != nil {
		t.Fatal(err)
	}
	m.cmd, m.log = exec.Command(os.Args[0]), &strings.Builder{}
	m.cmd.Env = append(os.Environ(), memberEnv+"="+string(text))
	m.cmd.Stderr = m.log
	if m.in, err = m.cmd.StdinPipe(); err != nil { // its end is the process's
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.out = bufio.NewReader(out)
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// await waits for the member's next line.
func (m *memberProcess) await(t testing.TB) {
	t.Helper()
	if _, err := m.out.ReadString('\n'); err != nil {
		m.kill()
		t.Fatalf("%s has ended: %v\n%s", m.config.Name, err, m.log)
	}
}

func (m *memberProcess) tell(t testing.TB, command string) {
	t.Helper()
	if _, err := fmt.Fprintln(m.in, command); err != nil {
		t.Fatal(err)
	}
	m.await(t)
}

// kill ends the process if it runs, and waits for it.
func (m *memberProcess) kill() {
	if m.cmd == nil {
		return
	}
	m.cmd.Process.Kill()
	m.cmd.Wait()
	m.cmd = nil
}

func (m *memberProcess) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// client returns a client of all keys, with one member or with all.
func (c *cluster) client(t testing.TB, urls ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: urls, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// leader returns the member that leads. One that was cut off may take itself for it, in an older term.
func (c *cluster) leader(ctx context.Context, t testing.TB) (leader *memberProcess) {
	t.Helper()
	client := c.client(t, c.urls...)
	eventually(ctx, t, "one of the members leads", func() bool {
		var term uint64
		for i, u := range c.urls {
			within, cancel := context.WithTimeout(ctx, time.Second)
			s, err := client.Status(within, u)
			cancel()
			if err == nil && s.Leader == s.Header.MemberId && s.RaftTerm > term {
				leader, term = c.members[i], s.RaftTerm
			}
		}
		return leader != nil
	})
	return leader
}

// TestStorageOfThree: a store over three etcds is a store. What is a restart of one etcd elsewhere is the death of their leader
// here.
func TestStorageOfThree(t *testing.T) {
	c, n := startCluster(t), 0
	next := func() remote.Options {
		n++
		return remote.Options{Servers: c.urls, Prefix: "/test/" + strings.Repeat("x", n)}
	}
	t.Run("alone", func(t *testing.T) {
		storagetest.Run(t, func(t testing.TB) storage.Store { return open(t, next()) })
	})
	t.Run("shared", func(t *testing.T) {
		tokens := 0
		runShared(t, func(t testing.TB) *sharedEtcd {
			o := next()
			return &sharedEtcd{
				Open:   func(t testing.TB) storage.Store { return open(t, o) },
				Client: func(t testing.TB) *clientv3.Client { return c.client(t, c.urls...) },
				Restart: func(t testing.TB) {
					m := c.leader(t.Context(), t)
					m.kill()
					m.start(t)
					m.await(t)
				},
				Replace: func(t testing.TB) {
					tokens++
					c.begin(t, fmt.Sprint("another", tokens))
				},
			}
		})
	})
}

// TestLeaderLost: etcd's leader is killed, cut off from the others, and stopped, while stores write and follow. All of them write
// again while it's gone. What was acknowledged is there, and no feed has a gap, a repeat, or anything that isn't in history.
func TestLeaderLost(t *testing.T) {
	c := startCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all []*replica
	for i := range 3 {
		all = append(all, newReplica(ctx, t, fmt.Sprint(i), remote.Options{Servers: c.urls}))
	}
	awaitWrites := func(what string) {
		t.Helper()
		began := time.Now()
		for _, r := range all {
			want := r.acknowledged() + 1
			eventually(ctx, t, "a write at each store "+what, func() bool { return r.acknowledged() >= want })
		}
		t.Logf("%s: each store has written after %v", what, time.Since(began))
	}
	awaitWrites("at first")
	for _, fault := range []struct {
		what        string
		begin, over func(*memberProcess)
	}{
		{"the leader was killed", (*memberProcess).kill, func(m *memberProcess) { m.start(t); m.await(t) }},
		{"the leader was cut off", func(m *memberProcess) { m.tell(t, cutOff) }, func(m *memberProcess) { m.tell(t, mended) }},
		{"the leader was stopped", func(m *memberProcess) { m.signal(t, syscall.SIGSTOP) }, func(m *memberProcess) { m.signal(t, syscall.SIGCONT) }},
	} {
		leader := c.leader(ctx, t)
		fault.begin(leader)
		awaitWrites("after " + fault.what)
		fault.over(leader)
		awaitWrites("when it's over that " + fault.what)
	}
	for _, r := range all {
		r.writing.stop()
	}
	var end storage.Revision
	eventually(ctx, t, "a barrier", func() (ok bool) {
		var err error
		end, err = all[0].store.Barrier(ctx)
		return err == nil
	})
	for _, r := range all {
		eventually(ctx, t, "a barrier at each store", func() bool { _, err := r.store.Barrier(ctx); return err == nil })
		eventually(ctx, t, "each feed is there", func() bool { return r.at() >= end })
		r.following.stop()
	}
	history, _, err := all[0].store.Changes(ctx, storage.Stretch{After: all[0].began, Through: end})
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]storage.Revision{}
	for _, h := range history {
		written[h.Key] = h.Revision
	}
	for _, r := range all {
		for key, rev := range r.acks {
			if written[key] != rev {
				t.Errorf("%s was acknowledged at %d, and history has it at %d", key, rev, written[key])
			}
		}
		want := slices.DeleteFunc(slices.Clone(history), func(h storage.Change) bool { return h.Revision <= r.began })
		// A write that stop cut short may come after the end.
		got := slices.DeleteFunc(r.changes, func(c storage.Change) bool { return c.Revision > end })
		if len(got) != len(want) {
			t.Fatalf("the feed of store %s has %d changes, and history %d", r.name, len(got), len(want))
		}
		for i, g := range got {
			if g.Key != want[i].Key || g.Revision != want[i].Revision {
				t.Fatalf("the feed of store %s has %s at %d where history has %s at %d", r.name, g.Key, g.Revision, want[i].Key, want[i].Revision)
			}
		}
	}
}

// TestIsolatedMember: a member that is cut off from the others has no leader, answers requests for its progress, and keeps its
// connections. A watch that is open at it goes on at another one. Each is cut off in turn, so that of the watch is, too.
func TestIsolatedMember(t *testing.T) {
	c := startCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := newReplica(ctx, t, "one", remote.Options{Servers: c.urls})
	for i, m := range c.members {
		m.tell(t, cutOff)
		others := c.client(t, slices.Delete(slices.Clone(c.urls), i, i+1)...)
		var rev storage.Revision
		eventually(ctx, t, "a write at the others", func() bool {
			within, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			put, err := others.Put(within, "/elsewhere", "")
			if err == nil {
				rev = storage.Revision(put.Header.Revision)
			}
			return err == nil
		})
		eventually(ctx, t, "the feed gets to what the others wrote", func() bool { return r.at() >= rev })
		m.tell(t, mended)
	}
}

// replica is a store that is written to and followed all the time.
type replica struct {
	name               string
	store              *remote.Store
	began              storage.Revision
	writing, following task

	mu      sync.Mutex // guards the rest
	acks    map[string]storage.Revision
	changes []storage.Change
	upTo    storage.Revision
}

// task is a goroutine.
type task struct{ stop func() } // idempotent; it waits

func newTask(ctx context.Context, t testing.TB, run func(context.Context)) task {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	stop := func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return task{stop}
}

func newReplica(ctx context.Context, t *testing.T, name string, o remote.Options) *replica {
	t.Helper()
	r := &replica{name: name, store: open(t, o), acks: map[string]storage.Revision{}}
	var err error
	if _, r.began, err = r.store.Window(ctx); err != nil {
		t.Fatal(err)
	}
	r.following = newTask(ctx, t, func(ctx context.Context) { r.follow(ctx, t) })
	r.writing = newTask(ctx, t, func(ctx context.Context) { r.write(ctx, t) })
	return r
}

// follow keeps what the feed brings.
func (r *replica) follow(ctx context.Context, t *testing.T) {
	for at := r.began; ; {
		changes, upTo, err := r.store.Follow(ctx, at)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("follow after %d: %v", at, err)
			}
			return
		}
		at = upTo
		r.mu.Lock()
		r.changes, r.upTo = append(r.changes, changes...), upTo
		r.mu.Unlock()
	}
}

// writeInterval is between two writes of a replica, so that refusals don't take the whole machine.
const writeInterval = 10 * time.Millisecond

// write creates one key after the other, and keeps what is acknowledged.
func (r *replica) write(ctx context.Context, t *testing.T) {
	tick := time.NewTicker(writeInterval)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		k := fmt.Sprintf("%s-%s-%d", key, r.name, i)
		rev, err := r.store.Create(ctx, k, []byte("v"))
		switch {
		case err == nil:
			r.mu.Lock()
			r.acks[k] = rev
			r.mu.Unlock()
		case ctx.Err() == nil && !errors.Is(err, storage.ErrUnavailable):
			t.Errorf("create %s: %v", k, err)
		}
	}
}

func (r *replica) acknowledged() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acks)
}

func (r *replica) at() storage.Revision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.upTo
}
