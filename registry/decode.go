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

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// decoder turns bodies into objects. What fieldValidation says decides what becomes of fields that are
// unknown or given twice; with a duplicate the last one counts.
type decoder struct {
	writeOptions
	endpoint *Endpoint
	warnings []string // what the client is to be told beside the answer
}

// document decodes one JSON document into a Go value: integers stay int64, and names keep their case. It refuses
// what comes after the document, invalid UTF-8, and (by the bound of encoding/json) nesting deeper than 10,000.
func document(body []byte, into any) error {
	if err := checkText(body); err != nil {
		return err
	}
	return undecodable(kjson.UnmarshalCaseSensitivePreserveInts(body, into))
}

// parseAny is document for a tree. repeated tells that a field may be given twice.
func parseAny(body []byte) (tree any, repeated bool, err error) {
	if err := checkText(body); err != nil {
		return nil, false, err
	}
	tree, repeated, err = jsontree.Decode(body)
	return tree, repeated, undecodable(err)
}

func checkText(body []byte) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return badRequest("the body of the request is empty: send a JSON or YAML document")
	}
	if !utf8.Valid(body) {
		return badRequest("the body of the request is not valid UTF-8 (byte %d)", invalidAt(body))
	}
	return nil
}

func undecodable(err error) error {
	if err == nil {
		return nil
	}
	return badRequest("the body of the request can't be decoded: %s", clip(err.Error()))
}

// What looking for wrong fields may cost. The strict decoder builds the whole path of each field that it
// complains of, before it drops all but the first hundred: three megabytes of duplicates, nested deeply, keep
// it busy for minutes. So it's only asked when there is something to find, and not about such bodies.
const (
	// maxComplaintWork bounds complaints times levels of nesting; about a tenth of a second.
	maxComplaintWork = 2 << 20
	// maxTypedWork bounds bytes times levels of a Go type's body, because types that decode themselves
	// read what is below each level again. A real definition of a megabyte has 40 levels.
	maxTypedWork = 128 << 20
)

var errManyRepeated = errors.New("so many fields are given twice that they aren't listed")

// repeated returns complaints about the fields that a decoded body gives twice, if it may and anybody wants to
// know. There are none exactly if the tree has as many members as the text.
func (d *decoder) repeated(body []byte, tree any) []error {
	if d.validation == metav1.FieldValidationIgnore {
		return nil
	}
	members, levels := measure(body)
	more := members - countMembers(tree)
	if more == 0 {
		return nil
	}
	if more*levels > maxComplaintWork {
		return []error{errManyRepeated}
	}
	var again any
	complaints, err := kjson.UnmarshalStrict(body, &again, kjson.DisallowDuplicateFields)
	if err != nil { // it was decoded before
		return []error{err}
	}
	return complaints
}

// measure counts the members of all objects in a valid JSON text, and its levels of nesting.
func measure(body []byte) (members, levels int) {
	level := 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			for i++; body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case ':':
			members++
		case '{', '[':
			level++
			levels = max(levels, level)
		case '}', ']':
			level--
		}
	}
	return members, levels
}

func countMembers(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		n = len(v)
		for _, w := range v {
			n += countMembers(w)
		}
	case []any:
		for _, w := range v {
			n += countMembers(w)
		}
	}
	return n
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
	tree, repeated, err := parseObject(body)
	if err != nil {
		return nil, err
	}
	var complaints []error
	if t := d.endpoint.res.typed; t != nil {
		if tree, complaints, err = t.shape(body); err != nil {
			return nil, err
		}
	} else if repeated {
		complaints = d.repeated(body, tree)
	}
	o, unknown, err := d.endpoint.split(tree)
	if err != nil {
		return nil, err
	}
	if d.endpoint.res.typed != nil { // whose shape has told of those
		return o, d.complain(complaints)
	}
	complaints = append(complaints, unknown...)
	pruned, err := d.endpoint.shape(o, d.validation != metav1.FieldValidationIgnore)
	if err != nil {
		return nil, err
	}
	for _, path := range pruned {
		complaints = append(complaints, fmt.Errorf("unknown field %q", path))
	}
	return o, d.complain(complaints)
}

// decodeTree decodes a body that must be a JSON object.
func decodeTree(body []byte) (map[string]any, error) {
	tree, _, err := parseObject(body)
	return tree, err
}

// parseObject is parseAny for a JSON object.
func parseObject(body []byte) (tree map[string]any, repeated bool, err error) {
	value, repeated, err := parseAny(body)
	if err != nil {
		return nil, false, err
	}
	tree, ok := value.(map[string]any)
	if !ok {
		if value == nil {
			return nil, false, badRequest("the body of the request must be a JSON object, not null")
		}
		return nil, false, document(body, &tree) // which says what it is instead
	}
	return tree, repeated, nil
}

// complain refuses, warns of or swallows the fields that are unknown or given twice.
func (d *decoder) complain(complaints []error) error {
	if len(complaints) == 0 || d.validation == metav1.FieldValidationIgnore {
		return nil
	}
	texts := make([]string, 0, len(complaints))
	for _, c := range complaints[:min(len(complaints), maxCauses)] {
		texts = append(texts, clip(c.Error()))
	}
	if d.validation == metav1.FieldValidationStrict {
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
	if fields, ok := tree["managedFields"]; ok {
		if o.managed, ok = fields.([]any); !ok && fields != nil {
			return nil, errors.New("metadata.managedFields must be a list")
		}
		delete(tree, "managedFields")
	}
	if plainMeta(tree, &o.meta) {
		return nil, nil
	}
	holder := struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
	}{&metav1.ObjectMeta{}}
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
