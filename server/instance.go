package server

import (
	"cmp"
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/admission"
	"github.com/apiserver-lite/apiserver-lite/aggregator"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/network"
	"github.com/apiserver-lite/apiserver-lite/registry/conversion"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/server/backups"
	"github.com/apiserver-lite/apiserver-lite/server/bounds"
	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/kubeconfig"
	"github.com/apiserver-lite/apiserver-lite/server/manifests"
	"github.com/apiserver-lite/apiserver-lite/server/metrics"
	"github.com/apiserver-lite/apiserver-lite/server/replica"
	"github.com/apiserver-lite/apiserver-lite/server/resets"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
	"github.com/apiserver-lite/apiserver-lite/storage/seal"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
	"github.com/apiserver-lite/apiserver-lite/tracing"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// What Close waits for, so that it ends within ten seconds.
const (
	// slowClose is after how long the log says what a close waits for.
	slowClose = 5 * time.Second
	// closeTimeout is for all of it: a little more than the waits below and a slow disk's last sync take
	// together. What still runs then waits for something that doesn't come.
	closeTimeout = 9 * time.Second
	// brokenTimeout is for all of it once etcd has failed, as the process then has to end within five
	// seconds. The goroutine that met the failure may have left locks behind, so whoever reads from etcd
	// may never return.
	brokenTimeout   = 3 * time.Second
	drainTimeout    = 4 * time.Second // requests under way
	minDrainTimeout = time.Second     // those that came while the leadership was handed over
	barrierTimeout  = time.Second     // the feed, so that watches get what was acknowledged; and what those left of theirs
)

// instance is a server that runs: what open made and close takes apart.
type instance struct {
	log         *slog.Logger
	url         string // where it is
	left        left
	port        *wire.Port // nil until it's open
	handler     *handler   // nil until it serves
	backing     backing
	replica     *replica.Replica // nil: no other process uses the store
	cacher      *cacher.Cacher
	registry    *registry.Registry
	rights      rights
	quotas      *quota.Ledger
	admission   *admission.Chain
	noted       noted
	controllers *controllers.Controllers
	aggregator  *aggregator.Aggregator
	sweeper     *watchstream.Sweeper
	content     content
	ready       atomic.Bool // all is up
	stopping    atomic.Bool // readyz says so, while requests are still taken
	loops       loops
}

// noted is where requests are noted.
type noted struct {
	audit  *audit.Log      // nil: nothing is audited
	tracer *tracing.Tracer // nil: nothing is traced
}

// content are what sets what is stored besides clients and controllers.
type content struct {
	snapshots *resets.Snapshots    // nil unless ephemeral
	manifests *manifests.Manifests // nil: no directory is applied
	clock     *clock.Clock         // has the times in it
}

// left is what the start leaves for others to find, and Close removes.
type left struct {
	urlFile    string          // "" unless written
	kubeconfig kubeconfig.File // likewise
}

// backing is the store, and what is under it.
type backing struct {
	store    metrics.Store
	etcd     *etcd.Server     // nil if the store is elsewhere
	borrowed *clientv3.Client // of etcd, which is somebody else's to close; nil if it's this server's
	remote   *remote.Store    // nil unless the store is elsewhere
	times    *history.Times   // when revisions were written
	backup   snapshot.Open    // of snapshots of the store
	backups  *backups.Backups // nil: none are taken on schedule
	client   *clientv3.Client // of the store; nil: no other process uses it
	keys     *seal.Keys       // nil: nothing is encrypted
	way      egress.Dial      // to an etcd elsewhere; nil: directly
	dataDir  string           // "" if nothing is kept on this machine
}

// rights tell who asks, and what they may do.
type rights struct {
	access  *access.Authenticator
	may     *access.Authorizer // nil: everybody may do everything
	origins guard.Origins
}

// loops are the goroutines of an instance, and how they end.
type loops struct {
	background sync.WaitGroup // all but HTTP's: see serve
	stop       context.CancelFunc
	failed     chan error    // what ended by itself; room for each: maxLoops
	waitingFor atomic.Value  // a string: what close waits for, for the log
	delay      time.Duration // of the end
}

// maxLoops is how many loops may end by themselves: HTTP, feed, registry, controllers, compaction, election and aggregator.
const maxLoops = 7

// open brings everything up. The order matters. Whatever can be refused of flags and files is refused, and the port is taken,
// before there is a data directory: a start that is refused leaves nothing. etcd locks the directory before we write files into it.
func (s *Server) open(ctx context.Context) (_ *instance, err error) {
	g, err := s.read()
	if err != nil {
		return nil, err
	}
	in := &instance{log: s.log(), rights: rights{may: g.may, origins: g.origins}, backing: backing{keys: g.keys, way: g.ways.Etcd}, content: content{clock: clock.New(s.API.FakeClock)}, loops: loops{failed: make(chan error, maxLoops), delay: s.Serving.ShutdownDelay}}
	in.loops.waitingFor.Store("the start")
	defer func() {
		if err != nil {
			err = startError(err, in.close())
		}
	}()
	if in.rights.access, err = access.New(context.WithoutCancel(ctx), s.Access, access.Wiring{Admin: g.tokens.Has, Open: g.may.Open, Ways: g.ways, Log: in.log}); err != nil {
		return nil, err
	}
	if err := in.openPort(s, g); err != nil {
		return nil, err
	}
	if err := in.openStore(ctx, s); err != nil {
		return nil, err
	}
	if in.backing.backups, err = backups.Open(s.Data.Backups, in.backing.backup, in.log); err != nil {
		return nil, err
	}
	// Now that the port and the data directory are ours, these are of a run that was killed, and of no other that runs.
	if err := removeURLFile(s.Serving.URLFile); err != nil {
		return nil, err
	}
	if err := kubeconfig.Clear(s.Serving.KubeconfigFile); err != nil {
		return nil, err
	}
	if s.TLS.On && g.certificate == nil {
		if g.certificate, err = s.TLS.Make(in.backing.dataDir, s.certificateHosts(), time.Now(), in.log); err != nil {
			return nil, err
		}
	}
	in.url = in.port.URL()
	who, err := in.openRegistry(s, g)
	if err != nil {
		return nil, err
	}
	in.serve(ctx, s, who, g.certificate)
	if err := in.awaitReady(ctx); err != nil {
		return nil, err
	}
	if err := in.content.snapshots.Begin(ctx); err != nil {
		return nil, err
	}
	seal.Report(in.cacher.Unreadable(), in.log)
	in.ready.Store(true)
	if err := in.writeKubeconfig(s, g.administrator, g.certificate); err != nil {
		return nil, err
	}
	if err := in.writeURLFile(s.Serving.URLFile); err != nil {
		return nil, err
	}
	return in, nil
}

// startError is why a start failed, with what couldn't be ended after it. Whoever told the start to stop wants to
// know the latter alone.
func startError(err, closing error) error {
	if closing != nil && errors.Is(err, context.Canceled) {
		return closing
	}
	return errors.Join(err, closing)
}

// openPort takes the port, when the audit log is open and the collector of traces is known.
func (in *instance) openPort(s *Server, g given) (err error) {
	if in.noted.audit, err = audit.Open(s.Audit, g.ways.ControlPlane, in.log); err != nil {
		return err
	}
	if in.noted.tracer, err = tracing.New(g.tracing, g.ways.ControlPlane, in.log); err != nil {
		return err
	}
	in.port, err = wire.Open(wire.Options{
		Address:        cmp.Or(s.Serving.Listen, DefaultListen),
		Asks:           g.tokens.Any() || s.Access.On(),
		Secure:         g.certificate != nil || s.TLS.On,
		MaxConnections: s.Bounds.MaxConnections,
		MaxStreams:     cmp.Or(s.Bounds.HTTP2MaxStreams, bounds.DefaultHTTP2MaxStreams),
		WriteTimeout:   s.Bounds.Time() + sayLate,
		NoHTTP2:        s.Serving.NoHTTP2,
		StreamTimeout:  cmp.Or(s.Bounds.WatchWriteTimeout, bounds.DefaultWatchWriteTimeout),
		Timeouts:       s.tests.timeouts.Timeouts,
		Log:            in.log,
	})
	return err
}

// openRegistry brings up what is over the store, but for its goroutines: what is served, who may ask for it, admission, and
// the controllers. It returns how requests are told whose they are.
func (in *instance) openRegistry(s *Server, g given) (who *identity, err error) {
	in.registry = registry.New(registry.Options{
		Store: in.backing.store, Times: in.backing.times, HistoryUsers: s.Data.HistoryUsers, Cacher: in.cacher, Shared: in.replica != nil, AutoCreateNamespaces: s.API.AutoCreateNamespaces, ManagedFieldsAlways: s.API.ManagedFieldsAlways,
		Unserved: s.API.Unserved, NoInitialEvents: s.API.NoInitialEvents, MinWatchTimeout: s.Bounds.MinWatchTimeout, Manager: s.manager(),
		Admission: s.API.Admission, Webhooks: conversion.Policy{Allowed: s.API.WebhookAddresses}, Clock: in.content.clock, Ways: g.ways, Log: in.log,
	})
	writes.InitialNamespaces(in.registry)
	if s.API.Register != nil {
		s.API.Register(in.registry)
	}
	accounts, err := in.rights.access.Attach(access.Home{
		Registry: in.registry, URL: in.url, Key: func() (crypto.Signer, error) { return in.accountKey(s) },
	})
	if err != nil {
		return nil, err
	}
	on, _ := controllers.ParseSet(s.API.Controllers) // validate has looked at it
	kinds := builtin.Options{Set: s.API.Builtin, CheckPolicies: on[controllers.PolicyStatus], PrepareToken: accounts.Prepare, IssueToken: accounts.Issue, ReviewToken: in.rights.access.Review, ServiceIPs: s.API.ServiceIPs, NodePorts: s.API.NodePorts, EventTTL: s.Bounds.EventTTL, Address: listenAddress(in.port.Addr()), NoService: s.System.On, Shared: in.replica != nil}
	who = &identity{tokens: g.tokens, on: s.Access.On(), proxies: s.Access.RequestHeader.ClientCAFile != "", access: in.rights.access, accounts: accounts}
	in.quotas = &quota.Ledger{}
	plugins := admission.Config{Options: s.Plugins, Registry: in.registry, Quotas: in.quotas, Log: in.log}
	if may := in.rights.may; may != nil {
		if err := may.Attach(in.registry); err != nil {
			return nil, err
		}
		kinds.Authorizer, who.may, plugins.Authorizer = may, may, may
		in.registry.Authorizer(may)
	}
	builtin.Register(in.registry, kinds)
	in.aggregator = aggregator.New(s.Aggregation, aggregator.Wiring{Registry: in.registry, Certificate: g.proxy, Policy: in.registry.Network().Policy, Way: g.ways.Cluster, Priority: s.priorities(), Log: in.log})
	if in.admission, err = admission.New(plugins); err != nil {
		return nil, err
	}
	if s.Data.Ephemeral {
		in.content.snapshots = resets.New(in.registry)
	}
	in.content.manifests = manifests.New(s.API.Manifests, in.registry, in.log)
	in.controllers = controllers.New(controllers.Options{Registry: in.registry.Door(), Cacher: in.cacher, On: on, Quotas: in.quotas, Clock: in.content.clock, Duties: in.duties(s), Log: in.log})
	return who, nil
}

// serve starts the goroutines: HTTP, feed, registry, controllers and aggregator or what a replica has (startReplica), compaction, sweeper,
// the first rules, recheck, tidier.
func (in *instance) serve(ctx context.Context, s *Server, identity *identity, certificate *tls.Certificate) {
	ctx = context.WithoutCancel(ctx)
	background, stop := context.WithCancel(ctx)
	in.loops.stop = stop
	in.sweeper = &watchstream.Sweeper{Clock: in.content.clock.Fake()}
	handler := newHandler(in, s, identity)
	in.handler = handler
	again := in.newRecheck(handler, s.tests.timeouts.recheck)
	secure, shown := s.TLS.Serving(certificate, s.Access.NeedsTLS(), in.log)
	in.port.Serve(ctx, handler, secure, in.loops.failed)
	in.loops.background.Go(func() { s.TLS.Rotate(background, shown, in.log) })
	in.loops.background.Go(func() { identity.tokens.Watch(background) })
	in.run(background, "feed", in.cacher.Run)
	in.run(background, "registry", in.registry.Run)
	if in.replica != nil {
		in.startReplica(background, s)
	} else {
		in.run(background, "controllers", in.controllers.Run)
		in.loops.background.Go(func() { in.aggregator.Act(background) })
	}
	in.run(background, "aggregator", in.aggregator.Run)
	if in.backing.remote != nil && s.Etcd.CompactionInterval != remote.Never {
		in.run(background, "compaction", func(ctx context.Context) error { return in.compact(ctx, s) })
	}
	in.loops.background.Go(func() { in.sweeper.Run(background) })
	in.loops.background.Go(func() { handler.tells.traffic.Run(background) })
	in.loops.background.Go(func() { in.backing.backups.Run(background) })
	in.loops.background.Go(func() { in.content.manifests.Run(background) })
	if rules := in.ownRules(s); rules != nil {
		in.loops.background.Go(func() { in.bootstrap(background, rules) })
	}
	if in.rights.may != nil {
		in.loops.background.Go(func() { in.rights.may.Run(background) })
	}
	in.loops.background.Go(func() { again.Run(background) })
	in.loops.background.Go(func() { in.backing.keys.Run(background, in.backing.store, in.cacher) })
	if s.FreeMemory != nil {
		in.loops.background.Go(func() { handler.watches.Tidy(background, s.FreeMemory) })
	}
}

// startReplica starts what a replica does: take part in the election, and look after the store. The controllers run while
// this replica leads. Of the EndpointSlices of default/kubernetes, if there are any, it says where the replicas serve.
func (in *instance) startReplica(ctx context.Context, s *Server) {
	acts := replica.Acts{Controllers: in.controllers, Aggregate: in.aggregator.Act, Ready: in.registry.Ready()}
	switch {
	case s.API.Builtin != builtin.All:
	case s.System.On: // a duty writes them
		acts.List = func(context.Context, []netip.AddrPort) error { return nil }
	default:
		acts.List = func(ctx context.Context, all []netip.AddrPort) error {
			if _, err := in.cacher.Barrier(ctx); err != nil { // what was written the last time
				return err
			}
			return network.WriteEndpoints(ctx, in.registry, all)
		}
	}
	in.run(in.replica.Prepare(ctx, acts), "election", in.replica.Run)
	in.loops.background.Go(func() { in.replica.Pulse.Run(ctx) })
}

// run starts one of the background loops, which is expected to last until ctx ends.
func (in *instance) run(ctx context.Context, name string, loop func(context.Context) error) {
	in.loops.background.Go(func() {
		err := loop(ctx)
		if ctx.Err() == nil {
			in.loops.failed <- fmt.Errorf("%s stopped by itself: %w", name, cmp.Or(err, errors.New("no reason given")))
		}
	})
}

// bootstrap writes Kubernetes' own rules, for which the start doesn't wait.
func (in *instance) bootstrap(ctx context.Context, rules *access.RBAC) {
	select {
	case <-in.registry.Ready():
		rules.Bootstrap(ctx, in.log) // the error is that of ctx
	case <-ctx.Done():
	}
}

func (in *instance) awaitReady(ctx context.Context) error {
	for _, ready := range []<-chan struct{}{in.cacher.Primed(), in.registry.Ready()} {
		select {
		case <-ready:
		case err := <-in.loops.failed:
			return err
		case <-in.storeDone():
			return in.etcdStopped()
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", context.Cause(ctx))
		}
	}
	return nil
}

// etcdStopped is why the server can't go on when etcd is done.
func (in *instance) etcdStopped() error {
	return fmt.Errorf("etcd stopped by itself: %w", cmp.Or(in.backing.etcd.Health(), errors.New("no reason given")))
}

// close undoes whatever open did, in the opposite order, and waits for all of it, but no longer than
// closeTimeout after Serving.ShutdownDelay, or brokenTimeout if etcd has failed or fails meanwhile.
func (in *instance) close() error {
	slow := time.AfterFunc(in.loops.delay+slowClose, func() { in.log.Warn("still closing", "waiting_for", in.loops.waitingFor.Load()) })
	defer slow.Stop()

	began := time.Now()
	done := make(chan error, 1) // capacity 1, because closeAll may end after close has given up
	// If close gives up, this goroutine stays, and with it what it waits for. The process is expected to end then.
	go func() { done <- in.closeAll() }()
	timeout, failed := time.NewTimer(in.loops.delay+closeTimeout), in.storeDone()
	defer timeout.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-failed:
			failed = nil
			timeout.Reset(min(brokenTimeout, in.loops.delay+closeTimeout-time.Since(began)))
		case <-timeout.C:
			return fmt.Errorf("gave up after %v of waiting for %s to end", time.Since(began).Round(time.Second), in.loops.waitingFor.Load())
		}
	}
}

