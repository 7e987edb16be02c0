// Package managed keeps track of who set which field of an object (metadata.managedFields) and merges applied
// configurations into objects: server-side apply, KEP-555.
//
// A Manager does both for one kind in one version and one subresource. It works on objects as trees (what
// encoding/json makes of them, with integers as int64) and reads, stores and serves nothing. Merging is that of
// Kubernetes itself: apimachinery's managedfields over structured-merge-diff. The rest is what the library needs
// from its user (types by kind, conversion between versions), and what saves work that would cost more than the merge:
// the library sees managedFields as entries and never inside the tree, so that nothing copies, compares or
// validates them; entries that didn't change keep their tree; a write that changes nothing isn't merged at all.
//
// Types are built from OpenAPI at the first use of one of a kind's managers and shared by all of them.
// The package starts no goroutine; its only locks are Types.once and Manager.once. Where two objects are given, the stored
// one comes first, as in the library.
//
// # Bounds
//
// Objects that nest deeper than maxDepth are neither merged nor recorded. maxMessage bounds what a message repeats.
package managed
