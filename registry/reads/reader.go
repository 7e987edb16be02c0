// Package reads answers what reads a resource: get, list and watch, in all the forms in which objects are shown (package form), and what
// admission, discovery and the server's own controllers look at.
//
// It owns the parameters of reads, the pages of lists with their tokens, and what OpenAPI says of objects. Reads copy the cacher's bytes. In the
// other forms, metadata is a range of those bytes, too, and the rows of Tables are made for each answer. Nothing is kept, no goroutine
// outlives the call that started it, and no lock is held but those of package registry and of the cacher. What a page converts at once is
// bounded (ConversionBatch).
//
// Begin with [Reader.Get], [Reader.List] and [Reader.Watch].
package reads

import "github.com/apiserver-lite/apiserver-lite/registry"

// Reader is an endpoint of which something is read.
type Reader struct{ *registry.Endpoint }

// Of returns the Reader of an endpoint.
func Of(e *registry.Endpoint) Reader { return Reader{e} }
