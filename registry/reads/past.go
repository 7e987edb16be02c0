package reads

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Reads of the past: by a version, and by the clock on the wall.

// located returns a query that names by its version what it asks for by at, an instant, and a warning if the version is only about that of the
// instant. Other queries stay as they are. What isn't stored has no past, and is shown as it is.
func (e Reader) located(q url.Values) (url.Values, []string, error) {
	switch {
	case Flag(q, "history"):
		return nil, nil, registry.BadRequest("history is of one object, and isn't watched: get it by its name")
	case e.unstored():
		return withoutPlace(q), nil, nil
	case !q.Has("at"):
		return q, nil, nil
	}
	located := maps.Clone(q)
	delete(located, "at")
	if q.Get("continue") != "" { // which has the version of the first page
		return located, nil, nil
	}
	if q.Get("resourceVersion") != "" || q.Get("resourceVersionMatch") != "" {
		return nil, nil, registry.BadRequest("at and resourceVersion both say which state is meant: leave one out")
	}
	rev, lag, err := e.revisionAt(q.Get("at"))
	if err != nil {
		return nil, nil, err
	}
	located.Set("resourceVersion", rev.String())
	if !Flag(q, "watch") {
		located.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	}
	if lag > exactly {
		return located, []string{fmt.Sprintf("what was written in the last %v before at=%s may be missing: it isn't known when exactly that was", lag.Round(time.Second), clip.Text(q.Get("at")))}, nil
	}
	return located, nil, nil
}

// exactly is how much a state may be older than what was asked for by the wall clock without a warning: two looks at it.
const exactly = 2 * time.Second

// revisionAt returns the newest revision that was written by an instant for certain. Later ones may have been written up to lag before it.
func (e Reader) revisionAt(text string) (rev storage.Revision, lag time.Duration, err error) {
	r := e.Res.Registry
	instant, err := time.Parse(time.RFC3339, strings.Replace(text, " ", "+", 1)) // an offset's plus sign that nobody has escaped is a space
	if ago, notAgo := time.ParseDuration(text); notAgo == nil && ago >= 0 {
		instant, err = r.Clock.Now().Add(-ago), nil
	}
	switch {
	case err != nil:
		return 0, 0, registry.BadRequest("at=%s is neither an instant, as 2026-11-23T10:00:00Z, nor how long ago, as 10m", clip.Text(text))
	case instant.After(r.Clock.Now()):
		return 0, 0, registry.BadRequest("at=%s is in the future: it's %s now", clip.Text(text), r.Clock.Now().UTC().Format(time.RFC3339))
	case r.Times == nil:
		return 0, 0, registry.BadRequest("this server doesn't note when something was written: ask by resourceVersion instead of at")
	}
	rev, lag, begins, ok := r.Times.At(instant)
	if oldest := max(r.Cacher.Oldest(), 1); !ok || rev < oldest {
		if _, to, known := r.Times.Of(oldest, r.Clock.Now()); known {
			begins = to
		}
		if begins.IsZero() {
			return 0, 0, apierrors.NewResourceExpired("it isn't known yet when something was written: ask by resourceVersion instead of at")
		}
		return 0, 0, apierrors.NewResourceExpired(fmt.Sprintf("history reaches back to %s, which is resource version %d, and at=%s is before",
			begins.UTC().Format(time.RFC3339), oldest, clip.Text(text)))
	}
	return rev, lag, nil
}

// past returns an object as it was at a revision; nil if there was none.
func (e Reader) past(ctx context.Context, key string, at storage.Revision) (*kube.Object, error) {
	r := e.Res.Registry
	if err := e.WaitFor(ctx, at); err != nil {
		return nil, err
	}
	if oldest := r.Cacher.Oldest(); at < oldest {
		return nil, tooOld(at, oldest)
	}
	if o := e.Res.Cache.Get(key); o != nil && o.Revision <= at {
		return o, nil
	}
	found, err := r.Store.GetAt(ctx, key, at)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil, nil
	case err != nil && found.Key == "":
		return nil, err
	}
	return kube.Changed(storage.Change{KeyValue: found, Err: err}), nil // which says why it can't be read, if it can't
}
