package jsontree

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// OfValue makes a tree of a pointer to a struct, without some of the members at its top. It makes what runtime's
// ToUnstructured makes, with which the tests compare it. But it looks at a type's fields once, and its maps have room for
// what is in them and not for all fields of the type. What it knows of a type is kept for as long as the process runs.
func OfValue(v any, without ...string) (map[string]any, error) { return whole.of(v, without) }

func (w *writers) of(v any, without []string) (map[string]any, error) {
	of := reflect.ValueOf(v)
	if of.Kind() == reflect.Pointer && !of.IsNil() {
		if w, ok := w.writerOf(of.Type().Elem()).(*structWriter); ok {
			if tree, err := w.tree(of.Elem(), without); err == nil {
				return tree, nil
			}
		}
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v) // or its error
	for _, name := range without {
		delete(tree, name)
	}
	return tree, err
}

// writer makes the tree of the values of one type. revise returns what write does, and whether an earlier tree says the same, which it doesn't
// change.
type writer interface {
	write(v reflect.Value) (any, error)
	revise(earlier any, v reflect.Value) (tree any, same bool, err error)
}

// writers has a writer for each type that was met, by its reflect.Type.
type writers struct {
	known       sync.Map
	emptyIsNull bool // for members that are lists or maps
}

var whole, stored = &writers{}, &writers{emptyIsNull: true}

// writerOf returns the writer of a type.
func (all *writers) writerOf(t reflect.Type) writer {
	if w, ok := all.known.Load(t); ok {
		return w.(writer)
	}
	s := survey{all, map[reflect.Type]writer{}}
	w := s.writer(t)
	for t, w := range s.made {
		all.known.LoadOrStore(t, w)
	}
	return w
}

// survey is the writers of a type and of all that is in it, while they're made. It's there because types contain themselves.
type survey struct {
	*writers
	made map[reflect.Type]writer
}

func (s survey) writer(t reflect.Type) writer {
	if known, ok := s.known.Load(t); ok {
		return known.(writer)
	}
	if known, ok := s.made[t]; ok {
		return known
	}
	switch {
	case t == reflect.TypeFor[intstr.IntOrString]():
		s.made[t] = intOrString{}
	case t == reflect.TypeFor[metav1.MicroTime]():
		s.made[t] = leaf(writeMicroTime)
	case value.TypeReflectEntryOf(t).CanConvertToUnstructured():
		s.made[t] = leaf(value.TypeReflectEntryOf(t).ToUnstructured) // values that write themselves
	case t.Kind() == reflect.Pointer:
		w := &pointer{}
		s.made[t] = w // before what is in it, which may be of the same type
		w.to = s.writer(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		s.made[t] = leaf(writeData)
	case t.Kind() == reflect.Slice:
		w := &list{}
		s.made[t] = w
		w.of = s.writer(t.Elem())
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		w := &mapping{}
		s.made[t] = w
		w.of = s.writer(t.Elem())
	case t.Kind() == reflect.Struct:
		w := &structWriter{}
		s.made[t] = w
		for i := range t.NumField() {
			s.field(w, t.Field(i), []int{i})
		}
	case t.Kind() == reflect.Interface:
		s.made[t] = leaf(writeAnything)
	default:
		s.made[t] = scalar{}
	}
	return s.made[t]
}

// field adds a field to those of a struct, or the fields of an embedded struct.
func (s survey) field(w *structWriter, f reflect.StructField, index []int) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return
	}
	if name == "" && f.Anonymous {
		if f.Type.Kind() == reflect.Struct && !value.TypeReflectEntryOf(f.Type).CanConvertToUnstructured() {
			for i := range f.Type.NumField() {
				s.field(w, f.Type.Field(i), append(slices.Clone(index), i))
			}
			return
		}
		w.bad = fmt.Errorf("embedded %v: only structs can be", f.Type)
		return
	}
	name = cmp.Or(name, f.Name)
	member := member{name: name, index: index, writer: s.writer(f.Type)}
	if kind := f.Type.Kind(); kind == reflect.Map || kind == reflect.Slice && f.Type.Elem().Kind() != reflect.Uint8 {
		member.emptyIsNull = s.emptyIsNull
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			member.omitEmpty = true
		case "omitzero":
			member.omitZero = value.OmitZeroFunc(f.Type)
		}
	}
	w.members = append(w.members, member)
}

