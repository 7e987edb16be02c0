package etcd_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// clusterDeadline is how long a test waits for members, on a machine that is busy.
const clusterDeadline = 60 * time.Second

// member is how a member is started, again and again.
type member struct {
	etcd.Options
	server *etcd.Server
}

func newMember(t testing.TB, join *member) *member {
	m := &member{Options: etcd.Options{DataDir: filepath.Join(t.TempDir(), "data"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}}
	m.Cluster.Listen = loopback.Address(t)
	m.Log = m.Log.With("member", m.Cluster.Listen)
	if join != nil {
		m.Cluster.Join, m.Cluster.JoinTokenFile = join.Cluster.Listen, filepath.Join(join.DataDir, "join-token")
	}
	return m
}

func (m *member) start(t testing.TB) *etcd.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clusterDeadline)
	defer cancel()
	s, err := etcd.Open(ctx, m.Options)
	if err != nil {
		t.Fatal(err)
	}
	m.server = s
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// eventually waits until f returns nil. What it waits for takes raft a tenth of a second or more, and f may ask all members:
// without the pause its requests would delay that.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	deadline := time.Now().Add(clusterDeadline)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// voters waits until a cluster has so many voters and learners, all of which answer.
func voters(t testing.TB, s *etcd.Server, voters, learners int) {
	t.Helper()
	eventually(t, func() error {
		all, err := s.Members(t.Context())
		if err != nil {
			return err
		}
		v, l := 0, 0
		for _, m := range all {
			switch {
			case !m.Answers:
				return fmt.Errorf("a member doesn't answer: %+v", all)
			case m.Voter:
				v++
			default:
				l++
			}
		}
		if v != voters || l != learners {
			return fmt.Errorf("%d voters and %d learners, want %d and %d: %+v", v, l, voters, learners, all)
		}
		return nil
	})
}

// writeAgain puts a key until that succeeds: on a busy machine the leader changes, and then the outcome may be unknown.
func writeAgain(t testing.TB, s *etcd.Server, key, value string) {
	t.Helper()
	eventually(t, func() error {
		_, err := s.Client.Put(t.Context(), key, value)
		return err
	})
}

// readHere reads a key from a member's own store, after everything that was acknowledged.
func readHere(t testing.TB, s *etcd.Server, key string) string {
	t.Helper()
	var value string
	eventually(t, func() error {
		if _, err := s.ReadIndex()(t.Context()); err != nil {
			return err
		}
		res, err := s.Client.Get(t.Context(), key)
		if err == nil && len(res.Kvs) > 0 {
			value = string(res.Kvs[0].Value)
		}
		return err
	})
	return value
}

func TestASecondMemberIsALearnerAndAThirdMakesThreeVoters(t *testing.T) {
	first := newMember(t, nil)
	one := first.start(t)
	writeAgain(t, one, "k", "1")
	two := newMember(t, first).start(t)
	if got := readHere(t, two, "k"); got != "1" {
		t.Fatalf("the second member reads %q", got)
	}
	writeAgain(t, two, "k", "2")
	if got := readHere(t, one, "k"); got != "2" {
		t.Fatalf("the first member reads %q", got)
	}
	voters(t, one, 1, 1)
	three := newMember(t, first).start(t)
	voters(t, three, 3, 0)
	writeAgain(t, three, "k", "3")
	for _, s := range []*etcd.Server{one, two} {
		if got := readHere(t, s, "k"); got != "3" {
			t.Errorf("a member reads %q", got)
		}
	}
	four := newMember(t, first).start(t)
	voters(t, four, 3, 1)
	files, err := os.ReadDir(first.DataDir) // keys and a token are among them
	if err != nil || len(files) < 6 {
		t.Errorf("the directory has %v, %v", files, err)
	}
	for _, file := range files {
		if info, err := file.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others can use %s: %v, %v", file.Name(), info.Mode(), err)
		}
	}
}

