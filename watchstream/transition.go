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

// Transition is what a watcher is told about a change, given whether the previous and the current
// state of the object match its selectors. A missing state doesn't match. For Deleted the watcher gets
// the previous object, with the resourceVersion of the change.
//
// All events follow this rule: live ones, and those read from the log or from history.
func Transition(prevMatches, curMatches bool) Type {
	switch {
	case prevMatches && curMatches:
		return Modified
	case prevMatches:
		return Deleted
	case curMatches:
		return Added
	}
	return None
}
