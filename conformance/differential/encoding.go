package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	openapi "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

// asOpenAPI is OpenAPI v3 as protobuf.
const asOpenAPI = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"

// serializerFor returns client-go's serializer of a media type.
func serializerFor(mediaType string) (runtime.SerializerInfo, bool) {
	return runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
}

func init() {
	for _, add := range []func(*runtime.Scheme) error{metav1.AddMetaToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			panic(err) // two of one name: a mistake in the code
		}
	}
}

// lookUp returns what is at a path of names and indexes with dots between, as text.
func lookUp(tree any, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		switch t := tree.(type) {
		case map[string]any:
			tree = t[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(t) {
				return ""
			}
			tree = t[i]
		default:
			return ""
		}
	}
	return fmt.Sprint(tree)
}

// encode makes another encoding of a body of JSON. What can't be that is sent as it is.
func encode(body []byte, as string) ([]byte, error) {
	switch as {
	case asYAML:
		return yaml.JSONToYAML(body)
	case asProtobuf:
		object, ok := serializable(string(body))
		if !ok {
			return body, nil
		}
		info, _ := serializerFor(asProtobuf)
		var out bytes.Buffer
		err := info.Serializer.Encode(object, &out)
		return out.Bytes(), err
	}
	return body, nil
}

// serializable is the Go value that a body of JSON has, if protobuf can say it.
func serializable(body string) (runtime.Object, bool) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(body), nil, nil)
	return object, err == nil
}

// parse makes a tree of an answer; text is text.
func parse(contentType string, content []byte) any {
	if len(content) == 0 {
		return nil
	}
	kind, _, _ := strings.Cut(contentType, ";")
	switch kind {
	case asProtobuf:
		info, _ := serializerFor(asProtobuf)
		object, gvk, err := info.Serializer.Decode(content, nil, nil)
		if err != nil {
			return "protobuf that isn't understood: " + err.Error()
		}
		object.GetObjectKind().SetGroupVersionKind(*gvk)
		if content, err = json.Marshal(object); err != nil {
			return err.Error()
		}
	case asOpenAPI:
		document := &openapi.Document{}
		if err := proto.Unmarshal(content, document); err != nil {
			return "protobuf that isn't understood: " + err.Error()
		}
		text, err := document.YAMLValue("")
		if err != nil {
			return err.Error()
		}
		return parse(asYAML, text)
	case asYAML:
		converted, err := yaml.YAMLToJSON(content)
		if err != nil {
			return string(content)
		}
		content = converted
	}
	var documents []any
	for decoder := newDecoder(content); ; {
		var tree any
		err := decoder.Decode(&tree)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return string(content)
		}
		documents = append(documents, tree)
	}
	if len(documents) == 1 {
		return documents[0]
	}
	return documents
}

func newDecoder(content []byte) *json.Decoder {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	return decoder
}
