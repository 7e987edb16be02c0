package writes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// What one patch may cost; kube-apiserver's numbers.
const (
	// maxPatchOperations bounds the operations of a JSON patch.
	maxPatchOperations = 10_000
	// maxPatchCopyBytes bounds what the copies of a JSON patch add up to: each may double the object.
	maxPatchCopyBytes = 3 << 20
	// maxPatchWork bounds nesting times bytes: the library parses and prints what is below each level
	// that a patch touches again for that level. A megabyte may nest 32 levels deep.
	maxPatchWork = 32 << 20
	// maxPatchMoves bounds operations times elements of the longest list: the library copies a list, 8 bytes for each
	// element, whenever an operation adds to it or removes from it. That is some tenths of a second.
	maxPatchMoves = 200_000_000
)

// The library's bound is a variable of its package, read by every patch: set once, for all servers of the
// process.
func init() { jsonpatch.AccumulatedCopySizeLimit = maxPatchCopyBytes }

// Patch changes an object as a merge patch (RFC 7386), a JSON patch (RFC 6902), a strategic merge patch or an
// applied configuration (server-side apply, KEP-555) says. Of the query it reads dryRun, fieldValidation, fieldManager and
// force (of an apply), and for Tables includeObject. Errors are those of Update, and 405 for finalize, 413 for a patch that
// works too much, and 415 for another type of patch. An apply creates a missing object: Result.Created is set then. The
// caller owns the Result's bytes.
//
// The patch is applied to the newest object. If somebody else writes in between, it's applied again, unless
// it names a resourceVersion, which then is no longer the object's: a conflict. (kube-apiserver's limit of
// five tries counts conflicts that its storage has already retried without a limit.)
func (e Writer) Patch(ctx context.Context, r *registry.Request) (registry.Result, error) {
	if r.Subresource == registry.AtFinalize {
		return registry.Result{}, e.MethodNotAllowed("patch")
	}
	kind, err := e.patchType(r)
	if err != nil {
		return registry.Result{}, err
	}
	return e.perform(ctx, r, patchOptions, func(ctx context.Context, w *write) (registry.Result, error) {
		w.patches = true
		switch {
		case kind == types.ApplyYAMLPatchType && w.Subresource == registry.AtScale:
			return w.applyScale(ctx, r.Body)
		case kind == types.ApplyYAMLPatchType:
			return w.applyConfiguration(ctx, r.Body)
		}
		apply, err := w.patch(kind, r.Body)
		if err != nil {
			return registry.Result{}, err
		}
		if w.Subresource == registry.AtScale {
			return w.changeScale(ctx, apply)
		}
		stored, err := w.update(ctx, func(old *kube.Object) (outcome, error) {
			doc, err := w.Show(ctx, w.View, old)
			if err != nil {
				return outcome{}, err
			}
			made, err := apply(doc)
			if err != nil {
				return outcome{}, err
			}
			in, err := w.readPatched(made, func() []byte { return w.inFieldOrder(doc, made.Text, apply) })
			if err != nil {
				return outcome{}, err
			}
			prev, err := w.Load(ctx, old)
			if err != nil {
				return outcome{}, err
			}
			return w.nextFrom(ctx, prev, in)
		})
		if err != nil {
			return registry.Result{}, err
		}
		return w.answer(ctx, stored)
	})
}

