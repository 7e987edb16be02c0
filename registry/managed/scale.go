package managed

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ScaleView is an object's managedFields as those of its Scale: who owns the number of replicas. A Manager of Scales works
// on them, and Whole makes the object's of what came of that. Source: apimachinery's ScaleHandler, which kube-apiserver has
// for built-in kinds. As there, an entry that Whole adds has no time.
type ScaleView struct {
	whole   record
	handler *managedfields.ScaleHandler
}

// NewScaleView returns the view of an object's managedFields. replicas is the path of the number in the object, in its
// version and in all others.
func NewScaleView(list []any, version schema.GroupVersion, versions []string, replicas []string) *ScaleView {
	v := &ScaleView{whole: recordOf(list)}
	path := make(fieldpath.Path, len(replicas))
	for i := range replicas {
		path[i].FieldName = &replicas[i]
	}
	paths := managedfields.ResourcePathMappings{}
	for _, apiVersion := range versions {
		paths[apiVersion] = path
	}
	v.handler = managedfields.NewScaleHandler(v.whole.entries, version, paths)
	return v
}

// Scale returns the managedFields of the Scale. The error says what can't be read.
func (v *ScaleView) Scale() ([]any, error) { return v.tree(v.handler.ToSubresource()) }

// Whole returns the managedFields of the object when those of its Scale have become list.
func (v *ScaleView) Whole(list []any) ([]any, error) {
	return v.tree(v.handler.ToParent(recordOf(list).entries))
}

func (v *ScaleView) tree(entries []metav1.ManagedFieldsEntry, err error) ([]any, error) {
	if err != nil {
		return nil, err
	}
	return v.whole.treeOf(entries), nil
}
