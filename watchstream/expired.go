package watchstream

import (
	"encoding/json"
	"errors"
)

// Failure is what a client is told of an error of the source, with which its stream ends: the parts of a Status.
type Failure struct {
	Code            int
	Reason, Message string
}

// Codes of failures. Source: kube-apiserver's NewResourceExpired and NewInternalError; clients act on the first one's code.
const (
	codeExpired  = 410 // HTTP's Gone
	codeInternal = 500
)

// Public is an error of a source that says what clients may know. Of others only the log is told.
type Public interface {
	error
	Public() string
}

// FailureOf returns what the client is told about an error of the source. ErrExpired is kube-apiserver's answer when history is
// gone: clients list again.
func FailureOf(err error) Failure {
	if errors.Is(err, ErrExpired) {
		return Failure{codeExpired, "Expired", "The resourceVersion for the provided watch is too old."}
	}
	why := ""
	if p := (Public)(nil); errors.As(err, &p) {
		why = ": " + p.Public()
	}
	return Failure{codeInternal, "InternalError", "Internal error occurred: the watch can't go on" + why + "; resume it from the last resourceVersion seen"}
}

// Status returns the Status as compact JSON.
func (f Failure) Status() []byte {
	status, err := json.Marshal(struct {
		Kind       string   `json:"kind"`
		APIVersion string   `json:"apiVersion"`
		Metadata   struct{} `json:"metadata"`
		Status     string   `json:"status"`
		Message    string   `json:"message"`
		Reason     string   `json:"reason"`
		Code       int      `json:"code"`
	}{Kind: "Status", APIVersion: "v1", Status: "Failure", Message: f.Message, Reason: f.Reason, Code: f.Code})
	if err != nil {
		panic(err) // texts and a number always encode
	}
	return status
}
