package main

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// Page is a page of HTML, made from a template.
type Page struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Template string            `json:"template"` // of html/template
		Values   map[string]string `json:"values,omitempty"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

// PageList is several.
type PageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Page `json:"items"`
}

// addPages registers the types.
func addPages(types *runtime.Scheme) error {
	types.AddKnownTypes(groupVersion, &Page{}, &PageList{})
	metav1.AddToGroupVersion(types, groupVersion)
	return nil
}

// DeepCopyObject copies what the controller or its cache may change. (Larger projects generate these.)
func (p *Page) DeepCopyObject() runtime.Object {
	c := *p
	c.ObjectMeta = *p.ObjectMeta.DeepCopy()
	c.Spec.Values = maps.Clone(p.Spec.Values)
	c.Status.Conditions = append([]metav1.Condition(nil), p.Status.Conditions...)
	return &c
}

// DeepCopyObject copies the items, too.
func (l *PageList) DeepCopyObject() runtime.Object {
	c := *l
	c.ListMeta = *l.ListMeta.DeepCopy()
	c.Items = make([]Page, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*Page)
	}
	return &c
}
