package registry

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// PatchTypes returns the media types of the patches that the endpoint takes. The slice is the caller's.
func (e *Endpoint) PatchTypes() []types.PatchType {
	all := []types.PatchType{types.JSONPatchType, types.MergePatchType}
	if e.Typed != nil {
		all = append(all, types.StrategicMergePatchType)
	}
	return append(all, types.ApplyYAMLPatchType)
}

// ModelName is "com.example.v1.Widget" for the kind Widget of example.com/v1.
func ModelName(group, version, kind string) string {
	labels := strings.Split(group, ".")
	slices.Reverse(labels)
	return strings.Join(append(labels, version, kind), ".")
}
