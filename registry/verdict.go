package registry

import (
	"context"
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Verdict is what a hook says of a request. The zero Verdict lets the request pass.
type Verdict struct {
	refused error // nil: the request passes
}

// Refuse is the verdict that refuses a request. The client is answered why: a Status error of a code from 400 to 599 as it
// is, any other error as 403 Forbidden with its text, which is kube-apiserver's rule for its plug-ins. Nil refuses nothing.
func Refuse(why error) Verdict { return Verdict{why} }

// Refused tells whether the verdict refuses the request.
func (v Verdict) Refused() bool { return v.refused != nil }

// Why is what Refuse was given; nil if the request passes.
func (v Verdict) Why() error { return v.refused }

// hookError is what a hook has said, or why it couldn't say anything. It says nothing about the object that is written: a hook
// may say "not found" of something else.
type hookError struct{ error }

// OfHook returns an error as that of a hook.
func OfHook(err error) error { return hookError{err} }

func (h hookError) Unwrap() error { return h.error }

func IsHookError(err error) bool {
	var h hookError
	return errors.As(err, &h)
}

// Heed does what a hook says of the request about an object: it returns nil if the request passes. failed is why the hook
// couldn't judge.
func (e *Endpoint) Heed(ctx context.Context, name string, said Verdict, failed error) error {
	switch {
	case failed == nil && !said.Refused():
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case failed != nil:
		return e.hookFailed(name, failed)
	}
	var answered apierrors.APIStatus
	if errors.As(said.refused, &answered) {
		if s := answered.Status(); s.Code >= http.StatusBadRequest && s.Code < endOfCodes {
			s.Status = metav1.StatusFailure
			return hookError{&apierrors.StatusError{ErrStatus: s}}
		}
	}
	return hookError{apierrors.NewForbidden(e.GroupResource(), clip.Text(name), said.refused)}
}

// endOfCodes is the first number that is no code of HTTP's.
const endOfCodes = 600

// hookFailed is the error of a request about which a hook couldn't judge. What storage says of some key isn't about the
// request's object, so it's no answer for the client.
func (e *Endpoint) hookFailed(name string, err error) error {
	ofKey := []error{storage.ErrNotFound, storage.ErrExists, storage.ErrConflict, storage.ErrBadKey, storage.ErrTooLarge}
	var answered apierrors.APIStatus
	if !errors.As(err, &answered) && isOneOf(err, ofKey) {
		return &failure{e.GroupResource(), clip.Text(name), err}
	}
	return hookError{e.Fail(name, err)}
}

// Unable tells of an error that the server can't say now what was asked, whoever asks: because of what storage said, because
// the definition or all of the content is being replaced, or because the request has ended. Any other error says something
// about what was asked. Hooks that decide about failures, as a policy's failurePolicy does, return such an error instead.
func Unable(err error) bool {
	var answered apierrors.APIStatus
	if errors.As(err, &answered) {
		switch answered.Status().Code {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInsufficientStorage:
			return true
		}
		return false
	}
	return isOneOf(err, []error{
		ErrChanged, storage.ErrReplaced, storage.ErrUnavailable, storage.ErrUnknownOutcome, storage.ErrNoMajority, storage.ErrNoSpace,
		context.Canceled, context.DeadlineExceeded,
	})
}

func isOneOf(err error, of []error) bool {
	return slices.ContainsFunc(of, func(cause error) bool { return errors.Is(err, cause) })
}
