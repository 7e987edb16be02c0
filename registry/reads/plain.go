package reads

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// JSONOf returns a request or an answer about a target, which is protobuf, as JSON: for those who note what clients send and
// get. The error is of bytes that aren't a message of such a kind.
func (e Reader) JSONOf(subresource string, protobuf []byte) ([]byte, error) {
	envelope, err := kubeproto.Open(protobuf)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	switch envelope.Kind {
	case e.ListKind, metadataList:
		tree, err = e.listOf(envelope)
	default:
		tree, err = e.treeOfKind(subresource, envelope.Kind, envelope.Message)
	}
	if err != nil {
		return nil, err
	}
	tree["apiVersion"], tree["kind"] = envelope.APIVersion, envelope.Kind
	return object.EncodeJSON(tree)
}

// metadataList is the kind of lists of PartialObjectMetadata.
const metadataList = "PartialObjectMetadataList"

// treeOfKind decodes a message of a kind that a target's requests and answers have.
func (e Reader) treeOfKind(subresource, kind string, raw []byte) (map[string]any, error) {
	var m registry.Message
	switch of := e.BodyKind(subresource); {
	case kind == "PartialObjectMetadata":
		m = &metav1.PartialObjectMetadata{}
	case kind == "Status":
		m = &metav1.Status{}
	case kind == "DeleteOptions":
		m = &metav1.DeleteOptions{}
	case registry.PartMessages[of] != nil && kind == of.Kind:
		m = registry.PartMessages[of]()
	default:
		m = e.NewMessage()
	}
	if m == nil {
		return nil, fmt.Errorf("%s has no form as protobuf", kind)
	}
	if err := registry.UnmarshalMessage(raw, m); err != nil {
		return nil, err
	}
	return TreeOf(m)
}

// listOf decodes a list: metadata is the first field of its message, and each object is a second one.
func (e Reader) listOf(envelope kubeproto.Envelope) (map[string]any, error) {
	const metadata, item = 1, 2
	kind := e.Kind
	if envelope.Kind == metadataList {
		kind = "PartialObjectMetadata"
	}
	items := []any{}
	list := map[string]any{"metadata": map[string]any{}}
	for raw := envelope.Message; len(raw) > 0; {
		number, wire, n := protowire.ConsumeTag(raw)
		if n < 0 || wire != protowire.BytesType {
			return nil, errors.New("malformed list")
		}
		value, size := protowire.ConsumeBytes(raw[n:])
		if size < 0 {
			return nil, errors.New("malformed list")
		}
		raw = raw[n+size:]
		switch number {
		case metadata:
			var meta metav1.ListMeta
			if err := registry.UnmarshalMessage(value, &meta); err != nil {
				return nil, err
			}
			tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
			if err != nil {
				return nil, err
			}
			list["metadata"] = tree
		case item:
			tree, err := e.treeOfKind(registry.Whole, kind, value)
			if err != nil {
				return nil, err
			}
			items = append(items, tree)
		}
	}
	list["items"] = items
	return list, nil
}
