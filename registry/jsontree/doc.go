// Package jsontree reads and writes JSON documents as trees: maps, slices, strings, bools, nil, int64 for
// integers that fit, and float64. Every write decodes one or two documents and encodes one, and with the
// standard packages that was half of what a write cost.
//
// It does what sigs.k8s.io/json and encoding/json do, which the tests hold it to, several times faster: without
// reflection, and with strings that are parts of the document. What isn't plain (a document with an error, a
// string with escapes, a type that isn't JSON's) is theirs to handle, and to complain of.
//
// The package starts no goroutine. It nests as deep as maxDepth. Of the buffers that it keeps, none has more than
// maxPooledMembers names. What it learns of a Go type it keeps for the life of the process (writers).
package jsontree
