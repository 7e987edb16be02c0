package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// The protobuf forms of OpenAPI documents. Clients ask with an @ for the second dot, which isn't allowed in a media type.
const (
	mediaOpenAPI2 mediaType = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	mediaOpenAPI3 mediaType = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// negotiateOpenAPI is negotiate for documents that there are in JSON and in one form of protobuf.
func negotiateOpenAPI(r *http.Request, protobuf mediaType) (mediaType, error) {
	var headers []string
	for _, header := range r.Header.Values("Accept") {
		headers = append(headers, strings.ReplaceAll(header, "@", "."))
	}
	return negotiate(headers, func(c clause) (mediaType, bool) {
		if c.media == string(protobuf) {
			return protobuf, true
		}
		return acceptJSON(c)
	})
}

// serveOpenAPIRoot serves /openapi/v3: which documents there are, by the hash of their contents.
func (h *handler) serveOpenAPIRoot(w *response, r *http.Request) error {
	if _, err := negotiate(r.Header.Values("Accept"), acceptJSON); err != nil {
		return err
	}
	hashes, err := h.openapi.hashesOf(r.Context(), h.registry.Catalog())
	if err != nil {
		return err
	}
	paths := object{}
	for path, hash := range hashes {
		if path != allDocuments {
			paths[path] = object{"serverRelativeURL": openAPIURL(path, hash)}
		}
	}
	for path, document := range h.aggregator.OpenAPI().Three {
		if paths[path] == nil {
			paths[path] = object{"serverRelativeURL": document.URL}
		}
	}
	body, err := json.Marshal(object{"paths": paths})
	if err != nil {
		return err
	}
	document := newDocument(body)
	if w.notModified(r, mediaJSON, document.hash()) {
		return nil
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // as kube-apiserver answers
	http.ServeContent(w, r, "", h.openapi.hashedAt(), bytes.NewReader(body))
	return nil
}

// serveOpenAPI serves one group version's document. With its hash in the query it can be kept forever;
// with an old one the client is sent to the new.
func (h *handler) serveOpenAPI(w *response, r *http.Request) error {
	media, err := negotiateOpenAPI(r, mediaOpenAPI3)
	if err != nil {
		return err
	}
	catalog, path := h.registry.Catalog(), chi.URLParam(r, "*")
	hashes, err := h.openapi.hashesOf(r.Context(), catalog)
	if err != nil {
		return err
	}
	hash := hashes[path]
	if path == allDocuments {
		return noDocument(w)
	}
	if hash == "" {
		return h.serveForeignOpenAPI(w, r, path)
	}
	if asked := w.query.Get("hash"); asked != "" && asked != hash {
		http.Redirect(w, r, openAPIURL(path, hash), http.StatusMovedPermanently)
		return nil
	}
	doc, err := h.openapi.get(r.Context(), openAPIKey{path, media, hash}, func(to io.Writer) error {
		return writeOpenAPI3(to, media, path, versionAt(catalog, path), h.log)
	})
	if err != nil {
		return err
	}
	if w.query.Get("hash") != "" {
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(time.RFC1123))
	}
	return w.writeOpenAPI(r, doc)
}

// noDocument answers as kube-apiserver does where there's no document: with nothing but the code.
func noDocument(w *response) error {
	w.WriteHeader(http.StatusNotFound)
	return nil
}

// serveForeignOpenAPI serves the document of a group version that another server has: the server does, or if it has none, it's
// one that was made of its version 2.
func (h *handler) serveForeignOpenAPI(w *response, r *http.Request, path string) error {
	others := h.aggregator.OpenAPI()
	document, ok := others.Three[path]
	switch {
	case !ok:
		return noDocument(w)
	case document.JSON == nil:
		w.leaveSeat() // it takes another one
		return h.serveAggregated(w, r, others.Of[path])
	}
	if _, err := negotiate(r.Header.Values("Accept"), acceptJSON); err != nil {
		return err
	}
	return w.writeDocument(r, newDocument(document.JSON), mediaJSON)
}

// serveOpenAPI2 serves /openapi/v2: one document for all group versions.
func (h *handler) serveOpenAPI2(w *response, r *http.Request) error {
	media, err := negotiateOpenAPI(r, mediaOpenAPI2)
	if err != nil {
		return err
	}
	catalog := h.registry.Catalog()
	hashes, err := h.openapi.hashesOf(r.Context(), catalog)
	if err != nil {
		return err
	}
	others := h.aggregator.OpenAPI()
	doc, err := h.openapi.get(r.Context(), openAPIKey{allDocuments, media, hashes[allDocuments] + others.Hash}, func(to io.Writer) error {
		return writeOpenAPI2(to, media, catalog, others.Two, h.log)
	})
	if err != nil {
		return err
	}
	return w.writeOpenAPI(r, doc)
}

func openAPIURL(path, hash string) string {
	return "/openapi/v3/" + path + "?hash=" + url.QueryEscape(hash)
}

// openAPIPath is the path of a group version's document: "apis/example.com/v1".
func openAPIPath(group, version string) string {
	if group == "" {
		return "api/" + version
	}
	return "apis/" + group + "/" + version
}

func versionAt(c *registry.Catalog, path string) registry.Version {
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			if openAPIPath(g.Name, v.Name) == path {
				return v
			}
		}
	}
	return registry.Version{}
}

