package registry

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// decoder turns bodies into objects. What fieldValidation says decides what becomes of fields that are
// unknown or given twice; with a duplicate the last one counts.
type decoder struct {
	writeOptions
	endpoint *Endpoint
	warnings []string // what the client is to be told beside the answer
}

// maxTypedWork bounds bytes times levels of a Go type's body, because types that decode themselves read what is
// below each level again. A real definition of a megabyte has 40 levels.
const maxTypedWork = 128 << 20

// object decodes a body into an object of the endpoint's resource and version.
func (d *decoder) object(body []byte) (*object.Object, error) {
	doc, tree, err := object.ParseObject(body)
	if err != nil {
		return nil, badBody(err)
	}
	var complaints []error
	if t := d.endpoint.res.typed; t != nil {
		if tree, complaints, err = t.shape(&doc); err != nil {
			return nil, err
		}
	} else if d.validation != metav1.FieldValidationIgnore {
		complaints = doc.Repeated()
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

// parsed parses a body that must be a JSON object, and complains of the members that are given twice.
func (d *decoder) parsed(body []byte) (object.Document, map[string]any, error) {
	doc, tree, err := object.ParseObject(body)
	if err != nil {
		return object.Document{}, nil, badBody(err)
	}
	return doc, tree, d.complainOfRepeated(&doc)
}

func (d *decoder) complainOfRepeated(doc *object.Document) error {
	if d.validation == metav1.FieldValidationIgnore {
		return nil
	}
	return d.complain(doc.Repeated())
}

// badBody refuses a body for what was found when it was read.
func badBody(err error) error {
	if err == nil {
		return nil
	}
	return badRequest("the body of the request %s", err)
}

// complain refuses, warns of or swallows the fields that are unknown or given twice.
func (d *decoder) complain(complaints []error) error {
	if len(complaints) == 0 || d.validation == metav1.FieldValidationIgnore {
		return nil
	}
	texts := make([]string, 0, len(complaints))
	for _, c := range complaints[:min(len(complaints), maxCauses)] {
		texts = append(texts, clip.Text(c.Error()))
	}
	if d.validation == metav1.FieldValidationStrict {
		return badRequest("strict decoding error: %s", strings.Join(texts, ", "))
	}
	d.warnings = append(d.warnings, texts...)
	return nil
}

// split checks that a tree is an object of the endpoint's kind and takes its metadata out of it. The tree
// becomes the object's. unknown are the fields of metadata that don't exist.
func (e *Endpoint) split(tree map[string]any) (o *object.Object, unknown []error, err error) {
	if err := e.checkType(tree); err != nil {
		return nil, nil, err
	}
	if o, unknown, err = object.New(tree); err != nil {
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
		return badRequest("the API version in the data (%s) does not match the expected API version (%s)", clip.Text(apiVersion.(string)), want)
	}
	if kind != e.Kind {
		return e.invalid("", field.Invalid(field.NewPath("kind"), kind, "must be "+e.Kind))
	}
	return nil
}
