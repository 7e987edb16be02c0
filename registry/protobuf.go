package registry

import (
	"bytes"
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// protobufPrefix begins every Kubernetes protobuf body; a runtime.Unknown follows, which names the type and
// holds its bytes.
var protobufPrefix = []byte("k8s\x00")

// message is what a type can do that has a protobuf form.
type message interface{ Unmarshal([]byte) error }

// TakesProtobuf tells whether bodies for the resource may be protobuf: those of Go types that have such a
// form. Typed clients send it.
func (e *Endpoint) TakesProtobuf() bool {
	return e.res.typed != nil && e.res.typed.message != nil
}

// FromProtobuf turns a protobuf body into JSON: an object of the resource, or DeleteOptions.
func (e *Endpoint) FromProtobuf(body []byte) (_ []byte, err error) {
	raw, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return nil, badRequest("the body of the request isn't Kubernetes protobuf: it must begin with k8s and a zero byte")
	}
	defer func() { // generated decoders have panicked on garbage before
		if recover() != nil {
			err = badBody(object.Undecodable(errors.New("malformed protobuf")))
		}
	}()
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(raw); err != nil {
		return nil, badBody(object.Undecodable(err))
	}
	var obj message = &metav1.DeleteOptions{}
	if unknown.Kind != "DeleteOptions" {
		obj = e.res.typed.message()
	}
	if err := obj.Unmarshal(unknown.Raw); err != nil {
		return nil, badBody(object.Undecodable(err))
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, badBody(object.Undecodable(err))
	}
	tree["apiVersion"], tree["kind"] = unknown.APIVersion, unknown.Kind
	return json.Marshal(tree)
}
