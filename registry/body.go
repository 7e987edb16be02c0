package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// maxTypedWork bounds bytes times levels of a Go type's body, because types that decode themselves read what is
// below each level again. A real definition of a megabyte has 40 levels.
const maxTypedWork = 128 << 20

// What a body may have of values: members of objects, elements of lists, and one more for what is empty. An object of as many bytes as can be stored has
// fewer, unless somebody fills a list with what is next to nothing.
const (
	// maxTypedValues bounds those of a Go type, of which an empty one may take 2 KiB while it's decoded and checked.
	maxTypedValues = 100_000
	// maxPodValues bounds those of a pod, or of what has a template of pods: each empty container takes 0.1 ms of defaults, hooks
	// and rules. A pod of a hundred full containers has some 10,000.
	maxPodValues = 25_000
	// maxTreeValues bounds those of a custom resource, which take some 300 bytes.
	maxTreeValues = 400_000
)

func tooManyValues(n, most int) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body of the request has %d values, of which at most %d are taken", n, most))
}

// mostValues is how many values a body may have.
func (e *Endpoint) mostValues() int {
	switch {
	case e.typed == nil:
		return maxTreeValues
	case e.Group == "apps" || e.Group == "batch" || e.Group == "" && slices.Contains([]string{"Pod", "PodTemplate", "ReplicationController"}, e.Kind):
		return maxPodValues
	}
	return maxTypedValues
}

// CheckValues refuses a body of JSON that has more values than are taken here: 413. It's asked before the body is parsed. n
// is how many it has at most.
func (e *Endpoint) CheckValues(body []byte) (n int, err error) {
	most := e.mostValues()
	if n = object.CountValues(body, most); n > most {
		return n, tooManyValues(n, most)
	}
	return n, nil
}

// read decodes a body into an object of the endpoint's resource and version. Members that are unknown or given twice are
// refused, warned of or ignored, as fieldValidation says. Of members with the same name, the last one counts. If the
// request has a Message, that is the body.
func (w *write) read(body []byte) (*object.Object, error) {
	if w.message != nil {
		return w.readMessage(w.message)
	}
	if w.typed != nil {
		return w.readTyped(body)
	}
	doc, tree, err := object.ParseObject(body)
	if err != nil {
		return nil, w.unrecognized(body, err)
	}
	if err := w.checkSays(tree, body); err != nil {
		return nil, err
	}
	w.otherKind = w.otherKindOf(tree)
	o, unknown, err := w.split(tree)
	if err != nil {
		return nil, err
	}
	if !w.complains() {
		return o, w.shape(o)
	}
	pruned, err := w.shapeReporting(o)
	if err != nil {
		return nil, err
	}
	complaints := append(doc.Repeated(), unknown...)
	for _, path := range pruned {
		complaints = append(complaints, fmt.Errorf("unknown field %q", path))
	}
	if err := w.complain(complaints); err != nil {
		return nil, w.unhandled(w.kind(), err.Error())
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
		return doc, nil, badBody(err)
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
	for _, c := range complaints[:min(len(complaints), MaxCauses)] {
		texts = append(texts, clip.Text(c.Error()))
	}
	if w.validation == metav1.FieldValidationStrict {
		return badRequest("strict decoding error: %s", strings.Join(texts, ", "))
	}
	w.warnings = append(w.warnings, texts...)
	return nil
}

// badBody refuses a body for what was found when it was read; nil for nil. It keeps the error of a decoder.
func badBody(err error) error {
	if err == nil {
		return nil
	}
	refused := apierrors.NewBadRequest(fmt.Sprintf("the body of the request %s", err))
	if d := (*object.DecodeError)(nil); errors.As(err, &d) {
		return &undecoded{StatusError: refused, cause: d.Cause}
	}
	return refused
}

// split makes an object of a tree, which becomes the object's, if it's of the endpoint's kind. unknown are the fields of
// metadata that don't exist.
func (e *Endpoint) split(tree map[string]any) (o *object.Object, unknown []error, err error) {
	if err := e.checkType(tree); err != nil {
		return nil, nil, err
	}
	if o, unknown, err = object.New(tree); err != nil {
		return nil, nil, e.unhandled(e.kind(), err.Error())
	}
	return o, unknown, nil
}

// checkType checks apiVersion against the endpoint. Objects of Go types may leave it out, as kube-apiserver allows for built-in kinds.
func (e *Endpoint) checkType(tree map[string]any) error {
	want := e.apiVersion()
	apiVersion, _ := tree["apiVersion"].(string)
	if e.typed != nil {
		apiVersion = cmp.Or(apiVersion, want)
	}
	if apiVersion != want {
		return badRequest("the API version in the data (%s) does not match the expected API version (%s)", clip.Text(apiVersion), want)
	}
	return nil
}

// otherKindOf returns the kind that an object says it's of, if that isn't the endpoint's; else nil.
func (e *Endpoint) otherKindOf(tree map[string]any) *string {
	kind, _ := tree["kind"].(string)
	if kind == e.Kind {
		return nil
	}
	return &kind
}

// refuseKind refuses an object of another kind than the endpoint's.
func (e *Endpoint) refuseKind(kind, name string) error {
	came := schema.GroupKind{Group: e.Group, Kind: clip.Text(kind)} // which kube-apiserver names, too
	return invalid(came, name, field.ErrorList{field.Invalid(field.NewPath("kind"), kind, "must be "+e.Kind)})
}
