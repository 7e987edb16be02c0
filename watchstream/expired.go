package watchstream

import "errors"

// The Statuses that tell a client about an error of the source. The first is kube-apiserver's answer when history is
// gone: clients list again.
var (
	statusExpired = []byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"The resourceVersion for the provided watch is too old.","reason":"Expired","code":410}`)
	statusFailed = []byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"Internal error occurred: the watch can't go on; resume it from the last resourceVersion seen","reason":"InternalError","code":500}`)
)

// statusOf is the Status that tells the client about an error of the source.
func statusOf(err error) []byte {
	if errors.Is(err, ErrExpired) {
		return statusExpired
	}
	return statusFailed
}
