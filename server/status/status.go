// Package status makes the Statuses that refuse a request, and what a client gets of one: its bytes, of which there are never many.
//
// Goroutines: none. Locks: none.
package status

import (
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
)

// What a Status may hold, so that an error is never large: 64 KiB of message, and
// registry.MaxCauses causes of 4 KiB.
const (
	MaxMessage      = 64 << 10
	maxCauseMessage = 4 << 10 // if all causes together are more than a message
)

// retryAfter is when a client that is refused may come back, in seconds. It's the least that the header can say.
const retryAfter = 1

// Error returns an error that becomes a Status of this code, reason and message.
func Error(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return registry.Refusal(code, reason, message)
}

// BadRequest refuses a request that can't be right.
func BadRequest(message string) error {
	return Error(http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
}

// Refusal is an error that asks the client to come back after a second. It counts under a name.
type Refusal struct {
	*apierrors.StatusError
	Name string
}

// TooMany refuses what would be more than a bound.
func TooMany(name, message string) error {
	return refuse(name, Error(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message))
}

// Unavailable refuses what isn't served at the moment.
func Unavailable(name, message string) error {
	return refuse(name, Error(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, message))
}

func refuse(name string, err *apierrors.StatusError) error {
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	return &Refusal{err, name}
}

// JSON is what a client gets of a Status, as JSON.
func JSON(s metav1.Status) []byte {
	clipTo(&s)
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(s)
	if err != nil {
		panic(err) // metav1.Status always marshals
	}
	return body
}

// Message is what a client gets of a Status, as a message of protobuf.
func Message(s metav1.Status) []byte {
	clipTo(&s)
	message, err := s.Marshal()
	if err != nil {
		panic(err) // metav1.Status always marshals
	}
	return message
}

// clipTo cuts what a Status says to MaxMessage and registry.MaxCauses. The Details of the error that it is of stay as they are.
func clipTo(s *metav1.Status) {
	s.Message = clip.To(s.Message, MaxMessage)
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return
	}
	details := *s.Details // the error's own, perhaps shared
	details.Causes = append([]metav1.StatusCause(nil), details.Causes[:min(len(details.Causes), registry.MaxCauses)]...)
	said := 0
	for _, c := range details.Causes {
		said += len(c.Message) + len(c.Field)
	}
	if s.Details = &details; said <= MaxMessage {
		return
	}
	for i := range details.Causes {
		details.Causes[i].Message = clip.To(details.Causes[i].Message, maxCauseMessage)
		details.Causes[i].Field = clip.To(details.Causes[i].Field, maxCauseMessage)
	}
}
