package registry

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Action is a POST to a subresource that isn't a part of an object but something that is asked of it.
type Action struct {
	Target
	// Sent is what the client has sent: what the Subresource's New has made.
	Sent   any
	Now    metav1.Time // when it was asked
	DryRun bool
	Acted
}

// Acted is the object that an Action is about.
type Acted interface {
	// Get returns the object as etcd has it, which is the caller's. The error is storage.ErrNotFound if there is none,
	// another one of storage's, or a Status if the object can't be decoded; the verb makes a Status of each.
	Get(ctx context.Context) (Typed, error)
	// Change changes the object, and returns the version that it has then. Its managedFields stay as they are: what an action sets is
	// nobody's. change is called again if somebody else writes the object first. An error of its own ends the write and is returned as it is.
	// Other errors are those of Get and of the write.
	Change(ctx context.Context, change func(obj Typed) error) (resourceVersion string, err error)
	// Delete deletes the object, with a client's options. Admission was asked about the action, and isn't asked about
	// the deletion. Errors are those of a client's deletion.
	Delete(ctx context.Context, options *metav1.DeleteOptions) error
	// Meets refuses, with a Status 409, an object that has another uid or another version than the action is about. "" stands for any.
	Meets(obj Typed, uid types.UID, resourceVersion string) error
	// Cached returns the objects of another kind, as new as the call, in the object's namespace, each decoded by its own type. A
	// kind that isn't served has none. Errors are those of Await.
	Cached(ctx context.Context, apiVersion, kind string) (*Endpoint, []Typed, error)
}

// Done is the answer to an Action that has nothing else to say.
func Done() *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated}
}
