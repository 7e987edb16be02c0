package form

import (
	"cmp"
	"fmt"
	"net/url"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Form is what a client gets of objects. The zero value is the objects themselves, as JSON.
type Form struct {
	Kind     Kind
	Version  string // of the group meta.k8s.io, "v1" or "v1beta1"; "" for Whole
	Encoding Encoding
	// Link is the path of the resource's objects, which a Table has as its selfLink where several resources share a stream; else "".
	Link string
}

// Encoding is how a Form is written.
type Encoding string

// The encodings. Not every Form of every resource has Protobuf; Tables never have.
const (
	JSON       Encoding = ""
	Protobuf   Encoding = "protobuf"
	ServerSent Encoding = "server-sent events" // of watches alone
)

// Kind is a kind of Form.
type Kind string

// The kinds: objects as they are, as PartialObjectMetadata or a list of them, and as a Table to be printed.
const (
	Whole        Kind = ""
	MetadataOnly Kind = "PartialObjectMetadata"
	Table        Kind = "Table"
)

// Key is a form with its options. Thirty-one may be made of one resource.
type Key struct {
	Form
	Include metav1.IncludeObjectPolicy // what comes with the row of a table
}

// WithOptions reads the query parameters that a form has. For a Table, includeObject says what comes with each
// row; for other forms there are none. The error has the words that clients know; it isn't a Status.
func (f Form) WithOptions(q url.Values) (Key, error) {
	if f.Kind != Table {
		return Key{Form: f}, nil
	}
	options := &metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(clip.Text(q.Get("includeObject")))}
	if errs := validation.ValidateTableOptions(options); len(errs) > 0 {
		return Key{}, fmt.Errorf("Unable to convert to Table as requested: %v", errs[0]) //lint:ignore ST1005 clients know the text
	}
	options.IncludeObject = cmp.Or(options.IncludeObject, metav1.IncludeMetadata)
	return Key{Form: f, Include: options.IncludeObject}, nil
}

// APIVersion is that of objects in a form other than Whole.
func (f Form) APIVersion() string { return metav1.GroupName + "/" + f.Version }

// Shown is how objects are answered in one form. Immutable.
type Shown struct {
	Key
	Single *kube.View // one object
	Event  *kube.View // one object in an event
	Item   *kube.View // one object in a list

	// A list is {"kind":K,"apiVersion":V,"metadata":{...},M item, item...]}, where M is Members. As protobuf it's
	// a message, and has no Members.
	ListKind, ListVersion string
	Members               []byte
	NullRows              bool // a table without rows has null instead of them
}

// NewWhole returns the form of whole objects.
func NewWhole(whole, item *kube.View, listKind string) *Shown {
	return &Shown{
		Single: whole, Event: whole, Item: item,
		ListKind: listKind, ListVersion: whole.APIVersion, Members: []byte(`"items":[`),
	}
}

// NewProtobuf returns the form of whole objects as protobuf. e makes the messages.
func NewProtobuf(whole *kube.View, e *kube.Encoding, listKind string) *Shown {
	s := protobuf(whole, e, listKind)
	s.Encoding = Protobuf
	return s
}

func protobuf(of *kube.View, e *kube.Encoding, listKind string) *Shown {
	v := of.Protobuf(e)
	return &Shown{Single: v, Event: v, Item: v, ListKind: listKind, ListVersion: v.APIVersion}
}

// Forms are the other forms of one endpoint's objects. Watchers with one *View share what is encoded for them, so
// there is one Shown of each form, made when it's first asked for. Safe for concurrent use.
type Forms struct {
	// Clock is by what tables show ages. Nil is the machine's. Nobody sets it after the first Get.
	Clock *clock.Clock

	columns func() *columns // what tables show; compiled once
	hidden  string          // an annotation that metadata alone doesn't have; "" for none

	mu        sync.Mutex // guards made and projected
	made      map[Key]*Shown
	projected map[projectedKey]*Shown
}

// projectedKey is a form of whole objects and the fields that it has of them.
type projectedKey struct {
	Key
	fields string
}

// maxProjections is how many projections of one endpoint's objects are kept. Beyond it any other goes: who asks for that again shares nothing
// with who has it still.
const maxProjections = 64

// Projected returns the form in which lists and watches have some fields of what a form of whole objects as JSON shows. fields are the paths as one text.
func (f *Forms) Projected(of *Shown, fields string, p *kube.Projection) *Shown {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := projectedKey{of.Key, fields}
	if f.projected[k] == nil {
		if f.projected == nil {
			f.projected = map[projectedKey]*Shown{}
		}
		for other := range f.projected {
			if len(f.projected) < maxProjections {
				break
			}
			delete(f.projected, other)
		}
		s := *of
		s.Single, s.Event, s.Item = p.View(of.Single), p.View(of.Event), p.View(of.Item)
		f.projected[k] = &s
	}
	return f.projected[k]
}

// New returns the forms of objects whose tables have these columns after the name.
func New(declared []Column) *Forms { return NewLazy(func() []Column { return declared }, "") }

// NewLazy is New for columns that are made when the first table is. A nil function declares none. hidden is an annotation that is shown
// with whole objects alone; "" for none.
func NewLazy(declare func() []Column, hidden string) *Forms {
	return &Forms{hidden: hidden, columns: sync.OnceValue(func() *columns {
		if declare == nil {
			return compile(nil)
		}
		return compile(declare())
	}), made: map[Key]*Shown{}}
}

// ServerSent returns the form in which watches have server-sent events of what a form of JSON shows.
func (f *Forms) ServerSent(of *Shown) *Shown {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := of.Key
	k.Encoding = ServerSent
	if f.made[k] == nil {
		s := *of
		s.Key, s.Event = k, of.Event.AsServerSent()
		f.made[k] = &s
	}
	return f.made[k]
}

// Get returns a form other than Whole; whole is the view of that.
func (f *Forms) Get(k Key, whole *kube.View) *Shown {
	var columns *columns
	if k.Kind == Table {
		columns = f.columns() // the program's function: it's called without the lock
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.made[k]
	if s == nil {
		partial := &kube.View{APIVersion: k.APIVersion(), Kind: string(MetadataOnly), MetadataOnly: true, Conversion: whole.Conversion}
		messages := metadataMessages
		if f.hidden != "" {
			partial, messages = without(partial, f.hidden), messagesWithout(f.hidden)
		}
		const partials = string(MetadataOnly) + "List"
		switch {
		case k.Kind == Table:
			t := &table{columns: columns, clock: f.Clock, apiVersion: k.APIVersion(), include: k.Include, link: k.Link, whole: whole, partial: partial}
			s = t.shown()
		case k.Encoding == Protobuf:
			s = protobuf(partial, messages, partials)
		default:
			s = NewWhole(partial, partial, partials)
		}
		s.Key = k
		f.made[k] = s
	}
	return s
}
