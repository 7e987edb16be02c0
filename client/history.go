package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Version is a write of an object, as its history has it.
type Version struct {
	ResourceVersion string
	// The write was done by Time, and at most Within before it. Time is zero where the server doesn't know.
	Time   time.Time
	Within time.Duration
	Change string // created, changed or deleted
	UID    string // of the object: another one of the same name has another one
	// Manager is who wrote, by managedFields, and User by the server's --history-users; "" where nobody knows.
	Manager, User string
	// Patch is the JSON patch (RFC 6902) that makes the version of the one before it, without what each write changes: managedFields and
	// resourceVersion. It's nothing for what is created or deleted, and for the first that history has.
	Patch []PatchOperation
	// Unreadable says why what is stored can't be shown; "" if it can.
	Unreadable string
}

// PatchOperation is one of a JSON patch.
type PatchOperation struct {
	Op    string          `json:"op"` // add, remove or replace
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// History yields the versions of an object that the server's history still has, newest first: over deletions and new creations of the name,
// too. Pages are fetched as one comes to them. An error is the last that it yields: ErrNotFound says that there's no such object, and that history
// has none. Only apiserver-lite has histories. Options: At or AtTime begin with that version.
func (c Collection[T]) History(ctx context.Context, name string, options ...Option) iter.Seq2[Version, error] {
	return func(yield func(Version, error) bool) {
		s := newSettings(options)
		if err := s.check(aGet); err != nil {
			yield(Version{}, err)
			return
		}
		query := url.Values{"history": {"true"}}
		if s.query.Has(instantParameter) {
			query.Set(instantParameter, s.query.Get(instantParameter))
		} else if s.query.Has("resourceVersion") {
			query.Set("from", s.query.Get("resourceVersion"))
		}
		if s.pageSize > 0 {
			query.Set("limit", strconv.Itoa(s.pageSize))
		}
		for {
			page, err := c.history(ctx, name, query)
			if err != nil {
				yield(Version{}, err)
				return
			}
			for _, v := range page.Items {
				if !yield(v, nil) {
					return
				}
			}
			if page.Metadata.Continue == "" {
				return
			}
			query.Del(instantParameter)
			query.Set("from", page.Metadata.Continue)
		}
	}
}

// wireVersion is a Version as the server has it.
type wireVersion struct {
	ResourceVersion string           `json:"resourceVersion"`
	Time            *time.Time       `json:"time,omitempty"`
	Within          string           `json:"within,omitempty"`
	Change          string           `json:"change"`
	UID             string           `json:"uid,omitempty"`
	Manager         string           `json:"manager,omitempty"`
	User            string           `json:"user,omitempty"`
	Patch           []PatchOperation `json:"patch,omitempty"`
	Unreadable      string           `json:"unreadable,omitempty"`
}

// MarshalJSON returns the version as the server has it.
func (v Version) MarshalJSON() ([]byte, error) {
	w := wireVersion{ResourceVersion: v.ResourceVersion, Change: v.Change, UID: v.UID, Manager: v.Manager, User: v.User, Patch: v.Patch, Unreadable: v.Unreadable}
	if !v.Time.IsZero() {
		w.Time, w.Within = &v.Time, v.Within.String()
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON returns.
func (v *Version) UnmarshalJSON(document []byte) error {
	var w wireVersion
	if err := json.Unmarshal(document, &w); err != nil {
		return err
	}
	*v = Version{ResourceVersion: w.ResourceVersion, Change: w.Change, UID: w.UID, Manager: w.Manager, User: w.User, Patch: w.Patch, Unreadable: w.Unreadable}
	if w.Time == nil {
		return nil
	}
	within, err := time.ParseDuration(w.Within)
	v.Time, v.Within = *w.Time, within
	return err
}

// historyPage is a page of a history.
type historyPage struct {
	Kind     string
	Metadata struct{ Continue string }
	Items    []Version
}

func (c Collection[T]) history(ctx context.Context, name string, query url.Values) (page historyPage, err error) {
	document, err := c.client.answer(ctx, &request{method: http.MethodGet, path: c.path(c.namespace, name, ""), query: query})
	if err != nil {
		return page, err
	}
	if err := json.Unmarshal(document, &page); err != nil || page.Kind != "History" {
		return page, fmt.Errorf("%s %s: the server has no histories, and has answered with %.*q", c, name, maxQuoted, document)
	}
	return page, nil
}
