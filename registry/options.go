package registry

import (
	"bytes"
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
	v1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// query reads parameters and remembers the first that doesn't parse.
type query struct {
	values url.Values
	list   bool
	err    error
}

func (q *query) string(name string) string { return q.values.Get(name) }

// flag reads a boolean, see Flag; set tells whether it's there.
func (q *query) flag(name string) (value, set bool) {
	return Flag(q.values, name), q.values.Has(name)
}

// Flag reads a boolean query parameter as kube-apiserver does: whatever isn't false or 0 is true, also no value, as in "?watch". A parameter
// that is missing is false.
func Flag(values url.Values, name string) bool {
	text := strings.ToLower(values.Get(name))
	return values.Has(name) && text != "0" && text != "false"
}

// count reads a number; 0 when it's absent or empty.
func (q *query) count(name string) int64 {
	text := q.values.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && q.err == nil {
		q.err = badRequest("%s", clip.Text(err.Error()))
	}
	return n
}

// revision reads resourceVersion; set tells whether one is given.
func (q *query) revision() (rev storage.Revision, set bool) {
	text := q.values.Get("resourceVersion")
	if text == "" {
		return 0, false
	}
	rev, err := parseRevision(text)
	if err != nil && q.err == nil {
		q.err = badVersion(text, err, q.list)
	}
	return rev, true
}

func parseRevision(s string) (storage.Revision, error) {
	n, err := strconv.ParseUint(s, 10, 63) // no sign, and it fits a Revision
	return storage.Revision(n), err
}

// writeOptions are those that creates, updates, patches and applies share.
type writeOptions struct {
	validation string // metav1.FieldValidation...
	dryRun     bool   // everything but the write itself
	manager    string // who the client is in managedFields
	said       saidOptions
	force      bool // of an apply: take over what others manage
	userAgent  string
	asked      bool // by a client, and not by the server itself: see admit

	deleteOptions *metav1.DeleteOptions // of a deletion, as hooks see them
}

// saidOptions are what a client itself has said of its name and of unknown fields, as hooks see it; "" for nothing.
type saidOptions struct{ manager, validation string }

// parseWriteOptions reads the parameters of a create, update or patch; kind is that of the options object
// which errors name.
func parseWriteOptions(r *Request, kind string) (writeOptions, error) {
	values := r.Query
	q := query{values: values}
	o := metav1.PatchOptions{
		DryRun:          values["dryRun"],
		FieldManager:    values.Get("fieldManager"),
		FieldValidation: values.Get("fieldValidation"),
	}
	force, forced := q.flag("force")
	if forced && kind == patchOptions {
		o.Force = &force
	}
	if errs := v1validation.ValidatePatchOptions(&o, types.PatchType(strings.ToLower(r.PatchType))); len(errs) > 0 {
		return writeOptions{}, invalidOptions(kind, errs)
	}
	said := saidOptions{o.FieldManager, o.FieldValidation}
	if o.FieldValidation == "" {
		o.FieldValidation = metav1.FieldValidationWarn
	}
	return writeOptions{
		said: said, validation: o.FieldValidation, dryRun: len(o.DryRun) > 0, force: force,
		manager: managed.ManagerName(o.FieldManager, r.UserAgent), userAgent: r.UserAgent, asked: true,
	}, nil
}

// parseDeleteOptions reads the options of a deletion from the body or, when that is empty, from the
// query.
func (e *Endpoint) parseDeleteOptions(r *Request) (*metav1.DeleteOptions, error) {
	values, body := r.Query, r.Body
	o := &metav1.DeleteOptions{}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := object.Decode(body, o); err != nil {
			return nil, badOptions(body, err)
		}
		if err := e.checkDeleteOptionsType(o); err != nil {
			return nil, err
		}
	} else if err := deleteOptionsFromQuery(values, o); err != nil {
		return nil, err
	}
	if len(o.DryRun) == 0 {
		o.DryRun = values["dryRun"]
	}
	if errs := v1validation.ValidateDeleteOptions(o); len(errs) > 0 {
		return nil, invalidOptions("DeleteOptions", errs)
	}
	return o, nil
}

