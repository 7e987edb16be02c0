package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// document is something that clients fetch again and again, and that changes only with the catalog.
type document struct {
	body []byte
	etag string // quoted
}

func newDocument(body []byte) *document {
	sum := sha256.Sum256(body)
	return &document{body: body, etag: `"` + strings.ToUpper(hex.EncodeToString(sum[:16])) + `"`}
}

func (d *document) hash() string { return strings.Trim(d.etag, `"`) }

// documents keeps the discovery documents of one catalog. They're built when they're first asked for, not at start or
// when a definition changes.
type documents struct {
	building semaphore // one request builds; the others wait for what it builds

	mu    sync.Mutex // guards the following
	of    string     // the catalog's hash
	built map[string]*document
}

func newDocuments() *documents { return &documents{building: make(semaphore, 1)} }

// get returns the documents of a catalog by their names. The wait for those that another request builds ends with ctx.
func (d *documents) get(ctx context.Context, c *registry.Catalog, build func(*registry.Catalog) (map[string]*document, error)) (map[string]*document, error) {
	if built := d.find(c); built != nil {
		return built, nil
	}
	if err := d.building.acquire(ctx); err != nil {
		return nil, err
	}
	defer d.building.leave()
	if built := d.find(c); built != nil { // another request built them
		return built, nil
	}
	built, err := build(c)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of, d.built = c.Hash, built
	return built, nil
}

// find returns the documents if they're those of the catalog, or nil.
func (d *documents) find(c *registry.Catalog) map[string]*document {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != c.Hash {
		return nil
	}
	return d.built
}

// writeDocument answers with the document, or with 304 if the client has it.
func (w *response) writeDocument(r *http.Request, d *document, media mediaType) error {
	w.Header().Add("Vary", "Accept")
	if len(d.body) > largeAnswer { // it may be compressed
		w.Header().Add("Vary", "Accept-Encoding")
	}
	if w.notModified(r, mediaJSON, d.hash()) {
		return nil
	}
	body := d.body
	if strings.HasPrefix(string(media), string(mediaJSON)) && w.wantsPretty(r) {
		var out bytes.Buffer
		in := newIndenter(&out)
		in.Write(body)
		in.Close()
		body = out.Bytes()
	}
	w.Header().Set("Content-Type", string(media))
	return w.writeBody(r, http.StatusOK, body)
}
