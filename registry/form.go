package registry

import (
	"net/url"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Form is what a client gets of objects. The zero value is the objects themselves.
type Form struct {
	Kind    FormKind
	Version string // of the group meta.k8s.io, "v1" or "v1beta1"; "" for Whole
}

// FormKind is a kind of Form.
type FormKind string

// The forms: objects as they are, as PartialObjectMetadata or a list of them, and as a Table to be printed.
const (
	Whole        FormKind = ""
	MetadataOnly FormKind = "PartialObjectMetadata"
	Table        FormKind = "Table"
)

func (f Form) apiVersion() string { return metav1.GroupName + "/" + f.Version }

// In returns the endpoint as it answers in a form: its verbs do the same. For a Table the parameter
// includeObject says what comes with each row. Errors are Status errors.
func (e *Endpoint) In(f Form, q url.Values) (*Endpoint, error) {
	if f.Kind == Whole {
		return e, nil
	}
	k := formKey{Form: f}
	if f.Kind == Table {
		options := &metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(clip(q.Get("includeObject")))}
		if errs := validation.ValidateTableOptions(options); len(errs) > 0 {
			return nil, badRequest("Unable to convert to Table as requested: %v", errs[0])
		}
		if k.include = options.IncludeObject; k.include == "" {
			k.include = metav1.IncludeMetadata
		}
	}
	return e.in(k), nil
}

// in returns the endpoint as it answers in a form with its options.
func (e *Endpoint) in(k formKey) *Endpoint {
	if k.Kind == Whole {
		return e
	}
	in := *e
	in.shown = e.forms.get(k, e.view)
	return &in
}

// By returns the endpoint as it serves a client that calls itself so in User-Agent.
func (e *Endpoint) By(userAgent string) *Endpoint {
	by := *e
	by.userAgent = userAgent
	return &by
}

// shown is how an endpoint answers in one form. Immutable.
type shown struct {
	key    formKey
	single *cacher.View // one object
	event  *cacher.View // one object in an event
	item   *cacher.View // one object in a list

	// A list is {"kind":K,"apiVersion":V,"metadata":{...},M item, item...]}, where M is members.
	listKind, listVersion string
	members               []byte
}

// forms are the other forms of an endpoint. Watchers with one *View share what is encoded for them, so
// there is one of each form, made when it's first asked for.
type forms struct {
	columns func() *columns // what tables show; compiled once

	mu   sync.Mutex // guards made
	made map[formKey]*shown
}

// formKey is a form with its options. There are eight.
type formKey struct {
	Form
	include metav1.IncludeObjectPolicy // for tables
}

// newForms returns the forms of an endpoint whose tables have these columns behind the name.
func newForms(declared []Column) *forms {
	return &forms{columns: sync.OnceValue(func() *columns { return compile(declared) }), made: map[formKey]*shown{}}
}

// get returns a form other than Whole; whole is the view of that.
func (f *forms) get(k formKey, whole *cacher.View) *shown {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.made[k]
	if s == nil {
		partial := &cacher.View{APIVersion: k.apiVersion(), Kind: string(MetadataOnly), MetadataOnly: true, Conversion: whole.Conversion}
		if k.Kind == Table {
			t := &table{columns: f.columns(), apiVersion: k.apiVersion(), include: k.include, whole: whole, partial: partial}
			s = t.shown()
		} else {
			s = &shown{
				single: partial, event: partial, item: partial,
				listKind: string(MetadataOnly) + "List", listVersion: k.apiVersion(), members: []byte(`"items":[`),
			}
		}
		s.key = k
		f.made[k] = s
	}
	return s
}

// wholeForm is an endpoint's own form.
func (e *Endpoint) wholeForm(item *cacher.View) *shown {
	return &shown{
		single: e.view, event: e.view, item: item,
		listKind: e.ListKind, listVersion: e.apiVersion(), members: []byte(`"items":[`),
	}
}
