package form

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// metadataMessages makes messages of objects' metadata. They don't depend on the resource, so that all of them share it.
var metadataMessages = &cacher.Encoding{Encode: func(o *cacher.Object) ([]byte, error) {
	var partial metav1.PartialObjectMetadata
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Metadata(), &partial.ObjectMeta); err != nil {
		return nil, err
	}
	partial.ResourceVersion = "" // of bytes that somebody else stored
	return partial.Marshal()
}}
