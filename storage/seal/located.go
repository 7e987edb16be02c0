package seal

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fieldPath is a field of the file as upstream's errors name it, as resources[0].providers[1].aesgcm.keys[0].secret.
var fieldPath = regexp.MustCompile(`\bresources\[\d+\][\w.\[\]]*`)

// located adds to an error the line of the first field that it names, if there is one.
func located(file string, err error) error {
	path := fieldPath.FindString(err.Error())
	content, unreadable := os.ReadFile(file)
	var document yaml.Node
	if path == "" || unreadable != nil || yaml.Unmarshal(content, &document) != nil || len(document.Content) == 0 {
		return err
	}
	return fmt.Errorf("%s, line %d: %w", file, lineOf(document.Content[0], path), err)
}

// lineOf returns the line of a field, or of what's nearest above it.
func lineOf(n *yaml.Node, path string) (line int) {
	line = n.Line
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		next := child(n, step)
		if next == nil {
			break
		}
		n, line = next, next.Line
	}
	return line
}

// child returns the member or element of a node; nil if there's none.
func child(n *yaml.Node, step string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}
