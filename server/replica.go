package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/system"
)

// What a server does because it's one of several over the same store: replicas. One that is alone pays nothing for it.

const (
	// pulseInterval is how often a replica asks the store where it is: rarely enough to cost nothing, and often enough that
	// health checks, which come every few seconds, hear of the last one.
	pulseInterval = time.Second
	// pulseTimeout is how long it waits for the answer, and then for its caches to get there: what a consistent read waits.
	pulseTimeout = 3 * time.Second
)

// sharedEtcd is the etcd of another Server, for tests, and a client of it, which is the Server's own.
type sharedEtcd struct {
	etcd      *etcd.Server
	client    *clientv3.Client
	onRead    func(key string) error               // of the Server's store
	readIndex func(context.Context) (int64, error) // of the Server's store, instead of etcd's; nil: etcd's
}

// pulse is whether a replica hears of the store, and how far its caches are behind.
type pulse struct {
	store  storage.Store
	cacher *cacher.Cacher

	mu     sync.Mutex // guards what follows
	lost   time.Time  // since when the store hasn't answered; zero while it answers
	cause  error      // of that
	behind time.Time  // since when the caches haven't been where the store was pulseTimeout before; zero while they are
	lag    time.Duration
}

// run looks again and again until ctx ends.
func (p *pulse) run(ctx context.Context) {
	tick := time.NewTicker(pulseInterval)
	defer tick.Stop()
	for {
		p.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look asks the store where it is, and waits until the caches are there.
func (p *pulse) look(ctx context.Context) {
	asked := time.Now()
	wait, cancel := context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	rev, err := p.store.Barrier(wait)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.cause = err; p.lost.IsZero() {
			p.lost = asked
		}
		return
	}
	p.heard()
	heard := time.Now()
	wait, cancel = context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	err = p.cacher.WaitFor(wait, rev)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.lag = time.Since(heard); {
	case err == nil:
		p.behind = time.Time{}
	case ctx.Err() == nil && p.behind.IsZero():
		p.behind = heard
	}
}

// heard notes that the store has answered.
func (p *pulse) heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost, p.cause = time.Time{}, nil
}

// reached is nil while the store answers, and else says since when it doesn't.
func (p *pulse) reached() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost.IsZero() {
		return nil
	}
	return fmt.Errorf("the store hasn't answered since %s (%v): %w", p.lost.UTC().Format(time.RFC3339), time.Since(p.lost).Round(time.Second), p.cause)
}

// follows is nil while the caches keep up with the store.
func (p *pulse) follows() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.behind.IsZero() {
		return nil
	}
	return fmt.Errorf("the caches are behind the store since %s (%v), at resourceVersion %d",
		p.behind.UTC().Format(time.RFC3339), time.Since(p.behind).Round(time.Second), p.cacher.Position())
}

// lagging is how long the caches took lately to get to where the store was; longer while they're still on the way.
func (p *pulse) lagging() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.behind.IsZero() {
		return time.Since(p.behind)
	}
	return p.lag
}

// startReplica starts what a replica does: take part in the election, and look after the store. The controllers run while
// this replica leads. It returns what ends its part in the election, and waits for that.
func (in *instance) startReplica(ctx context.Context) (stepDown func()) {
	electing, cancel := context.WithCancel(ctx)
	ended := make(chan struct{}) // closed when the election is over
	in.run(electing, "election", func(ctx context.Context) error {
		defer close(ended)
		return in.replica.election.Run(ctx, in.act)
	})
	in.loops.background.Go(func() { in.replica.pulse.run(ctx) })
	return func() {
		cancel()
		<-ended
	}
}

// actPause is how long a replica that leads waits for the store before it asks again: short compared with the seconds that a
// change of leaders takes.
const actPause = 100 * time.Millisecond

// act does what one replica does for all, while this one leads.
func (in *instance) act(ctx context.Context) error {
	for {
		// What the replica that led before has written must be in the caches.
		_, err := in.cacher.Barrier(ctx)
		if err == nil {
			break
		}
		select {
		case <-time.After(actPause):
		case <-ctx.Done():
			return nil
		}
	}
	fence, leads := in.replica.election.Leading()
	if !leads {
		return nil
	}
	var answering sync.WaitGroup
	defer answering.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answering.Go(func() { in.answerAll(ctx, fence) })
	if in.replica.hasService {
		answering.Go(func() { in.listReplicas(ctx) })
	}
	answering.Go(func() { in.aggregator.Act(ctx) })
	return in.controllers.Run(ctx)
}

