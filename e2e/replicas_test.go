package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
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
	peer string // a member's --cluster-listen
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
		time.Sleep(5 * time.Millisecond) // so that nobody asks all the time while it's away
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
	forgets bool         // history is so short that any watch may have expired
	expired atomic.Int64 // watches that were told so

	mu  sync.Mutex // guards all
	all []*replica
}

// add starts one more.
func (rs *replicas) add(r *replica) {
	rs.t.Helper()
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
}

// drop takes one out of those that there are.
func (rs *replicas) drop(r *replica) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.all = slices.DeleteFunc(slices.Clone(rs.all), func(other *replica) bool { return other == r })
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

// kill kills one, and starts it again after something.
func (rs *replicas) kill(r *replica, meanwhile func()) {
	r.away().kill()
	meanwhile()
	rs.start(r)
}

// restart stops one as an operator does.
func (rs *replicas) restart(r *replica, meanwhile func()) {
	r.away().stop()
	meanwhile()
	rs.start(r)
}

// freeze stops one without its knowledge, during something.
func (rs *replicas) freeze(r *replica, meanwhile func()) {
	r.now().signal(syscall.SIGSTOP)
	defer r.now().signal(syscall.SIGCONT)
	meanwhile()
}

// goOn returns a function that waits until a write is taken by one of those that a fault leaves, and then for a while.
func (rs *replicas) goOn(length time.Duration, without ...*replica) func() {
	return func() {
		rs.t.Helper()
		eventually(rs.t, "the others take writes", func() bool {
			for _, r := range rs.all {
				if slices.Contains(without, r) {
					continue
				}
				if _, a, err := r.ask("POST", "/api/v1/namespaces", `{"metadata":{"generateName":"goes-on-"}}`); err == nil && a.code == http.StatusCreated {
					return true
				}
			}
			return false
		})
		time.Sleep(length)
	}
}

// one is a fault of one of them, which lasts until the others have taken a write, and then for a while.
func (rs *replicas) one(what func(r *replica, meanwhile func()), length time.Duration) func(*clients) {
	return func(*clients) {
		rs.t.Helper()
		r := rs.any()
		what(r, rs.goOn(length, r))
	}
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
