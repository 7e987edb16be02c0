package registry

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// What Kubernetes says of a request that it can't read.

// GoType tells whether the endpoint's objects are of a Go type. Otherwise they're custom resources.
func (e *Endpoint) GoType() bool { return e.Typed != nil }

// Refusal returns an error that becomes a Status of this code, reason and message.
func Refusal(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// AsKubernetes is Refusal as a library of Kubernetes' makes it of a code alone, with empty details.
func AsKubernetes(code int32, reason metav1.StatusReason, message string) error {
	err := Refusal(code, reason, message)
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

// Unforeseen is what Kubernetes answers to an error that it has no Status for: 500 without a reason, with the message.
func Unforeseen(message string) error {
	return Refusal(http.StatusInternalServerError, "", clip.Text(message))
}

// BadVersion refuses a resourceVersion that isn't a number. Only lists know that it's the client's mistake.
func BadVersion(text string, err error, list bool) error {
	cause := field.Invalid(field.NewPath("resourceVersion"), clip.Text(text), clip.Text(err.Error())).Error()
	if list {
		return BadRequest("invalid resource version: %s", cause)
	}
	return Unforeseen(cause)
}

// CheckName refuses a name that no object can have, in the words of Kubernetes' storage.
func CheckName(name string) error {
	if name == "" {
		return BadRequest("Name parameter required.")
	}
	if problems := content.IsPathSegmentName(name); len(problems) > 0 {
		return BadRequest("Name parameter invalid: %q: %s", clip.Text(name), strings.Join(problems, ";"))
	}
	return nil
}

// BadOptions refuses the options of a deletion for what their decoder says.
func BadOptions(body []byte, err error) error {
	if _, theirs := serializer.DefaultMetaFactory.Interpret(body); theirs != nil {
		return BadRequest("%s", clip.Text(theirs.Error()))
	}
	if d := (*object.DecodeError)(nil); errors.As(err, &d) {
		return BadRequest("%s", d.Cause)
	}
	return BadBody(err)
}

// Undecoded is a Status error about a body that can't be decoded. cause is what the decoder said: of what a patch made, that is
// all that the client is told.
type Undecoded struct {
	*apierrors.StatusError
	Cause string
}

func (u *Undecoded) Unwrap() error { return u.StatusError }

// CauseOf returns why a body can't be decoded, in Kubernetes' words where they're known.
func CauseOf(err error) string {
	var u *Undecoded
	if errors.As(err, &u) {
		return u.Cause
	}
	return err.Error()
}

// Unrecognized refuses a body of YAML that can't be read. why says so.
func (e *Endpoint) Unrecognized(body []byte, why error) error {
	return e.UnrecognizedFor(body, clip.Text(why.Error()))
}

// Repeated refuses a body in which a mapping of YAML has a key twice. why says so. body is it as JSON; of a Go type, another kind than the
// target's is refused before that.
func (e *Endpoint) Repeated(subresource string, body []byte, why error) error {
	doc, err := object.Parse(body)
	if err != nil || !e.GoType() {
		return why
	}
	want := e.BodyKind(subresource)
	if want.Empty() {
		want = e.GVK()
	}
	of, err := e.Res.Registry.CheckKind(&doc, want)
	if err != nil {
		return err
	}
	return UnhandledAs(want.Kind, of, why.Error())
}

// UnrecognizedBody refuses a body whose version and kind can't be read.
func (e *Endpoint) UnrecognizedBody(body []byte, err error) error {
	cause := err.Error()
	var into any = &map[string]any{}
	if e.GoType() {
		into = e.Typed.New()
	}
	if of, theirs := serializer.DefaultMetaFactory.Interpret(body); theirs != nil {
		cause = clip.Text(theirs.Error())
	} else if of.Kind == "" && !e.GoType() && utf8.Valid(body) {
		return e.CheckSays(nil, body)
	} else if why := Undecodable(body, into); why != "" && of.Kind == e.Kind {
		return e.Unhandled(*of, why)
	} else if d := (*object.DecodeError)(nil); errors.As(err, &d) {
		cause = d.Cause
	}
	return e.UnrecognizedFor(body, cause)
}

// CheckSays refuses a custom resource that doesn't say its kind, or says its kind or version by something else than a text.
func (e *Endpoint) CheckSays(tree map[string]any, body []byte) error {
	kind, _ := tree["kind"].(string)
	if _, ok := tree["apiVersion"].(string); kind != "" && (ok || tree["apiVersion"] == nil) {
		return nil
	}
	cause := fmt.Sprintf("Object 'Kind' is missing in '%s'", body)
	if _, err := serializer.DefaultMetaFactory.Interpret(body); err != nil {
		cause = err.Error()
	}
	return e.UnrecognizedFor(body, clip.Text(cause))
}

// UnrecognizedFor refuses a body that has no version and no kind for a cause.
func (e *Endpoint) UnrecognizedFor(body []byte, cause string) error {
	return UnrecognizedAs(e.Kind, body, cause)
}

// UnrecognizedAs refuses a body that should be of a kind.
func UnrecognizedAs(kind string, body []byte, cause string) error {
	return &Undecoded{Cause: cause, StatusError: apierrors.NewBadRequest(fmt.Sprintf(
		"the object provided is unrecognized (must be of type %s): %s (%s)", kind, cause, summaryOf(body)))}
}

// Undecodable returns what the decoder of a type says of a body that isn't a tree, as one with a number that is too large for any type; ""
// if it says nothing, and of large bodies.
func Undecodable(body []byte, into any) string {
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

// Unhandled refuses a body that says that it's of a kind.
func (e *Endpoint) Unhandled(of runtimeschema.GroupVersionKind, cause string) error {
	return UnhandledAs(e.Kind, of, cause)
}

// UnhandledAs refuses a body that should be of a kind, and says that it's of another.
func UnhandledAs(kind string, of runtimeschema.GroupVersionKind, cause string) error {
	return &Undecoded{Cause: cause, StatusError: apierrors.NewBadRequest(fmt.Sprintf(
		"%s in version %q cannot be handled as a %s: %s", clip.Text(of.Kind), clip.Text(of.Version), kind, cause))}
}

// CheckKind returns which kind a document says it's of; what it leaves out, is as it's wanted. It refuses
// kinds that are neither wanted nor among those that may be, too.
func (r *Registry) CheckKind(doc *object.Document, want runtimeschema.GroupVersionKind, also ...runtimeschema.GroupVersionKind) (runtimeschema.GroupVersionKind, error) {
	if tree, ok := doc.Tree.(map[string]any); ok && says(tree, "apiVersion", want.GroupVersion().String()) && says(tree, "kind", want.Kind) {
		return want, nil
	}
	of, err := object.KindOf(doc.Text, want)
	if err != nil {
		return want, UnrecognizedAs(want.Kind, doc.Text, clip.Text(err.Error()))
	}
	if of == want || slices.Contains(also, of) {
		return of, nil
	}
	cause := fmt.Sprintf("no kind %q is registered for version %q in scheme %q", clip.Text(of.Kind), clip.Text(of.GroupVersion().String()), object.Scheme)
	if r.knows(of) && !SeparateGroups[want.Group] {
		cause = fmt.Sprintf("converting (%s.%s) to (%s.%s): unknown conversion", of.Version, of.Kind, InternalPackage(want.Group), want.Kind)
	}
	return of, UnhandledAs(want.Kind, of, cause)
}

// says tells whether a member is absent, empty or what it should be.
func says(tree map[string]any, name, want string) bool {
	text, ok := tree[name].(string)
	return text == "" && (ok || tree[name] == nil) || text == want
}

// SeparateGroups are the groups of Kubernetes' whose Go types are in a table of their own.
var SeparateGroups = map[string]bool{"apiextensions.k8s.io": true, "apiregistration.k8s.io": true}

// knows tells whether there are objects of a kind as a Go type. Of lists only the core's general one counts.
func (r *Registry) knows(of runtimeschema.GroupVersionKind) bool {
	if of == metav1.SchemeGroupVersion.WithKind("List") || of == (runtimeschema.GroupVersionKind{Version: "v1", Kind: "List"}) {
		return true
	}
	if SeparateGroups[of.Group] {
		return false
	}
	for _, res := range r.builtins {
		for _, e := range res.Versions {
			if e.GVK() == of {
				return true
			}
		}
	}
	return false
}

// InternalPackage returns the package of Kubernetes' own types of a group.
func InternalPackage(group string) string {
	name, _, _ := strings.Cut(group, ".")
	if name == "" || name == "events" {
		return "core"
	}
	return name
}

// MaxTypedWork bounds bytes times levels of a Go type's body, because types that decode themselves read what is
// below each level again. A real definition of a megabyte has 40 levels.
const MaxTypedWork = 128 << 20

// What a body may have of values: members of objects, elements of lists, and one more for what is empty. An object of as many bytes as can be stored has
// fewer, unless somebody fills a list with what is next to nothing.
const (
	// MaxTypedValues bounds those of a Go type, of which an empty one may take 2 KiB while it's decoded and checked.
	MaxTypedValues = 100_000
	// MaxPodValues bounds those of a pod, or of what has a template of pods: each empty container takes 0.1 ms of defaults, hooks
	// and rules. A pod of a hundred full containers has some 10,000.
	MaxPodValues = 25_000
	// MaxTreeValues bounds those of a custom resource, which take some 300 bytes.
	MaxTreeValues = 400_000
)

func TooManyValues(n, most int) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body of the request has %d values, of which at most %d are taken", n, most))
}

// BadBody refuses a body for what was found when it was read; nil for nil. It keeps the error of a decoder.
func BadBody(err error) error {
	if err == nil {
		return nil
	}
	refused := apierrors.NewBadRequest(fmt.Sprintf("the body of the request %s", err))
	if d := (*object.DecodeError)(nil); errors.As(err, &d) {
		return &Undecoded{StatusError: refused, Cause: d.Cause}
	}
	return refused
}