// patchType says how a body patches, or lists the types that are served.
func (e Writer) patchType(r *registry.Request) (types.PatchType, error) {
	t := types.PatchType(strings.ToLower(r.PatchType))
	accepted := e.PatchTypes()
	if slices.Contains(accepted, t) {
		return t, nil
	}
	if e.Typed != nil {
		return "", registry.AsKubernetes(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type")
	}
	names := make([]string, len(accepted))
	for i, a := range accepted {
		names[i] = string(a)
	}
	return "", registry.Refusal(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(names, ", "))
}

// applier applies a patch to a document.
type applier func(doc []byte) (patched, error)

// patched is what a patch made of a document.
type patched struct {
	object.Document                // that of a strategic merge patch is parsed already, and lacks managedFields where they stay as they are
	by              map[string]any // the strategic merge patch, as the library has left it; else nil
}

// patch checks a patch and returns what applies it.
func (w *write) patch(kind types.PatchType, patch []byte) (applier, error) {
	if kind == types.JSONPatchType {
		return w.jsonPatch(patch)
	}
	doc, _, err := object.ParseObject(patch)
	if err != nil {
		return nil, badDocument(patch, jsonObject, registry.BadBody(err))
	}
	if err := w.complainOfRepeated(&doc); err != nil {
		return nil, badPatch(patch, err)
	}
	_, levels := doc.Size()
	return func(doc []byte) (patched, error) {
		if err := (patchWork{levels: levels, bytes: len(doc) + len(patch)}).check(); err != nil {
			return patched{}, err
		}
		if kind == types.StrategicMergePatchType {
			return mergeStrategically(doc, patch, w.Typed.Zero)
		}
		merged, err := jsonpatch.MergePatch(doc, patch)
		if err != nil {
			return patched{}, registry.BadRequest("the merge patch can't be applied: %s", clip.Text(err.Error()))
		}
		return patched{Document: object.Document{Text: merged}}, nil
	}, nil
}

func (w *write) jsonPatch(patch []byte) (applier, error) {
	doc, applied, err := parseJSONPatch(patch)
	if err != nil {
		return nil, badOperations(badDocument(patch, jsonOperations, err))
	}
	if err := w.complainOfRepeated(&doc); err != nil {
		return nil, badPatch(patch, err)
	}
	return func(doc []byte) (patched, error) {
		text, err := applied(doc)
		return patched{Document: object.Document{Text: text}}, badOperations(err)
	}, nil
}

// PatchJSON applies a JSON patch to a document, within the bounds of clients' patches. The bytes that it returns
// are the caller's. An error has the library's words, or is a Status about the bounds.
func PatchJSON(doc, patch []byte) ([]byte, error) {
	_, apply, err := parseJSONPatch(patch)
	if err != nil {
		return nil, err
	}
	patched, err := apply(doc)
	if apierrors.IsInvalid(err) {
		err = errors.New(err.Error())
	}
	return patched, err
}

// parseJSONPatch checks a JSON patch, and returns what applies it.
func parseJSONPatch(patch []byte) (doc object.Document, apply func(doc []byte) ([]byte, error), err error) {
	if doc, err = object.Parse(patch); err != nil {
		return doc, nil, registry.BadBody(err)
	}
	operations, ok := doc.Tree.([]any)
	if !ok && doc.Tree != nil { // null has no operations
		return doc, nil, registry.BadBody(object.Decode(patch, &operations)) // which says what it is instead
	}
	if len(operations) > maxPatchOperations {
		return doc, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the allowed maximum of operations in a JSON patch is %d, got %d", maxPatchOperations, len(operations)))
	}
	_, levels := doc.Size()
	moves, shifts := 0, 0
	for i, o := range operations {
		op, ok := o.(map[string]any)
		if !ok {
			return doc, nil, registry.BadRequest("JSON patch: operation %d: must be an object", i)
		}
		if err := checkOperation(op); err != nil {
			return doc, nil, unprocessable(fmt.Sprintf("JSON patch: operation %d: %s", i, err))
		}
		if op["op"] != "test" && op["op"] != "replace" {
			shifts++ // what comes after an element of a list
		}
		path, from := op["path"].(string), ""
		if op["op"] == "move" || op["op"] == "copy" {
			moves++ // each may put everything one level deeper
			from = op["from"].(string)
		}
		levels = max(levels, strings.Count(path, "/"), strings.Count(from, "/"))
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return doc, nil, registry.BadRequest("the JSON patch can't be decoded: %s", clip.Text(err.Error()))
	}
	return doc, func(doc []byte) ([]byte, error) {
		if err := (patchWork{levels: levels + moves, bytes: len(doc) + len(patch)}).check(); err != nil {
			return nil, err
		}
		if err := checkShifts(shifts, doc, operations); err != nil {
			return nil, err
		}
		patched, err := decoded.Apply(doc)
		var copied *jsonpatch.AccumulatedCopySizeError
		switch {
		case errors.As(err, &copied):
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
				"the copy operations of the JSON patch add up to more than %d bytes", maxPatchCopyBytes))
		case err != nil:
			return nil, unprocessable(clip.Text(err.Error()))
		}
		return patched, nil
	}, nil
}

// checkShifts refuses a patch whose operations shift the elements of lists too often.
func checkShifts(shifts int, doc []byte, operations []any) error {
	const smallest = 2 // bytes of an element
	if shifts*(len(doc)/smallest+shifts) <= maxPatchMoves && shifts*(object.Widest(operations)+shifts) <= maxPatchMoves {
		return nil
	}
	tree, err := object.ParseTree(doc)
	if err != nil {
		return registry.BadBody(err)
	}
	longest := max(object.Widest(tree), object.Widest(operations)) + shifts
	if shifts*longest > maxPatchMoves {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"%d operations of the JSON patch may move %d elements of a list each: operations times elements may be %d", shifts, longest, maxPatchMoves))
	}
	return nil
}

// patchWork is what decides how costly a patch is.
type patchWork struct {
	levels int // of nesting, in the patch or in what it touches
	bytes  int // of the patch and the object
}