// listPause is how long a replica that leads waits before it lists the replicas again, after something has failed: each try
// leaves a warning in the log.
const listPause = time.Second

// listReplicas keeps the EndpointSlices of default/kubernetes equal to where the replicas serve that are alive, until ctx
// ends.
func (in *instance) listReplicas(ctx context.Context) {
	select {
	case <-in.registry.Ready():
	case <-ctx.Done():
		return
	}
	for {
		err := in.replica.election.Follow(ctx, func(names []string) error {
			if in.replica.system {
				all := replicaAddresses(names)
				in.replica.others.Store(&all)
				return nil
			}
			if _, err := in.cacher.Barrier(ctx); err != nil { // what was written the last time
				return err
			}
			return builtin.WriteEndpoints(ctx, in.registry, replicaAddresses(names))
		})
		if ctx.Err() != nil {
			return
		}
		in.log.Warn("the EndpointSlices of default/kubernetes may not have all replicas; they're written again soon", "error", err)
		select {
		case <-time.After(listPause):
		case <-ctx.Done():
			return
		}
	}
}

// replicaName is the name of a replica in the election: where others reach it. One that listens on all addresses is reached
// at the one that kube-apiserver would take, that of the interface with the default route.
func replicaName(listens net.Addr, o system.Options) string {
	at := listenAddress(listens)
	switch {
	case !at.IsValid():
		return listens.String()
	case o.On:
		return advertised(at, o).String()
	case at.Addr().IsUnspecified():
		if ip, err := utilnet.ChooseHostInterface(); err == nil {
			if own, ok := netip.AddrFromSlice(ip); ok {
				at = netip.AddrPortFrom(own.Unmap(), at.Port())
			}
		}
	}
	return at.String()
}

// replicaAddresses returns the addresses among the names of replicas. The path of a unix socket is none.
func replicaAddresses(names []string) (all []netip.AddrPort) {
	for _, name := range names {
		if at, err := netip.ParseAddrPort(name); err == nil {
			all = append(all, netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
		}
	}
	return all
}

// fresh makes sure that a request is judged by what was acknowledged before it on any replica: rights, definitions and the
// rest. While the store can't be reached, reads that take what is in memory go on, and are judged by that, too. A write may
// presume that what is in memory is new enough: see registry.Presume.
func (h *handler) fresh(r *http.Request) (*http.Request, error) {
	if h.pulse == nil || unjudged(r) {
		return r, nil
	}
	if h.mayPresume(r) {
		if ctx, may := h.registry.Presume(r.Context()); may {
			return r.WithContext(ctx), nil
		}
	}
	old := takesOld(r)
	if old && h.pulse.reached() != nil {
		return r, nil
	}
	ctx, err := h.registry.Fresh(r.Context())
	switch {
	case err == nil:
		return r.WithContext(ctx), nil
	case old && r.Context().Err() == nil:
		return r, nil
	}
	return nil, err
}

// mayPresume tells whether a request may be a write of one object that nobody's rights judge, while the store
// answers. Who a user is, and what he may do, is decided before the registry is asked, and has to be new by then.
func (h *handler) mayPresume(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return h.rbac == nil && !h.identity.on && h.pulse.reached() == nil && (strings.HasPrefix(r.URL.Path, "/apis/") || strings.HasPrefix(r.URL.Path, "/api/"))
	}
	return false
}

// freshened makes a request fresh that presumed, and turned out to be no write of one object.
func (h *handler) freshened(r *http.Request) (*http.Request, error) {
	if !registry.Presumes(r.Context()) {
		return r, nil
	}
	ctx, err := h.registry.Fresh(r.Context())
	if err != nil {
		return nil, err
	}
	return r.WithContext(ctx), nil
}

// unjudged tells whether a request is answered without looking at what is stored.
func unjudged(r *http.Request) bool {
	if isHealth(r) {
		return true
	}
	switch r.URL.Path {
	case "/metrics", "/version", "/version/", "/debug/watchers":
		return true
	}
	return false
}

// takesOld tells whether a request takes objects as old as the caches have them: a read from a resourceVersion, or a watch.
func takesOld(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	query := r.URL.Query()
	return query.Get("resourceVersion") != "" || registry.Flag(query, "watch") ||
		strings.Contains(r.URL.Path, "/watch/") && access.AttributesOf(r).Verb == "watch" // a namespace may have the name, too
}

// closeElection hands the leadership over.
func (in *instance) closeElection() {
	if in.replica.stepDown != nil {
		in.loops.waitingFor.Store("the end of its leadership")
		in.replica.stepDown()
	}
}
