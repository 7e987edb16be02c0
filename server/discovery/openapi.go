package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// allDocuments is used as the path of the document with everything.
const allDocuments = ""

// Path is that of a group version, without the slash before it: "apis/example.com/v1". Its document of version 3 is found by it, too.
func Path(of schema.GroupVersion) string {
	if of.Group == "" {
		return Core + "/" + of.Version
	}
	return Groups + "/" + of.Group + "/" + of.Version
}

func pathOf(g registry.Group, v registry.Version) string {
	return Path(schema.GroupVersion{Group: g.Name, Version: v.Name})
}

func versionAt(c *registry.Catalog, path string) (v registry.Version, found bool) {
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			if pathOf(g, v) == path {
				return v, true
			}
		}
	}
	return v, false
}

func openAPIURL(path, hash string) string {
	return "/openapi/v3/" + path + "?hash=" + url.QueryEscape(hash)
}

// OpenAPIRoot returns the document of which documents of version 3 there are, by the hash of their contents.
func (d *Discovery) OpenAPIRoot(ctx context.Context) (*Document, error) {
	hashes, at, err := d.hashes.of(ctx, d.Registry.Catalog())
	if err != nil {
		return nil, err
	}
	paths := object{}
	for path, hash := range hashes {
		if path != allDocuments {
			paths[path] = object{"serverRelativeURL": openAPIURL(path, hash)}
		}
	}
	for path, document := range d.Others.OpenAPI().Three {
		if paths[path] == nil {
			paths[path] = object{"serverRelativeURL": document.URL}
		}
	}
	body, err := json.Marshal(object{"paths": paths})
	doc := Plain(body)
	doc.Built = at
	return doc, err
}

// OpenAPI3 is a document of version 3: a path's.
type OpenAPI3 struct {
	Hash, URL string
	path      string
	catalog   *registry.Catalog
	of        *Discovery
}

// OpenAPI3 finds the document of a path; nil if this server doesn't have it.
func (d *Discovery) OpenAPI3(ctx context.Context, path string) (*OpenAPI3, error) {
	catalog := d.Registry.Catalog()
	hashes, _, err := d.hashes.of(ctx, catalog)
	if hash := hashes[path]; hash != "" && path != allDocuments {
		return &OpenAPI3{hash, openAPIURL(path, hash), path, catalog, d}, nil
	}
	return nil, err
}

// Document returns the document itself.
func (o *OpenAPI3) Document(ctx context.Context, encoding form.Encoding) (*Document, error) {
	d := o.of
	return d.openAPI.get(ctx, key{o.path, encoding, o.Hash}, func() (*Document, error) {
		return pack(ctx, o.Hash, func(to io.Writer) error {
			v, _ := versionAt(o.catalog, o.path)
			return d.writeOpenAPI3(to, encoding, o.path, v)
		})
	})
}

// OpenAPI2 returns the document of version 2: one for all group versions, those of other servers, too.
func (d *Discovery) OpenAPI2(ctx context.Context, encoding form.Encoding) (*Document, error) {
	catalog := d.Registry.Catalog()
	hashes, _, err := d.hashes.of(ctx, catalog)
	if err != nil {
		return nil, err
	}
	others := d.Others.OpenAPI()
	hash := hashes[allDocuments] + others.Hash
	return d.openAPI.get(ctx, key{allDocuments, encoding, hash}, func() (*Document, error) {
		return pack(ctx, hash, func(to io.Writer) error { return d.writeOpenAPI2(to, encoding, catalog, others.Two) })
	})
}

// hashes are those of OpenAPI's documents. They're made of what the documents are built from, so that a list of documents doesn't
// build them. The program's version is in the hash, because another version may build other documents of the same definitions.
type hashes struct {
	program string
	hashing *semaphore.Weighted // one request works them out, and the others wait for its result

	mu      sync.Mutex                    // guards the following
	catalog *registry.Catalog             // of which they are
	digests map[*registry.Endpoint][]byte // of its endpoints
	byPath  map[string]string
	hashed  time.Time // when they were worked out
}

func newHashes(program string) *hashes {
	return &hashes{program: program, hashing: semaphore.NewWeighted(1)}
}

// of returns the hash of each document of version 3 by its path, and that of all, and when they were worked out. The wait for those
// that another request works out ends with ctx.
func (h *hashes) of(ctx context.Context, c *registry.Catalog) (byPath map[string]string, at time.Time, err error) {
	if byPath, at = h.known(c); byPath != nil {
		return byPath, at, nil
	}
	if err := h.hashing.Acquire(ctx, 1); err != nil {
		return nil, at, err
	}
	defer h.hashing.Release(1)
	if byPath, at = h.known(c); byPath != nil { // another request worked them out
		return byPath, at, nil
	}
	return h.work(ctx, c)
}

// known returns the hashes if they're those of the catalog, or nil.
func (h *hashes) known(c *registry.Catalog) (map[string]string, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.catalog != c {
		return nil, time.Time{}
	}
	return h.byPath, h.hashed
}

// work works out the hashes of a catalog. The caller has hashing, without which nobody writes h.digests.
func (h *hashes) work(ctx context.Context, c *registry.Catalog) (map[string]string, time.Time, error) {
	digests, byPath, none := map[*registry.Endpoint][]byte{}, map[string]string{}, time.Time{}
	all, fixed := sha256.New(), sha256.Sum256([]byte(h.program))
	text := func(sum []byte) string { return strings.ToUpper(hex.EncodeToString(sum)) }
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			sum := sha256.New()
			io.WriteString(sum, h.program)
			for _, e := range v.Resources {
				if err := ctx.Err(); err != nil {
					return nil, none, err
				}
				if digests[e] = h.digests[e]; digests[e] == nil {
					digest, err := reads.Of(e).OpenAPIDigest()
					if err != nil {
						return nil, none, err
					}
					digests[e] = digest[:]
				}
				sum.Write(digests[e])
			}
			hash := sum.Sum(nil)
			all.Write(hash)
			byPath[pathOf(g, v)] = text(hash)
		}
		if path := Groups + "/" + g.Name; hasPublished(publishedOne + path) {
			byPath[path] = text(fixed[:])
		}
	}
	for _, path := range publishedRoots { // which depend on nothing but the program
		byPath[path] = text(fixed[:])
	}
	byPath[allDocuments] = text(all.Sum(nil))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.catalog, h.digests, h.byPath, h.hashed = c, digests, byPath, time.Now()
	return byPath, h.hashed, nil
}
