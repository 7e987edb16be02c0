package watchstream

// Type is the kind of a watch event, as it's written on the wire.
type Type uint8

// The event types of the Kubernetes watch protocol.
const (
	None Type = iota // no event: what Transition answers when nothing is sent
	Added
	Modified
	Deleted
	Bookmark
	Error
)

var typeNames = [...]string{None: "", Added: "ADDED", Modified: "MODIFIED", Deleted: "DELETED", Bookmark: "BOOKMARK", Error: "ERROR"}

// String returns the type's name on the wire.
func (t Type) String() string { return typeNames[t] }

// Matches says whether an object matched a watcher's selectors before a change, and whether it does now. A missing object
// doesn't match.
type Matches struct{ Before, Now bool }

// Transition is what a watcher is told about a change. For Deleted the watcher gets the previous object, with the
// resourceVersion of the change.
//
// All events follow this rule: live ones, and those read from the log or from history.
func Transition(m Matches) Type {
	switch {
	case m.Before && m.Now:
		return Modified
	case m.Before:
		return Deleted
	case m.Now:
		return Added
	}
	return None
}
