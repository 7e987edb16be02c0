package object

import (
	"cmp"

	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// Scheme is how Kubernetes calls the table of Go types that its answers name.
const Scheme = "pkg/runtime/scheme.go:111"

// KindOf returns which kind a JSON document says it's of; what it leaves out, is as it's wanted.
func KindOf(doc []byte, want schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	of, err := serializer.DefaultMetaFactory.Interpret(doc)
	if err != nil {
		return want, err
	}
	of.Kind = cmp.Or(of.Kind, want.Kind)
	if of.Version == "" && (of.Group == "" || of.Group == want.Group) {
		of.Group, of.Version = want.Group, want.Version
	}
	return *of, nil
}
