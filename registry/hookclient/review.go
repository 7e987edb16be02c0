package hookclient

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

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
	is, err := object.KindOf(answer, want)
	if err != nil {
		return errors.New(Quote(err.Error()))
	}
	known := slices.Contains(reviewVersions, is.Version) && is.GroupKind() == want.GroupKind() || is == schema.GroupVersionKind{Version: "v1", Kind: "Status"}
	switch {
	case !known:
		return errors.New(Quote(runtime.NewNotRegisteredErrForKind(object.Scheme, is).Error()))
	case is != want:
		return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", is.Version, is.Kind, want.Version, want.Kind)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(answer, into); err != nil {
		return errors.New(Quote(err.Error()))
	}
	return nil
}

// ReviewVersion returns the first of some versions in which webhooks can be asked, or "".
func ReviewVersion(versions []string) string {
	for _, v := range versions {
		if v == "v1" || v == "v1beta1" {
			return v
		}
	}
	return ""
}
