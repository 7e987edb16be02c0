// Package registry knows what a resource is, and answers the Kubernetes verbs for it.
//
// It owns the rules of a write (decoding, metadata, status and finalizer rules, patches), the translation from storage's
// errors to Status errors, and the catalog of what is served, which follows the stored definitions. What follows from a
// write, such as the deletion of a deleted definition's objects, is in package controllers.
//
// A resource comes from one of two sources and behaves the same afterwards. It's either a Go type, which the
// program gives to Register before Run (Namespace and CustomResourceDefinition are registered so), or a
// CustomResourceDefinition object. Each served version of a resource is an Endpoint, and the verbs are its
// methods: they all need the same few things of it, its resource, version, schema and forms, and none is of use
// without. The Catalog holds the endpoints of one instant; it's replaced as a whole. In this package a
// Definition, with a capital, is what a program says of its Go type; a definition is a CustomResourceDefinition,
// and so is crd.Definition.
//
// # Where to begin
//
// registry.go makes and runs the Registry. request.go has what a client asks and gets, options.go how its parameters are read,
// and resource.go what a resource and an Endpoint are. typed.go makes resources of Go types, for which register.go has the
// generic door, and action.go answers what is asked of their objects by POST. Reads
// are in get.go, list.go (page.go) and watch.go. Writes are values of type write: write.go is their engine, queue.go lets
// the writes of one key wait for each other, and create.go, update.go, patch.go, apply.go, scale.go, delete.go and
// deletecollection.go are the verbs on the engine. body.go and meta.go have the rules for what a client sends, schema.go
// those of a definition's schema, admission.go those of the hooks. stored.go and convert.go go between stored bytes and
// objects. definitions.go serves definitions, redefined.go handles one that changes under a request. reset.go brings back
// an earlier state. own.go has what controllers outside this package read and write, derived.go how rules that are kept as
// objects are read, trees.go and equivalent.go what admission sees of objects, and user.go who asks. shared.go and turn.go
// have what is different when other processes write to the store, too: how requests are judged by what the others wrote
// (Fresh, Presume), and who decides about addresses and names. services.go finds the addresses of Services. errors.go makes
// a Status of storage's errors; the refusal of a body, a patch or a webhook's answer is made where it's found. catalog.go
// is what is served, namespaces.go has the rules of namespaces, ttl.go those of objects that expire. outages.go logs why
// the store can't answer. managers.go keeps the endpoints' parts of package managed, columns.go has the columns of
// definitions, openapi.go what OpenAPI says of the endpoints, and plain.go shows protobuf as JSON to those who note
// requests.
//
// # Data flow
//
// A write decodes the body (package object), shapes it by its schema (package schema) or its Go type, and checks it. If the
// object is tracked, it notes who wrote what (package managed). It encodes the object canonically and stores it by one
// compare-and-swap transaction. The client's answer is made from the bytes that were stored.
//
// The old object comes from the cacher, which may be older than etcd. A success is safe all the same, because the
// transaction compares the revision. A refusal or "unchanged" is only given after the key was read from etcd (see
// compareAndSwap). Writes of one key wait for each other (see writers).
//
// Functions that the program brought, Admission and those of a Definition, are called within each attempt, on copies. Their
// panics are errors (see call).
//
// Go types that have messages are read and shown as protobuf, too (protobuf.go); a write makes the message that watchers are shown (written.go).
//
// Reads copy the cacher's bytes. In the other forms (package form), metadata is a range of those bytes, too, and the rows of
// Tables are made for each answer.
//
// # Goroutines
//
// A client's DeleteCollection uses at most DeletersAtOnce goroutines and waits for them. When a definition is replaced, a
// goroutine of definitions.closing closes its webhook; Run waits for those at its end. In a shared registry Run
// itself follows the definitions that other processes write. Nothing else outlives the call that started it.
//
// # Locks
//
// In the order in which they're taken: definitions.writing (a channel, so that waiting for it can be cancelled), through a
// whole write of a definition; the front of a key's queue (see writers), while the object is changed, its hooks and
// webhooks included, and at most maxQueueWait is spent waiting for it; the gate of storage, while a write is in etcd and
// while a reset is made; definitions.mu, while the catalog is rebuilt from memory; the cacher's locks.
//
// writers.mu, unreadable.mu, outages.mu, typed.surveyed, Catalog.prefixesOnce and hookclient.Client.mu are leaves: no lock is
// taken under them. managers.mu is held while a manager is made. Derived.making (a channel) is full while its value is made, by
// a function of another package: under it come the cacher's locks and that package's own, such as those of webhooks' clients
// and of metrics, under which nobody calls Get. builtin's allocator.mu comes before the cacher's locks, too.
//
// # Bounds
//
// The caller bounds bodies. Here are bounded: objects (maxObjectBytes), nesting (encoding/json's 10,000), nesting times size
// of a Go type's body (maxTypedWork), values of a body (maxTypedValues, maxTreeValues), patches (maxPatchOperations,
// maxPatchCopyBytes, maxPatchWork, maxPatchMoves, maxMergeWork), the wait for a key
// (maxQueueWait) and for a version (freshnessWait), deletions at once (DeletersAtOnce), the field errors in a Status
// (MaxCauses), what is quoted in errors (package clip), what a page converts at once (conversionBatch), and the log of
// unreadable objects (maxReported). The deletion of a collection keeps the objects of the collection until its end: they're the
// cacher's, and its answer lists them. Packages schema,
// managed, conversion, object and form name their own.
package registry
