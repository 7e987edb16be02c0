package plugins

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// ClaimResize is the plug-in PersistentVolumeClaimResize: a claim grows only once it's bound, and if its StorageClass allows that.
type ClaimResize struct {
	classes *registry.Derived[[]*storagev1.StorageClass]
}

// NewClaimResize returns the plug-in. unreadable is told about classes that can't be decoded.
func NewClaimResize(r *registry.Registry, unreadable func(*kube.Object, error)) *ClaimResize {
	return &ClaimResize{classes: derive[storagev1.StorageClass](r, storage.PrefixOf(storagev1.GroupName, "storageclasses"), unreadable)}
}

// Concerns is about updates of claims.
func (*ClaimResize) Concerns(a *registry.Attributes) bool {
	return changes(a, "", "persistentvolumeclaims", registry.Update)
}

// Check compares the sizes.
func (c *ClaimResize) Check(_ context.Context, r *request) error {
	claim, err := decode[corev1.PersistentVolumeClaim](r.Object)
	if err != nil {
		return err
	}
	old, err := decode[corev1.PersistentVolumeClaim](r.Old)
	if err != nil {
		return err
	}
	switch {
	case claim.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) <= 0:
		return nil
	case old.Status.Phase != corev1.ClaimBound:
		//lint:ignore ST1005 clients know the text
		return errors.New("Only bound persistent volume claims can be expanded")
	case !c.allows(claim, old):
		return errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
	}
	return nil
}

// allows tells whether the class of a claim, which must still be the old one, lets it grow.
func (c *ClaimResize) allows(claim, old *corev1.PersistentVolumeClaim) bool {
	name := classOf(claim)
	if name == "" || name != classOf(old) {
		return false
	}
	for _, class := range c.classes.Get() {
		if class.Name == name {
			return class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
		}
	}
	return false
}

// classOf returns the name of a claim's StorageClass; "" if it has none.
func classOf(claim *corev1.PersistentVolumeClaim) string {
	if name, old := claim.Annotations[corev1.BetaStorageClassAnnotation]; old {
		return name
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}
