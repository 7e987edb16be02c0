package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// maxOperations is how many operations a JSON patch may have. It's the bound of clients' patches.
const maxOperations = 10_000

// patcher makes a changed object of an object and an expression's value. It returns nil if nothing is to be changed.
type patcher func(merge merger, obj *unstructured.Unstructured, v ref.Val) (*unstructured.Unstructured, error)

// merger applies a configuration to an object.
type merger func(obj *unstructured.Unstructured, configuration map[string]any) (*unstructured.Unstructured, error)

// patched returns an object at a place as a patcher makes it, with its defaults; nil if nothing is changed.
func (c *changes) patched(at match.Place, obj *unstructured.Unstructured, m mutation, v ref.Val) (*unstructured.Unstructured, error) {
	e := c.config.Registry.Catalog().Endpoint(at.Resource)
	if e == nil {
		return nil, fmt.Errorf("resource kind %s not found", at.Kind)
	}
	if at.Kind.Kind != e.Kind { // a Scale
		return m.patch(mergeScale, obj, v)
	}
	next, err := m.patch(reads.Of(e).Merge, obj, v)
	if err != nil || next == nil {
		return nil, err
	}
	return reads.Of(e).Complete(next)
}

// scaleTypes merge a Scale: it has no lists.
var scaleTypes = managed.NewTypes(func() (map[string]*spec.Schema, error) { return nil, nil })

func mergeScale(obj *unstructured.Unstructured, configuration map[string]any) (*unstructured.Unstructured, error) {
	merged, err := scaleTypes.Merge(obj.Object, configuration)
	return &unstructured.Unstructured{Object: merged}, err
}

// applyConfiguration merges an Object into an object.
func applyConfiguration(merge merger, obj *unstructured.Unstructured, v ref.Val) (*unstructured.Unstructured, error) {
	o, ok := v.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", v.Type())
	}
	if err := o.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, fmt.Errorf("type mismatch: %w", err)
	}
	value, err := plain(o)
	if err != nil {
		return nil, err
	}
	configuration, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", value)
	}
	configuration["apiVersion"], configuration["kind"] = obj.GetAPIVersion(), obj.GetKind()
	merged, err := merge(obj, configuration)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	return merged, nil
}

// applyJSONPatch applies a list of JSONPatch to an object. If one of them is a test that fails, none is applied.
func applyJSONPatch(_ merger, obj *unstructured.Unstructured, v ref.Val) (*unstructured.Unstructured, error) {
	operations, err := operationsOf(v)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	before, err := object.EncodeJSON(obj.Object)
	if err != nil {
		return nil, fmt.Errorf("failed to create JSON patch: %w", err)
	}
	after, err := patch.Apply(before)
	switch {
	case errors.Is(err, jsonpatch.ErrTestFailed):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	tree, err := object.ParseTree(after)
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// operationsOf returns the operations of a list of JSONPatch, as JSON has them.
func operationsOf(v ref.Val) (operations []map[string]any, err error) {
	list, ok := v.(traits.Lister)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from JSONPatch expression: %v", v.Type())
	}
	for it := list.Iterator(); it.HasNext() == celtypes.True; {
		native, err := it.Next().ConvertToNative(reflect.TypeFor[*celmutation.JSONPatchVal]())
		if err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
		p := native.(*celmutation.JSONPatchVal)
		op := map[string]any{"op": p.Op, "path": p.Path}
		if p.From != "" {
			op["from"] = p.From
		}
		if p.Val != nil {
			if o, ok := p.Val.(*dynamic.ObjectVal); ok {
				if err := o.CheckTypeNamesMatchFieldPathNames(); err != nil {
					return nil, fmt.Errorf("type mismatch: %w", err)
				}
			}
			if op["value"], err = plain(p.Val); err != nil {
				return nil, err
			}
		}
		if operations = append(operations, op); len(operations) > maxOperations {
			return nil, fmt.Errorf("the JSON patch has more than %d operations", maxOperations)
		}
	}
	return operations, nil
}

// plain returns a value of CEL, or what such values have inside, as JSON's plain values.
func plain(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, string, int64, float64:
		return v, nil
	case uint64:
		return int64(v), nil
	case structpb.NullValue, celtypes.Null:
		return nil, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			var err error
			if out[name], err = plain(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = plain(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *dynamic.ObjectVal:
		return plain(v.Value())
	case ref.Val:
		return plainVal(v)
	}
	return plainVal(celtypes.DefaultTypeAdapter.NativeToValue(v))
}

// plainVal is plain of one of CEL's own values.
func plainVal(v ref.Val) (any, error) {
	switch v := v.(type) {
	case celtypes.Null:
		return nil, nil
	case celtypes.Bool, celtypes.String, celtypes.Int, celtypes.Uint, celtypes.Double:
		return plain(v.Value())
	case traits.Mapper:
		out := map[string]any{}
		for it := v.Iterator(); it.HasNext() == celtypes.True; {
			key := it.Next()
			name, ok := key.Value().(string)
			if !ok {
				return nil, fmt.Errorf("map key %v is of type %v, not string", key, key.Type())
			}
			item, err := plain(v.Get(key))
			if err != nil {
				return nil, err
			}
			out[name] = item
		}
		return out, nil
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == celtypes.True; {
			item, err := plain(it.Next())
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		}
		return out, nil
	}
	// Timestamps, durations and bytes have a form in JSON that CEL knows.
	native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, fmt.Errorf("a value of type %v can't be written as JSON: %w", v.Type(), err)
	}
	return native.(*structpb.Value).AsInterface(), nil
}
