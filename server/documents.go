package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/aggregator"
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

// documented is what the discovery documents are about: a catalog, by its hash, and what other servers have.
type documented struct {
	catalog string
	others  aggregator.State
}

// documents keeps the discovery documents of one state. They're built when they're first asked for, not at start or
// when a definition changes.
type documents struct {
	building semaphore // one request builds; the others wait for what it builds

	mu    sync.Mutex // guards the following
	of    documented
	built map[string]*document
}

func newDocuments() *documents { return &documents{building: make(semaphore, 1)} }

// get returns the documents of a state by their names. The wait for those that another request builds ends with ctx.
func (d *documents) get(ctx context.Context, of documented, build func() (map[string]*document, error)) (map[string]*document, error) {
	if built := d.find(of); built != nil {
		return built, nil
	}
	if err := d.building.acquire(ctx); err != nil {
		return nil, err
	}
	defer d.building.leave()
	if built := d.find(of); built != nil { // another request built them
		return built, nil
	}
	built, err := build()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of, d.built = of, built
	return built, nil
}

// find returns the documents if they're those of the state, or nil.
func (d *documents) find(of documented) map[string]*document {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != of {
		return nil
	}
	return d.built
}

// writeDocument answers with the document, or with 304 if the client has it.
func (w *response) writeDocument(r *http.Request, d *document, media mediaType) error {
	vary(w.Header(), "Accept")
	if len(d.body) > largeAnswer { // it may be compressed
		w.Header().Add("Vary", "Accept-Encoding")
	}
	if w.notModified(r, mediaJSON, d.hash()) {
		return nil
	}
	body, end := d.body, ""
	if strings.HasPrefix(string(media), string(mediaJSON)) {
		body, end = w.laidOut(r, body)
	}
	w.Header().Set("Content-Type", string(media))
	return w.writeBody(r, http.StatusOK, body, end)
}
