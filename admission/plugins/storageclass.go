package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// DefaultStorageClass gives each new PersistentVolumeClaim that names no class the default one.
type DefaultStorageClass struct {
	classes *registry.Derived[[]*storagev1.StorageClass]
}

// NewDefaultStorageClass returns the plug-in. unreadable is told about classes that can't be decoded.
func NewDefaultStorageClass(r *registry.Registry, unreadable func(*kube.Object, error)) *DefaultStorageClass {
	return &DefaultStorageClass{derive[storagev1.StorageClass](r, storage.PrefixOf(storagev1.GroupName, "storageclasses"), unreadable)}
}

// The annotations of the default class; the second is that of old versions.
var defaultAnnotations = []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"}

// Concerns is about new claims, if there is a class.
func (d *DefaultStorageClass) Concerns(a *registry.Attributes) bool {
	return changes(a, "", "persistentvolumeclaims", registry.Create) && len(d.classes.Get()) > 0
}

// Complete sets the class.
func (d *DefaultStorageClass) Complete(_ context.Context, r *request) error {
	if _, named := r.Object.GetAnnotations()[corev1.BetaStorageClassAnnotation]; named {
		return nil
	}
	if _, named, err := unstructured.NestedFieldNoCopy(r.Object.Object, "spec", "storageClassName"); named || err != nil {
		return err // "" is a choice, too: none
	}
	class := newestDefault(d.classes.Get())
	if class == nil {
		return nil
	}
	return unstructured.SetNestedField(r.Object.Object, class.Name, "spec", "storageClassName")
}

// newestDefault returns the default class, nil if there is none. Of several it's the newest, and of equally new ones the first
// by name.
func newestDefault(classes []*storagev1.StorageClass) (found *storagev1.StorageClass) {
	for _, c := range classes {
		isDefault := false
		for _, annotation := range defaultAnnotations {
			isDefault = isDefault || c.Annotations[annotation] == "true"
		}
		if isDefault && (found == nil || found.CreationTimestamp.Before(&c.CreationTimestamp)) {
			found = c
		}
	}
	return found
}