func (in *instance) closeAll() error {
	in.stopping.Store(true)
	in.delay()
	began := time.Now()
	errs := []error{removeURLFile(in.left.urlFile), in.left.kubeconfig.Remove()}
	if in.replica != nil {
		in.loops.waitingFor.Store("the end of its leadership")
		in.replica.StepDown()
	}
	if in.backing.etcd != nil && in.backing.borrowed == nil && in.ready.Load() && !in.storeGone() {
		in.loops.waitingFor.Store("another leader of the store's members")
		in.backing.etcd.HandOver()
	}
	if in.port != nil {
		// What is under way has had time since the stop began.
		errs = append(errs, in.closePort(max(drainTimeout-time.Since(began), minDrainTimeout)))
	}
	if in.loops.stop != nil {
		in.loops.waitingFor.Store("the feed and the controllers")
		in.loops.stop()
		in.loops.background.Wait()
	}
	if in.admission != nil {
		in.loops.waitingFor.Store("calls of webhooks")
		errs = append(errs, in.admission.Close())
	}
	in.aggregator.Close()
	in.rights.access.Close()
	in.rights.may.Close()
	in.loops.waitingFor.Store("the audit log and traces")
	errs = append(errs, in.noted.audit.Close(), in.noted.tracer.Close(), in.backing.backups.Close())
	if in.backing.store != nil {
		in.loops.waitingFor.Store("the store")
		in.backing.store.Close()
	}
	if in.backing.borrowed != nil {
		_ = in.backing.borrowed.Close() // its error is that its context has ended
	} else if in.backing.etcd != nil {
		in.loops.waitingFor.Store("etcd")
		errs = append(errs, in.backing.etcd.Close())
	}
	in.backing.keys.Close()
	return errors.Join(errs...)
}

