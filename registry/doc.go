// Package registry knows what a resource is, and which are served: kinds that are Go types, and stored definitions.
//
// It has what seldom changes: resources, their types and strategies, the definitions, and the catalog of what is served, which follows the
// stored definitions. The verbs are in the packages above it: reads has those that read, and writes is the engine of those that write. What
// follows from a write, such as the deletion of a deleted definition's objects, is in package controllers.
//
// A resource comes from one of two sources and behaves the same afterwards. It's either a Go type, which the
// program gives to Register before Run (Namespace and CustomResourceDefinition are registered so), or a
// CustomResourceDefinition object. Each served version of a resource is an Endpoint. The Catalog holds the endpoints of one instant; it's
// replaced as a whole. In this package a Definition, with a capital, is what a program says of its Go type; a definition is a
// CustomResourceDefinition, and so is crd.Definition. What reads and writes need of a resource are exported fields and methods. Nobody else
// changes any of it.
//
// # Where to begin
//
// Read [Registry], what a client asks and gets ([Request], [Result]), and what a resource is at one version ([Resource], [Endpoint]). A
// Go type is a [Type], and [Register] makes one of a [Definition]. [Current] runs a request again whose definition changes under it, [Fresh]
// and [Presume] say how requests are judged by what other processes wrote. [Endpoint.Failed] makes a Status of storage's errors. [Door] is what
// controllers see.
//
// Functions that the program brought, Admission and those of a Definition, are called within each attempt of a write, on copies. Their
// panics are errors (see Call).
//
// # Goroutines
//
// When a definition is replaced, a
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
// and of metrics, under which nobody calls Get. The mutex of builtin/network's Allocator comes before the cacher's locks, too.
//
// # Bounds
//
// The caller bounds bodies. Here are bounded: objects (MaxObjectBytes), nesting times size of a Go type's body (MaxTypedWork), values of a body
// (MaxTypedValues), the wait for a key (maxQueueWait) and for a version (freshnessWait), the field errors in a Status
// (MaxCauses), what is quoted in errors (package clip), and the log of unreadable objects (maxReported). Packages writes, schema,
// managed, conversion, object and form name their own.
package registry