// check refuses a patch that nests too deeply for its size.
func (w patchWork) check() error {
	if w.levels*w.bytes > maxPatchWork {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the patch works at up to %d levels of nesting, which is too deep for %d bytes: levels times bytes may be %d", w.levels, w.bytes, maxPatchWork))
	}
	return nil
}

// checkOperation checks the form of one operation. The library leaves some of that to chance, and a
// malformed patch is the client's error whatever the object is.
func checkOperation(op map[string]any) error {
	kind, _ := op["op"].(string)
	switch kind {
	case "add", "replace", "test":
		if _, ok := op["value"]; !ok {
			return fmt.Errorf("%s needs a value", kind)
		}
	case "move", "copy":
		if from, ok := op["from"].(string); !ok || !isPointer(from) {
			return fmt.Errorf("%s needs from, a JSON pointer such as /spec/size", kind)
		}
	case "remove":
	default:
		return fmt.Errorf("op must be add, remove, replace, move, copy or test, not %q", clip.Text(fmt.Sprint(op["op"])))
	}
	if path, ok := op["path"].(string); !ok || !isPointer(path) {
		return errors.New("path must be a JSON pointer such as /spec/size")
	}
	return nil
}

func isPointer(s string) bool { return s == "" || s[0] == '/' }

// readPatched reads the object that a patch made. What keeps it from being read is the patch's fault. shown is the body as a
// refusal repeats it.
func (w *write) readPatched(made patched, shown func() []byte) (*object.Object, error) {
	if _, err := w.CheckValues(made.Text); err != nil {
		return nil, err
	}
	in, err := w.readDocument(made.Document)
	if apierrors.IsBadRequest(err) && made.by != nil {
		return nil, w.refuseMerged(made, err)
	}
	if apierrors.IsBadRequest(err) {
		return nil, w.refusePatched(shown(), errors.New(registry.CauseOf(err)))
	}
	if err != nil {
		return nil, err
	}
	return in, w.checkNamed(in)
}

// refuseMerged is the answer about a strategic merge patch whose result can't be read: as in kube-apiserver it quotes the patch, and has the
// converter's words, where the converter has some.
func (w *write) refuseMerged(made patched, err error) error {
	cause := errors.New(registry.CauseOf(err))
	if unfit := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Map(made.Tree), w.Typed.New()); unfit != nil {
		cause = unfit
	}
	return badPatch(fmt.Appendf(nil, "%+v", made.by), cause)
}

// inFieldOrder returns what a patch made of a document, with the fields of a Go type in the order in which the type has them, as
// kube-apiserver's refusals repeat it; body if there is no such thing.
func (w *write) inFieldOrder(doc, body []byte, apply applier) []byte {
	if w.Typed == nil {
		return body
	}
	obj := w.Typed.New()
	if err := json.Unmarshal(doc, obj); err != nil {
		return body
	}
	ordered, err := json.Marshal(obj)
	if err != nil {
		return body
	}
	made, err := apply(ordered)
	if err != nil {
		return body
	}
	return made.Text
}

// refusePatched is the answer about a patched object that can't be read, with kube-apiserver's code and reason: invalid.
// Another apiVersion is a custom resource's own fault, as another kind is.
func (w *write) refusePatched(body []byte, cause error) error {
	if w.Typed == nil {
		if _, tree, err := object.ParseObject(body); err == nil {
			if v, _ := tree["apiVersion"].(string); v != "" && v != w.APIVersion() {
				if err := w.complain(w.unknownIn(tree, v)); err != nil {
					return badPatch(body, err)
				}
				return w.Invalid(w.Name, field.Invalid(field.NewPath("apiVersion"), v, "must be "+w.APIVersion()))
			}
		}
	}
	return badPatch(body, cause)
}

// unknownIn returns what nobody knows of an object in a version that the definition doesn't have: all but its metadata.
func (w *write) unknownIn(tree map[string]any, apiVersion string) (unknown []error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Group != w.Group || w.Res.Registry.Catalog().Endpoint(gv.WithResource(w.Plural)) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			unknown = append(unknown, fmt.Errorf("unknown field %q", name))
		}
	}
	return unknown
}

// badPatch refuses what a patch made of an object, or the patch itself, under the name that kube-apiserver gives both.
func badPatch(body []byte, cause error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), clip.To(string(body), maxQuotedPatch), clip.Text(cause.Error()))})
}

// maxQuotedPatch is how much of what a patch made is quoted, in bytes: most objects have less.
const maxQuotedPatch = 16 << 10

// unprocessable refuses a patch whose operations are wrong or don't fit the object. It carries no details:
// with a kind in them, and no causes, kubectl keeps the message to itself.
func unprocessable(message string) error {
	return registry.Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message)
}