const (
	// maxOpenAPIKept bounds the documents that are kept, as they are: compressed, to a tenth or less.
	maxOpenAPIKept = 16 << 20
	// maxOpenAPIDocument is how large one may become, compressed. It must be in memory to be compressed.
	maxOpenAPIDocument = 64 << 20
	// allDocuments is used as the path of the document with everything.
	allDocuments = ""
)

// openAPI builds documents when they're first asked for, each alone, and keeps them. Nothing is done at start or when
// a definition changes.
type openAPI struct {
	mu      sync.Mutex                    // guards the following
	catalog *registry.Catalog             // of which the hashes are
	digests map[*registry.Endpoint][]byte // of its endpoints
	hashes  map[string]string             // of the documents by path
	hashed  time.Time                     // when they were worked out
	kept    []*openAPIDocument            // the one not used for longest first
	size    int                           // of all that are kept, in bytes

	hashing  semaphore // to work out the hashes: one request does, and the others wait for its result
	building semaphore // to build a document: one at a time, because that takes memory
}

func newOpenAPI() *openAPI {
	return &openAPI{hashing: make(semaphore, 1), building: make(semaphore, 1)}
}

// openAPIKey says which document, in which form, of which content.
type openAPIKey struct {
	path  string
	media mediaType
	hash  string
}

type openAPIDocument struct {
	openAPIKey
	zipped []byte
	size   int // of what is zipped
	built  time.Time
}

// hashesOf returns the hash of each group version's document by its path, and that of all. The hashes are made of what
// the documents are built from, so that a list of documents doesn't build them. The program's version is in the hash,
// because another version may build other documents of the same definitions. The wait for those that another request works
// out ends with ctx.
func (o *openAPI) hashesOf(ctx context.Context, c *registry.Catalog) (map[string]string, error) {
	if hashes := o.knownHashes(c); hashes != nil {
		return hashes, nil
	}
	if err := o.hashing.acquire(ctx); err != nil {
		return nil, err
	}
	defer o.hashing.leave()
	if hashes := o.knownHashes(c); hashes != nil { // another request worked them out
		return hashes, nil
	}
	return o.hash(ctx, c)
}

// knownHashes returns the hashes if they're those of the catalog, or nil.
func (o *openAPI) knownHashes(c *registry.Catalog) map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.catalog != c {
		return nil
	}
	return o.hashes
}

// hashedAt returns when the hashes were last worked out.
func (o *openAPI) hashedAt() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hashed
}

// hash works out the hashes of a catalog. The caller has hashing, without which nobody writes o.digests.
func (o *openAPI) hash(ctx context.Context, c *registry.Catalog) (map[string]string, error) {
	digests, hashes := map[*registry.Endpoint][]byte{}, map[string]string{}
	program, all := Version().GitVersion, sha256.New()
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			sum := sha256.New()
			io.WriteString(sum, program)
			for _, e := range v.Resources {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				if digests[e] = o.digests[e]; digests[e] == nil {
					digest, err := e.OpenAPIDigest()
					if err != nil {
						return nil, err
					}
					digests[e] = digest[:]
				}
				sum.Write(digests[e])
			}
			hash := sum.Sum(nil)
			all.Write(hash)
			hashes[openAPIPath(g.Name, v.Name)] = strings.ToUpper(hex.EncodeToString(hash))
		}
		if path := "apis/" + g.Name; hasPublished(publishedOne + path) {
			hashes[path] = fixedHash(program)
		}
	}
	for _, path := range publishedRoots {
		hashes[path] = fixedHash(program)
	}
	hashes[allDocuments] = strings.ToUpper(hex.EncodeToString(all.Sum(nil)))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.catalog, o.digests, o.hashes, o.hashed = c, digests, hashes, time.Now()
	return hashes, nil
}

