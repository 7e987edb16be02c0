// Package replica is what a server does because it's one of several over the same store: it takes part in the election, looks after
// the store, and asks the one that acts what is left to do. A server that is alone has none.
package replica

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/election"
)

// Options say over what a Replica is one of several.
type Options struct {
	Name    string // where others reach it
	Client  *clientv3.Client
	Store   storage.Store
	Cacher  *cacher.Cacher
	Longest time.Duration // that anybody waits until nothing is left to do
	Log     *slog.Logger
}

// Acts is what the replica that leads does for all, each until its context ends.
type Acts struct {
	Controllers *controllers.Controllers
	Aggregate   func(context.Context)                         // looks after other servers
	List        func(context.Context, []netip.AddrPort) error // writes where the replicas serve that are alive; nil: nobody wants to know
	Ready       <-chan struct{}                               // closed when there's something to list them in
}

// Replica is a server's part among the others.
type Replica struct {
	*election.Election
	*Pulse
	options Options
	acts    Acts
	alive   atomic.Pointer[[]netip.AddrPort] // where those serve that are, while this one leads; nil before
	ended   chan struct{}                    // closed when its part in the election is over
	end     context.CancelFunc
}

// New returns a replica, which does nothing before Run.
func New(o Options) *Replica {
	return &Replica{
		Election: election.New(o.Client, election.Options{Name: o.Name, Log: o.Log}),
		Pulse:    &Pulse{store: o.Store, cacher: o.Cacher},
		options:  o, ended: make(chan struct{}),
	}
}

// Names returns the names of all replicas that run, the one that acts first; none of a server that isn't a replica, which nil stands for.
func (r *Replica) Names(ctx context.Context) ([]string, error) {
	if r == nil {
		return nil, nil
	}
	return r.Election.Names(ctx)
}

// Prepare says what the replica does while it leads, and returns the context of its part in the election.
func (r *Replica) Prepare(ctx context.Context, acts Acts) context.Context {
	r.acts = acts
	ctx, r.end = context.WithCancel(ctx)
	return ctx
}

// Run takes part in the election until the context of Prepare ends.
func (r *Replica) Run(ctx context.Context) error {
	defer close(r.ended)
	return r.Election.Run(ctx, r.act)
}

// StepDown hands the leadership over, and waits for the end of Run. Before Prepare it does nothing.
func (r *Replica) StepDown() {
	if r.end != nil {
		r.end()
		<-r.ended
	}
}

// actPause is how long a replica that leads waits for the store before it asks again: short compared with the seconds that a
// change of leaders takes.
const actPause = 100 * time.Millisecond

// act does what one replica does for all, while this one leads.
func (r *Replica) act(ctx context.Context) error {
	for {
		// What the replica that led before has written must be in the caches.
		_, err := r.options.Cacher.Barrier(ctx)
		if err == nil {
			break
		}
		select {
		case <-time.After(actPause):
		case <-ctx.Done():
			return nil
		}
	}
	fence, leads := r.Leading()
	if !leads {
		return nil
	}
	var answering sync.WaitGroup
	defer answering.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answering.Go(func() { r.answerAll(ctx, fence) })
	if r.acts.List != nil {
		answering.Go(func() { r.list(ctx) })
	}
	answering.Go(func() { r.acts.Aggregate(ctx) })
	return r.acts.Controllers.Run(ctx)
}

// listPause is how long a replica that leads waits before it lists the replicas again, after something has failed: each try
// leaves a warning in the log.
const listPause = time.Second

// list keeps the list of replicas equal to where those serve that are alive, until ctx ends.
func (r *Replica) list(ctx context.Context) {
	select {
	case <-r.acts.Ready:
	case <-ctx.Done():
		return
	}
	for {
		err := r.Follow(ctx, func(names []string) error {
			all := addressesOf(names)
			r.alive.Store(&all)
			return r.acts.List(ctx, all)
		})
		if ctx.Err() != nil {
			return
		}
		r.options.Log.Warn("the EndpointSlices of default/kubernetes may not have all replicas; they're written again soon", "error", err)
		select {
		case <-time.After(listPause):
		case <-ctx.Done():
			return
		}
	}
}

// Alive returns where the replicas serve that are alive, as the one that leads knows it; nil before.
func (r *Replica) Alive() []netip.AddrPort {
	if all := r.alive.Load(); all != nil {
		return *all
	}
	return nil
}

// addressesOf returns the addresses among the names of replicas. The path of a unix socket is none.
func addressesOf(names []string) (all []netip.AddrPort) {
	for _, name := range names {
		if at, err := netip.ParseAddrPort(name); err == nil {
			all = append(all, netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
		}
	}
	return all
}
