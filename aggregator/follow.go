package aggregator

import (
	"context"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// ring tells a channel of capacity 1 that there's something new.
func ring(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default: // it's told already
	}
}

// worker is what runs for one server.
type worker struct {
	backend *Backend
	cancel  context.CancelFunc
	news    chan struct{} // capacity 1; rings when something has changed that decides whether the server can be reached
	stamp   stamp
}

// stamp changes whenever an APIService does, its Service, or the EndpointSlices of that.
type stamp struct {
	apiService, service storage.Revision
	slices              int
	sum                 storage.Revision // of the slices' revisions
}

// forEach runs work for each server as long as an APIService names it, and until ctx ends. It returns when nothing runs any
// more. news rings when something has changed about the server's APIService, Service or EndpointSlices.
func (a *Aggregator) forEach(ctx context.Context, work func(ctx context.Context, b *Backend, news <-chan struct{})) {
	var running sync.WaitGroup
	defer running.Wait()
	if a.routes == nil {
		<-ctx.Done()
		return
	}
	select {
	case <-a.registry.Ready():
	case <-ctx.Done():
		return
	}
	changed := make(chan struct{}, 1) // rings when something has changed
	follow := func(ctx context.Context, p storage.Prefix) {
		running.Go(func() { a.registry.Follow(ctx, p, func() { ring(changed) }) })
	}
	follow(ctx, apiServices)
	workers := map[string]*worker{}
	var others struct{ stop context.CancelFunc } // nil while there's no server
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		remote := a.routes.Get().remote
		switch {
		case len(remote) > 0 && others.stop == nil:
			var following context.Context
			following, others.stop = context.WithCancel(ctx)
			follow(following, services)
			follow(following, endpointSlices)
		case len(remote) == 0 && others.stop != nil:
			others.stop()
			others.stop = nil
		}
		for name, w := range workers {
			if !slices.ContainsFunc(remote, func(r *Route) bool { return r.Backend == w.backend }) {
				w.cancel()
				delete(workers, name)
			}
		}
		for _, r := range remote {
			now := a.stampOf(r)
			w := workers[r.Name]
			if w == nil {
				w = &worker{backend: r.Backend, news: make(chan struct{}, 1), stamp: now}
				var working context.Context
				working, w.cancel = context.WithCancel(ctx)
				workers[r.Name] = w
				running.Go(func() { work(working, w.backend, w.news) })
			}
			if now != w.stamp {
				w.stamp = now
				ring(w.news)
			}
		}
	}
}

func (a *Aggregator) stampOf(r *Route) stamp {
	s := stamp{apiService: r.revision}
	at := r.apiService.Spec.Service
	if o := a.registry.Catalog().Object(services, at.Namespace, at.Name); o != nil {
		s.service = o.Revision
	}
	for o := range a.slicesOf(at.Namespace, at.Name) {
		s.slices++
		s.sum += o.Revision
	}
	return s
}

// pace is how often something is done again.
type pace struct {
	every       time.Duration // after a success
	first, last time.Duration // after the first failure, and after many; twice as long each time
}

var (
	// availabilityPace is that of kube-apiserver.
	availabilityPace = pace{every: 30 * time.Second, first: 5 * time.Millisecond, last: 30 * time.Second}
	// discoveryPace is that of kube-apiserver.
	discoveryPace = pace{every: time.Minute, first: 500 * time.Millisecond, last: time.Minute}
	// openAPIPace is that of kube-apiserver, but that the first look doesn't wait.
	openAPIPace = pace{every: time.Minute, first: time.Minute, last: time.Hour}
)

// repeat does something at once, and again when it's due or when news come, until ctx ends.
func repeat(ctx context.Context, news <-chan struct{}, p pace, do func(ctx context.Context) error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := p.first
	for {
		select {
		case <-timer.C:
		case <-news:
		case <-ctx.Done():
			return
		}
		if do(ctx) == nil {
			failed = p.first
			timer.Reset(p.every)
			continue
		}
		timer.Reset(failed)
		failed = min(2*failed, p.last)
	}
}

// serviceLabel is the label of an EndpointSlice that names its Service.
const serviceLabel = discoveryv1.LabelServiceName
