package form

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Some annotations are fields of what kube-apiserver has in memory, and annotations of whole objects alone.

// without returns a view of metadata without an annotation.
func without(partial *kube.View, annotation string) *kube.View {
	return &kube.View{APIVersion: partial.APIVersion, Kind: partial.Kind, Conversion: partial.Conversion, Render: func(dst []byte, o *kube.Object) []byte {
		raw := partial.Append(nil, o)
		if !bytes.Contains(raw, []byte(annotation)) {
			return append(dst, raw...)
		}
		tree, _, err := jsontree.Decode(raw)
		if err != nil {
			return append(dst, raw...)
		}
		object, _ := tree.(map[string]any)
		metadata, _ := object["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if delete(annotations, annotation); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
		shown, err := jsontree.Append(dst, tree)
		if err != nil { // what was decoded can be encoded
			return append(dst, raw...)
		}
		return shown
	}}
}

// messagesWithout is metadataMessages without an annotation.
func messagesWithout(annotation string) *kube.Encoding {
	return &kube.Encoding{Encode: func(o *kube.Object) ([]byte, error) {
		return encodeMetadata(o, func(m *metav1.ObjectMeta) { delete(m.Annotations, annotation) })
	}}
}

// encodeMetadata makes a message of an object's metadata, which change may change.
func encodeMetadata(o *kube.Object, change func(m *metav1.ObjectMeta)) ([]byte, error) {
	var partial metav1.PartialObjectMetadata
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Metadata(), &partial.ObjectMeta); err != nil {
		return nil, err
	}
	partial.ResourceVersion = "" // of bytes that somebody else stored
	change(&partial.ObjectMeta)
	return partial.Marshal()
}
