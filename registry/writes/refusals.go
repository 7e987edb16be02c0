package writes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// badDocument refuses a patch that can't be decoded as what a patch of its type is: into is that, as Kubernetes' decoder calls it.
func badDocument(patch []byte, into string, otherwise error) error {
	if !json.Valid(patch) {
		return registry.BadRequest("invalid JSON patch")
	}
	var list []any
	var object map[string]any
	err := json.Unmarshal(patch, &object)
	if into != jsonObject {
		err = json.Unmarshal(patch, &list)
	}
	var as *json.UnmarshalTypeError
	if !errors.As(err, &as) {
		return otherwise
	}
	return registry.BadRequest("error decoding patch: json: cannot unmarshal %s into Go value of type %s", as.Value, into)
}

// checkApplied refuses a configuration that isn't of the endpoint's kind.
func (e Writer) checkApplied(tree map[string]any) error {
	u := unstructured.Unstructured{Object: tree}
	if of := u.GroupVersionKind(); of != e.GVK() {
		return registry.BadRequest("invalid object type: %s", clip.Text(of.String()))
	}
	return nil
}

// badOperations is the error of a JSON patch that can't be applied. Kubernetes doesn't say why.
func badOperations(err error) error {
	if !apierrors.IsInvalid(err) {
		return err
	}
	return registry.AsKubernetes(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "the server rejected our request due to an error in our request")
}

// malformed tells whether an error about a strategic merge patch is one that Kubernetes knows for the client's.
func malformed(err error) bool {
	return slices.Contains([]error{mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList, mergepatch.ErrBadPatchFormatForRetainKeys,
		mergepatch.ErrBadPatchFormatForSetElementOrderList, mergepatch.ErrUnsupportedStrategicMergePatchFormat}, err)
}

// How Kubernetes' decoder calls what patches are.
const (
	jsonObject     = "map[string]interface {}"
	jsonOperations = "[]handlers.jsonPatchOp"
)

// badEnvelope refuses a body of protobuf whose envelope can't be read: in Kubernetes' words where its own decoder can't either.
func (e Writer) badEnvelope(body []byte, err error) error {
	if !e.GoType() {
		return registry.BadBody(err)
	}
	prefix := []byte("k8s\x00")
	rest, ok := bytes.CutPrefix(body, prefix)
	if !ok {
		return e.UnrecognizedFor(body, fmt.Sprintf("provided data does not appear to be a protobuf message, expected prefix %v", prefix))
	}
	if theirs := (&runtime.Unknown{}).Unmarshal(rest); theirs != nil {
		return e.UnrecognizedFor(body, clip.Text(theirs.Error()))
	}
	return registry.BadBody(err)
}

// checkGoType returns which kind a document says it's of; what it leaves out, the path says. It refuses kinds that aren't the
// endpoint's.
func (e Writer) checkGoType(doc *object.Document) (runtimeschema.GroupVersionKind, error) {
	return e.Res.Registry.CheckKind(doc, e.GVK())
}

// parseKind parses a body that should be of a kind which isn't an endpoint's, or of one that is as good. of is what it says that it is. empty is an
// empty one.
func parseKind(r *registry.Registry, body []byte, empty any, want runtimeschema.GroupVersionKind, also ...runtimeschema.GroupVersionKind) (doc object.Document, of runtimeschema.GroupVersionKind, err error) {
	if doc, err = object.Parse(body); err != nil {
		cause := err.Error()
		if d := (*object.DecodeError)(nil); errors.As(err, &d) {
			cause = d.Cause
		}
		if is, theirs := serializer.DefaultMetaFactory.Interpret(body); theirs != nil {
			cause = clip.Text(theirs.Error())
		} else if why := registry.Undecodable(body, empty); why != "" && is.Kind == want.Kind {
			return doc, want, registry.UnhandledAs(want.Kind, *is, why)
		}
		return doc, want, registry.UnrecognizedAs(want.Kind, body, cause)
	}
	if doc.Tree == nil { // null, which is an object without fields
		doc, _ = object.Parse([]byte("{}"))
	}
	of, err = r.CheckKind(&doc, want, also...)
	return doc, of, err
}

// readTyped is read for an object of a Go type.
func (w *write) readTyped(doc object.Document) (*object.Object, error) {
	if doc.Tree == nil {
		parsed, err := object.Parse(doc.Text)
		if err != nil {
			return nil, w.UnrecognizedBody(doc.Text, err)
		}
		doc = parsed
	}
	if doc.Tree == nil { // null, which is an object without fields
		doc, _ = object.Parse([]byte("{}"))
	}
	of, err := w.checkGoType(&doc)
	if err != nil {
		return nil, err
	}
	sent, _ := doc.Tree.(map[string]any)
	var record []any
	if len(doc.Repeated()) == 0 {
		record = managed.Take(object.Map(sent["metadata"]))
	}
	// Where the tree doesn't fit, the type's decoder reads the text: another parse of small bodies costs less than a second way to refuse
	// a malformed body.
	known, complaints, err := w.Typed.Normalize(&doc)
	if u := (*registry.Undecoded)(nil); errors.As(err, &u) {
		return nil, w.Unhandled(of, u.Cause)
	}
	if err != nil {
		return nil, err
	}
	o, _, err := w.split(known)
	if err != nil {
		return nil, err
	}
	w.unlabelled = unlabelled(sent)
	o.Empty = object.EmptyIn(sent, o.Content)
	if list, ok := object.Map(sent["metadata"])["managedFields"].([]any); record != nil {
		o.Managed = record
	} else if ok && len(list) == 0 {
		o.Managed = list // which says something (see track), and which the type leaves out
	}
	if err := w.complain(complaints); err != nil {
		return nil, w.Unhandled(of, err.Error())
	}
	return o, nil
}
