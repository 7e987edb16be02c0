package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
)

// list is the answer where there are several.
type list[T any] struct {
	Items []T `json:"items"`
}

// Answer answers at Path, at a name below it, and at LogPath. name is "" but below Path, and read returns the body of the request as JSON. The error is a
// Status, or read's.
func (f *Faults) Answer(w http.ResponseWriter, r *http.Request, name string, read func() ([]byte, error)) error {
	switch {
	case r.URL.Path == LogPath:
		return f.answerLog(w, r)
	case r.Method == http.MethodGet && name == "":
		return send(w, http.StatusOK, list[Page]{f.List()})
	case r.Method == http.MethodGet:
		page, err := f.Get(name)
		if err != nil {
			return err
		}
		return send(w, http.StatusOK, page)
	case r.Method == http.MethodDelete:
		gone, err := f.Delete(name)
		if err != nil {
			return err
		}
		return send(w, http.StatusOK, list[Page]{gone})
	case r.Method == http.MethodPut && name != "":
		return f.answerPut(w, name, read)
	case name == "":
		return notAllowed(w, "GET, DELETE", "only GET and DELETE are served here: PUT "+Path+"/NAME arms a rule")
	}
	return notAllowed(w, "GET, PUT, DELETE", "only GET, PUT and DELETE are served here")
}

// answerLog answers at LogPath: with ?rule=NAME what one rule did, with ?after=NUMBER what came after that entry.
func (f *Faults) answerLog(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return notAllowed(w, "GET", "only GET is served here")
	}
	query, after := r.URL.Query(), int64(0)
	if text := query.Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil {
			return registry.BadRequest("the parameter after must be the number of an entry, and is %q", clip.Text(text))
		}
	}
	return send(w, http.StatusOK, list[Entry]{f.Log(query.Get("rule"), after)})
}

func (f *Faults) answerPut(w http.ResponseWriter, name string, read func() ([]byte, error)) error {
	text, err := read()
	if err != nil {
		return err
	}
	rule, err := Parse(text)
	if err != nil {
		return err
	}
	page, created, err := f.Put(name, rule)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return send(w, code, page)
}

// Parse reads a rule from JSON, and refuses what a rule doesn't have. The error is a Status.
func Parse(text []byte) (rule Rule, err error) {
	if len(text) > maxRule {
		return rule, registry.Refusal(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, fmt.Sprintf("a rule has at most %d bytes, and this one has %d", maxRule, len(text)))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(&rule); err == nil && d.Decode(new(json.RawMessage)) != io.EOF {
		err = errors.New("something follows it")
	}
	if err != nil {
		return rule, registry.BadRequest("the body must be one rule for faults: %s", clip.Text(err.Error()))
	}
	return rule, nil
}

func notAllowed(w http.ResponseWriter, allow, message string) error {
	w.Header().Set("Allow", allow)
	return registry.Refusal(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, message)
}

func send(w http.ResponseWriter, code int, page any) error {
	body, err := json.Marshal(page)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(code)
	_, err = w.Write(append(body, '\n'))
	return err
}
