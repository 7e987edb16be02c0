package builtin

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// untagged is a value of k8s.io/api as Kubernetes' refusals quote it: its own types have no tags for JSON, so that members have the names
// of Go, and none is left out.
type untagged struct{ value any }

func (u untagged) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := writeUntagged(&b, reflect.ValueOf(u.value))
	return b.Bytes(), err
}

// renamedMembers are members that Kubernetes' own types call otherwise, by type and name.
var renamedMembers = map[string]string{}

func writeUntagged(b *bytes.Buffer, v reflect.Value) error {
	if !v.IsValid() {
		b.WriteString("null")
		return nil
	}
	if _, ok := v.Interface().(json.Marshaler); ok && v.Kind() != reflect.Pointer {
		return writeTagged(b, v)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return writeUntagged(b, v.Elem())
	case reflect.Struct:
		if !strings.HasPrefix(v.Type().PkgPath(), "k8s.io/api/") {
			return writeTagged(b, v)
		}
		b.WriteByte('{')
		if err := writeMembers(b, v); err != nil {
			return err
		}
		b.WriteByte('}')
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			return writeTagged(b, v)
		}
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeUntagged(b, v.Index(i)); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	default:
		return writeTagged(b, v)
	}
	return nil
}

func writeMembers(b *bytes.Buffer, v reflect.Value) error {
	first := true
	for i := range v.NumField() {
		if !first {
			b.WriteByte(',')
		}
		first = false
		f := v.Type().Field(i)
		if f.Anonymous && !strings.HasPrefix(f.Type.PkgPath(), "k8s.io/api/") { // it has tags there, too
			raw, err := json.Marshal(v.Field(i).Interface())
			if err != nil {
				return err
			}
			if members := bytes.TrimSuffix(bytes.TrimPrefix(raw, []byte("{")), []byte("}")); len(members) > 0 {
				b.Write(members)
			} else {
				first = true
			}
			continue
		}
		if f.Anonymous {
			if err := writeMembers(b, v.Field(i)); err != nil {
				return err
			}
			continue
		}
		name := f.Name
		if other, ok := renamedMembers[v.Type().Name()+"."+name]; ok {
			name = other
		}
		b.WriteString(`"` + name + `":`)
		if err := writeUntagged(b, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func writeTagged(b *bytes.Buffer, v reflect.Value) error {
	raw, err := json.Marshal(v.Interface())
	b.Write(raw)
	return err
}
