package writes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// mostValues is how many values a body may have.
func (e Writer) mostValues() int {
	switch {
	case e.Typed == nil:
		return registry.MaxTreeValues
	case e.Group == "apps" || e.Group == "batch" || e.Group == "" && slices.Contains([]string{"Pod", "PodTemplate", "ReplicationController"}, e.Kind):
		return registry.MaxPodValues
	}
	return registry.MaxTypedValues
}

// CheckValues refuses a body of JSON that has more values than are taken here: 413. It's asked before the body is parsed. n
// is how many it has at most.
func (e Writer) CheckValues(body []byte) (n int, err error) {
	most := e.mostValues()
	if n = object.CountValues(body, most); n > most {
		return n, registry.TooManyValues(n, most)
	}
	return n, nil
}

// read decodes a body into an object of the endpoint's resource and version. Members that are unknown or given twice are
// refused, warned of or ignored, as fieldValidation says. Of members with the same name, the last one counts. If the
// request has a Message, that is the body.
func (w *write) read(body []byte) (*object.Object, error) {
	return w.readDocument(object.Document{Text: body})
}

// readDocument is read for a body that may be parsed already.
func (w *write) readDocument(body object.Document) (*object.Object, error) {
	if w.message != nil {
		return w.readMessage(w.message)
	}
	if w.Typed != nil {
		return w.readTyped(body)
	}
	doc, tree, err := object.ParseObject(body.Text)
	if err != nil {
		return nil, w.UnrecognizedBody(body.Text, err)
	}
	if err := w.CheckSays(tree, body.Text); err != nil {
		return nil, err
	}
	w.otherKind = w.otherKindOf(tree)
	o, unknown, err := w.split(tree)
	if err != nil {
		return nil, err
	}
	if !w.complains() {
		return o, w.Shape(o)
	}
	pruned, err := w.ShapeReporting(o)
	if err != nil {
		return nil, err
	}
	complaints := append(doc.Repeated(), unknown...)
	for _, path := range pruned {
		complaints = append(complaints, fmt.Errorf("unknown field %q", path))
	}
	if err := w.complain(complaints); err != nil {
		return nil, w.Unhandled(w.GVK(), err.Error())
	}
	return o, nil
}

// readNew reads the object that a create is to store, without what only the server decides.
func (w *write) readNew(body []byte) (*object.Object, error) {
	o, err := w.read(body)
	if err != nil {
		return nil, err
	}
	if err := placeIn(o, w.Namespace); err != nil {
		return nil, err
	}
	withoutSystemMeta(&o.Meta)
	w.warnings = append(w.warnings, o.DropRepeatedOwners(false)...)
	return o, w.track(o, o, nil)
}

// unlabelled tells whether an object that a client sent says no labels.
func unlabelled(sent map[string]any) bool {
	return len(object.Map(object.Map(sent["metadata"])["labels"])) == 0
}

// readNamed reads an object that is to take the place of the target.
func (w *write) readNamed(body []byte) (*object.Object, error) {
	in, err := w.read(body)
	if err != nil {
		return nil, err
	}
	return in, w.checkNamed(in)
}

// parse parses a body that must be a JSON object but needn't be one of the resource's.
func (w *write) parse(body []byte) (object.Document, map[string]any, error) {
	doc, tree, err := object.ParseObject(body)
	if err != nil {
		return doc, nil, registry.BadBody(err)
	}
	return doc, tree, w.complainOfRepeated(&doc)
}

func (w *write) complainOfRepeated(doc *object.Document) error {
	if !w.complains() {
		return nil
	}
	return w.complain(doc.Repeated())
}

// complains tells whether the client wants to know about unknown and repeated members.
func (w *write) complains() bool { return w.validation != metav1.FieldValidationIgnore }

// complain refuses, warns of or ignores members that are unknown or given twice, as fieldValidation says.
func (w *write) complain(complaints []error) error {
	if len(complaints) == 0 || !w.complains() {
		return nil
	}
	texts := make([]string, 0, len(complaints))
	for _, c := range complaints[:min(len(complaints), registry.MaxCauses)] {
		texts = append(texts, clip.Text(c.Error()))
	}
	if w.validation == metav1.FieldValidationStrict {
		return registry.BadRequest("strict decoding error: %s", strings.Join(texts, ", "))
	}
	w.warnings = append(w.warnings, texts...)
	return nil
}

// split makes an object of a tree, which becomes the object's, if it's of the endpoint's kind. unknown are the fields of
// metadata that don't exist.
func (e Writer) split(tree map[string]any) (o *object.Object, unknown []error, err error) {
	if err := e.checkType(tree); err != nil {
		return nil, nil, err
	}
	if o, unknown, err = object.New(tree); err != nil {
		return nil, nil, e.Unhandled(e.GVK(), err.Error())
	}
	return o, unknown, nil
}

// checkType checks apiVersion against the endpoint. Objects of Go types may leave it out, as kube-apiserver allows for built-in kinds.
func (e Writer) checkType(tree map[string]any) error {
	want := e.APIVersion()
	apiVersion, _ := tree["apiVersion"].(string)
	if e.Typed != nil {
		apiVersion = cmp.Or(apiVersion, want)
	}
	if apiVersion != want {
		return registry.BadRequest("the API version in the data (%s) does not match the expected API version (%s)", clip.Text(apiVersion), want)
	}
	return nil
}

// otherKindOf returns the kind that an object says it's of, if that isn't the endpoint's; else nil.
func (e Writer) otherKindOf(tree map[string]any) *string {
	kind, _ := tree["kind"].(string)
	if kind == e.Kind {
		return nil
	}
	return &kind
}

// refuseKind refuses an object of another kind than the endpoint's.
func (e Writer) refuseKind(kind, name string) error {
	came := schema.GroupKind{Group: e.Group, Kind: clip.Text(kind)} // which kube-apiserver names, too
	return registry.Invalid(came, name, field.ErrorList{field.Invalid(field.NewPath("kind"), kind, "must be "+e.Kind)})
}
