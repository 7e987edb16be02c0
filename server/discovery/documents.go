package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

const (
	// maxKept bounds the documents that are kept, as they are: OpenAPI's are compressed, to a tenth or less.
	maxKept = 16 << 20
	// maxDocument is how large one may become, compressed. It must be in memory to be compressed.
	maxDocument = 64 << 20
)

// key says which document, in which form, of which state.
type key struct {
	path     string
	encoding form.Encoding
	of       any // what can be compared, and is another after each change
}

// Document is something that clients fetch again and again, and that seldom changes.
type Document struct {
	key   key
	Hash  string // of what it has, or is made of
	Size  int    // in bytes
	Built time.Time

	body []byte
}

// Plain returns a document of a body.
func Plain(body []byte) *Document {
	sum := sha256.Sum256(body)
	return &Document{body: body, Size: len(body), Hash: strings.ToUpper(hex.EncodeToString(sum[:16]))}
}

// Raw returns the body as it's kept: of OpenAPI's documents it's compressed.
func (d *Document) Raw() []byte { return d.body }

// Unzip writes the body of a document of OpenAPI.
func (d *Document) Unzip(to io.Writer) error {
	zip, err := gzip.NewReader(bytes.NewReader(d.body))
	if err != nil {
		return err
	}
	_, err = io.Copy(to, zip)
	return err
}

// documents builds documents when they're first asked for, each alone, and keeps them.
type documents struct {
	building *semaphore.Weighted // one request builds; the others wait for what it builds, because that takes memory

	mu   sync.Mutex  // guards the following
	kept []*Document // the one not used for longest first
	size int         // of all that are kept, in bytes
}

func newDocuments() *documents { return &documents{building: semaphore.NewWeighted(1)} }

// get returns a document that is kept, or has it built. The wait for one that another request builds ends with ctx.
func (d *documents) get(ctx context.Context, k key, build func() (*Document, error)) (*Document, error) {
	if doc := d.find(k); doc != nil {
		return doc, nil
	}
	if err := d.building.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer d.building.Release(1)
	if doc := d.find(k); doc != nil { // another request built it
		return doc, nil
	}
	doc, err := build()
	if err != nil {
		return nil, err
	}
	doc.key = k
	d.keep(doc)
	return doc, nil
}

func (d *documents) find(k key) *Document {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.kept, func(doc *Document) bool { return doc.key == k })
	if i < 0 {
		return nil
	}
	doc := d.kept[i]
	d.kept = append(slices.Delete(d.kept, i, i+1), doc)
	return doc
}

// keep keeps a document instead of what it replaces, and of those not used for longest.
func (d *documents) keep(doc *Document) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(doc.body) > maxKept {
		return
	}
	d.kept = append(d.kept, doc)
	d.size += len(doc.body)
	drop := func(old *Document) bool {
		outdated := old != doc && old.key.path == doc.key.path && old.key.encoding == doc.key.encoding
		if outdated || old != doc && d.size > maxKept {
			d.size -= len(old.body)
			return true
		}
		return false
	}
	d.kept = slices.DeleteFunc(d.kept, drop)
}

// bytes returns how much is kept.
func (d *documents) bytes() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return float64(d.size)
}

// pack returns a document of what write writes, compressed. Its hash is that of what it's made of.
func pack(ctx context.Context, hash string, write func(to io.Writer) error) (*Document, error) {
	p := packer{ctx: ctx}
	p.zip, _ = gzip.NewWriterLevel(&p.zipped, gzip.BestSpeed) // the level is a good one
	if err := write(&p); err != nil {
		return nil, err
	}
	if err := p.zip.Close(); err != nil {
		return nil, err
	}
	return &Document{body: bytes.Clone(p.zipped.Bytes()), Hash: hash, Size: p.size, Built: time.Now()}, nil
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
	if p.zipped.Len() > maxDocument {
		return 0, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
			Message: "the definitions are too large for a document in this form: ask for JSON, below /openapi/v3",
		}}
	}
	p.size += len(b)
	return p.zip.Write(b)
}
