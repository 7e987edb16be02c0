package aggregator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	openapi "k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	// openAPITimeout is how long a server has for one of its OpenAPI documents.
	openAPITimeout = time.Minute
	// maxOpenAPI bounds one, in bytes: several times what Kubernetes' own takes.
	maxOpenAPI = 32 << 20
	// maxPaths bounds the group versions of which a server has documents of version 3.
	maxPaths = 1000
)

// openAPIUser is who asks for OpenAPI documents.
var openAPIUser user.Info = &user.DefaultInfo{Name: "system:aggregator"}

// described is what a server has of OpenAPI. It never changes.
type described struct {
	two     *spec.Swagger // what is below the server's own path; nil for none
	twoHash string        // of two, in which the server's ETag is
	etag    string        // of two's document; "" for none
	three   map[string]Document
}

// Document is an OpenAPI document of version 3.
type Document struct {
	URL string // in which its hash is, relative to the server
	// JSON is the document if it was made here, because the server has none. Otherwise the server is asked.
	JSON []byte
}

// refreshOpenAPI asks the server for its OpenAPI documents. What it can't say stays as it was.
func (b *Backend) refreshOpenAPI(ctx context.Context) error {
	known := b.openapi.Load()
	if known == nil {
		known = &described{}
	}
	next := *known
	err := errors.Join(b.askTwo(ctx, &next), b.askThree(ctx, &next))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.openapi.Store(&next)
	if next.twoHash != known.twoHash || !sameURLs(next.three, known.three) {
		b.aggregator.news.Add(1)
	}
	return err
}

func sameURLs(x, y map[string]Document) bool {
	if len(x) != len(y) {
		return false
	}
	for path, d := range x {
		if y[path].URL != d.URL {
			return false
		}
	}
	return true
}

// askTwo asks for the document of version 2. A server without one has nothing in the merged document.
func (b *Backend) askTwo(ctx context.Context, d *described) error {
	header := http.Header{"Accept": {"application/json"}}
	if d.etag != "" {
		header.Set("If-None-Match", d.etag)
	}
	got, err := b.ask(ctx, "/openapi/v2", openAPIUser, header, maxOpenAPI, openAPITimeout)
	switch {
	case err != nil:
		return err
	case got.code == http.StatusNotModified && d.etag != "":
		return nil
	case got.code == http.StatusNotFound:
		d.two, d.twoHash, d.etag = nil, "", ""
		return nil
	case got.code != http.StatusOK:
		return fmt.Errorf("failed to retrieve openAPI spec, http error: %d", got.code)
	}
	all := &spec.Swagger{}
	if err := all.UnmarshalJSON(got.body); err != nil {
		return err
	}
	sum := sha256.Sum256(got.body)
	d.two, d.twoHash, d.etag = openapi.FilterSpecByPathsWithoutSideEffects(all, []string{b.ownPath() + "/"}), hex.EncodeToString(sum[:]), got.header.Get("ETag")
	return nil
}

// askThree asks which documents of version 3 there are. Of a server that has none, one is made of its version 2.
func (b *Backend) askThree(ctx context.Context, d *described) error {
	got, err := b.ask(ctx, "/openapi/v3", openAPIUser, http.Header{"Accept": {"application/json"}}, maxOpenAPI, openAPITimeout)
	switch {
	case err != nil:
		return err
	case got.code == http.StatusNotFound:
		return b.convert(d)
	case got.code != http.StatusOK:
		return fmt.Errorf("could not get list of group versions for APIService %s: %d", b.Name, got.code)
	}
	root := &handler3.OpenAPIV3Discovery{}
	if err := json.Unmarshal(got.body, root); err != nil {
		return err
	}
	d.three = map[string]Document{}
	for path, at := range root.Paths {
		if !strings.HasPrefix(at.ServerRelativeURL, "/openapi/v3/") || len(d.three) == maxPaths {
			continue // it would lead clients elsewhere
		}
		d.three[path] = Document{URL: at.ServerRelativeURL}
	}
	return nil
}

// convert makes the document of version 3 for a server that has version 2 alone.
func (b *Backend) convert(d *described) error {
	d.three = nil
	if d.two == nil {
		return nil
	}
	body, err := json.Marshal(openapiconv.ConvertV2ToV3(d.two))
	if err != nil {
		return err
	}
	path := strings.TrimPrefix(b.ownPath(), "/")
	sum := sha256.Sum256(body)
	d.three = map[string]Document{path: {URL: "/openapi/v3/" + path + "?hash=" + strings.ToUpper(hex.EncodeToString(sum[:])), JSON: body}}
	return nil
}

// OpenAPI is what the servers have of OpenAPI, at one moment.
type OpenAPI struct {
	// Hash changes when the documents of version 2 do.
	Hash string
	// Two are the documents of version 2, each cut to the server's own group version, in the order in which they're merged.
	// They're shared.
	Two []*spec.Swagger
	// Three are the documents of version 3 by their paths, as apis/example.com/v1.
	Three map[string]Document
	// Of are whose those are.
	Of map[string]*Route
}

// OpenAPI returns what the servers have.
func (a *Aggregator) OpenAPI() (all OpenAPI) {
	t := a.current()
	if len(t.remote) == 0 {
		return all
	}
	all.Three, all.Of = map[string]Document{}, map[string]*Route{}
	hash := sha256.New()
	for _, r := range t.byPriority() {
		d := r.openapi.Load()
		if d == nil {
			continue
		}
		if d.two != nil {
			all.Two = append(all.Two, d.two)
			hash.Write([]byte(r.Name + d.twoHash))
		}
		for path, document := range d.three {
			if own := strings.TrimPrefix(r.ownPath(), "/"); all.Of[path] == nil || path == own {
				all.Three[path], all.Of[path] = document, r
			}
		}
	}
	if len(all.Two) > 0 {
		all.Hash = hex.EncodeToString(hash.Sum(nil))
	}
	return all
}
