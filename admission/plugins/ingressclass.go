package plugins

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// ingressClassAnnotation named an Ingress' class before a field did. networking.k8s.io/v1 has no name for it.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// DefaultIngressClass gives each new Ingress that names no class the default one.
type DefaultIngressClass struct {
	classes *registry.Derived[[]*networkingv1.IngressClass]
}

// NewDefaultIngressClass returns the plug-in. unreadable is told about classes that can't be decoded.
func NewDefaultIngressClass(r *registry.Registry, unreadable func(*kube.Object, error)) *DefaultIngressClass {
	return &DefaultIngressClass{derive[networkingv1.IngressClass](r, storage.PrefixOf(networkingv1.GroupName, "ingressclasses"), unreadable)}
}

// Concerns is about new Ingresses, if there is a class.
func (d *DefaultIngressClass) Concerns(a *registry.Attributes) bool {
	return changes(a, networkingv1.GroupName, "ingresses", registry.Create) && len(d.classes.Get()) > 0
}

// Admit sets the class: of several default ones the newest, and of equally new ones the first by name.
func (d *DefaultIngressClass) Admit(_ context.Context, r *request) (pass registry.Verdict, err error) {
	spec := specOf(r.Object)
	_, annotated := r.Object.GetAnnotations()[ingressClassAnnotation]
	if _, named := spec["ingressClassName"]; named || annotated {
		return pass, nil
	}
	var found *networkingv1.IngressClass
	for _, c := range d.classes.Get() { // by name
		isDefault := c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
		if isDefault && (found == nil || found.CreationTimestamp.Before(&c.CreationTimestamp)) {
			found = c
		}
	}
	if found != nil {
		spec["ingressClassName"] = found.Name
	}
	return pass, nil
}
