package watchstream

// Event is an event as a Go program gets it, with the object in the program's own type.
type Event[T any] struct {
	Type Type // Added, Modified, Deleted, or Bookmark
	// Object is the state after the change; for Deleted, the last state that was selected; for a Bookmark, an object
	// that has nothing but a resourceVersion.
	Object *T
	Key    Key
	// ResourceVersion is the version of the change. A watch resumes after it.
	ResourceVersion string
}

// Key names an object within its resource.
type Key struct {
	Namespace string // empty for objects of the cluster
	Name      string
}

// String returns namespace/name, or the name alone.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}
