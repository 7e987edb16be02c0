package jsontree

import (
	"maps"
	"math"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Revise is OfValue for a value of which there is a tree already, such as the one that it was read from: what says the same is taken from
// there, which costs half of making it, and next to no memory. The earlier tree, which may be nil, stays as it is, and the result shares what it has
// in common with it.
func Revise(earlier map[string]any, v any, without ...string) (map[string]any, error) {
	return whole.revise(earlier, v, without)
}

// ReviseStored is Revise with null for members that are empty lists or maps.
func ReviseStored(earlier map[string]any, v any, without ...string) (map[string]any, error) {
	return stored.revise(earlier, v, without)
}

func (w *writers) revise(earlier map[string]any, v any, without []string) (map[string]any, error) {
	of := reflect.ValueOf(v)
	if earlier != nil && of.Kind() == reflect.Pointer && !of.IsNil() {
		if w, ok := w.writerOf(of.Type().Elem()).(*structWriter); ok {
			if tree, _, err := w.reviseTree(earlier, of.Elem(), without); err == nil {
				return tree, nil
			}
		}
	}
	return w.of(v, without)
}

// revised is what a writer without parts of its own has written, and whether an earlier tree says the same.
func revised(earlier, made any, err error) (any, bool, error) {
	switch was := earlier.(type) {
	case nil:
		return made, made == nil, err
	case string:
		is, ok := made.(string)
		return made, ok && is == was, err
	}
	return made, false, err // it's made anew, which is never wrong
}

func (w *structWriter) revise(earlier any, v reflect.Value) (any, bool, error) {
	from, ok := earlier.(map[string]any)
	if !ok || from == nil {
		made, err := w.write(v)
		return made, false, err
	}
	return w.reviseTree(from, v, nil)
}

// reviseTree returns the tree of a struct, which is from itself if that's the same.
func (w *structWriter) reviseTree(from map[string]any, v reflect.Value, without []string) (tree map[string]any, same bool, err error) {
	if w.bad != nil {
		return nil, false, w.bad
	}
	tree, same = from, true
	kept := 0 // members of from that the struct has, too
	for i := range w.members {
		m := &w.members[i]
		field := m.of(v)
		if m.omitted(field) || slices.Contains(without, m.name) {
			continue
		}
		earlier, has := from[m.name]
		var made any
		unchanged := has && earlier == nil
		if !m.emptyIsNull || field.Len() > 0 {
			if made, unchanged, err = m.revise(earlier, field); err != nil {
				return nil, false, err
			}
		}
		if has {
			kept++
		}
		if has && unchanged {
			continue
		}
		if same {
			tree, same = maps.Clone(from), false
		}
		tree[m.name] = made
	}
	if kept == len(from) {
		return tree, same, nil
	}
	if same {
		tree = maps.Clone(from)
	}
	maps.DeleteFunc(tree, func(name string, _ any) bool {
		i := slices.IndexFunc(w.members, func(m member) bool { return m.name == name })
		return i < 0 || w.members[i].omitted(w.members[i].of(v)) || slices.Contains(without, name)
	})
	return tree, false, nil
}

func (w *pointer) revise(earlier any, v reflect.Value) (any, bool, error) {
	if v.IsNil() {
		return nil, earlier == nil, nil
	}
	return w.to.revise(earlier, v.Elem())
}

func (w *list) revise(earlier any, v reflect.Value) (any, bool, error) {
	from, ok := earlier.([]any)
	if v.IsNil() || !ok || from == nil || len(from) != v.Len() {
		made, err := w.write(v)
		return revised(earlier, made, err)
	}
	made, same := from, true
	for i := range from {
		element, unchanged, err := w.of.revise(from[i], v.Index(i))
		if err != nil {
			return nil, false, err
		}
		if unchanged {
			continue
		}
		if same {
			made, same = slices.Clone(from), false
		}
		made[i] = element
	}
	return made, same, nil
}

func (w *mapping) revise(earlier any, v reflect.Value) (any, bool, error) {
	from, ok := earlier.(map[string]any)
	if v.IsNil() || !ok || from == nil || len(from) != v.Len() {
		made, err := w.write(v)
		return revised(earlier, made, err)
	}
	made, same := from, true
	for each := v.MapRange(); each.Next(); {
		name := each.Key().String()
		was, has := from[name]
		if !has { // so another one is gone
			made, err := w.write(v)
			return made, false, err
		}
		member, unchanged, err := w.of.revise(was, each.Value())
		if err != nil {
			return nil, false, err
		}
		if unchanged {
			continue
		}
		if same {
			made, same = maps.Clone(from), false
		}
		made[name] = member
	}
	return made, same, nil
}

func (w leaf) revise(earlier any, v reflect.Value) (any, bool, error) {
	made, err := w(v)
	return revised(earlier, made, err)
}

func (w intOrString) revise(earlier any, v reflect.Value) (any, bool, error) {
	i := v.Interface().(intstr.IntOrString)
	if n, ok := earlier.(int64); ok && i.Type == intstr.Int && n == int64(i.IntVal) {
		return earlier, true, nil
	}
	made, err := w.write(v)
	return revised(earlier, made, err)
}

func (w scalar) revise(earlier any, v reflect.Value) (any, bool, error) {
	same := false
	switch was := earlier.(type) {
	case string:
		same = v.Kind() == reflect.String && v.String() == was
	case bool:
		same = v.Kind() == reflect.Bool && v.Bool() == was
	case int64:
		same = v.CanInt() && v.Int() == was || v.CanUint() && was >= 0 && v.Uint() == uint64(was)
	case float64:
		same = v.CanFloat() && math.Float64bits(v.Float()) == math.Float64bits(was)
	}
	if same {
		return earlier, true, nil
	}
	made, err := w.write(v)
	return made, false, err
}
