// Package object knows what an object is on its way through a write: metadata, and content as a tree.
//
// A client's bytes become a Document, which has what later steps ask of it: the tree, the members that are given twice,
// and its size. The tree becomes an Object. (Of a Go type's body the tree is dropped, and the type's own decoder reads
// the text.) What is stored is decoded and encoded here as well: canonical JSON without a resourceVersion, which is the
// revision of the key.
//
// Nothing here knows resources, schemas or a Status. Errors about bytes complete the sentence "the body of the
// request …", or whatever else the bytes were.
//
// The package starts no goroutine, and has no lock.
//
// # Bounds
//
// Nesting is bounded by package jsontree (10,000 levels), what it costs to complain of wrong members by
// MaxComplaintWork, and what the pool of encoders keeps by maxPooledEncoding.
package object
