package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// form says how a body is written, which its tree doesn't show. Of protobuf and YAML it's whether they are what client-go and kubectl
// would write, and of JSON whether it's indented, how it ends, and whether it's safe in a page. The order of members means nothing in JSON.
func form(contentType string, content []byte) string {
	media, _, _ := strings.Cut(contentType, ";")
	switch {
	case len(content) == 0:
		return ""
	case media == asProtobuf:
		info, _ := serializerFor(asProtobuf)
		object, _, err := info.Serializer.Decode(content, nil, nil)
		var again bytes.Buffer
		if err != nil || info.Serializer.Encode(object, &again) != nil {
			return "not understood"
		}
		return sameOr(again.Bytes(), content, "in other bytes")
	case media == asYAML:
		object, err := yaml.YAMLToJSON(content)
		if err != nil {
			return "not understood"
		}
		again, _ := yaml.JSONToYAML(object)
		return sameOr(again, content, "in other words")
	case media == asJSON:
		return formOfJSON(content)
	}
	return ""
}

func sameOr(want, got []byte, otherwise string) string {
	if bytes.Equal(want, got) {
		return ""
	}
	return otherwise
}

func formOfJSON(content []byte) string {
	parts := []string{}
	text, ended := bytes.CutSuffix(content, []byte("\n"))
	var compact, indented bytes.Buffer
	switch {
	case bytes.Contains(text, []byte("}\n{")):
		parts = append(parts, "lines")
	case json.Compact(&compact, text) != nil:
		return "not understood"
	case bytes.Equal(compact.Bytes(), text):
	case json.Indent(&indented, text, "", "  ") == nil && bytes.Equal(indented.Bytes(), text):
		parts = append(parts, "indented")
	default:
		parts = append(parts, "with spaces")
	}
	if !ended {
		parts = append(parts, "without a newline")
	}
	if bytes.ContainsAny(text, "<>&") {
		parts = append(parts, "with < > or &")
	}
	return strings.Join(parts, ", ")
}

// unzipped is what a body of gzip has.
func unzipped(content []byte) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(zip)
}
