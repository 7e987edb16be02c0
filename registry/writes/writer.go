// Package writes is the engine of all writes: of clients' verbs, and of what the server itself writes.
//
// It owns the rules of a write: decoding, metadata, status and finalizers, patches, applied configurations, and the order in which hooks and a type's
// rules are asked. A write decodes the body (package object), shapes it by its schema (package schema) or its Go type, and checks it. If the
// object is tracked, it notes who wrote what (package managed). It encodes the object canonically and stores it by one
// compare-and-swap transaction. The client's answer is made from the bytes that were stored.
//
// The old object comes from the cacher, which may be older than etcd. A success is safe all the same, because the
// transaction compares the revision. A refusal or "unchanged" is only given after the key was read from etcd (see
// compareAndSwap). Writes of one key wait for each other (registry's writers).
//
// A write is a value of type write, whose engine is write.go. stages.go has what becomes of an object between the hooks and the store. Each verb is
// a file on the engine, and so is what controllers write (own.go).
//
// A client's DeleteCollection uses at most DeletersAtOnce goroutines and waits for them; nothing else outlives the call that started it. Locks
// are those of package registry. Here are bounded: values of a body (registry.MaxTreeValues, registry.MaxPodValues), patches (maxPatchOperations,
// maxPatchCopyBytes, maxPatchWork, maxPatchMoves, maxMergeWork), and deletions at once (DeletersAtOnce). The deletion of a collection keeps the
// objects of the collection until its end: they're the cacher's, and its answer lists them.
package writes

import (
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// Writer is an endpoint of which something is written.
type Writer struct{ reads.Reader }

// Of returns the Writer of an endpoint.
func Of(e *registry.Endpoint) Writer { return Writer{reads.Of(e)} }
