// Package conversion calls the conversion webhooks of CustomResourceDefinitions: it asks a definition's
// webhook to make objects of other versions into one version, and checks what comes back.
//
// What is sent, what is checked and the words of errors are those of k8s.io/apiextensions-apiserver 0.37. A
// webhook is software of others at an address that a client chose, so this package is strict where that one
// trusts: see package hookclient, which does the calls, for the addresses that are called and for what an answer may cost.
// Nothing of an answer's objects is in an error.
//
// # Data flow
//
// Objects are bytes. Convert looks at apiVersion, kind and metadata of each, cuts those of other versions into
// requests, and copies them into the request's body as they are. Of an answered object apiVersion, kind and
// metadata are decoded; the rest is compacted and copied. Its metadata becomes that of the object which was
// sent, except for labels and annotations, which a webhook may change.
//
// # Goroutines and locks
//
// The package starts no goroutine and has no lock: package hookclient has.
//
// # Bounds
//
// For each request: Timeout, objects (maxBatchObjects, maxBatchBytes), the answer (maxAnswerBytes). For each webhook:
// requests at once (maxCalls).
package conversion