// structWriter writes structs.
type structWriter struct {
	members []member
	bad     error // not nil if the type embeds something else than structs: then runtime knows what that gives
}

type member struct {
	name        string
	index       []int // of the field, and of the embedded structs that it's in
	omitEmpty   bool
	omitZero    func(reflect.Value) bool // nil without the option
	emptyIsNull bool
	writer
}

func (w *structWriter) write(v reflect.Value) (any, error) { return w.tree(v, nil) }

func (w *structWriter) tree(v reflect.Value, without []string) (map[string]any, error) {
	if w.bad != nil {
		return nil, w.bad
	}
	const bits = 64
	n, omitted := 0, uint64(0) // by their places in members, as far as there are bits
	for i := range w.members {
		if m := &w.members[i]; m.omitted(m.of(v)) {
			omitted |= 1 << i
		} else {
			n++
		}
	}
	tree := make(map[string]any, n)
	for i := range w.members {
		if omitted>>i&1 == 1 {
			continue
		}
		m := &w.members[i]
		field := m.of(v)
		if i >= bits && m.omitted(field) || slices.Contains(without, m.name) {
			continue
		}
		if m.emptyIsNull && field.Len() == 0 {
			tree[m.name] = nil
			continue
		}
		made, err := m.write(field)
		if err != nil {
			return nil, err
		}
		tree[m.name] = made
	}
	return tree, nil
}

func (m *member) of(v reflect.Value) reflect.Value {
	for _, i := range m.index {
		v = v.Field(i)
	}
	return v
}

func (m *member) omitted(v reflect.Value) bool {
	return m.omitEmpty && isEmpty(v) || m.omitZero != nil && m.omitZero(v)
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.String, reflect.Map, reflect.Slice:
		return v.Len() == 0
	case reflect.Float32, reflect.Float64:
		return v.Float() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// leaf writes values whose parts an earlier tree doesn't tell.
type leaf func(v reflect.Value) (any, error)

func (w leaf) write(v reflect.Value) (any, error) { return w(v) }

// intOrString writes what would write itself as JSON, to be decoded again.
type intOrString struct{}

func (intOrString) write(v reflect.Value) (any, error) {
	switch i := v.Interface().(intstr.IntOrString); i.Type {
	case intstr.Int:
		return int64(i.IntVal), nil
	case intstr.String:
		return i.StrVal, nil
	default:
		return nil, fmt.Errorf("impossible IntOrString.Type %d", i.Type)
	}
}

// writeMicroTime writes what would write itself as JSON, too.
func writeMicroTime(v reflect.Value) (any, error) {
	t := v.Interface().(metav1.MicroTime)
	if t.IsZero() {
		return nil, nil
	}
	return t.UTC().Format(metav1.RFC3339Micro), nil
}

type pointer struct{ to writer }

func (w *pointer) write(v reflect.Value) (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	return w.to.write(v.Elem())
}

type list struct{ of writer }

func (w *list) write(v reflect.Value) (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	made := make([]any, v.Len())
	for i := range made {
		var err error
		if made[i], err = w.of.write(v.Index(i)); err != nil {
			return nil, err
		}
	}
	return made, nil
}

type mapping struct{ of writer }

func (w *mapping) write(v reflect.Value) (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	made := make(map[string]any, v.Len())
	for each := v.MapRange(); each.Next(); {
		member, err := w.of.write(each.Value())
		if err != nil {
			return nil, err
		}
		made[each.Key().String()] = member
	}
	return made, nil
}

// writeData writes bytes, as base64.
func writeData(v reflect.Value) (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	return base64.StdEncoding.EncodeToString(v.Bytes()), nil
}

// writeAnything writes a value whose type isn't known before.
func writeAnything(v reflect.Value) (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	return whole.writerOf(v.Elem().Type()).write(v.Elem())
}

type scalar struct{}

func (scalar) write(v reflect.Value) (any, error) {
	switch v.Kind() {
	case reflect.String:
		return v.String(), nil
	case reflect.Bool:
		return v.Bool(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if v.Uint() > math.MaxInt64 {
			return nil, fmt.Errorf("unsigned value %d does not fit into int64 (overflow)", v.Uint())
		}
		return int64(v.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return v.Float(), nil
	}
	return nil, fmt.Errorf("a %v is no JSON", v.Type())
}
