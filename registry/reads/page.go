package reads

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	urlpath "path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

func parseToken(s string) (*registry.Token, error) {
	bad := func(why any) error {
		return registry.BadRequest("invalid continue token: continue key is not valid: %v", why)
	}
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, bad(err)
	}
	t := &registry.Token{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, bad(clip.Text(err.Error()))
	}
	start := "/" + strings.TrimPrefix(t.Start, "/")
	switch {
	case t.Version != registry.TokenVersion:
		return nil, bad("server does not recognize this encoded version " + clip.Text(t.Version))
	case t.Revision == 0:
		return nil, bad("incorrect encoded start resourceVersion (version " + registry.TokenVersion + ")")
	case t.Start == "":
		return nil, bad("encoded start key empty (version " + registry.TokenVersion + ")")
	case urlpath.Clean(start) != start:
		return nil, bad(clip.Text(t.Start))
	}
	t.Start = start[1:]
	return t, nil
}

// resume makes the list go on where another page ended.
func (l *List) resume(ctx context.Context, t *registry.Token) error {
	l.token = t
	if t.By != l.sorting.String() || t.By != "" && t.Revision < 0 {
		return registry.BadRequest("invalid continue token: it's of a list that is sorted by %q, and not by %q", clip.Text(t.By), clip.Text(l.sorting.String()))
	}
	if t.By == "" {
		l.start = max(l.start, l.collection+t.Start)
	}
	e := l.endpoint
	if t.Revision < 0 {
		return l.freshest(ctx, listOptions{})
	}
	rev := storage.Revision(t.Revision)
	if rev <= e.Res.Registry.Cacher.Position() {
		return l.at(ctx, rev)
	}
	// A token of ours is never newer than the caches. One that is may still be of a version that they are about to have.
	newest, err := e.Res.Registry.Store.Barrier(ctx)
	if err != nil {
		return e.Fail("", err)
	}
	if rev > newest {
		return apierrors.NewResourceExpired(fmt.Sprintf("the continue token is for resource version %d, which this store doesn't have (it is at %d): "+
			"start a new list without it", rev, newest))
	}
	if err := e.WaitFor(ctx, rev); err != nil {
		return err
	}
	return l.at(ctx, rev)
}

// cut ends the list after limit objects. If others follow, whether they're selected or not, the list gets a token.
func (l *List) cut(ctx context.Context, limit int64) error {
	if l.snapshot != nil && limit >= int64(l.snapshot.Len()) {
		return nil
	}
	var n int64
	for o, err := range l.matching(ctx) {
		if err != nil {
			return l.Failed(err)
		}
		l.end = o.Key
		if l.snapshot != nil {
			l.Page = append(l.Page, o)
		}
		if n++; n == limit {
			return l.more(ctx)
		}
	}
	return nil
}

// more notes that there is another page if something follows. That begins just after the last key.
func (l *List) more(ctx context.Context) error {
	if l.single() {
		return nil
	}
	rest, err := l.following(ctx)
	if err != nil || rest == 0 {
		return l.Failed(err)
	}
	t := registry.Token{Version: registry.TokenVersion, Revision: int64(l.Revision()), Start: strings.TrimPrefix(l.end, l.collection) + "\x00"}
	l.continues = t.String()
	if l.snapshot != nil {
		l.endpoint.Res.Cache.Keep(l.snapshot)
	}
	if l.selectsAll() {
		l.remaining = rest
	}
	return nil
}

// following counts what comes after the last key of the page. With a selector, one object is enough.
func (l *List) following(ctx context.Context) (int, error) {
	rest := storage.Range{Prefix: l.prefix, From: l.end + "\x00"}
	switch {
	case l.snapshot != nil && l.selectsAll():
		return l.snapshot.Count(rest), nil
	case l.snapshot != nil:
		for range l.snapshot.In(rest) {
			return 1, nil
		}
		return 0, nil
	}
	return l.endpoint.Res.Registry.Store.Count(ctx, rest, l.revision)
}

// Failed is the Status for an error of reading the list.
func (l *List) Failed(err error) error {
	if u := (*registry.Unconverted)(nil); errors.As(err, &u) {
		return l.endpoint.Unlisted(u)
	}
	return l.endpoint.Failed(registry.Subject{Revision: l.revision, Token: l.token}, err)
}
