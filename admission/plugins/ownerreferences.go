package plugins

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// OwnerReferences lets a user change the owners of an object only if that user may delete it, since that is what they bring about; and
// hold up the deletion of an owner only if the user may change the owner's finalizers.
type OwnerReferences struct {
	registry   *registry.Registry
	authorizer authorizer.UnconditionalAuthorizer
}

// NewOwnerReferences returns the plug-in.
func NewOwnerReferences(r *registry.Registry, a authorizer.UnconditionalAuthorizer) *OwnerReferences {
	return &OwnerReferences{registry: r, authorizer: a}
}

// Concerns is about everything that is created or changed, but for the status of pods: a write of that puts the owners back.
func (*OwnerReferences) Concerns(a *registry.Attributes) bool {
	podStatus := a.Resource.Resource == "pods" && a.Resource.Group == "" && a.Subresource == "status"
	return !podStatus && a.Operation != registry.Delete
}

// Check judges new owners.
func (o *OwnerReferences) Check(ctx context.Context, r *request) error {
	var before []metav1.OwnerReference
	if r.Old != nil {
		before = r.Old.GetOwnerReferences()
	}
	after := owners(r.Object)
	if equality.Semantic.DeepEqual(before, after) || len(before) == 0 && len(after) == 0 {
		return nil
	}
	if r.Operation != registry.Create { // who creates an object could as well not have
		if err := o.mayDelete(ctx, r); err != nil {
			return err
		}
	}
	blocking := newlyBlocking(before, after)
	if len(blocking) == 0 {
		return nil
	}
	anything := authorizer.AttributesRecord{
		User: r.User, Verb: "update", APIGroup: "*", APIVersion: "*", Resource: "*", Subresource: "finalizers", Name: "*", ResourceRequest: true,
	}
	if decision, _, _ := o.authorizer.Authorize(ctx, anything); decision == authorizer.DecisionAllow {
		return nil
	}
	for _, ref := range blocking {
		if err := o.mayBlock(ctx, r, ref); err != nil {
			return err
		}
	}
	return nil
}

// mayDelete tells whether the user may delete the object.
func (o *OwnerReferences) mayDelete(ctx context.Context, r *request) error {
	a := authorizer.AttributesRecord{
		User: r.User, Verb: "delete", Namespace: r.Namespace, APIGroup: r.Resource.Group, APIVersion: r.Resource.Version,
		Resource: r.Resource.Resource, Subresource: r.Subresource, Name: r.Name, ResourceRequest: true,
	}
	if decision, reason, err := o.authorizer.Authorize(ctx, a); decision != authorizer.DecisionAllow {
		return fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err)
	}
	return nil
}

// owners returns an object's owners; nil for a Scale, which has none.
func owners(u *unstructured.Unstructured) []metav1.OwnerReference {
	if u == nil {
		return nil
	}
	return u.GetOwnerReferences()
}

// newlyBlocking returns the references of after that hold up the deletion of their owners and didn't before.
func newlyBlocking(before, after []metav1.OwnerReference) (refs []metav1.OwnerReference) {
	blocks := func(ref metav1.OwnerReference) bool { return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion }
	for _, ref := range after {
		did := slices.ContainsFunc(before, func(old metav1.OwnerReference) bool { return old.UID == ref.UID && blocks(old) })
		if blocks(ref) && !did {
			refs = append(refs, ref)
		}
	}
	return refs
}

// mayBlock tells whether the user may change the finalizers of an owner.
func (o *OwnerReferences) mayBlock(ctx context.Context, r *request, ref metav1.OwnerReference) error {
	owner := o.registry.Catalog().Kind(ref.APIVersion, ref.Kind)
	if owner == nil {
		return fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %v Kind %v", ref.APIVersion, ref.Kind)
	}
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return err
	}
	a := authorizer.AttributesRecord{
		User: r.User, Verb: "update", APIGroup: version.Group, APIVersion: version.Version,
		Resource: owner.Plural, Subresource: "finalizers", Name: ref.Name, ResourceRequest: true,
	}
	if owner.Namespaced {
		a.Namespace = r.Namespace // an owner with a namespace is in the same one
	}
	if decision, reason, err := o.authorizer.Authorize(ctx, a); decision != authorizer.DecisionAllow {
		return fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v", reason, err)
	}
	return nil
}
