package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// The parameters of policies are read with the server's rights. So who writes a policy needs the right to get all objects of
// its paramKind, and who writes a binding the right to get what its paramRef names, or to list what it selects. The rules and
// the texts are Kubernetes'.

// validator is a Type's Validate.
type validator = func(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList

// judge knows what objects alone don't tell.
type judge struct {
	registry   *registry.Registry
	authorizer authorizer.UnconditionalAuthorizer // nil: everybody may do everything
	// checkPolicies has the answer to the write of a policy say what its expressions get wrong.
	checkPolicies bool
}

// mayReadParams adds to the rules of policies and bindings that their writer may read the parameters. It's asked of objects
// that are valid otherwise.
func (o judge) mayReadParams(valid validator) validator {
	if o.authorizer == nil {
		return valid
	}
	return func(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
		errs := valid(ctx, obj, old, subresource)
		if len(errs) > 0 || subresource != "" || slices.Contains(registry.UserFrom(ctx).GetGroups(), user.SystemPrivilegedGroup) {
			return errs
		}
		if kind := paramKindOf(obj); kind != nil {
			if before := paramKindOf(old); before != nil && *before == *kind {
				return nil
			}
			if err := o.mayGetAll(ctx, kind); err != nil {
				return field.ErrorList{field.Forbidden(field.NewPath("spec", "paramKind"), err.Error())}
			}
		}
		if of, ref := paramRefOf(obj); ref != nil { // Kubernetes asks again at each update, too: it compares pointers
			if err := o.mayGetRef(ctx, of, ref); err != nil {
				return field.ErrorList{field.Forbidden(field.NewPath("spec", "paramRef"), err.Error())}
			}
		}
		return nil
	}
}

// paramKindOf returns the kind of a policy's parameters; nil if it has none.
func paramKindOf(obj any) *admissionregistrationv1.ParamKind {
	switch p := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return p.Spec.ParamKind
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return p.Spec.ParamKind
	}
	return nil
}

// policyRef is the policy that a binding is of.
type policyRef struct {
	name, resource string
	empty          any // a new object of its type
}

// paramRefOf returns what a binding says about parameters; nil if it says nothing.
func paramRefOf(obj registry.Typed) (policyRef, *admissionregistrationv1.ParamRef) {
	switch b := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return policyRef{b.Spec.PolicyName, "validatingadmissionpolicies", &admissionregistrationv1.ValidatingAdmissionPolicy{}}, b.Spec.ParamRef
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return policyRef{b.Spec.PolicyName, "mutatingadmissionpolicies", &admissionregistrationv1.MutatingAdmissionPolicy{}}, b.Spec.ParamRef
	}
	return policyRef{}, nil
}

// errUnserved is the error of a kind that isn't served.
var errUnserved = errors.New("the kind isn't served")

// about says which resource a kind's objects are, as far as that can be told: "*" stands for what can't.
func (o judge) about(kind *admissionregistrationv1.ParamKind) (a authorizer.AttributesRecord, parseErr, resolveErr error) {
	a = authorizer.AttributesRecord{APIGroup: "*", APIVersion: "*", Resource: "*", ResourceRequest: true}
	version, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return a, err, nil
	}
	a.APIGroup, a.APIVersion = version.Group, version.Version
	e := o.registry.Catalog().Kind(kind.APIVersion, kind.Kind)
	if e == nil {
		return a, nil, errUnserved
	}
	a.Resource = e.Plural
	return a, nil, nil
}

// mayGetAll tells whether the user may get all objects of a kind.
func (o judge) mayGetAll(ctx context.Context, kind *admissionregistrationv1.ParamKind) error {
	who := registry.UserFrom(ctx)
	a, _, _ := o.about(kind)
	a.User, a.Verb, a.Namespace, a.Name = who, "get", "*", "*"
	decision, _, err := o.authorizer.Authorize(ctx, a)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, who, kind.Kind, kind.APIVersion)
}

// mayGetRef tells whether the user may read what a binding names.
func (o judge) mayGetRef(ctx context.Context, of policyRef, ref *admissionregistrationv1.ParamRef) error {
	who, verb := registry.UserFrom(ctx), "get"
	if ref.Name == "" {
		verb = "list"
	}
	a := authorizer.AttributesRecord{APIGroup: "*", APIVersion: "*", Resource: "*", ResourceRequest: true}
	var parseErr, resolveErr error
	policyErr := o.readPolicy(ctx, of)
	kind := paramKindOf(of.empty)
	if policyErr == nil && kind != nil {
		a, parseErr, resolveErr = o.about(kind)
	}
	a.User, a.Verb, a.Namespace, a.Name = who, verb, ref.Namespace, ref.Name
	decision, _, err := o.authorizer.Authorize(ctx, a)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return fmt.Errorf("failed to authorize request: %w", err)
	case policyErr != nil:
		return fmt.Errorf(`unable to get policy %s to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`, of.name, who, verb)
	case parseErr != nil:
		return fmt.Errorf(`unable to parse paramKind %v to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`, kind, who, verb)
	case resolveErr != nil:
		return fmt.Errorf(`unable to resolve paramKind %v to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`, kind, who, verb)
	}
	return fmt.Errorf(`user %v does not have "%v" permission on the object referenced by paramRef`, who, verb)
}

// readPolicy reads the policy of a binding into its empty object.
func (o judge) readPolicy(ctx context.Context, of policyRef) error {
	key, err := storage.PrefixOf(admissionGroup, of.resource).Key(metav1.NamespaceNone, of.name)
	if err != nil {
		return err
	}
	stored, err := o.registry.Read(ctx, key)
	switch {
	case err != nil:
		return err
	case stored == nil:
		return storage.ErrNotFound
	}
	return json.Unmarshal(stored.Raw(), of.empty)
}
