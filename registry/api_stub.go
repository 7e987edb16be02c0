package registry

import (
	"context"
	"io"
	"log/slog"
	"net/url"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// STUB: signatures only.

// Options of a Registry.
type Options struct {
	Store                *storage.Store
	Cacher               *cacher.Cacher
	AutoCreateNamespaces bool
	Log                  *slog.Logger
}

type Registry struct{}

func New(o Options) *Registry { panic("stub") }

// Run primes the definitions and runs the controllers (definitions, namespaces) until ctx ends; waits for them.
func (r *Registry) Run(ctx context.Context) error { panic("stub") }

// Ready is closed when every stored definition is served and the initial namespaces exist.
func (r *Registry) Ready() <-chan struct{} { panic("stub") }

// Catalog is what is served at one instant; immutable, replaced atomically when a definition changes.
type Catalog struct {
	Groups []Group // sorted: core ("") first, then by name
	Hash   string  // changes whenever the content does (ETag of discovery)
}

type Group struct {
	Name     string
	Versions []Version // in preference order (GA > beta > alpha, higher first)
}

type Version struct {
	Name      string
	Resources []*Endpoint
}

func (r *Registry) Catalog() *Catalog { panic("stub") }

// Lookup finds a served resource. When it isn't there, it's looked for again after a barrier, so that 404 is never stale.
func (r *Registry) Lookup(ctx context.Context, group, version, plural string) (*Endpoint, error) { panic("stub") }

// Endpoint is a resource at one served version.
type Endpoint struct {
	Group, Version, Kind, ListKind, Plural, Singular string
	Namespaced                                      bool
	ShortNames, Categories, Verbs                   []string
	Subresources                                    []string // "status", "finalize"
}

// Result is the answer to a request for one object.
type Result struct {
	Object   []byte   // JSON, as the client sees it
	Created  bool     // 201
	Warnings []string // one Warning header each
}

func (e *Endpoint) Get(ctx context.Context, namespace, name, subresource string, q url.Values) (*Result, error)                { panic("stub") }
func (e *Endpoint) Create(ctx context.Context, namespace string, q url.Values, body []byte) (*Result, error)                 { panic("stub") }
func (e *Endpoint) Update(ctx context.Context, namespace, name, subresource string, q url.Values, body []byte) (*Result, error) { panic("stub") }

// Patch: mediaType is without parameters.
func (e *Endpoint) Patch(ctx context.Context, namespace, name, subresource, mediaType string, q url.Values, patch []byte) (*Result, error) { panic("stub") }

// Delete: body may be empty. Result.Object is a Status or the object.
func (e *Endpoint) Delete(ctx context.Context, namespace, name string, q url.Values, body []byte) (*Result, error) { panic("stub") }

// List is a list that is written without being built.
type List struct{}

func (e *Endpoint) List(ctx context.Context, namespace string, q url.Values) (*List, error) { panic("stub") }
func (l *List) WriteTo(w io.Writer) (int64, error)                                            { panic("stub") }

// Watch opens a watch. name is "" or that of the URL. The caller serves the source, which closes it.
func (e *Endpoint) Watch(ctx context.Context, namespace, name string, q url.Values) (*cacher.Cursor, watchstream.Options, error) { panic("stub") }