func TestJoinsThatAreRefused(t *testing.T) {
	first, other := newMember(t, nil), newMember(t, nil)
	first.start(t)
	other.start(t)
	token, err := os.ReadFile(filepath.Join(first.DataDir, "join-token"))
	if err != nil {
		t.Fatal(err)
	}
	used := newMember(t, nil)
	used.Cluster = etcd.ClusterOptions{}
	closeServer(t, used.start(t))
	theirs := newMember(t, other)
	closeServer(t, theirs.start(t))
	tests := []struct {
		name    string
		prepare func(t *testing.T, m *member)
		want    string
	}{
		{"a wrong secret", func(t *testing.T, m *member) {
			m.Cluster.JoinTokenFile = filepath.Join(t.TempDir(), "token")
			wrong := strings.TrimSpace(string(token))
			wrong = wrong[:len(wrong)-2] + "22\n"
			if err := os.WriteFile(m.Cluster.JoinTokenFile, []byte(wrong), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "doesn't know the token"},
		{"another cluster's authority", func(_ *testing.T, m *member) {
			m.Cluster.JoinTokenFile = filepath.Join(other.DataDir, "join-token")
		}, "certificate authority has another fingerprint"},
		{"no token", func(t *testing.T, m *member) {
			m.Cluster.JoinTokenFile = filepath.Join(t.TempDir(), "token")
		}, "no such file"},
		{"something else than a token", func(t *testing.T, m *member) {
			m.Cluster.JoinTokenFile = filepath.Join(first.DataDir, "apiserver-lite.json")
		}, "isn't a join token"},
		{"a directory with data of its own", func(_ *testing.T, m *member) { m.DataDir = used.DataDir }, "has data of its own"},
		{"a directory of another cluster's member", func(_ *testing.T, m *member) { m.DataDir = theirs.DataDir }, "is a member of another cluster than the one that"},
		{"a foreign directory", func(t *testing.T, m *member) {
			m.DataDir = t.TempDir()
			if err := os.WriteFile(filepath.Join(m.DataDir, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "holds something else"},
		{"the address of a member", func(_ *testing.T, m *member) { m.Cluster.Listen = first.Cluster.Listen }, "is this process itself"},
		{"a port that changes", func(_ *testing.T, m *member) { m.Cluster.Listen = "127.0.0.1:0" }, "needs a port that stays"},
		{"every address", func(_ *testing.T, m *member) { m.Cluster.Listen = "0.0.0.0:7000" }, "is every address"},
		{"no address", func(_ *testing.T, m *member) { m.Cluster.Listen = "" }, "needs --cluster-listen"},
		{"four voters", func(_ *testing.T, m *member) { m.Cluster.Voters = 4 }, "neither 3 nor 5"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := newMember(t, first)
			test.prepare(t, m)
			s, err := etcd.Open(t.Context(), m.Options)
			if err == nil {
				s.Close()
				t.Fatal("it was let in")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want %q in it", err, test.want)
			}
			if all, err := first.server.Members(t.Context()); err != nil || len(all) != 1 {
				t.Errorf("the cluster has %+v, %v", all, err)
			}
		})
	}
}

func TestAStoreWithoutAClusterHasNoMembers(t *testing.T) {
	s := open(t, etcd.Options{DataDir: t.TempDir()})
	if _, err := s.Members(t.Context()); !errors.Is(err, etcd.ErrNoCluster) {
		t.Errorf("Members: %v", err)
	}
	if err := s.RemoveMember(t.Context(), "x"); !errors.Is(err, etcd.ErrNoCluster) {
		t.Errorf("RemoveMember: %v", err)
	}
	if s.ReadIndex() != nil {
		t.Error("it asks raft for a read index")
	}
}

// TestAllMembersStartAgain: members that were stopped, all of them, go on where they were, without the flags for joining.
func TestAllMembersStartAgain(t *testing.T) {
	first := newMember(t, nil)
	all := []*member{first, newMember(t, first), newMember(t, first)}
	for _, m := range all {
		m.start(t)
	}
	voters(t, first.server, 3, 0)
	writeAgain(t, all[1].server, "k", "1")
	for _, m := range all {
		closeServer(t, m.server)
		m.Cluster.Join, m.Cluster.JoinTokenFile = "", ""
	}
	alone := all[2].Options
	alone.Cluster = etcd.ClusterOptions{}
	if s, err := etcd.Open(t.Context(), alone); err == nil || !strings.Contains(err.Error(), "is a member of a cluster") {
		t.Errorf("a member started alone: %v, %v", s, err)
	}
	all[1].Cluster.Listen = loopback.Address(t) // it tells the others
	var starting sync.WaitGroup
	for _, m := range all {
		starting.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), clusterDeadline)
			defer cancel()
			s, err := etcd.Open(ctx, m.Options)
			if err != nil {
				t.Error(err)
				return
			}
			m.server = s
			t.Cleanup(func() { _ = s.Close() })
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	voters(t, all[2].server, 3, 0)
	for _, m := range all {
		if got := readHere(t, m.server, "k"); got != "1" {
			t.Errorf("%s has %q", m.Cluster.Listen, got)
		}
	}
	members, err := first.server.Members(t.Context())
	if err != nil || !slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Address == all[1].Cluster.Listen }) {
		t.Errorf("nobody is at the new address: %+v, %v", members, err)
	}
}

// TestASingleStoreBecomesACluster: a directory that one process had alone lets others in once it has a port.
func TestASingleStoreBecomesACluster(t *testing.T) {
	first := newMember(t, nil)
	cluster := first.Cluster
	first.Cluster = etcd.ClusterOptions{}
	put(t, first.start(t), "k", "1")
	closeServer(t, first.server)
	first.Cluster = cluster
	first.start(t)
	closeServer(t, first.server)
	first.Cluster = etcd.ClusterOptions{} // nobody has joined: it may still run alone
	first.start(t)
	closeServer(t, first.server)
	first.Cluster = cluster
	first.start(t)
	if got := readHere(t, newMember(t, first).start(t), "k"); got != "1" {
		t.Errorf("the member that joined has %q", got)
	}
}

// TestOnlyMembersReachThePort: without a certificate of the cluster nothing is answered but joins, and those need the token.
func TestOnlyMembersReachThePort(t *testing.T) {
	first := newMember(t, nil)
	first.start(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // a stranger trusts anybody
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, test := range []struct{ method, path, body string }{
		{"GET", "/members", ""},
		{"GET", "/version", ""},
		{"GET", "/raft/stream/message/1", ""},
		{"POST", "/raft", ""},
		{"POST", "/raft/snapshot", ""},
		{"GET", "/members/hashkv", ""},
		{"GET", "/apiserver-lite/status", ""},
		{"POST", "/apiserver-lite/join", `{"secret":"","address":"127.0.0.1:1"}`},
		{"POST", "/apiserver-lite/join", `{"address":"127.0.0.1:1"}`},
		{"POST", "/apiserver-lite/join", strings.Repeat("x", 1<<20)},
	} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, "https://"+first.Cluster.Listen+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			continue // cut off
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s answered %s", test.method, test.path, res.Status)
		}
	}
	if res, err := http.Get("http://" + first.Cluster.Listen + "/members"); err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP got %s", res.Status)
		}
	}
}

