package registry

import (
	"errors"
	"net/url"
)

// Absent is a subresource that Kubernetes has and a type here doesn't, because something would have to run.
type Absent struct {
	Why     string   // it isn't served
	Methods []string // that Kubernetes takes there; nil for all
	// Creates tells that who comes there needs the right to create, whatever the method is.
	Creates bool
	// Asked is what Kubernetes answers to a query before it looks for the object of the name; nil: nothing.
	Asked func(name string, query url.Values) error
	// Unreached is what Kubernetes itself answers about an object that nothing runs, which is given as it's shown, and nil where something
	// would run. ErrNoContent is an answer without anything.
	Unreached func(query url.Values, object []byte) error
}

// ErrNoContent is an answer that has nothing: 204.
var ErrNoContent = errors.New("there's nothing to answer")

// Absent returns what is said at a path below an object that isn't served and that Kubernetes serves. It's nil for other paths.
func (e *Endpoint) Absent(subresource string) *Absent {
	if e.Typed == nil {
		return nil
	}
	if absent, ok := e.Typed.Parts.Absent[subresource]; ok {
		return &absent
	}
	return nil
}
