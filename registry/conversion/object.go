package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

// fields are those of a JSON object, undecoded.
type fields map[string]json.RawMessage

// source is an object that is to be converted.
type source struct {
	index int // among those that were given
	raw   []byte
	head
}

// head is what is looked at of an object that is to be converted.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   fields `json:"metadata"`
}

// toConvert returns the objects that aren't in apiVersion.
func toConvert(apiVersion string, objects [][]byte) ([]source, error) {
	var todo []source
	for i, raw := range objects {
		s := source{index: i, raw: raw}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &s.head); err != nil {
			return nil, fmt.Errorf("object %d to convert to %s: %w", i, apiVersion, hookclient.WithoutValues(err))
		}
		if s.APIVersion != apiVersion {
			todo = append(todo, s)
		}
	}
	return todo, nil
}

// batch returns how many of the objects go into the next request: at least one.
func batch(todo []source) int {
	size := 0
	for i := range todo {
		size += len(todo[i].raw)
		if i > 0 && size > maxBatchBytes || i == maxBatchObjects {
			return i
		}
	}
	return len(todo)
}

// id names an object in an error.
func (s *source) id() string {
	name, namespace := s.Metadata.text("name"), s.Metadata.text("namespace")
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// accept checks what a webhook made of an object, and returns it with the metadata that it may have. Its
// errors say what was expected, not what came, because that belongs to the webhook.
func (s *source) accept(raw []byte, apiVersion string) ([]byte, error) {
	var got fields
	if err := json.Unmarshal(raw, &got); err != nil {
		return nil, errors.New("must be an object")
	}
	switch v := got.text("apiVersion"); v {
	case apiVersion:
	case s.APIVersion:
		return nil, fmt.Errorf("invalid groupVersion (expected %s, received %s as it was sent)", apiVersion, v)
	default:
		return nil, fmt.Errorf("invalid groupVersion (expected %s, received another or none)", apiVersion)
	}
	if got.text("kind") != s.Kind {
		return nil, fmt.Errorf("invalid kind (expected %s, received another or none)", s.Kind)
	}
	meta, err := s.acceptMetadata(got["metadata"])
	if err != nil {
		return nil, err
	}
	if got["metadata"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(got) // sorts, compacts, and escapes HTML
}

// acceptMetadata returns the metadata of the object that was sent, with labels and annotations of what came
// back, and without resourceVersion.
func (s *source) acceptMetadata(raw json.RawMessage) (fields, error) {
	if raw == nil {
		return nil, errors.New("missing metadata in converted object")
	}
	var got fields
	if err := json.Unmarshal(raw, &got); err != nil || got == nil {
		return nil, errors.New("invalid metadata in converted object: must be an object")
	}
	for _, name := range []string{"name", "namespace", "uid"} {
		if want := s.Metadata.text(name); got.text(name) != want {
			return nil, fmt.Errorf("must have the same metadata.%s: expected %q, received another or none", name, want)
		}
	}
	meta := make(fields, len(s.Metadata)+2)
	maps.Copy(meta, s.Metadata)
	delete(meta, "resourceVersion")
	for _, name := range []string{"labels", "annotations"} {
		value, err := acceptStrings(name, s.Metadata[name], got[name])
		if err != nil {
			return nil, err
		}
		if value == nil {
			delete(meta, name)
		} else {
			meta[name] = value
		}
	}
	return meta, nil
}

// acceptStrings returns labels or annotations that came back, nil if there are none. What was changed must be
// valid; what was stored invalid by an older server may stay.
func acceptStrings(name string, old, raw json.RawMessage) (json.RawMessage, error) {
	var got map[string]*string
	if raw == nil {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return nil, fmt.Errorf("invalid metadata.%s in converted object: must be an object of strings", name)
	}
	if got == nil {
		return nil, nil // null
	}
	values := make(map[string]string, len(got))
	for k, v := range got {
		if v == nil {
			return nil, fmt.Errorf("invalid metadata.%s in converted object: must be an object of strings", name)
		}
		values[k] = *v
	}
	if !sameStrings(old, values) {
		if err := validateStrings(name, values); err != nil {
			return nil, err
		}
	}
	return json.Marshal(values)
}

func sameStrings(raw json.RawMessage, values map[string]string) bool {
	var old map[string]string
	if raw != nil && json.Unmarshal(raw, &old) != nil || len(old) != len(values) {
		return false
	}
	for k, v := range values {
		if w, ok := old[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// validateStrings says which rule is broken, not by what.
func validateStrings(name string, values map[string]string) error {
	validate := apivalidation.ValidateAnnotations
	if name == "labels" {
		validate = metav1validation.ValidateLabels
	}
	if errs := validate(values, field.NewPath("metadata", name)); len(errs) > 0 {
		return fmt.Errorf("invalid metadata.%s in converted object: %s", name, errs[0].Detail)
	}
	return nil
}

// text returns a field that is a string, or "".
func (f fields) text(name string) string {
	var s string
	if json.Unmarshal(f[name], &s) != nil {
		return ""
	}
	return s
}
