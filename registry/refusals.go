package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// What Kubernetes says of a request that it can't read.

// GoType tells whether the endpoint's objects are of a Go type. Otherwise they're custom resources.
func (e *Endpoint) GoType() bool { return e.typed != nil }

// AsKubernetes returns a Status error as a library of Kubernetes' makes it of a code alone, with empty details.
func AsKubernetes(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}}
}

// unforeseen is what Kubernetes answers to an error that it has no Status for: 500 without a reason.
func unforeseen(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: clip.Text(message),
	}}
}

// Unforeseen is what Kubernetes answers to an error that it has no Status for: 500 without a reason, with the message.
func Unforeseen(message string) error { return unforeseen(message) }

// badVersion refuses a resourceVersion that isn't a number. Only lists know that it's the client's mistake.
func badVersion(text string, err error, list bool) error {
	cause := field.Invalid(field.NewPath("resourceVersion"), clip.Text(text), clip.Text(err.Error())).Error()
	if list {
		return badRequest("invalid resource version: %s", cause)
	}
	return unforeseen(cause)
}

// badOptions refuses the options of a deletion for what their decoder says.
func badOptions(body []byte, err error) error {
	if _, theirs := serializer.DefaultMetaFactory.Interpret(body); theirs != nil {
		return badRequest("%s", clip.Text(theirs.Error()))
	}
	if d := (*object.DecodeError)(nil); errors.As(err, &d) {
		return badRequest("%s", d.Cause)
	}
	return badBody(err)
}

