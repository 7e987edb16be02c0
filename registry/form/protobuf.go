package form

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// metadataMessages makes messages of objects' metadata. They don't depend on the resource, so that all of them share it.
var metadataMessages = &kube.Encoding{Encode: func(o *kube.Object) ([]byte, error) {
	return encodeMetadata(o, func(*metav1.ObjectMeta) {})
}}
