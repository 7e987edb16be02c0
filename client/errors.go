package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What a server refuses is a *StatusError, of which errors.Is tells with these whether it's of that kind.
var (
	// ErrNotFound is returned when there's no such object, namespace or resource (404).
	ErrNotFound = errors.New("not found")
	// ErrExists is returned when an object to be created is there already (409).
	ErrExists = errors.New("already exists")
	// ErrConflict is returned when the object has changed since it was read, or isn't the one that a precondition asked
	// for, or when its fields are owned by another field manager (409).
	ErrConflict = errors.New("conflict")
	// ErrExpired is returned when a version is too old, or unknown to this server: its history is gone (410). List again, as Track does.
	ErrExpired = errors.New("version expired")
	// ErrForbidden is returned when the user may not do that, or when admission refuses it (403).
	ErrForbidden = errors.New("forbidden")
	// ErrUnauthorized is returned when the server doesn't know the user (401).
	ErrUnauthorized = errors.New("unauthorized")
	// ErrInvalid is returned when an object or an option breaks a rule (422); StatusError.Causes has each of them.
	ErrInvalid = errors.New("invalid")
	// ErrTooManyRequests is returned when the server is busy (429), and the context ends before StatusError.RetryAfter.
	ErrTooManyRequests = errors.New("too many requests")
	// ErrUnavailable is returned when the server, or something before it, is starting or stopping (503).
	ErrUnavailable = errors.New("unavailable")
	// ErrVersionTooLarge is returned when the server hasn't come to a version yet (504): it's behind, or the version is of
	// another server.
	ErrVersionTooLarge = errors.New("version too large")
)

// These are errors of this package.
var (
	// ErrVersion is returned by Follow for a version to begin at that isn't a real one. "" and "0" would begin anywhere, and a server refuses what is no number.
	ErrVersion = errors.New("no version to follow from")
	// ErrNoVersion is returned when an event has no resourceVersion, so that nobody could resume after it.
	ErrNoVersion = errors.New("event without a resourceVersion")
	// ErrType is returned when an object is sound JSON but doesn't fit the program's type.
	ErrType = errors.New("object doesn't fit the type")
	// ErrClosed is returned to those who wait for a cache of StartCache when it has ended, by Close or with its context.
	ErrClosed = errors.New("the cache is closed")
	// ErrLagging is returned by a subscription that takes every change and is too far behind.
	ErrLagging = errors.New("subscriber is too far behind")
)

// StatusError is a refusal by the server.
type StatusError struct {
	Code    int    // the HTTP status
	Reason  string // one word, such as NotFound; empty if the answer came from something else than an API server
	Message string
	Group   string // of the resource
	Kind    string // the resource, or for an invalid object its kind
	Name    string
	UID     string
	Causes  []Cause
	// RetryAfter is after what time the server would like to be asked again; 0 if it doesn't say.
	RetryAfter time.Duration

	continuation string // of a list that has expired: the token that goes on with the state as it is now
}

// Cause is one thing that is wrong.
type Cause struct {
	Reason  string `json:"reason"` // such as FieldValueInvalid
	Message string `json:"message"`
	Field   string `json:"field"` // its path, such as spec.size
}

// Error returns the server's message.
func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the server answered %d %s", e.Code, http.StatusText(e.Code))
	}
	return e.Message
}

// Is tells whether target is the sentinel of the error's kind.
func (e *StatusError) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Code == http.StatusNotFound
	case ErrExists:
		return e.Code == http.StatusConflict && e.Reason == "AlreadyExists"
	case ErrConflict:
		return e.Code == http.StatusConflict && e.Reason != "AlreadyExists"
	case ErrExpired:
		return e.Code == http.StatusGone
	case ErrForbidden:
		return e.Code == http.StatusForbidden
	case ErrUnauthorized:
		return e.Code == http.StatusUnauthorized
	case ErrInvalid:
		return e.Code == http.StatusUnprocessableEntity
	case ErrTooManyRequests:
		return e.Code == http.StatusTooManyRequests
	case ErrUnavailable:
		return e.Code == http.StatusServiceUnavailable
	case ErrVersionTooLarge:
		return e.Code == http.StatusGatewayTimeout && e.versionTooLarge()
	}
	return false
}

// versionTooLarge tells whether the server says so. Servers before 1.18 say it in the message only.
func (e *StatusError) versionTooLarge() bool {
	for _, cause := range e.Causes {
		if cause.Reason == "ResourceVersionTooLarge" {
			return true
		}
	}
	return strings.HasPrefix(e.Message, "Too large resource version")
}

// status is a Status of meta/v1.
type status struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Details struct {
		Name              string  `json:"name"`
		Group             string  `json:"group"`
		Kind              string  `json:"kind"`
		UID               string  `json:"uid"`
		Causes            []Cause `json:"causes"`
		RetryAfterSeconds int     `json:"retryAfterSeconds"`
	} `json:"details"`
	Code int `json:"code"`
}

// statusError makes an error of a Status: the object of an ERROR event, or the body of an answer whose code is given.
// A body that is no Status is the answer of something else, such as a proxy, and its beginning becomes the message.
func statusError(code int, body []byte) *StatusError {
	var s status
	if err := json.Unmarshal(body, &s); err != nil || s.Kind != "Status" {
		message := fmt.Sprintf("the server answered %d %s", code, http.StatusText(code))
		if text := strings.TrimSpace(string(body[:min(len(body), maxQuoted)])); text != "" {
			message += ": " + strconv.Quote(text)
		}
		return &StatusError{Code: code, Message: message}
	}
	code = cmp.Or(code, s.Code)
	return &StatusError{
		Code: code, Reason: s.Reason, Message: s.Message,
		Group: s.Details.Group, Kind: s.Details.Kind, Name: s.Details.Name, UID: s.Details.UID,
		Causes: s.Details.Causes, RetryAfter: time.Duration(s.Details.RetryAfterSeconds) * time.Second,
		continuation: s.Metadata.Continue,
	}
}

// maxQuoted is how many bytes of a foreign answer an error repeats.
const maxQuoted = 200
