package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
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

func BadRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// Invalid refuses an object for what its fields say: each thing once. It's nil for no errors.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(kind, clip.Text(name), Answerable(errs, false))
}

// Answerable returns the errors, of which each says what is short enough for an answer. Those that say the same as one before come only
// if they're to come again. There are at most MaxCauses. It looks for them among the first errors, until these have quoted maxQuoted values.
func Answerable(errs field.ErrorList, again bool) field.ErrorList {
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

// InvalidOptions refuses query parameters, as kube-apiserver does for those that parse and contradict.
func InvalidOptions(kind string, errs field.ErrorList) error {
	return Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// ErrNotServed is the answer for a path that names nothing; clients know its text. Nobody may change it.
var ErrNotServed = AsKubernetes(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")

// failure is an error that the client can't mend. It isn't a Status: the server logs it, and answers 500 with the id of
// the log line.
type failure struct {
	resource schema.GroupResource
	name     string
	cause    error
}

func (f *failure) Error() string { return fmt.Sprintf("%v %q: %v", f.resource, f.name, f.cause) }

func (f *failure) Unwrap() error { return f.cause }

// Subject is what a failed request was about: it decides the words of the answer.
type Subject struct {
	name     string           // of the object; "" for none
	Watched  bool             // a watch was to start from the revision
	Revision storage.Revision // that was asked for; 0 for none
	Token    *Token           // the continue token that named the revision; nil for none
}

// Fail is Failed for a request about an object, or about none for "".
func (e *Endpoint) Fail(name string, err error) error { return e.Failed(Subject{name: name}, err) }

// Failed makes a Status of an error of the store's that is about no object. Nil stays nil, and a Status what it
// is. An error that has no Status becomes a failure of the server.
func (r *Registry) Failed(err error) error { return r.Namespaces.Res.Storage.Fail("", err) }

// Failed is the one translation from storage's errors to a Status. An error that is a Status stays as it is, and one that
// can't become a Status becomes a failure. That storage can't answer is logged here, because the Status doesn't say why.
// ErrChanged, storage.ErrReplaced and ErrJudged stay, too: Current and Judged handle them. storage.ErrPremise
// becomes a failure, which Judged drops before it begins again.
func (e *Endpoint) Failed(about Subject, err error) error {
	var answered apierrors.APIStatus
	var panicked *PanicError
	var failed *failure
	if err == nil || errors.As(err, &answered) || errors.As(err, &panicked) || errors.As(err, &failed) ||
		errors.Is(err, ErrChanged) || errors.Is(err, storage.ErrReplaced) || errors.Is(err, ErrJudged) {
		return err
	}
	resource := e.GroupResource()
	name := clip.Text(about.name)
	switch {
	case errors.As(err, new(*Unconverted)):
		return Unforeseen(err.Error())
	case errors.Is(err, storage.ErrNotFound):
		return apierrors.NewNotFound(resource, name)
	case errors.Is(err, storage.ErrExists):
		return apierrors.NewAlreadyExists(resource, name)
	case errors.Is(err, storage.ErrConflict):
		return e.Conflict(name)
	case errors.Is(err, storage.ErrBadKey):
		return BadRequest("invalid name or namespace: %q may not contain '/' or '%%' and may not be '.' or '..'", name)
	case errors.Is(err, storage.ErrNotTransformed):
		return apierrors.NewInternalError(errors.New(clip.Text(err.Error())))
	case errors.Is(err, storage.ErrTooLarge):
		return tooLarge(resource, name)
	case errors.Is(err, storage.ErrCompacted):
		return e.expired(about, err)
	case errors.Is(err, storage.ErrFutureRevision) && about.Watched:
		// The store has never reached that version, so it's another store's. A watch that waited for it would be silent
		// about everything that happens until then.
		return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is not of this store, which is at %d: list again",
			about.Revision, e.Res.Registry.Cacher.Position()))
	case errors.Is(err, storage.ErrFutureRevision):
		return apierrors.NewResourceExpired(err.Error())
	case errors.Is(err, cacher.ErrCrowded):
		return crowded(err)
	case errors.Is(err, storage.ErrNoSpace):
		return Refusal(http.StatusInsufficientStorage, metav1.StatusReasonInternalError, fmt.Sprintf(
			"%v; free space on the server's disk if that is full, else delete objects, and writes go on by themselves; reads and watches go on meanwhile", err))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ended(err)
	case errors.Is(err, storage.ErrNoMajority):
		e.Res.Registry.outages.report(err)
		unavailable := apierrors.NewServiceUnavailable("no majority of the store's members can be reached: nothing was written; " +
			"reads with resourceVersion=0 and watches go on meanwhile")
		unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: RetryAfter}
		return unavailable
	case errors.Is(err, storage.ErrUnknownOutcome):
		e.Res.Registry.outages.report(err)
		// Without a Retry-After: clients would repeat the write unasked.
		return apierrors.NewTimeoutError("storage hasn't answered; whether a write happened is unknown", 0)
	case errors.Is(err, storage.ErrUnavailable):
		e.Res.Registry.outages.report(err)
		unavailable := apierrors.NewServiceUnavailable("storage can't answer now")
		unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: outageRetry}
		return unavailable
	}
	return &failure{resource, name, err}
}

