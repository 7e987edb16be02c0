package hookclient

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// schemeOf is how Kubernetes calls the table of Go types that its answers name.
const schemeOf = "pkg/runtime/scheme.go:111"

// reviewVersions are those in which reviews come.
var reviewVersions = []string{"v1", "v1beta1"}

// Decode decodes a review that a webhook answered, JSON or YAML. want is what it was asked for, in one of the versions v1 and v1beta1;
// what the review leaves out of it, is as it's wanted. An error is in the words of Kubernetes' codec. Of the answer it has its kind, or a
// character or a number that is in the wrong place.
func Decode(answer []byte, want schema.GroupVersionKind, into any) error {
	if !utilyaml.IsJSONBuffer(answer) {
		converted, err := yaml.YAMLToJSON(answer)
		if err != nil {
			return errors.New("it's neither JSON nor YAML") // whose errors may repeat any of it
		}
		answer = converted
	}
	is, err := KindOf(answer, want)
	if err != nil {
		return errors.New(Quote(err.Error()))
	}
	known := slices.Contains(reviewVersions, is.Version) && is.GroupKind() == want.GroupKind() || is == schema.GroupVersionKind{Version: "v1", Kind: "Status"}
	switch {
	case !known:
		return errors.New(Quote(runtime.NewNotRegisteredErrForKind(schemeOf, is).Error()))
	case is != want:
		return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", is.Version, is.Kind, want.Version, want.Kind)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(answer, into); err != nil {
		return errors.New(Quote(err.Error()))
	}
	return nil
}

// KindOf returns which kind a JSON document says it's of; what it leaves out, is as it's wanted.
func KindOf(doc []byte, want schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	of, err := serializer.DefaultMetaFactory.Interpret(doc)
	if err != nil {
		return want, err
	}
	if of.Kind == "" {
		of.Kind = want.Kind
	}
	if of.Version == "" && (of.Group == "" || of.Group == want.Group) {
		of.Group, of.Version = want.Group, want.Version
	}
	return *of, nil
}
