package gotype

import (
	_ "embed" // kubernetes.txt
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// What Kubernetes' own types say in comments only (+listType, +listMapKey, +structType, +default, +optional) comes from its
// OpenAPI documents. kubernetes.txt has that of all stable kinds: in each line the name of a schema, and the schema without
// what is for readers. kube-apiserver merges by the same documents. (client-go's applyconfigurations has them as YAML
// which is parsed as a whole, at some 80 ms and 22 MB of garbage, and takes some values apart that kube-apiserver doesn't.)

//go:generate go -C ../../conformance run ./openapi

//go:embed kubernetes.txt
var kubernetesText string

// kubernetesLines are the schemas of kubernetes.txt by their names. Few of them are ever decoded.
var kubernetesLines = sync.OnceValue(func() map[string]string {
	lines := make(map[string]string, strings.Count(kubernetesText, "\n"))
	for line := range strings.Lines(kubernetesText) {
		name, text, _ := strings.Cut(line, "\t")
		lines[name] = text
	}
	return lines
})

// knownSchema returns what Kubernetes says of one of its own types; nil for other types.
func knownSchema(name string) (*spec.Schema, error) {
	text, ok := kubernetesLines()[name]
	if !ok {
		return nil, nil
	}
	s := &spec.Schema{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("the schema of %s: %w", name, err)
	}
	return s, nil
}

// Merging returns the schemas by which objects of a type merge, as Of does: of Kubernetes' own types those that kube-apiserver
// merges by, and of others what Of returns. They say nothing to readers.
func Merging(t reflect.Type) (root string, schemas map[string]*spec.Schema, err error) {
	root, schemas = Name(t), map[string]*spec.Schema{}
	if _, ok := kubernetesLines()[root]; !ok {
		return Of(t)
	}
	return root, schemas, addKnown(root, schemas)
}

// addKnown adds the schema of one of Kubernetes' own types, and those that it refers to.
func addKnown(name string, to map[string]*spec.Schema) error {
	if to[name] != nil {
		return nil
	}
	s, err := knownSchema(name)
	if err == nil && s == nil {
		err = fmt.Errorf("the schema of %s isn't known", name)
	}
	if err != nil {
		return err
	}
	to[name] = s
	return eachReference(*s, func(name string) error { return addKnown(name, to) })
}

// eachReference calls visit with the names that a schema refers to.
func eachReference(s spec.Schema, visit func(name string) error) error {
	if name, ok := strings.CutPrefix(s.Ref.String(), RefPrefix); ok {
		return visit(name)
	}
	for _, p := range s.Properties {
		if err := eachReference(p, visit); err != nil {
			return err
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		if err := eachReference(*s.Items.Schema, visit); err != nil {
			return err
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		return eachReference(*s.AdditionalProperties.Schema, visit)
	}
	return nil
}

// complete adds to the schema of a Go type what Kubernetes says of one of its own.
func complete(schema *spec.Schema, name string) error {
	known, err := knownSchema(name)
	if known == nil || err != nil {
		return err
	}
	schema.Required = known.Required
	copyMerging(schema, known)
	for name, property := range schema.Properties {
		if of, ok := known.Properties[name]; ok {
			copyMerging(&property, &of)
			property.Default = of.Default
			schema.Properties[name] = property
		}
	}
	return nil
}

// copyMerging copies how values merge. What Kubernetes says nothing of is as the Go type's tags have it.
func copyMerging(to, from *spec.Schema) {
	if how, ok := from.Extensions[listType]; ok {
		to.AddExtension(listType, how)
		delete(to.Extensions, listMapKeys)
	}
	for _, name := range []string{listMapKeys, mapType} {
		if v, ok := from.Extensions[name]; ok {
			to.AddExtension(name, v)
		}
	}
}