// TestStrangersFillThePort: clients that have neither a certificate nor the token hold more connections than the port has,
// and send a byte now and then, so that they never time out. A joiner gets in anyway, and their connections end.
func TestStrangersFillThePort(t *testing.T) {
	const strangers, interval = 1200, 500 * time.Millisecond
	hello := []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 200)) // the beginning of a handshake
	first := newMember(t, nil)
	writeAgain(t, first.start(t), "k", "1")
	var ended sync.WaitGroup
	for range strangers {
		c, err := net.Dial("tcp", first.Cluster.Listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		ended.Go(func() { _, _ = c.Read(make([]byte, 1)) }) // until the port closes it
		ended.Go(func() {
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for i := range hello {
				<-tick.C
				if _, err := c.Write(hello[i : i+1]); err != nil {
					return
				}
			}
		})
	}
	two := newMember(t, first).start(t)
	if got := readHere(t, two, "k"); got != "1" {
		t.Errorf("the second member reads %q", got)
	}
	ended.Wait()
	writeAgain(t, two, "k", "2")
	if got := readHere(t, first.server, "k"); got != "2" {
		t.Errorf("the first member reads %q", got)
	}
}

// noticing is a log that tells of a message.
type noticing struct {
	slog.Handler
	message string
	seen    chan struct{} // capacity 1
}

func (h noticing) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		select {
		case h.seen <- struct{}{}:
		default:
		}
	}
	return h.Handler.Handle(ctx, r)
}

// TestFiveVoters: of five voters two may stop, and writes go on. etcd lets nobody in meanwhile. Who wants to join tries again,
// until they are back.
func TestFiveVoters(t *testing.T) {
	first := newMember(t, nil)
	all := []*member{first}
	for range 4 {
		all = append(all, newMember(t, first))
	}
	for _, m := range all {
		m.Cluster.Voters = 5
		m.start(t)
	}
	voters(t, first.server, 5, 0)
	closeServer(t, all[1].server)
	closeServer(t, all[2].server)
	for i, m := range []*member{first, all[3], all[4]} {
		writeAgain(t, m.server, "k", fmt.Sprint(i))
	}
	six := newMember(t, first)
	six.Cluster.Voters = 5
	refused := noticing{six.Log.Handler(), "the join is tried again", make(chan struct{}, 1)}
	six.Log = slog.New(refused)
	var joining sync.WaitGroup
	joining.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*clusterDeadline)
		defer cancel()
		s, err := etcd.Open(ctx, six.Options)
		if err != nil {
			t.Error(err)
			return
		}
		six.server = s
		t.Cleanup(func() { _ = s.Close() })
	})
	select {
	case <-refused.seen:
	case <-time.After(clusterDeadline):
		t.Error("nobody refused the join, and nobody let the member in")
	}
	all[1].start(t)
	all[2].start(t)
	if joining.Wait(); t.Failed() {
		return
	}
	voters(t, first.server, 5, 1)
	if got := readHere(t, six.server, "k"); got != "2" {
		t.Errorf("the sixth member reads %q", got)
	}
}
