package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	urlpath "path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// token says where a page of a list begins, in the form of kube-apiserver's tokens. It isn't signed, and the server
// remembers nothing for it. That is safe: whatever a client makes up, it names a place in the collection that it lists.
type token struct {
	Version string `json:"v"`
	// Revision is that of all pages, or negative for the newest there is.
	Revision int64 `json:"rv"`
	// Start is the key from which the page goes on, relative to the collection.
	Start string `json:"start"`
}

const (
	tokenVersion = "meta.k8s.io/v1"
	// newest is the revision of a token whose page needn't be of one revision with those before.
	newest = -1
)

func (t token) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and a number always encode
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseToken(s string) (*token, error) {
	bad := func(why string) error {
		return badRequest("invalid continue token: %s; use metadata.continue of the list before as it is, or start a new list", why)
	}
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, bad("it isn't unpadded URL-safe base64")
	}
	t := &token{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, bad("it isn't JSON of the right form")
	}
	start := "/" + strings.TrimPrefix(t.Start, "/")
	switch {
	case t.Version != tokenVersion:
		return nil, bad("it is of another version than " + tokenVersion)
	case t.Revision == 0:
		return nil, bad("it names no resource version")
	case t.Start == "":
		return nil, bad("it names no start")
	case urlpath.Clean(start) != start:
		return nil, bad("its start isn't a key")
	}
	t.Start = start[1:]
	return t, nil
}

// resume makes the list go on where another page ended.
func (l *List) resume(ctx context.Context, t *token) error {
	l.token = t
	l.start = max(l.start, l.collection+t.Start)
	e := l.endpoint
	if t.Revision < 0 {
		return l.freshest(ctx, listOptions{})
	}
	rev := storage.Revision(t.Revision)
	if rev <= e.res.registry.cacher.Position() {
		return l.at(ctx, rev)
	}
	// A token of ours is never newer than the caches. One that is may still be of a version that they are about to have.
	newest, err := e.res.registry.store.Barrier(ctx)
	if err != nil {
		return e.fail("", err)
	}
	if rev > newest {
		return apierrors.NewResourceExpired(fmt.Sprintf("the continue token is for resource version %d, which this store doesn't have (it is at %d): "+
			"start a new list without it", rev, newest))
	}
	if err := e.waitFor(ctx, rev); err != nil {
		return err
	}
	return l.at(ctx, rev)
}

// cut ends the list after limit objects. If more follow, the list gets a token. It looks for the first of those, so that
// no page is empty.
func (l *List) cut(ctx context.Context, limit int64) error {
	if l.snapshot != nil && limit >= int64(l.snapshot.Len()) {
		return nil
	}
	var n int64
	for o, err := range l.matching(ctx) {
		if err != nil {
			return l.failed(err)
		}
		if n++; n > limit {
			return l.more(ctx, o.Key)
		}
		l.end = o.Key
		if l.snapshot != nil {
			l.page = append(l.page, o)
		}
	}
	return nil
}

// more notes that there is another page. next is the key of its first object.
func (l *List) more(ctx context.Context, next string) error {
	// The next page begins just after the last key.
	t := token{Version: tokenVersion, Revision: int64(l.Revision()), Start: strings.TrimPrefix(l.end, l.collection) + "\x00"}
	l.continues = t.String()
	if l.snapshot != nil {
		l.endpoint.res.cache.Keep(l.snapshot)
	}
	if !l.selectsAll() {
		return nil
	}
	rest := storage.Range{Prefix: l.prefix, From: next}
	if l.snapshot != nil {
		l.remaining = l.snapshot.Count(rest)
		return nil
	}
	var err error
	l.remaining, err = l.endpoint.res.registry.store.Count(ctx, rest, l.revision)
	return l.failed(err)
}

// failed is the Status for an error of reading the list.
func (l *List) failed(err error) error {
	return l.endpoint.failed(subject{revision: l.revision, token: l.token}, err)
}
