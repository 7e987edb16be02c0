package client

import "time"

// Meta is what every object has: its type, and its Metadata. Embed it in your types.
type Meta struct {
	APIVersion string `json:"apiVersion,omitempty"` // such as example.com/v1; filled in when it's empty
	Kind       string `json:"kind,omitempty"`       // such as Widget; filled in when it's empty
	Metadata   `json:"metadata"`
}

// Metadata is the part of an object that is alike for all kinds.
type Metadata struct {
	Name                       string            `json:"name,omitempty"`
	GenerateName               string            `json:"generateName,omitempty"` // the server appends to it what makes a name
	Namespace                  string            `json:"namespace,omitempty"`
	UID                        string            `json:"uid,omitempty"`
	ResourceVersion            string            `json:"resourceVersion,omitempty"`
	Generation                 int64             `json:"generation,omitempty"`
	CreationTimestamp          time.Time         `json:"creationTimestamp,omitzero"`
	DeletionTimestamp          *time.Time        `json:"deletionTimestamp,omitempty"` // set while finalizers keep a deleted object
	DeletionGracePeriodSeconds *int64            `json:"deletionGracePeriodSeconds,omitempty"`
	Labels                     map[string]string `json:"labels,omitempty"`
	Annotations                map[string]string `json:"annotations,omitempty"`
	Finalizers                 []string          `json:"finalizers,omitempty"`
	OwnerReferences            []OwnerReference  `json:"ownerReferences,omitempty"`
}

// OwnerReference names an object with which this one goes.
type OwnerReference struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Controller         *bool  `json:"controller,omitempty"`
	BlockOwnerDeletion *bool  `json:"blockOwnerDeletion,omitempty"`
}

// Named returns the Meta of an object to be created.
func Named(name string) Meta { return Meta{Metadata: Metadata{Name: name}} }

// GetLabels returns the labels. They must not be changed.
func (m *Metadata) GetLabels() map[string]string { return m.Labels }

// meta is for finding out whether a type embeds Meta.
func (m *Meta) meta() *Meta { return m }

// hasMeta is what types have that embed Meta.
type hasMeta interface{ meta() *Meta }
