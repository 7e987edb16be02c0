package jsontree

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Into sets a pointer to a struct, in which nothing is set yet, to what a tree says. It makes what runtime's FromUnstructured makes,
// with which the tests compare it, and its errors are the same. But it looks at a type's fields once. A field of any type shares
// what the tree has there. What it knows of a type is kept for as long as the process runs.
func Into(tree map[string]any, v any) error {
	if lenient.into(tree, v) {
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(tree, v) // or its error
}

// Fits is Into for a tree that may have members which the type doesn't have, or values that don't fit: it's false then, and may have
// set some fields. It's false for some trees that do fit, too.
func Fits(tree map[string]any, v any) bool { return exact.into(tree, v) }

// reader sets a value of one type, which is zero, to what a tree says that isn't null. It's false if the tree is of another type, and
// where only runtime knows what to do.
type reader interface {
	read(tree any, v reflect.Value) bool
}

// readers has a reader for each type that was met, by its reflect.Type.
type readers struct {
	known sync.Map
	exact bool // members that a struct doesn't have don't fit
}

var lenient, exact = &readers{}, &readers{exact: true}

func (all *readers) into(tree map[string]any, v any) bool {
	of := reflect.ValueOf(v)
	return of.Kind() == reflect.Pointer && !of.IsNil() && all.readerOf(of.Type().Elem()).read(tree, of.Elem())
}

// readerOf returns the reader of a type.
func (all *readers) readerOf(t reflect.Type) reader {
	if r, ok := all.known.Load(t); ok {
		return r.(reader)
	}
	s := reading{all, map[reflect.Type]reader{}}
	r := s.reader(t)
	for t, r := range s.made {
		all.known.LoadOrStore(t, r)
	}
	return r
}

// reading is the readers of a type and of all that is in it, while they're made: types contain themselves.
type reading struct {
	*readers
	made map[reflect.Type]reader
}

func (s reading) reader(t reflect.Type) reader {
	if known, ok := s.known.Load(t); ok {
		return known.(reader)
	}
	if known, ok := s.made[t]; ok {
		return known
	}
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		s.made[t] = timeReader{time.RFC3339}
	case t == reflect.TypeFor[metav1.MicroTime]():
		s.made[t] = timeReader{metav1.RFC3339Micro}
	case value.TypeReflectEntryOf(t).CanConvertFromUnstructured():
		s.made[t] = ownReader{}
	case t.Kind() == reflect.Pointer:
		r := &pointerReader{}
		s.made[t] = r // before what is in it, which may be of the same type
		r.to = s.reader(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		s.made[t] = dataReader{}
	case t.Kind() == reflect.Slice:
		r := &listReader{}
		s.made[t] = r
		r.of = s.reader(t.Elem())
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		r := &mappingReader{}
		s.made[t] = r
		r.of = s.reader(t.Elem())
	case t.Kind() == reflect.Struct:
		r := &structReader{exact: s.exact}
		s.made[t] = r
		w, ok := whole.writerOf(t).(*structWriter)
		if ok && w.bad == nil {
			r.members = make(map[string]memberReader, len(w.members))
			for _, m := range w.members {
				r.members[m.name] = memberReader{m.index, s.reader(t.FieldByIndex(m.index).Type)}
			}
		}
		r.odd = !ok || w.bad != nil || len(r.members) < len(w.members)
	default:
		s.made[t] = scalarReader{}
	}
	return s.made[t]
}

// structReader reads structs, by the members that a structWriter writes.
type structReader struct {
	members    map[string]memberReader // by their names
	odd, exact bool                    // see structWriter's bad, and readers; two members with one name are odd, too
}

type memberReader struct {
	index []int
	reader
}

func (r *structReader) read(tree any, v reflect.Value) bool {
	from, ok := tree.(map[string]any)
	if !ok || r.odd {
		return false
	}
	for name, said := range from { // most structs have many members that aren't there
		m, ok := r.members[name]
		if !ok && r.exact || ok && said != nil && !m.read(said, v.FieldByIndex(m.index)) {
			return false
		}
	}
	return true
}

// ownReader reads what reads itself. A number with a fraction may have been written in another way.
type ownReader struct{}

func (ownReader) read(tree any, v reflect.Value) bool {
	if _, ok := tree.(float64); ok {
		return false
	}
	text, err := Append(nil, tree)
	return err == nil && v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(text) == nil
}

// timeReader reads as metav1.Time and MicroTime read themselves, without a JSON decoder.
type timeReader struct{ layout string }

func (r timeReader) read(tree any, v reflect.Value) bool {
	text, ok := tree.(string)
	if !ok {
		return false
	}
	at, err := time.Parse(r.layout, text)
	*v.Field(0).Addr().Interface().(*time.Time) = at.Local()
	return err == nil
}

type pointerReader struct{ to reader }

func (r *pointerReader) read(tree any, v reflect.Value) bool {
	v.Set(reflect.New(v.Type().Elem()))
	return r.to.read(tree, v.Elem())
}

type listReader struct{ of reader }

func (r *listReader) read(tree any, v reflect.Value) bool {
	list, ok := tree.([]any)
	if !ok || list == nil {
		return false
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
	for i, element := range list {
		if element != nil && !r.of.read(element, v.Index(i)) {
			return false
		}
	}
	return true
}

type mappingReader struct{ of reader }

func (r *mappingReader) read(tree any, v reflect.Value) bool {
	from, ok := tree.(map[string]any)
	if !ok || from == nil {
		return false
	}
	key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
	v.Set(reflect.MakeMapWithSize(v.Type(), len(from)))
	for name, said := range from {
		element.SetZero()
		if said != nil && !r.of.read(said, element) {
			return false
		}
		key.SetString(name)
		v.SetMapIndex(key, element)
	}
	return true
}

// dataReader reads bytes, which are base64.
type dataReader struct{}

func (dataReader) read(tree any, v reflect.Value) bool {
	text, ok := tree.(string)
	if !ok {
		return false
	}
	data, err := base64.StdEncoding.DecodeString(text)
	v.SetBytes(data)
	return err == nil
}

// scalarReader reads what has no parts. A number with a fraction, and values of any type, are left to runtime.
type scalarReader struct{}

func (scalarReader) read(tree any, v reflect.Value) bool {
	switch said := tree.(type) {
	case string:
		if v.Kind() == reflect.String {
			v.SetString(said)
			return true
		}
	case bool:
		if v.Kind() == reflect.Bool {
			v.SetBool(said)
			return true
		}
	case int64:
		switch v.Kind() {
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			v.SetInt(said)
			return !v.OverflowInt(said)
		}
	}
	return false
}
