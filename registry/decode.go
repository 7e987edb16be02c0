package registry

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// decoder turns bodies into objects. What fieldValidation says decides what becomes of fields that are
// unknown or given twice; with a duplicate the last one counts.
type decoder struct {
	endpoint *Endpoint
	mode     string   // metav1.FieldValidationStrict, Warn or Ignore
	warnings []string // what the client is to be told beside the answer
}

// document decodes one JSON document into a tree: integers stay int64, and names keep their case. It
// refuses what comes after the document, invalid UTF-8, and (by the bound of encoding/json) nesting
// deeper than 10,000. repeated are the fields given twice.
func document(body []byte, into any, strict ...kjson.StrictOption) (repeated []error, err error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, badRequest("the body of the request is empty: send a JSON or YAML document")
	}
	if !utf8.Valid(body) {
		return nil, badRequest("the body of the request is not valid UTF-8 (byte %d)", invalidAt(body))
	}
	if len(strict) == 0 {
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, into)
	} else {
		repeated, err = kjson.UnmarshalStrict(body, into, strict...)
	}
	if err != nil {
		return nil, badRequest("the body of the request can't be decoded: %s", clip(err.Error()))
	}
	return repeated, nil
}

// invalidAt returns where the first byte that isn't UTF-8 stands.
func invalidAt(b []byte) int {
	at := 0
	for {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// object decodes a body into an object of the endpoint's resource and version.
func (d *decoder) object(body []byte) (*object, error) {
	var tree map[string]any
	var complaints []error
	var err error
	if t := d.endpoint.res.typed; t != nil {
		tree, complaints, err = t.shape(body)
	} else {
		tree, complaints, err = d.tree(body)
	}
	if err != nil {
		return nil, err
	}
	o, unknown, err := d.endpoint.split(tree)
	if err != nil {
		return nil, err
	}
	if d.endpoint.res.typed == nil { // a Go type's shape has told of those
		complaints = append(complaints, unknown...)
	}
	return o, d.complain(complaints)
}

// tree decodes a body that must be a JSON object.
func (d *decoder) tree(body []byte) (tree map[string]any, repeated []error, err error) {
	var strict []kjson.StrictOption
	if d.mode != metav1.FieldValidationIgnore {
		strict = append(strict, kjson.DisallowDuplicateFields)
	}
	if repeated, err = document(body, &tree, strict...); err != nil {
		return nil, nil, err
	}
	if tree == nil {
		return nil, nil, badRequest("the body of the request must be a JSON object, not null")
	}
	return tree, repeated, nil
}

// complain refuses, warns of or swallows the fields that are unknown or given twice.
func (d *decoder) complain(complaints []error) error {
	if len(complaints) == 0 || d.mode == metav1.FieldValidationIgnore {
		return nil
	}
	texts := make([]string, 0, len(complaints))
	for _, c := range complaints[:min(len(complaints), maxCauses)] {
		texts = append(texts, clip(c.Error()))
	}
	if d.mode == metav1.FieldValidationStrict {
		return badRequest("strict decoding error: %s", strings.Join(texts, ", "))
	}
	d.warnings = append(d.warnings, texts...)
	return nil
}

// split checks that a tree is an object of the endpoint's kind and takes its metadata out of it. The tree
// becomes the object's. unknown are the fields of metadata that don't exist.
func (e *Endpoint) split(tree map[string]any) (o *object, unknown []error, err error) {
	if err := e.checkType(tree); err != nil {
		return nil, nil, err
	}
	o = &object{content: tree}
	unknown, err = o.takeMeta()
	if err != nil {
		return nil, nil, badRequest("%s", err)
	}
	return o, unknown, nil
}

// checkType checks apiVersion and kind against the endpoint and removes them. Go types may leave them
// out, as kube-apiserver allows for built-in kinds.
func (e *Endpoint) checkType(tree map[string]any) error {
	want := e.apiVersion()
	apiVersion, kind := tree["apiVersion"], tree["kind"]
	delete(tree, "apiVersion")
	delete(tree, "kind")
	if e.res.typed != nil {
		if apiVersion == nil || apiVersion == "" {
			apiVersion = want
		}
		if kind == nil || kind == "" {
			kind = e.Kind
		}
	}
	for _, f := range []struct {
		name  string
		value any
	}{{"apiVersion", apiVersion}, {"kind", kind}} {
		switch v := f.value.(type) {
		case string:
			if v == "" {
				return badRequest("%s is missing: this path takes %s %s", f.name, want, e.Kind)
			}
		case nil:
			return badRequest("%s is missing: this path takes %s %s", f.name, want, e.Kind)
		default:
			return badRequest("%s must be a string", f.name)
		}
	}
	if apiVersion != want {
		return badRequest("the API version in the data (%s) does not match the expected API version (%s)", clip(apiVersion.(string)), want)
	}
	if kind != e.Kind {
		return e.invalid("", field.Invalid(field.NewPath("kind"), kind, "must be "+e.Kind))
	}
	return nil
}

// takeMeta moves the metadata out of the content.
func (o *object) takeMeta() (unknown []error, err error) {
	value, ok := o.content["metadata"]
	delete(o.content, "metadata")
	if !ok || value == nil {
		return nil, nil
	}
	tree, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("metadata must be an object")
	}
	var holder struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
	}
	holder.Metadata = &o.meta
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(map[string]any{"metadata": tree}, &holder, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		unknown, err = strict.Errors(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("metadata can't be decoded: %s", clip(metaProblem(tree, err).Error()))
	}
	o.meta = *holder.Metadata
	return unknown, nil
}

// metaProblem asks the JSON decoder about metadata that the converter refused: it names the field.
func metaProblem(tree map[string]any, err error) error {
	body, jsonErr := encodeJSON(map[string]any{"metadata": tree})
	if jsonErr != nil {
		return err
	}
	var holder struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if better := kjson.UnmarshalCaseSensitivePreserveInts(body, &holder); better != nil {
		return better
	}
	return err
}
