package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry/conversion"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Options of a Registry.
type Options struct {
	// Store and Cacher are required: the Cacher must be of the Store. The Registry doesn't close them; they must outlive
	// Run.
	Store  storage.Store
	Cacher *cacher.Cacher
	// Shared says that other processes write to the store, too.
	Shared bool
	// Times, if set, say when revisions were written.
	Times *history.Times
	// HistoryUsers has each write of a client note who has asked for it.
	HistoryUsers bool
	// AutoCreateNamespaces creates the namespace of a new object if it's missing, instead of refusing.
	AutoCreateNamespaces bool
	// ManagedFieldsAlways tracks in managedFields who set what from the first write of an object on, as
	// kube-apiserver does, and not only when it has been applied.
	ManagedFieldsAlways bool
	// Manager is the server's own name in managedFields. Defaults to apiserver-lite.
	Manager string
	// Admission changes or refuses what clients write to any resource, see Admission. None by default.
	Admission []Admission[unstructured.Unstructured]
	// Unserved, if set, tells of paths of Go types that they aren't served. What the server itself stores there stays.
	Unserved func(schema.GroupVersionResource) bool
	// NoInitialEvents refuses watches and lists that ask for sendInitialEvents, as kube-apiserver without its feature
	// WatchList does.
	NoInitialEvents bool
	// MinWatchTimeout is how long a watch lasts at least whose client doesn't say it; it's at most twice as long. Defaults to 30 minutes.
	MinWatchTimeout time.Duration
	// Webhooks says at which addresses webhooks may be called. The zero Policy is described there.
	Webhooks conversion.Policy
	// Clock has the time that is written into objects. Nil is the machine's.
	Clock *clock.Clock
	// Ways lead to webhooks. The zero Ways are direct.
	Ways egress.Ways
	Log  *slog.Logger // defaults to slog.Default()
}

// Registry holds the resources of one server. It's safe for concurrent use.
type Registry struct {
	Options     // as New completed them; nobody changes them
	Namespaces  *namespaces
	Definitions *definitions
	startup
	catalog    atomic.Pointer[Catalog] // nil until Catalog is called after the last of builtins
	Resets     atomic.Int64            // how often a Reset has begun or ended: odd while one is under way
	Writers    writers
	rules      rules
	Unreadable unreadable
	outages    outages
}

// startup is what is added before Run, and how far Run is.
type startup struct {
	builtins []*Resource // Go types; complete when Run begins
	atStart  []func(ctx context.Context) error
	explain  func(path schema.GroupVersionResource) string // may be nil
	Rights   authorizer.UnconditionalAuthorizer            // nil: everybody may do everything
	running  atomic.Bool
	ready    chan struct{} // closed by Run, once it serves
}

// New returns a Registry in which Namespace and CustomResourceDefinition are registered. It serves
// when Run runs.
func New(o Options) *Registry {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Manager, o.Admission = cmp.Or(o.Manager, ownManager), hooks(o.Admission)
	r := &Registry{Options: o, startup: startup{ready: make(chan struct{})}}
	r.rules.unknown.Store(true)
	r.Unreadable.log, r.outages.log = o.Log, o.Log
	r.Namespaces = newNamespaces(r, o.AutoCreateNamespaces)
	r.Definitions = newDefinitions(r)
	return r
}

// add adds a Go type's resource to those that are served.
func (r *Registry) add(res *Resource) {
	if r.running.Load() {
		panic(fmt.Sprintf("registry: %s/%s is registered after Run", res.Group, res.Plural))
	}
	if r.Has(schema.GroupResource{Group: res.Group, Resource: res.Plural}) {
		panic(fmt.Sprintf("registry: %s/%s is registered twice", res.Group, res.Plural))
	}
	if !res.Answered {
		res.Cache = r.Cacher.Resource(res.Prefix)
		res.indexFields()
	}
	r.builtins = append(r.builtins, res)
	r.catalog.Store(nil) // once all are added, one is made
}

// Run serves the stored definitions and calls what AtStart was given. It returns nil when ctx has ended
// and nothing of the Registry runs any more. An error says that Run is called twice, or which of the initial
// objects can't be made. The cacher must be running. What follows from a deletion is up to package controllers.
func (r *Registry) Run(ctx context.Context) error {
	if r.running.Swap(true) {
		return errors.New("registry: Run is called twice")
	}
	select {
	case <-r.Cacher.Primed():
	case <-ctx.Done():
		return nil
	}
	defer r.Definitions.Close() // on every way out: sync opens clients of webhooks
	r.Definitions.Sync()
	for _, fn := range r.atStart {
		if err := fn(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("make the initial objects: %w", err)
		}
	}
	close(r.ready)
	if r.Shared {
		r.Definitions.follow(ctx)
	}
	<-ctx.Done()
	return nil
}

