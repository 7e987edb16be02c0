// Package registry knows what a resource is, and answers the Kubernetes verbs for it.
//
// It owns the rules of a write (decoding, metadata, status and finalizer rules, patches), the
// translation from storage's errors to Status errors, the catalog of what is served, and two
// controllers: one that serves definitions posted at run time, one that empties deleted namespaces.
//
// A resource comes from one of two sources and behaves the same afterwards: a Go type, given to Register
// before Run (Namespace and CustomResourceDefinition are registered so), or a CustomResourceDefinition
// object. Each served version of a resource is an Endpoint, on which the verbs are methods. The
// Catalog holds the endpoints of one instant; it's replaced as a whole.
//
// # Where to begin
//
// request.go has what a client asks and gets, resource.go what a resource and an Endpoint are. Reads are in get.go, list.go
// (page.go) and watch.go. Writes are values of type write: write.go is their engine, and create.go, update.go, patch.go,
// apply.go, scale.go and delete.go are the verbs on it. body.go and meta.go have the rules for what a client sends, schema.go
// those of a schema, admission.go the hooks. stored.go and convert.go go between stored bytes and objects, redefined.go
// follows a definition that changes under a request. errors.go is the one way out for errors.
//
// # Data flow
//
// A write parses the body once (package object), gives it the form that its schema says (package schema), checks it,
// notes who wrote what if the object is tracked (package managed), encodes it canonically and stores it by one
// compare-and-swap transaction. The client's answer is made from the bytes that were stored. The old object comes from
// the cacher, which may be older than etcd's: a success is guarded by the transaction, and a refusal or "unchanged" is
// only given after the key was read from etcd (see try). Writes of one key wait for each other (see turns). What the program brings (Admission, and a Definition's
// functions) is called within each attempt, on copies, and its panics are errors (see call). Reads copy the cacher's
// bytes. In the other forms (package form) metadata is a range of those bytes, too, and rows of Tables are made anew.
//
// # Goroutines
//
// Run starts the two controllers and waits for them. Deletions of whole collections (a namespace's
// content, a deleted definition's objects) use at most deletersAtOnce goroutines, waited for by the
// controller. Nothing else here outlives a call.
//
// # Locks
//
// definitions.turn (a channel, so that waiting for it can be cancelled) is held through a whole write of
// a definition; definitions.mu, taken after it, while the catalog is rebuilt from memory. Cacher locks are
// below both. A key's turn (see turns) is taken after definitions.turn, and held while the object is changed, its hooks
// and webhooks included; a write that waits for it for long (maxTurnWait) goes on without. turns.mu takes no other
// lock. form.Forms has a lock of its own and takes no other.
//
// # Bounds
//
// Bodies are bounded by the caller; here objects (maxObjectBytes), nesting (encoding/json's 10,000),
// patches (maxPatchOperations, maxPatchCopyBytes), what is quoted in errors (package clip), and the log of
// unreadable objects (maxReported).
package registry