// crowded refuses a watch that would be one too many of its kind.
func crowded(err error) error {
	refused := Refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, fmt.Sprintf(
		"%v; select by a label or in one namespace, or as another watch does, which costs nothing more, or try again later", err))
	refused.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: RetryAfter}
	return refused
}

// ErrEnded is what a request is told whose time is over before anything can have come of it.
var ErrEnded = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)

// ended is what a request is told whose time is over.
func ended(err error) error {
	if errors.Is(err, storage.ErrUnknownOutcome) {
		return apierrors.NewTimeoutError("the request ended before storage answered; whether a write happened is unknown", 0)
	}
	return ErrEnded
}

// outageRetry is after how many seconds a client may ask again when the store couldn't answer: an etcd that has lost its
// leader takes about as long.
const outageRetry = 1

// expired is the 410 for a revision that is older than etcd's history.
func (e *Endpoint) expired(about Subject, err error) error {
	switch oldest := e.Res.Registry.Cacher.Oldest(); {
	case about.Watched:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", about.Revision, oldest))
	case about.Token != nil && about.Token.By == "": // of sorted pages there is no way on in another version
		status := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
			"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted " +
			"between the time the first chunk was returned and now may show up in the list.")
		status.ErrStatus.Continue = Token{Version: TokenVersion, Revision: newest, Start: about.Token.Start}.String()
		return status
	case about.Revision > 0 && about.Revision < oldest:
		return apierrors.NewResourceExpired(fmt.Sprintf("The resourceVersion for the provided list is too old. History reaches back to %d.", oldest))
	case about.Revision > 0: // etcd has compacted it, and the cache hasn't heard of it yet
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return apierrors.NewResourceExpired(err.Error())
}

func (n *Names) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: n.Group, Resource: n.Plural}
}

func (n *Names) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: n.Group, Kind: n.Kind}
}

func (e *Endpoint) Invalid(name string, errs ...*field.Error) error {
	return Invalid(e.GroupKind(), name, errs)
}

func (e *Endpoint) Conflict(name string) error {
	return apierrors.NewConflict(e.GroupResource(), name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

func (e *Endpoint) Forbidden(name, why string) error {
	return apierrors.NewForbidden(e.GroupResource(), clip.Text(name), errors.New(why))
}

func (e *Endpoint) MethodNotAllowed(verb string) error {
	return apierrors.NewMethodNotSupported(e.GroupResource(), verb)
}

// Unreadable is the answer about a stored value that isn't an object.
func (e *Endpoint) Unreadable(name string, cause error) error {
	err := Refusal(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, fmt.Sprintf(
		"%s %q can't be read from storage: %s; it can only be deleted, with ignoreStoreReadErrorWithClusterBreakingPotential=true", e.GroupResource().String(), clip.Text(name), clip.Text(cause.Error())))
	err.ErrStatus.Details = &metav1.StatusDetails{Group: e.Group, Kind: e.Plural, Name: clip.Text(name)}
	return err
}

func tooLarge(resource schema.GroupResource, name string) error {
	err := apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s %q is larger than the limit of %d bytes for one stored object",
		resource.String(), name, MaxObjectBytes))
	err.ErrStatus.Details = &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: name}
	return err
}

// RetryAfter is how long a client should wait before it asks again for a version that isn't there yet.
const RetryAfter = 1 // seconds

// tooNew is the answer about a resourceVersion that the caches didn't reach in time.
func tooNew(want, have storage.Revision) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", want, have), RetryAfter)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// outageInterval bounds how often it's logged that storage can't answer: while etcd is away, every request meets the same
// cause.
const outageInterval = 10 * time.Second

// outages logs why storage can't answer. Clients aren't told.
type outages struct {
	log *slog.Logger

	mu       sync.Mutex // guards all below
	reported time.Time  // when an error was last logged
	omitted  int        // errors since then
}

// report logs an error, unless one was logged within the last outageInterval.
func (o *outages) report(err error) {
	o.mu.Lock()
	now := time.Now()
	if now.Sub(o.reported) < outageInterval {
		o.omitted++
		o.mu.Unlock()
		return
	}
	omitted := o.omitted
	o.reported, o.omitted = now, 0
	o.mu.Unlock()
	o.log.Error("storage can't answer", "error", err, "omitted", omitted)
}