// Usage is what a registry's queues hold now, and how often they gave up.
type Usage struct {
	WaitingWrites int64 // writes that wait for other writes of the same object
	WriteQueues   int   // objects that somebody writes: each has a queue
	LapsedWrites  int64 // how many writes have waited for maxQueueWait, and went on
	WebhookCalls  int   // requests to conversion webhooks under way, at most conversion's bound for each definition
}

// Usage returns the registry's Usage at the moment of the call.
func (r *Registry) Usage() Usage {
	return Usage{
		WaitingWrites: r.Writers.waiting.Load(),
		WriteQueues:   r.Writers.length(),
		LapsedWrites:  r.Writers.lapsed.Load(),
		WebhookCalls:  r.Definitions.webhookCalls(),
	}
}

// Ready is closed when every stored definition is served and what AtStart was given is done.
func (r *Registry) Ready() <-chan struct{} { return r.ready }

// WaitFor returns when the caches have everything up to a revision, or with the error of ctx.
func (r *Registry) WaitFor(ctx context.Context, rev storage.Revision) error {
	return r.Cacher.WaitFor(ctx, rev)
}

// Catalog returns what is served now.
func (r *Registry) Catalog() *Catalog {
	c := r.catalog.Load()
	for c == nil { // before Run
		r.catalog.CompareAndSwap(nil, newCatalog(r.builtins))
		c = r.catalog.Load()
	}
	return c
}

// Lookup finds a served resource. If it isn't served, Lookup first waits until the cache has seen all definitions that are
// stored by now. So the Status 404 that it returns is never about the past. Other errors are those of storage, as a
// Status.
func (r *Registry) Lookup(ctx context.Context, of schema.GroupVersionResource) (*Endpoint, error) {
	if e := r.Catalog().Endpoint(of); e != nil {
		return e, nil
	}
	if r.Shared && (IsFresh(ctx) || Presumes(ctx)) {
		// Then the catalog is as new as the request, or the refusal is asked about again when it is.
	} else if _, err := r.Cacher.Barrier(ctx); err != nil {
		return nil, (&Endpoint{Names: Names{Group: of.Group, Plural: of.Resource}}).Fail("", err)
	}
	r.Definitions.refresh(of.GroupResource())
	if e := r.Catalog().Endpoint(of); e != nil {
		return e, nil
	}
	if r.explain != nil {
		if why := r.explain(of); why != "" {
			return nil, AsKubernetes(http.StatusNotFound, metav1.StatusReasonNotFound, why)
		}
	}
	return nil, ErrNotServed
}

// AtStart adds a function that Run calls when stored definitions are served, before Ready; in the order in which they're added.
// An error of it is Run's. It's for the program's start, before Run.
func (r *Registry) AtStart(fn func(ctx context.Context) error) { r.atStart = append(r.atStart, fn) }

// Explain sets a function that says why nothing is served at a path, for kinds that the server could serve; "" for other
// paths. It's for the program's start, before Run.
func (r *Registry) Explain(why func(path schema.GroupVersionResource) string) { r.explain = why }

// Authorizer sets who is asked whether users have the rights that a write needs besides its own: to delete, for the annotation
// that deletes. Without one everybody has them. It's for the program's start, before Run.
func (r *Registry) Authorizer(a authorizer.UnconditionalAuthorizer) { r.Rights = a }

// Read reads the object of a key from etcd, of whatever resource, instead of the cache. It's nil if there is none at the time of the
// call. A value that can't be decrypted comes with its Err set. Errors are storage's.
func (r *Registry) Read(ctx context.Context, key string) (*kube.Object, error) {
	kv, err := r.Store.Get(ctx, key)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil, nil
	case err != nil && kv.Revision == 0:
		return nil, err
	}
	return kube.Changed(storage.Change{KeyValue: kv, Err: err}), nil // with an error there is a value, and it can't be decrypted
}

// maxReported bounds how many unreadable objects are remembered as logged; at the bound all are forgotten. A
// thousand keys and revisions take less than a megabyte, and a log repeats itself only where more objects than
// that are unreadable.
const maxReported = 1000

// unreadable logs stored values that nobody can use, each revision once.
type unreadable struct {
	log *slog.Logger

	mu       sync.Mutex // guards reported
	reported map[string]storage.Revision
}

func (u *unreadable) Report(o *kube.Object, err error) {
	u.mu.Lock()
	known := u.reported[o.Key] == o.Revision
	if !known {
		if u.reported == nil || len(u.reported) >= maxReported {
			u.reported = make(map[string]storage.Revision)
		}
		u.reported[o.Key] = o.Revision
	}
	u.mu.Unlock()
	if !known {
		u.log.Warn("a stored value can't be read and is left out",
			"key", o.Key, "revision", int64(o.Revision), "error", err)
	}
}