// fixedHash is that of a document that depends on nothing but the program.
func fixedHash(program string) string {
	sum := sha256.Sum256([]byte(program))
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// get returns a document that is kept, or has it built.
func (o *openAPI) get(ctx context.Context, key openAPIKey, build func(io.Writer) error) (*openAPIDocument, error) {
	if doc := o.find(key); doc != nil {
		return doc, nil
	}
	if err := o.building.acquire(ctx); err != nil {
		return nil, err
	}
	defer o.building.leave()
	if doc := o.find(key); doc != nil { // another request built it
		return doc, nil
	}
	p := packer{ctx: ctx}
	p.zip, _ = gzip.NewWriterLevel(&p.zipped, gzip.BestSpeed) // the level is a good one
	if err := build(&p); err != nil {
		return nil, err
	}
	if err := p.zip.Close(); err != nil {
		return nil, err
	}
	doc := &openAPIDocument{openAPIKey: key, zipped: bytes.Clone(p.zipped.Bytes()), size: p.size, built: time.Now()}
	o.keep(doc)
	return doc, nil
}

func (o *openAPI) find(key openAPIKey) *openAPIDocument {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.kept, func(doc *openAPIDocument) bool { return doc.openAPIKey == key })
	if i < 0 {
		return nil
	}
	doc := o.kept[i]
	o.kept = append(slices.Delete(o.kept, i, i+1), doc)
	return doc
}

// keep keeps a document instead of what it replaces, and of those not used for longest.
func (o *openAPI) keep(doc *openAPIDocument) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(doc.zipped) > maxOpenAPIKept {
		return
	}
	o.kept = append(o.kept, doc)
	o.size += len(doc.zipped)
	drop := func(old *openAPIDocument) bool {
		outdated := old != doc && old.path == doc.path && old.media == doc.media
		if outdated || old != doc && o.size > maxOpenAPIKept {
			o.size -= len(old.zipped)
			return true
		}
		return false
	}
	o.kept = slices.DeleteFunc(o.kept, drop)
}

// collect registers the metric of what is kept.
func (o *openAPI) collect(r *prometheus.Registry) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "apiserver_lite_openapi_bytes",
		Help: "OpenAPI documents that are kept, compressed.",
	}, func() float64 {
		o.mu.Lock()
		defer o.mu.Unlock()
		return float64(o.size)
	}))
}

// packer compresses what it's given, until its request ends.
type packer struct {
	// ctx is that of the request which asks for the document. It's in the struct because the functions that build
	// documents know an io.Writer only: the write after its end fails, and so the build ends.
	ctx    context.Context
	zipped bytes.Buffer
	zip    *gzip.Writer
	size   int
}

func (p *packer) Write(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	if p.zipped.Len() > maxOpenAPIDocument {
		return 0, errOpenAPITooLarge()
	}
	p.size += len(b)
	return p.zip.Write(b)
}

func errOpenAPITooLarge() error {
	return statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"the definitions are too large for a document in this form: ask for JSON, below /openapi/v3")
}

// unzip writes a document as it was.
func (d *openAPIDocument) unzip(to io.Writer) error {
	zip, err := gzip.NewReader(bytes.NewReader(d.zipped))
	if err != nil {
		return err
	}
	_, err = io.Copy(to, zip)
	return err
}

// writeOpenAPI answers with a document, or with 304 if the client has it.
func (w *response) writeOpenAPI(r *http.Request, doc *openAPIDocument) error {
	if w.notModified(r, doc.media, doc.hash) {
		return nil
	}
	header := w.Header()
	header.Set("Content-Type", string(doc.media))
	vary(header, "Accept, Accept-Encoding")
	header.Set("Accept-Ranges", "bytes")
	header.Set("Last-Modified", doc.built.UTC().Format(http.TimeFormat))
	pretty := doc.media == mediaJSON && w.wantsPretty(r)
	if !pretty && (r.Header.Get("Range") != "" || r.Header.Get("If-Modified-Since") != "") {
		if err := w.enterLarge(r.Context()); err != nil {
			return err
		}
		var whole bytes.Buffer
		if err := doc.unzip(&whole); err != nil {
			return err
		}
		http.ServeContent(w, r, "", doc.built, bytes.NewReader(whole.Bytes()))
		return nil
	}
	if !pretty && doc.size > largeAnswer && acceptsGzip(r.Header.Values("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		header.Set("ETag", strings.TrimSuffix(header.Get("ETag"), `"`)+gzipTag+`"`)
		header.Set("Content-Length", strconv.Itoa(len(doc.zipped)))
		w.WriteHeader(http.StatusOK)
		_, err := w.Write(doc.zipped)
		return err
	}
	if pretty {
		return w.writeStream(r, doc.media, doc.unzip)
	}
	header.Set("Content-Length", strconv.Itoa(doc.size))
	if doc.media == mediaJSON {
		return w.writeStream(r, doc.media, doc.unzip)
	}
	w.WriteHeader(http.StatusOK)
	return doc.unzip(w)
}
