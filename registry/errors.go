package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// MaxCauses bounds the field errors that a Status lists. Nobody reads more, and the answer would grow with the input.
const MaxCauses = 250

// maxWhole is how much field errors may say together, in bytes, before each is shortened: the changes of a pod's whole spec, and not
// what a client sends to have it back.
const maxWhole = 64 << 10

// What is quoted in errors has a text each, which takes time with its length.
const (
	// maxQuoted bounds the values of which texts are made for one answer.
	maxQuoted = 4 * MaxCauses
	// quotedLarge is for how many values one counts whose text is too long for an answer: a body may have megabytes of it.
	quotedLarge = 32
)

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// invalid refuses an object for what its fields say: each thing once. It's nil for no errors.
func invalid(kind schema.GroupKind, name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(kind, clip.Text(name), answerable(errs, false))
}

// answerable returns the errors, of which each says what is short enough for an answer. Those that say the same as one before come only
// if they're to come again. There are at most MaxCauses. It looks for them among the first errors, until these have quoted maxQuoted values.
func answerable(errs field.ErrorList, again bool) field.ErrorList {
	type said struct{ field, body string }
	known := map[said]bool{}
	different := make(field.ErrorList, 0, min(len(errs), MaxCauses))
	var last, clipped any
	left := maxWhole
	for quoted, i := 0, 0; i < len(errs) && len(different) < MaxCauses && quoted < maxQuoted; i++ {
		e := errs[i]
		most := max(clip.MaxBytes, left)
		if i == 0 || !sameValue(e.BadValue, last) {
			last, clipped = e.BadValue, clip.Value(e.BadValue, most)
			quoted++
			if reflect.TypeOf(clipped) != reflect.TypeOf(last) {
				quoted += quotedLarge
			}
		}
		e.Field, e.Detail, e.BadValue = clip.Text(e.Field), clip.Whole(e.Detail, most), clipped
		if this := (said{e.Field, e.ErrorBody()}); again || !known[this] {
			left -= len(this.field) + len(this.body)
			known[this] = true
			different = append(different, e)
		}
	}
	return different
}

// sameValue tells whether two values are one and the same: a list, map or pointer that several errors are about, as the scopes of a
// quota. Its text is made once then, and not for each of its elements.
func sameValue(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if !x.IsValid() || !y.IsValid() || x.Type() != y.Type() {
		return false
	}
	switch x.Kind() {
	case reflect.Slice:
		return x.Len() == y.Len() && x.UnsafePointer() == y.UnsafePointer()
	case reflect.Map, reflect.Pointer:
		return x.UnsafePointer() == y.UnsafePointer()
	}
	return false
}

// invalidOptions refuses query parameters, as kube-apiserver does for those that parse and contradict.
func invalidOptions(kind string, errs field.ErrorList) error {
	return invalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// errNotServed is the answer for a path that names nothing; clients know its text.
func errNotServed() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotFound,
		Reason:  metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource",
		Details: &metav1.StatusDetails{},
	}}
}

// failure is an error that the client can't mend. It isn't a Status: the server logs it, and answers 500 with the id of
// the log line.
type failure struct {
	resource schema.GroupResource
	name     string
	cause    error
}

func (f *failure) Error() string { return fmt.Sprintf("%v %q: %v", f.resource, f.name, f.cause) }
func (f *failure) Unwrap() error { return f.cause }

// subject is what a failed request was about: it decides the words of the answer.
type subject struct {
	name     string           // of the object; "" for none
	watched  bool             // a watch was to start from the revision
	revision storage.Revision // that was asked for; 0 for none
	token    *token           // the continue token that named the revision; nil for none
}

// fail is failed for a request about an object, or about none for "".
func (e *Endpoint) fail(name string, err error) error { return e.failed(subject{name: name}, err) }

// Failed makes a Status of an error of the store's that is about no object. Nil stays nil, and a Status what it
// is. An error that has no Status becomes a failure of the server.
func (r *Registry) Failed(err error) error { return r.namespaces.res.storage.fail("", err) }

