// Package kube says what a Kubernetes object is as the bytes that are stored, and how it's shown.
//
// An Object is stored bytes that were scanned once. The scan checks that they're JSON and notes the offsets and attributes
// that others ask for: labels, the values of selectable fields, who owns the object, how long it lives. A View makes
// what a client gets of an Object. It copies the bytes and puts in what differs. An object that can't be copied is
// converted first, by a Conversion, and an Encoding makes it protobuf. What those two make is kept with the object, for all
// readers.
//
// Nothing here knows which objects there are, or who asks. The package starts no goroutine. Its locks are
// leaves: Conversion.mu, under which Conversion.Needed is called and nothing else, and Conversions.mu.
//
// Bounds: jsonscan.MaxDepth and maxStored for what is scanned, and what NewMessages is given. What conversions remember is
// bounded by MaxConvertedBytes.
package kube