// delay lets the server go on to serve for Serving.ShutdownDelay, if it serves.
func (in *instance) delay() {
	if in.loops.delay == 0 || !in.ready.Load() {
		return
	}
	in.loops.waitingFor.Store("the delay of --shutdown-delay-duration")
	over := time.NewTimer(in.loops.delay)
	defer over.Stop()
	select {
	case <-over.C:
	case <-in.storeDone():
	}
}

// closePort answers the requests under way, for at most timeout, lets watches get what was acknowledged, and closes the port.
func (in *instance) closePort(timeout time.Duration) error {
	waitingFor := func(what string) { in.loops.waitingFor.Store(what) }
	if in.handler == nil {
		return in.port.Close(watchstream.ErrShutdown, waitingFor)
	}
	in.loops.waitingFor.Store("requests")
	wasReady := in.ready.Swap(false)
	quiet := time.Now().Add(timeout + barrierTimeout)
	within(timeout, func(ctx context.Context) {
		select {
		case <-in.handler.capacity.inflight.Drain(): // from here on new requests get 503
		case <-in.storeDone(): // they may never be answered
		case <-ctx.Done():
		}
	})
	if wasReady && !in.storeGone() {
		within(time.Until(quiet), func(ctx context.Context) {
			if _, err := in.cacher.Barrier(ctx); err != nil {
				in.log.Debug("watches may end before the last writes", "error", err)
			}
		})
	}
	return in.port.Close(watchstream.ErrShutdown, waitingFor)
}

// within calls f with a context of its own that ends after d.
func within(d time.Duration, f func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	f(ctx)
}
