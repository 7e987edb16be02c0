package reads

import (
	"cmp"
	"math"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Query reads parameters and remembers the first that doesn't parse.
type Query struct {
	Values url.Values
	list   bool
	Err    error
}

func (q *Query) string(name string) string { return q.Values.Get(name) }

// Flag reads a boolean, see Flag; set tells whether it's there.
func (q *Query) Flag(name string) (value, set bool) {
	return Flag(q.Values, name), q.Values.Has(name)
}

// Flag reads a boolean query parameter as kube-apiserver does: whatever isn't false or 0 is true, also no value, as in "?watch". A parameter
// that is missing is false.
func Flag(values url.Values, name string) bool {
	text := strings.ToLower(values.Get(name))
	return values.Has(name) && text != "0" && text != "false"
}

// Count reads a number; 0 when it's absent or empty.
func (q *Query) Count(name string) int64 {
	text := q.Values.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && q.Err == nil {
		q.Err = registry.BadRequest("%s", clip.Text(err.Error()))
	}
	return n
}

// revision reads resourceVersion; set tells whether one is given.
func (q *Query) revision() (rev storage.Revision, set bool) {
	text := q.Values.Get("resourceVersion")
	if text == "" {
		return 0, false
	}
	rev, err := ParseRevision(text)
	if err != nil && q.Err == nil {
		q.Err = registry.BadVersion(text, err, q.list)
	}
	return rev, true
}

func ParseRevision(s string) (storage.Revision, error) {
	n, err := strconv.ParseUint(s, 10, 63) // no sign, and it fits a Revision
	return storage.Revision(n), err
}

// listOptions are the parameters of a list or a watch that parsed and don't contradict.
type listOptions struct {
	revision    storage.Revision
	hasRevision bool

	// for a list
	exact bool            // at revision, and not just at least as new
	limit int64           // how many objects make a page; 0 for all
	token *registry.Token // the page begins where another ended; nil for the first

	// for a watch
	initialEvents bool // begin with the state
	bookmarks     bool
	timeout       time.Duration
}

// parseListOptions reads the parameters of a list. Which of them go together, and what they mean then, is in
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list.
func (e Reader) parseListOptions(values url.Values) (listOptions, error) {
	r, q := e.Res.Registry, Query{Values: values, list: true}
	var o listOptions
	o.revision, o.hasRevision = q.revision()
	o.limit = q.Count("limit")
	q.Count("timeoutSeconds")
	q.Flag("allowWatchBookmarks") // means nothing here
	initial, hasInitial := q.Flag("sendInitialEvents")
	if q.Err != nil {
		return o, q.Err
	}
	combined := &internalversion.ListOptions{
		ResourceVersion:      q.string("resourceVersion"),
		ResourceVersionMatch: metav1.ResourceVersionMatch(clip.Text(q.string("resourceVersionMatch"))),
		Continue:             q.string("continue"),
	}
	if o.hasRevision {
		combined.ResourceVersion = o.revision.String()
	}
	if hasInitial {
		combined.SendInitialEvents = &initial
	}
	if errs := listvalidation.ValidateListOptions(combined, !r.NoInitialEvents); len(errs) > 0 {
		return o, registry.InvalidOptions("ListOptions", errs)
	}
	return o, o.place(combined)
}

// place reads where in history and in the collection a list begins.
func (o *listOptions) place(combined *internalversion.ListOptions) (err error) {
	match := combined.ResourceVersionMatch
	switch {
	case combined.Continue != "" && o.revision > 0:
		return registry.BadRequest("specifying resource version is not allowed when using continue")
	case combined.Continue != "":
		o.token, err = parseToken(combined.Continue)
		if o.hasRevision {
			o.limit = 0 // as below
		}
	case o.revision > 0:
		// Before there was a match, a limit made it exact.
		o.exact = match == metav1.ResourceVersionMatchExact || match == "" && o.limit > 0
	case o.hasRevision:
		o.limit = 0 // "0" comes from memory as it is, and all of it
	}
	return err
}

// defaultMinWatchTimeout is kube-apiserver's. A watch that doesn't say when it wants to end ends at a random time between the least and twice that, so
// that watchers that came together don't come back together.
const defaultMinWatchTimeout = 1800 * time.Second

// parseWatchOptions reads the parameters of a watch. limit means nothing to it, and continue doesn't go with a state.
func (e Reader) parseWatchOptions(values url.Values) (listOptions, error) {
	r, q := e.Res.Registry, Query{Values: values}
	var o listOptions
	o.revision, o.hasRevision = q.revision()
	o.bookmarks, _ = q.Flag("allowWatchBookmarks")
	initial, hasInitial := q.Flag("sendInitialEvents")
	seconds := q.Count("timeoutSeconds")
	q.Count("limit")
	if q.Err != nil {
		return o, q.Err
	}
	combined := &internalversion.ListOptions{
		Watch:                true,
		ResourceVersionMatch: metav1.ResourceVersionMatch(clip.Text(q.string("resourceVersionMatch"))),
		Continue:             q.string("continue"),
	}
	if hasInitial {
		combined.SendInitialEvents = &initial
	}
	if o.revision > 0 {
		combined.ResourceVersion = o.revision.String()
	}
	internalversion.SetListOptionsDefaults(combined, !r.NoInitialEvents) // without a version a watch begins with the state
	if errs := listvalidation.ValidateListOptions(combined, !r.NoInitialEvents); len(errs) > 0 {
		return o, registry.InvalidOptions("ListOptions", errs)
	}
	// Without a version, and asked no more closely, a watch begins with the state.
	o.initialEvents = initial || !hasInitial && o.revision == 0
	switch {
	case seconds == 0:
		least := cmp.Or(r.MinWatchTimeout, defaultMinWatchTimeout)
		o.timeout = least + rand.N(least)
	case seconds < 0:
		return o, registry.BadRequest("invalid value %d of the query parameter timeoutSeconds: must not be negative", seconds)
	case seconds > int64(math.MaxInt64/time.Second):
		o.timeout = math.MaxInt64
	default:
		o.timeout = time.Duration(seconds) * time.Second
	}
	return o, nil
}