// failed is the one translation from storage's errors to a Status. An error that is a Status stays as it is, and one that
// can't become a Status becomes a failure. That storage can't answer is logged here, because the Status doesn't say why.
// errChanged, storage.ErrReplaced and errJudged stay, too: current and judged handle them. storage.ErrPremise
// becomes a failure, which judged drops before it begins again.
func (e *Endpoint) failed(about subject, err error) error {
	var answered apierrors.APIStatus
	var panicked *PanicError
	var failed *failure
	if err == nil || errors.As(err, &answered) || errors.As(err, &panicked) || errors.As(err, &failed) ||
		errors.Is(err, errChanged) || errors.Is(err, storage.ErrReplaced) || errors.Is(err, errJudged) {
		return err
	}
	resource := e.resource()
	name := clip.Text(about.name)
	switch {
	case errors.As(err, new(*unconverted)):
		return unforeseen(err.Error())
	case errors.Is(err, storage.ErrNotFound):
		return apierrors.NewNotFound(resource, name)
	case errors.Is(err, storage.ErrExists):
		return apierrors.NewAlreadyExists(resource, name)
	case errors.Is(err, storage.ErrConflict):
		return e.conflict(name)
	case errors.Is(err, storage.ErrBadKey):
		return badRequest("invalid name or namespace: %q may not contain '/' or '%%' and may not be '.' or '..'", name)
	case errors.Is(err, storage.ErrTooLarge):
		return tooLarge(resource, name)
	case errors.Is(err, storage.ErrCompacted):
		return e.expired(about, err)
	case errors.Is(err, storage.ErrFutureRevision) && about.watched:
		// The store has never reached that version, so it's another store's. A watch that waited for it would be silent
		// about everything that happens until then.
		return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is not of this store, which is at %d: list again",
			about.revision, e.res.registry.cacher.Position()))
	case errors.Is(err, storage.ErrFutureRevision):
		return apierrors.NewResourceExpired(err.Error())
	case errors.Is(err, storage.ErrNoSpace):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure,
			Code:   http.StatusInsufficientStorage,
			Reason: metav1.StatusReasonInternalError,
			Message: fmt.Sprintf("%v; free space on the server's disk if that is full, else delete objects, and writes go on by themselves; "+
				"reads and watches go on meanwhile", err),
		}}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the request ended before storage answered; whether a write happened is unknown", 0)
	case errors.Is(err, storage.ErrNoMajority):
		e.res.registry.outages.report(err)
		unavailable := apierrors.NewServiceUnavailable("no majority of the store's members can be reached: nothing was written; " +
			"reads with resourceVersion=0 and watches go on meanwhile")
		unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
		return unavailable
	case errors.Is(err, storage.ErrUnknownOutcome):
		e.res.registry.outages.report(err)
		// Without a Retry-After: clients would repeat the write unasked.
		return apierrors.NewTimeoutError("storage hasn't answered; whether a write happened is unknown", 0)
	case errors.Is(err, storage.ErrUnavailable):
		e.res.registry.outages.report(err)
		unavailable := apierrors.NewServiceUnavailable("storage can't answer now")
		unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: outageRetry}
		return unavailable
	}
	return &failure{resource, name, err}
}

// outageRetry is after how many seconds a client may ask again when the store couldn't answer: an etcd that has lost its
// leader takes about as long.
const outageRetry = 1

// expired is the 410 for a revision that is older than etcd's history.
func (e *Endpoint) expired(about subject, err error) error {
	switch oldest := e.res.registry.cacher.Oldest(); {
	case about.watched:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", about.revision, oldest))
	case about.token != nil:
		status := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
			"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted " +
			"between the time the first chunk was returned and now may show up in the list.")
		status.ErrStatus.Continue = token{Version: tokenVersion, Revision: newest, Start: about.token.Start}.String()
		return status
	case about.revision > 0:
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return apierrors.NewResourceExpired(err.Error())
}

func (n *Names) resource() schema.GroupResource {
	return schema.GroupResource{Group: n.Group, Resource: n.Plural}
}

func (n *Names) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: n.Group, Kind: n.Kind}
}

func (e *Endpoint) invalid(name string, errs ...*field.Error) error {
	return invalid(e.groupKind(), name, errs)
}

func (e *Endpoint) conflict(name string) error {
	return apierrors.NewConflict(e.resource(), name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

func (e *Endpoint) forbidden(name, why string) error {
	return apierrors.NewForbidden(e.resource(), clip.Text(name), errors.New(why))
}

func (e *Endpoint) methodNotAllowed(verb string) error {
	return apierrors.NewMethodNotSupported(e.resource(), verb)
}

// unreadable is the answer about a stored value that isn't an object.
func (e *Endpoint) unreadable(name string, cause error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusInternalServerError,
		Reason: metav1.StatusReasonStoreReadError,
		Message: fmt.Sprintf("%s %q can't be read from storage: %s; it can only be deleted",
			e.resource().String(), clip.Text(name), clip.Text(cause.Error())),
		Details: &metav1.StatusDetails{Group: e.Group, Kind: e.Plural, Name: clip.Text(name)},
	}}
}

func tooLarge(resource schema.GroupResource, name string) error {
	err := apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s %q is larger than the limit of %d bytes for one stored object",
		resource.String(), name, maxObjectBytes))
	err.ErrStatus.Details = &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: name}
	return err
}

// retryAfter is how long a client should wait before it asks again for a version that isn't there yet.
const retryAfter = 1 // seconds

// tooNew is the answer about a resourceVersion that the caches didn't reach in time.
func tooNew(want, have storage.Revision) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", want, have), retryAfter)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// deleted is the Status that answers a deletion.
func (d *deletion) deleted() []byte {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: d.Name, Group: d.Group, Kind: d.Plural, UID: types.UID(d.uid)},
	}
	b, err := encodeApart(d.shown, status.TypeMeta, status)
	if err != nil {
		panic(err) // a Status of strings always encodes
	}
	return b
}
