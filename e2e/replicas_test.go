package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// replica is a process over a store that it shares with others. It's started again and again, each time at another port.
type replica struct {
	name string
	how  run
	http *http.Client

	mu      sync.Mutex // guards process and url, which is "" while it's away
	process *process
	url     string // what paths are appended to
}

// base returns the URL, or "".
func (r *replica) base() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.url
}

// now returns the process, which may be gone.
func (r *replica) now() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// away says that clients needn't ask it.
func (r *replica) away() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.url = ""
	return r.process
}

// ask sends a request, and returns who was asked, too. An error means that there was no whole answer.
func (r *replica) ask(method, path, body string) (who string, a answer, err error) {
	base := r.base()
	if base == "" {
		time.Sleep(5 * time.Millisecond)
		return r.name, a, fmt.Errorf("%s is away", r.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestPatience)
	defer cancel()
	c := client{base: base, http: r.http}
	a, err = c.tryWithin(ctx, method, path, body)
	return r.name, a, err
}

// replicas are several of them.
type replicas struct {
	t       *testing.T
	expired atomic.Int64 // watches that were told so

	mu  sync.Mutex // guards all
	all []*replica
}

// add starts one more.
func (rs *replicas) add(name string, how run) *replica {
	rs.t.Helper()
	r := &replica{name: name, how: how}
	transport := &http.Transport{MaxIdleConnsPerHost: 10}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if socket, ok := strings.CutPrefix(r.now().url, "unix:"); ok {
			network, address = "unix", socket
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	rs.t.Cleanup(transport.CloseIdleConnections)
	r.http = &http.Client{Transport: transport}
	rs.start(r)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.all = append(rs.all, r)
	return r
}

func (rs *replicas) start(r *replica) {
	rs.t.Helper()
	p := launch(rs.t, r.how).ready()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process, r.url = p, p.base
}

// any returns one of them.
func (rs *replicas) any() *replica {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.all[rand.IntN(len(rs.all))]
}

// kill kills one and starts it again after a while.
func (rs *replicas) kill(r *replica, after time.Duration) {
	r.away().kill()
	time.Sleep(after)
	rs.start(r)
}

// restart stops one as an operator does.
func (rs *replicas) restart(r *replica) {
	r.away().stop()
	rs.start(r)
}

// freeze stops one for a while without its knowledge.
func (rs *replicas) freeze(r *replica, length time.Duration) {
	r.now().signal(syscall.SIGSTOP)
	time.Sleep(length)
	r.now().signal(syscall.SIGCONT)
}

// ready waits until all of them say that they're ready.
func (rs *replicas) ready() {
	rs.t.Helper()
	for _, r := range rs.all {
		eventually(rs.t, r.name+" is ready", func() bool {
			_, a, err := r.ask("GET", "/readyz", "")
			return err == nil && a.code == http.StatusOK
		})
	}
}

// fault is something that goes wrong, and is mended before it returns.
type fault struct {
	name string
	do   func(c *clients)
}

// run lets clients work while faults happen, one after the other, and compares all that the clients were told.
func (rs *replicas) run(round int, faults []fault) {
	rs.t.Helper()
	c := &clients{t: rs.t, replicas: rs, ledger: newLedger(rs.t), round: fmt.Sprintf("r%d-", round), at: map[string]int64{}}
	eventually(rs.t, "a replica lists", func() bool {
		_, a, err := rs.any().ask("GET", widgets, "")
		if err == nil && a.code == http.StatusOK {
			c.from = a.object.rv(rs.t)
			return true
		}
		return false
	})
	ctx, stop := context.WithCancel(context.Background())
	defer c.watching.Wait()
	defer c.working.Wait()
	defer stop()
	c.start(ctx)
	for _, f := range faults {
		acked := c.ledger.acked.Load()
		began := time.Now()
		f.do(c)
		rs.t.Logf("round %d: %s, %v; writes up to %d before it and up to %d after it", round, f.name, time.Since(began).Round(time.Millisecond), acked, c.ledger.acked.Load())
		if rs.t.Failed() || c.ledger.failed() {
			break
		}
		time.Sleep(rand.N(time.Second))
	}
	if !rs.t.Failed() && !c.ledger.failed() {
		rs.ready()
	}
	stop()
	c.finish()
	for _, r := range rs.all {
		_, a, err := r.ask("GET", widgets, "")
		if err != nil || a.code != http.StatusOK {
			rs.t.Errorf("at last %s answers a list with %d, %v: %s", r.name, a.code, err, a.body)
			continue
		}
		s := seenList{who: r.name + " at last", rv: a.object.rv(rs.t), items: map[string]int64{}}
		for _, o := range a.object.Items {
			if strings.HasPrefix(o.Metadata.Name, c.round) {
				s.items[o.Metadata.Name] = o.Spec.Size
			}
		}
		c.ledger.saw(s)
	}
	for _, problem := range c.ledger.check() {
		rs.t.Error(problem)
	}
	rs.t.Logf("round %d: %s", round, c.ledger.summary())
}

// membersOf are the members of a store.
type membersOf struct {
	replicas
	place func(name string) (how run, listen, address string) // where a member is started, and listens for clients and members
	peer  string                                              // a member's --cluster-listen
	token string                                              // the file for those that join
}

// newMembers starts some on this machine's network, and defines widgets.
func newMembers(t *testing.T, n int) *membersOf {
	t.Helper()
	m := &membersOf{replicas: replicas{t: t}}
	m.place = func(string) (run, string, string) { return run{}, "127.0.0.1:0", freeAddress(t) }
	m.join(n)
	m.all[0].process.define()
	return m
}

// join starts some more members, each in a directory of its own.
func (m *membersOf) join(n int) {
	m.t.Helper()
	for range n {
		dir, name := filepath.Join(m.t.TempDir(), "data"), fmt.Sprint("member ", len(m.all))
		how, listen, address := m.place(name)
		how.args = []string{"--listen", listen, "--data-dir", dir, "--cluster-listen", address}
		if m.peer == "" {
			m.peer, m.token = address, filepath.Join(dir, "join-token")
		} else {
			how.args = append(how.args, "--join", m.peer, "--join-token-file", m.token)
		}
		m.add(name, how)
	}
}

func (m *membersOf) faults(length time.Duration) []fault {
	return []fault{
		{"nothing", func(*clients) { time.Sleep(length) }},
		{"a member is killed", func(*clients) { m.kill(m.any(), rand.N(length)) }},
		{"a member is stopped", func(*clients) { m.freeze(m.any(), length) }},
		{"a member is restarted", func(*clients) { m.restart(m.any()) }},
		{"two members are killed", func(*clients) {
			order := rand.Perm(len(m.all))
			m.all[order[0]].away().kill()
			m.kill(m.all[order[1]], rand.N(length))
			m.start(m.all[order[0]])
		}},
	}
}

// TestMembersModel: clients of three members of a store, which go from one to the other, are told what they would be told
// by one process, while members are killed, stopped and restarted.
func TestMembersModel(t *testing.T) {
	t.Parallel()
	m := newMembers(t, 3)
	m.run(0, m.faults(time.Second))
}

// dependent is a widget that has an owner.
func dependent(name, owner, uid string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Widget","name":%q,"uid":%q}]}}`, name, owner, uid)
}

// insist sends a request to one replica after the other until it's answered with one of the codes.
func (rs *replicas) insist(method, path, body string, codes ...int) (a answer) {
	rs.t.Helper()
	eventually(rs.t, method+" "+path+" is answered", func() bool {
		who, got, err := rs.any().ask(method, path, body)
		if err == nil && !retry(got.code) && !slices.Contains(codes, got.code) {
			rs.t.Fatalf("%s answered %s %s with %d, want %v: %s", who, method, path, got.code, codes, got.body)
		}
		a = got
		return err == nil && !retry(got.code)
	})
	return a
}

// TestMembersCollect: the garbage of deleted owners is collected while the members are killed one after the other, and
// nothing else is: neither what has a living owner, nor what belongs to a new owner of an old name.
func TestMembersCollect(t *testing.T) {
	t.Parallel()
	const owners, each = 6, 10
	m := newMembers(t, 3)
	created := []int{http.StatusCreated, http.StatusConflict} // one without an answer had happened
	want := map[string]bool{}
	family := func(owner, children string, stays bool) {
		m.insist("POST", widgets, widget(owner, 1), created...)
		uid := m.insist("GET", widgets+"/"+owner, "", http.StatusOK).object.Metadata.UID
		want[owner] = stays
		for n := range each {
			name := fmt.Sprintf("%s-%s-%d", children, owner, n)
			m.insist("POST", widgets, dependent(name, owner, uid), created...)
			want[name] = stays
		}
	}
	for i := range owners {
		family(fmt.Sprint("owner-", i), "first", i%2 == 1)
	}
	for i := 0; i < owners; i += 2 {
		owner := fmt.Sprint("owner-", i)
		m.insist("DELETE", widgets+"/"+owner, `{"propagationPolicy":"Background"}`, http.StatusOK, http.StatusNotFound)
		m.kill(m.all[(i/2)%len(m.all)], rand.N(time.Second))
		family(owner, "second", true)
	}
	eventually(t, "the garbage is gone", func() bool {
		who, a, err := m.any().ask("GET", widgets, "")
		if err != nil || a.code != http.StatusOK {
			return false
		}
		there := map[string]bool{}
		for _, o := range a.object.Items {
			there[o.Metadata.Name] = true
		}
		left := 0
		for name, stays := range want {
			switch {
			case stays && !there[name]:
				t.Fatalf("%s says that %s is gone, which has a living owner", who, name)
			case !stays && there[name]:
				left++
			}
		}
		return left == 0
	})
}
