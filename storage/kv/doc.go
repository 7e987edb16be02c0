// Package kv is how both stores ask etcd: through its client, in etcd's own terms.
//
// A Writer makes guarded transactions: writes of one key that are done only if the key is as expected, and all conditions and
// the guards of the context hold (writer.go, guards.go), and the write of many keys at once (replace.go). Errors of etcd's become
// those of package storage here and nowhere else (errors.go). A Reader makes what callers get of what etcd has.
//
// On its way to etcd a call goes through layers (layer.go): package storage/etcd has one that lets in what there is space for, and
// one by which the writes of a cluster's member go together, and are answered in time; package storage/remote has one that
// bounds the time of a write.
//
// Goroutines: those that decode parts of a page; DecodePage waits for them. Locks: gate.open, in stores that may be replaced, for which nobody waits longer than its context.
// Each write has a place in it while etcd has the write. Replace has all places, and calls its plan with them: the plan may
// take locks of the cacher and mustn't write.
//
// Bounds: firstPage keys in the first page of a list. A request may be as large as etcd takes (storage.ErrTooLarge), and a Replace
// waits for as long as the writes before it take.
package kv
