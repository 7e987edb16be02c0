// Package audit notes who did what.
//
// A Record is what is known about one request. It travels in the request's context, so that whoever decides something about
// the request can annotate it. The package imports nothing of ours.
package audit
