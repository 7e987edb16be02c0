package registry

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// LabelSet returns an object's labels.
func LabelSet(o *kube.Object) labels.Set {
	set := make(labels.Set, len(o.Labels)/2)
	for i := 0; i+1 < len(o.Labels); i += 2 {
		set[o.Labels[i]] = o.Labels[i+1]
	}
	return set
}