// badDocument refuses a patch that can't be decoded as what a patch of its type is: into is that, as Kubernetes' decoder calls it.
func badDocument(patch []byte, into string, otherwise error) error {
	if !json.Valid(patch) {
		return badRequest("invalid JSON patch")
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
	return badRequest("error decoding patch: json: cannot unmarshal %s into Go value of type %s", as.Value, into)
}

// checkApplied refuses a configuration that isn't of the endpoint's kind.
func (e *Endpoint) checkApplied(tree map[string]any) error {
	u := unstructured.Unstructured{Object: tree}
	if of := u.GroupVersionKind(); of != e.kind() {
		return badRequest("invalid object type: %s", clip.Text(of.String()))
	}
	return nil
}

// badOperations is the error of a JSON patch that can't be applied. Kubernetes doesn't say why.
func badOperations(err error) error {
	if !apierrors.IsInvalid(err) {
		return err
	}
	return AsKubernetes(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "the server rejected our request due to an error in our request")
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

// undecoded is a Status error about a body that can't be decoded. cause is what the decoder said: of what a patch made, that is
// all that the client is told.
type undecoded struct {
	*apierrors.StatusError
	cause string
}

func (u *undecoded) Unwrap() error { return u.StatusError }

// causeOf returns why a body can't be decoded, in Kubernetes' words where they're known.
func causeOf(err error) string {
	var u *undecoded
	if errors.As(err, &u) {
		return u.cause
	}
	return err.Error()
}

// Unrecognized refuses a body of YAML that can't be read. why says so.
func (e *Endpoint) Unrecognized(body []byte, why error) error {
	return e.unrecognizedFor(body, clip.Text(why.Error()))
}

// Repeated refuses a body in which a mapping of YAML has a key twice. why says so. body is it as JSON; of a Go type, another kind than the
// target's is refused before that.
func (e *Endpoint) Repeated(subresource string, body []byte, why error) error {
	doc, err := object.Parse(body)
	if err != nil || !e.GoType() {
		return why
	}
	want := e.bodyKind(subresource)
	if want.Empty() {
		want = e.kind()
	}
	of, err := e.res.registry.checkKind(&doc, want)
	if err != nil {
		return err
	}
	return unhandledAs(want.Kind, of, why.Error())
}

// unrecognized refuses a body whose version and kind can't be read.
func (e *Endpoint) unrecognized(body []byte, err error) error {
	cause := err.Error()
	var into any = &map[string]any{}
	if e.GoType() {
		into = e.typed.New()
	}
	if of, theirs := serializer.DefaultMetaFactory.Interpret(body); theirs != nil {
		cause = clip.Text(theirs.Error())
	} else if of.Kind == "" && !e.GoType() && utf8.Valid(body) {
		return e.checkSays(nil, body)
	} else if why := undecodable(body, into); why != "" && of.Kind == e.Kind {
		return e.unhandled(*of, why)
	} else if d := (*object.DecodeError)(nil); errors.As(err, &d) {
		cause = d.Cause
	}
	return e.unrecognizedFor(body, cause)
}

// checkSays refuses a custom resource that doesn't say its kind, or says its kind or version by something else than a text.
func (e *Endpoint) checkSays(tree map[string]any, body []byte) error {
	kind, _ := tree["kind"].(string)
	if _, ok := tree["apiVersion"].(string); kind != "" && (ok || tree["apiVersion"] == nil) {
		return nil
	}
	cause := fmt.Sprintf("Object 'Kind' is missing in '%s'", body)
	if _, err := serializer.DefaultMetaFactory.Interpret(body); err != nil {
		cause = err.Error()
	}
	return e.unrecognizedFor(body, clip.Text(cause))
}

// unrecognizedFor refuses a body that has no version and no kind for a cause.
func (e *Endpoint) unrecognizedFor(body []byte, cause string) error {
	return unrecognizedAs(e.Kind, body, cause)
}

// unrecognizedAs refuses a body that should be of a kind.
func unrecognizedAs(kind string, body []byte, cause string) error {
	return &undecoded{cause: cause, StatusError: apierrors.NewBadRequest(fmt.Sprintf(
		"the object provided is unrecognized (must be of type %s): %s (%s)", kind, cause, summaryOf(body)))}
}

// undecodable returns what the decoder of a type says of a body that isn't a tree, as one with a number that is too large for any type; ""
// if it says nothing, and of large bodies.
func undecodable(body []byte, into any) string {
	const most = 64 << 10 // bytes: nobody knows how deep they nest
	if len(body) > most {
		return ""
	}
	var d *object.DecodeError
	if errors.As(object.Undecodable(kjson.UnmarshalCaseSensitivePreserveInts(body, into)), &d) {
		return d.Cause
	}
	return ""
}

// badEnvelope refuses a body of protobuf whose envelope can't be read: in Kubernetes' words where its own decoder can't either.
func (e *Endpoint) badEnvelope(body []byte, err error) error {
	if !e.GoType() {
		return badBody(err)
	}
	prefix := []byte("k8s\x00")
	rest, ok := bytes.CutPrefix(body, prefix)
	if !ok {
		return e.unrecognizedFor(body, fmt.Sprintf("provided data does not appear to be a protobuf message, expected prefix %v", prefix))
	}
	if theirs := (&runtime.Unknown{}).Unmarshal(rest); theirs != nil {
		return e.unrecognizedFor(body, clip.Text(theirs.Error()))
	}
	return badBody(err)
}

// summaryOf returns the beginning of a body as Kubernetes' messages have it: in hexadecimal what isn't an object of JSON.
func summaryOf(body []byte) string {
	const most = 30 // bytes, as there
	begin, rest := body, ""
	if len(body) > most {
		begin, rest = body[:most], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return string(begin) + rest
	}
	return fmt.Sprintf("%x%s", begin, rest)
}

// unhandled refuses a body that says that it's of a kind.
func (e *Endpoint) unhandled(of runtimeschema.GroupVersionKind, cause string) error {
	return unhandledAs(e.Kind, of, cause)
}

// unhandledAs refuses a body that should be of a kind, and says that it's of another.
func unhandledAs(kind string, of runtimeschema.GroupVersionKind, cause string) error {
	return &undecoded{cause: cause, StatusError: apierrors.NewBadRequest(fmt.Sprintf(
		"%s in version %q cannot be handled as a %s: %s", clip.Text(of.Kind), clip.Text(of.Version), kind, cause))}
}

// checkGoType returns which kind a document says it's of; what it leaves out, the path says. It refuses kinds that aren't the
// endpoint's.
func (e *Endpoint) checkGoType(doc *object.Document) (runtimeschema.GroupVersionKind, error) {
	return e.res.registry.checkKind(doc, e.kind())
}

// checkKind returns which kind a document says it's of; what it leaves out, is as it's wanted. It refuses other kinds.
func (r *Registry) checkKind(doc *object.Document, want runtimeschema.GroupVersionKind) (runtimeschema.GroupVersionKind, error) {
	if tree, ok := doc.Tree.(map[string]any); ok && says(tree, "apiVersion", want.GroupVersion().String()) && says(tree, "kind", want.Kind) {
		return want, nil
	}
	of, err := object.KindOf(doc.Text, want)
	if err != nil {
		return want, unrecognizedAs(want.Kind, doc.Text, clip.Text(err.Error()))
	}
	if of == want {
		return want, nil
	}
	cause := fmt.Sprintf("no kind %q is registered for version %q in scheme %q", clip.Text(of.Kind), clip.Text(of.GroupVersion().String()), object.Scheme)
	if r.knows(of) && !separate[want.Group] {
		cause = fmt.Sprintf("converting (%s.%s) to (%s.%s): unknown conversion", of.Version, of.Kind, internalPackage(want.Group), want.Kind)
	}
	return of, unhandledAs(want.Kind, of, cause)
}

// parseKind parses a body that should be of a kind which isn't an endpoint's. of is what it says that it is. empty is an empty one.
func (r *Registry) parseKind(body []byte, want runtimeschema.GroupVersionKind, empty any) (doc object.Document, of runtimeschema.GroupVersionKind, err error) {
	if doc, err = object.Parse(body); err != nil {
		cause := err.Error()
		if d := (*object.DecodeError)(nil); errors.As(err, &d) {
			cause = d.Cause
		}
		if is, theirs := serializer.DefaultMetaFactory.Interpret(body); theirs != nil {
			cause = clip.Text(theirs.Error())
		} else if why := undecodable(body, empty); why != "" && is.Kind == want.Kind {
			return doc, want, unhandledAs(want.Kind, *is, why)
		}
		return doc, want, unrecognizedAs(want.Kind, body, cause)
	}
	if doc.Tree == nil { // null, which is an object without fields
		doc, _ = object.Parse([]byte("{}"))
	}
	of, err = r.checkKind(&doc, want)
	return doc, of, err
}

// says tells whether a member is absent, empty or what it should be.
func says(tree map[string]any, name, want string) bool {
	text, ok := tree[name].(string)
	return text == "" && (ok || tree[name] == nil) || text == want
}

// separate are the groups of Kubernetes' whose Go types are in a table of their own.
var separate = map[string]bool{"apiextensions.k8s.io": true, "apiregistration.k8s.io": true}

// knows tells whether there are objects of a kind as a Go type. Of lists only the core's general one counts.
func (r *Registry) knows(of runtimeschema.GroupVersionKind) bool {
	if of == metav1.SchemeGroupVersion.WithKind("List") || of == (runtimeschema.GroupVersionKind{Version: "v1", Kind: "List"}) {
		return true
	}
	if separate[of.Group] {
		return false
	}
	for _, res := range r.builtins {
		for _, e := range res.versions {
			if e.kind() == of {
				return true
			}
		}
	}
	return false
}

// internalPackage returns the package of Kubernetes' own types of a group.
func internalPackage(group string) string {
	name, _, _ := strings.Cut(group, ".")
	if name == "" || name == "events" {
		return "core"
	}
	return name
}

// readTyped is read for an object of a Go type.
func (w *write) readTyped(body []byte) (*object.Object, error) {
	doc, err := object.Parse(body)
	if err != nil {
		return nil, w.unrecognized(body, err)
	}
	if doc.Tree == nil { // null, which is an object without fields
		doc, _ = object.Parse([]byte("{}"))
	}
	of, err := w.checkGoType(&doc)
	if err != nil {
		return nil, err
	}
	// The type's decoder reads the text, and the tree above only checked it: another parse of small bodies costs less
	// than a second way to refuse a malformed body.
	known, complaints, err := w.typed.normalize(&doc)
	if u := (*undecoded)(nil); errors.As(err, &u) {
		return nil, w.unhandled(of, u.cause)
	}
	if err != nil {
		return nil, err
	}
	o, _, err := w.split(known)
	if err != nil {
		return nil, err
	}
	sent, _ := doc.Tree.(map[string]any)
	o.Empty = object.EmptyIn(sent, o.Content)
	if list, ok := object.Map(sent["metadata"])["managedFields"].([]any); ok && len(list) == 0 {
		o.Managed = list // which says something (see track), and which the type leaves out
	}
	if err := w.complain(complaints); err != nil {
		return nil, w.unhandled(of, err.Error())
	}
	return o, nil
}
