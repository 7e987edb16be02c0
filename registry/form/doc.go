// Package form knows what a client gets of objects: the objects themselves, their metadata alone, or rows of a
// Table that kubectl prints.
//
// A form is a set of kube.Views, one for an object, one for an event and one for an item of a list, and what
// is around the items of a list. As JSON, the first two forms copy
// ranges of the stored bytes; as protobuf, they're messages, made of the decoded object. A Table's rows are made
// anew for each read, and once per event for all watchers. Only the members that the columns look at are decoded.
//
// The package starts no goroutine. Forms.mu is a leaf.
//
// # Bounds
//
// A form's paths have at most one branch (see parsePath), so that a cell costs in proportion to the object.
// Buffers above maxPooledObject aren't kept.
package form
