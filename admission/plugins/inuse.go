package plugins

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// StorageInUse is the plug-in StorageObjectInUseProtection: new volumes, claims and VolumeAttributesClasses have a finalizer, by which
// controllers hold up the deletion of what is in use.
type StorageInUse struct{}

// inUseFinalizers are the finalizers by their resources.
var inUseFinalizers = map[schema.GroupResource]string{
	{Resource: "persistentvolumes"}:                                "kubernetes.io/pv-protection",
	{Resource: "persistentvolumeclaims"}:                           "kubernetes.io/pvc-protection",
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}: "kubernetes.io/vac-protection",
}

// Concerns is about new objects of the resources.
func (StorageInUse) Concerns(a *registry.Attributes) bool {
	return a.Operation == registry.Create && a.Subresource == "" && inUseFinalizers[a.Resource.GroupResource()] != ""
}

// Admit adds the finalizer, unless the object has it.
func (StorageInUse) Admit(_ context.Context, r *request) (pass registry.Verdict, err error) {
	finalizers, own := r.Object.GetFinalizers(), inUseFinalizers[r.Resource.GroupResource()]
	if !slices.Contains(finalizers, own) {
		r.Object.SetFinalizers(append(finalizers, own))
	}
	return pass, nil
}
