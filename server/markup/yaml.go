package markup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
)

// maxYAMLTokens bounds what a YAML body can make its parser do: the number of characters that can
// begin a node. An object of that many fields is better sent as JSON.
const maxYAMLTokens = 100_000

// maxDepth is how many levels a YAML body may nest: as many as encoding/json allows in JSON.
const maxDepth = 10_000

// FromYAML returns a YAML document as JSON, and the keys that a mapping has twice. What YAML has
// beyond JSON, and what makes it dangerous, is refused: anchors and aliases, tags and merge keys. Of several documents
// it's the first, as with kube-apiserver. Scalars are read as kubectl reads them (YAML 1.1: yes is true).
//
// Two parsers read the text: the one that kubectl uses reads YAML 1.1 but doesn't tell anchors and tags, and the
// other one tells them but reads YAML 1.2. FuzzFromYAML compares what they see.
func FromYAML(text []byte) (doc []byte, duplicates []string, err error) {
	tokens := 0
	for _, c := range text {
		switch c {
		case ',', '\n', '\r', ':', '[', '{', '-', '?':
			tokens++
		}
	}
	if tokens > maxYAMLTokens {
		return nil, nil, fmt.Errorf("it has too many tokens (over %d): send JSON", maxYAMLTokens)
	}
	var root yamlv3.Node
	switch err := yamlv3.NewDecoder(bytes.NewReader(text)).Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	if err := checkNode(&root, &duplicates, 0); err != nil {
		return nil, nil, err
	}
	doc, err = yaml.YAMLToJSON(text)
	return doc, duplicates, err
}

// checkNode walks the tree that the parser made, in which aliases are not followed.
func checkNode(n *yamlv3.Node, duplicates *[]string, depth int) error {
	switch {
	case depth > maxDepth:
		return fmt.Errorf("it nests deeper than %d levels", maxDepth)
	case n.Kind == yamlv3.AliasNode:
		return fmt.Errorf("line %d: aliases (*%.40s) are not supported: write the value out", n.Line, n.Value)
	case n.Anchor != "":
		return fmt.Errorf("line %d: anchors (&%.40s) are not supported", n.Line, n.Anchor)
	case n.Style&yamlv3.TaggedStyle != 0:
		return fmt.Errorf("line %d: tags (%.40s) are not supported", n.Line, n.Tag)
	}
	if n.Kind == yamlv3.MappingNode {
		if err := checkKeys(n, duplicates); err != nil {
			return err
		}
	}
	for _, child := range n.Content {
		if err := checkNode(child, duplicates, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// What an answer says about the keys that a mapping has twice.
const (
	maxDuplicates   = 32 // of them
	maxDuplicateKey = 80 // bytes of each; a field's name is shorter
)

func checkKeys(mapping *yamlv3.Node, duplicates *[]string) error {
	seen := make(map[string]bool, len(mapping.Content)/2)
	for i := 0; i < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		switch {
		case key.Kind == yamlv3.AliasNode: // told by checkNode
			continue
		case key.Kind != yamlv3.ScalarNode:
			return fmt.Errorf("line %d: a key must be a string", key.Line)
		case key.ShortTag() == "!!merge":
			return fmt.Errorf("line %d: merge keys (<<) are not supported", key.Line)
		}
		if seen[key.Value] && len(*duplicates) < maxDuplicates {
			*duplicates = append(*duplicates, fmt.Sprintf("line %d: key %q already set in map", key.Line, clip.To(key.Value, maxDuplicateKey)))
		}
		seen[key.Value] = true
	}
	return nil
}

// DuplicateFields treats keys that a mapping has twice, of which the last one wins, as fieldValidation says:
// Strict refuses them, Ignore says nothing, and anything else warns. (An unknown value is the registry's
// to refuse.)
func DuplicateFields(duplicates []string, fieldValidation string) (warnings []string, err error) {
	switch {
	case len(duplicates) == 0 || fieldValidation == metav1.FieldValidationIgnore:
		return nil, nil
	case fieldValidation == metav1.FieldValidationStrict:
		return nil, errors.New("strict decoding error: yaml: unmarshal errors:\n  " + strings.Join(duplicates, "\n  "))
	}
	return duplicates, nil
}