func (e *Endpoint) checkDeleteOptionsType(o *metav1.DeleteOptions) error {
	if o.Kind != "" && o.Kind != "DeleteOptions" {
		return badRequest("no kind %q is registered for version %q in scheme %q", clip.Text(o.Kind), clip.Text(cmp.Or(o.APIVersion, e.apiVersion())), object.Scheme)
	}
	switch o.APIVersion {
	case "", "v1", "meta.k8s.io/v1", e.apiVersion():
		return nil
	}
	return badRequest("the API version of DeleteOptions must be v1, meta.k8s.io/v1 or %s, not %q", e.apiVersion(), clip.Text(o.APIVersion))
}

func deleteOptionsFromQuery(values url.Values, o *metav1.DeleteOptions) error {
	q := query{values: values}
	if values.Get("gracePeriodSeconds") != "" {
		n := q.count("gracePeriodSeconds")
		o.GracePeriodSeconds = &n
	}
	if values.Has("propagationPolicy") { // an empty one is refused as well
		p := metav1.DeletionPropagation(values.Get("propagationPolicy"))
		o.PropagationPolicy = &p
	}
	if orphan, set := q.flag("orphanDependents"); set {
		//lint:ignore SA1019 it's deprecated, and still sent
		o.OrphanDependents = &orphan
	}
	return q.err
}

// listOptions are the parameters of a list or a watch that parsed and don't contradict.
type listOptions struct {
	revision    storage.Revision
	hasRevision bool

	// for a list
	exact bool   // at revision, and not just at least as new
	limit int64  // how many objects make a page; 0 for all
	token *token // the page begins where another ended; nil for the first

	// for a watch
	initialEvents bool // begin with the state
	bookmarks     bool
	timeout       time.Duration
}

// parseListOptions reads the parameters of a list. Which of them go together, and what they mean then, is in
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list.
func (e *Endpoint) parseListOptions(values url.Values) (listOptions, error) {
	r, q := e.res.registry, query{values: values, list: true}
	var o listOptions
	o.revision, o.hasRevision = q.revision()
	o.limit = q.count("limit")
	q.count("timeoutSeconds")
	q.flag("allowWatchBookmarks") // means nothing here
	initial, hasInitial := q.flag("sendInitialEvents")
	if q.err != nil {
		return o, q.err
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
	if errs := listvalidation.ValidateListOptions(combined, !r.noInitial); len(errs) > 0 {
		return o, invalidOptions("ListOptions", errs)
	}
	return o, o.place(combined)
}

// place reads where in history and in the collection a list begins.
func (o *listOptions) place(combined *internalversion.ListOptions) (err error) {
	match := combined.ResourceVersionMatch
	switch {
	case combined.Continue != "" && o.revision > 0:
		return badRequest("specifying resource version is not allowed when using continue")
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

// A watch that doesn't say when it wants to end ends at a random time between these, so that watchers
// that came together don't come back together. kube-apiserver's figures.
const (
	minWatchTimeout = 1800 * time.Second
	maxWatchTimeout = 3600 * time.Second
)

// parseWatchOptions reads the parameters of a watch. limit means nothing to it, and continue doesn't go with a state.
func (e *Endpoint) parseWatchOptions(values url.Values) (listOptions, error) {
	r, q := e.res.registry, query{values: values}
	var o listOptions
	o.revision, o.hasRevision = q.revision()
	o.bookmarks, _ = q.flag("allowWatchBookmarks")
	initial, hasInitial := q.flag("sendInitialEvents")
	seconds := q.count("timeoutSeconds")
	q.count("limit")
	if q.err != nil {
		return o, q.err
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
	internalversion.SetListOptionsDefaults(combined, !r.noInitial) // without a version a watch begins with the state
	if errs := listvalidation.ValidateListOptions(combined, !r.noInitial); len(errs) > 0 {
		return o, invalidOptions("ListOptions", errs)
	}
	// Without a version, and asked no more closely, a watch begins with the state.
	o.initialEvents = initial || !hasInitial && o.revision == 0
	switch {
	case seconds == 0:
		o.timeout = minWatchTimeout + rand.N(maxWatchTimeout-minWatchTimeout)
	case seconds < 0:
		return o, badRequest("invalid value %d of the query parameter timeoutSeconds: must not be negative", seconds)
	case seconds > int64(math.MaxInt64/time.Second):
		o.timeout = math.MaxInt64
	default:
		o.timeout = time.Duration(seconds) * time.Second
	}
	return o, nil
}
