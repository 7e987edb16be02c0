package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
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
)

// The library's bound is a variable of its package, read by every patch: set once, for all servers of the
// process.
func init() { jsonpatch.AccumulatedCopySizeLimit = maxPatchCopyBytes }

// Patch changes an object as a merge patch (RFC 7386), a JSON patch (RFC 6902), a strategic merge patch or an
// applied configuration (server-side apply, KEP-555) says; mediaType is the body's type without parameters.
// Errors are Status errors.
//
// The patch is applied to the newest object. If somebody else writes in between, it's applied again, unless
// it names a resourceVersion, which then is no longer the object's: a conflict. (kube-apiserver's limit of
// five tries counts conflicts that its storage has already retried without a limit.)
func (e *Endpoint) Patch(ctx context.Context, namespace, name, subresource, mediaType string, q url.Values, patch []byte) (*Result, error) {
	key, err := e.key(namespace, name)
	if err != nil {
		return nil, err
	}
	if subresource == finalize {
		return nil, e.methodNotAllowed("patch")
	}
	kind, err := e.patchType(mediaType, subresource)
	if err != nil {
		return nil, err
	}
	return e.current(ctx, func(e *Endpoint) (*Result, error) {
		if subresource != main && !e.has(subresource) {
			return nil, errNotServed()
		}
		opts, err := e.writeOptions(q, "PatchOptions", kind)
		if err != nil {
			return nil, err
		}
		d := &decoder{endpoint: e, writeOptions: opts}
		if kind == types.ApplyYAMLPatchType {
			return e.applyConfiguration(ctx, namespace, name, subresource, d, patch)
		}
		apply, err := d.patch(kind, subresource, patch)
		if err != nil {
			return nil, err
		}
		if subresource == scale {
			return e.updateScale(ctx, namespace, name, d, apply)
		}
		fromPatch := len(d.warnings)
		stored, err := e.write(ctx, key, name, d.dryRun, func(old *cacher.Object) (change, error) {
			if old.Err != nil {
				return change{}, e.unreadable(name, old.Err)
			}
			d.warnings = d.warnings[:fromPatch] // of an earlier try
			body, err := e.whole(ctx, old)
			if err != nil {
				return change{}, err
			}
			if body, err = apply(body); err != nil {
				return change{}, err
			}
			in, err := d.object(body)
			if err != nil {
				return change{}, err
			}
			if err := e.checkNamed(in, namespace, name); err != nil {
				return change{}, err
			}
			d.warnings = append(d.warnings, in.DropRepeatedOwners()...)
			return e.revise(ctx, d, old, in, subresource)
		})
		if err != nil {
			return nil, err
		}
		return e.result(ctx, stored, &Result{Warnings: d.warnings})
	})
}

// patchType says how a body patches, or lists the types that are served.
func (e *Endpoint) patchType(mediaType, subresource string) (types.PatchType, error) {
	t := types.PatchType(strings.ToLower(mediaType))
	accepted := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.ApplyYAMLPatchType}
	switch {
	case subresource == scale:
		accepted = scaleTypes
	case e.res.typed != nil:
		accepted = append(accepted, types.StrategicMergePatchType)
	}
	if slices.Contains(accepted, t) {
		return t, nil
	}
	why := "the body of the request was in an unknown format"
	if t == types.StrategicMergePatchType {
		why = "strategic merge patches need a Go type: custom resources have none"
	}
	names := make([]string, len(accepted))
	for i, a := range accepted {
		names[i] = string(a)
	}
	return "", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: why + " - accepted media types include: " + strings.Join(names, ", "),
	}}
}

// patch checks a patch and returns what applies it to a document.
func (d *decoder) patch(kind types.PatchType, subresource string, patch []byte) (apply func(doc []byte) ([]byte, error), err error) {
	if kind == types.JSONPatchType {
		return d.jsonPatch(patch)
	}
	doc, _, err := d.parsed(patch)
	if err != nil {
		return nil, err
	}
	_, levels := doc.Size()
	var zero any = autoscalingv1.Scale{}
	if subresource != scale && d.endpoint.res.typed != nil {
		zero = d.endpoint.res.typed.zero
	}
	return func(doc []byte) ([]byte, error) {
		if err := checkWork(levels, len(doc)+len(patch)); err != nil {
			return nil, err
		}
		var patched []byte
		var err error
		if kind == types.StrategicMergePatchType {
			patched, err = strategicpatch.StrategicMergePatch(doc, patch, zero)
		} else {
			patched, err = jsonpatch.MergePatch(doc, patch)
		}
		if err != nil {
			return nil, badRequest("the merge patch can't be applied: %s", clip.Text(err.Error()))
		}
		return patched, nil
	}, nil
}

func (d *decoder) jsonPatch(patch []byte) (apply func(doc []byte) ([]byte, error), err error) {
	doc, err := object.Parse(patch)
	if err != nil {
		return nil, badBody(err)
	}
	operations, ok := doc.Tree.([]any)
	if !ok {
		return nil, badBody(object.Decode(patch, &operations)) // which says what it is instead
	}
	if len(operations) > maxPatchOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the allowed maximum of operations in a JSON patch is %d, got %d", maxPatchOperations, len(operations)))
	}
	_, levels := doc.Size()
	moves := 0
	for i, o := range operations {
		op, _ := o.(map[string]any)
		if err := checkOperation(op); err != nil {
			return nil, badRequest("JSON patch: operation %d: %s", i, err)
		}
		path, from := op["path"].(string), ""
		if op["op"] == "move" || op["op"] == "copy" {
			moves++ // each may put everything one level deeper
			from = op["from"].(string)
		}
		levels = max(levels, strings.Count(path, "/"), strings.Count(from, "/"))
	}
	if err := d.complainOfRepeated(&doc); err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, badRequest("the JSON patch can't be decoded: %s", clip.Text(err.Error()))
	}
	return func(doc []byte) ([]byte, error) {
		if err := checkWork(levels+moves, len(doc)+len(patch)); err != nil {
			return nil, err
		}
		patched, err := decoded.Apply(doc)
		var copied *jsonpatch.AccumulatedCopySizeError
		switch {
		case errors.As(err, &copied):
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
				"the copy operations of the JSON patch add up to more than %d bytes", maxPatchCopyBytes))
		case err != nil:
			why := strings.TrimSuffix(err.Error(), ": %!w(<nil>)") // the library's slip
			return nil, unprocessable(fmt.Sprintf("the JSON patch can't be applied: %s", clip.Text(why)))
		}
		return patched, nil
	}, nil
}

// checkWork refuses a patch that nests too deeply for its size.
func checkWork(levels, bytes int) error {
	if levels*bytes > maxPatchWork {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the patch works at up to %d levels of nesting, which is too deep for %d bytes: levels times bytes may be %d", levels, bytes, maxPatchWork))
	}
	return nil
}

// checkOperation checks the form of one operation. The library leaves some of that to chance, and a
// malformed patch is the client's error whatever the object is.
func checkOperation(op map[string]any) error {
	if op == nil {
		return errors.New("must be an object")
	}
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

// unprocessable refuses a patch that is well formed and doesn't fit the object. It carries no details:
// with a kind in them, and no causes, kubectl keeps the message to itself.
func unprocessable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnprocessableEntity,
		Reason:  metav1.StatusReasonInvalid,
		Message: message,
	}}
}
