package jsontree

import "unicode/utf8"

// Plain returns a tree that Decode could have made, or what encoding the tree and decoding the JSON gives: that is of the types that Decode makes.
// An error is encoding/json's, about a value that JSON doesn't have, or Decode's.
func Plain(tree any) (any, error) {
	if isPlain(tree, 0) {
		return tree, nil
	}
	text, err := Append(nil, tree)
	if err != nil {
		return nil, err
	}
	out, _, err := Decode(text)
	return out, err
}

// isPlain is false for each number with a fraction, too: nobody looks whether it's whole.
func isPlain(tree any, depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch v := tree.(type) {
	case nil, bool, int64:
		return true
	case string:
		return utf8.ValidString(v)
	case map[string]any:
		for name, child := range v {
			if !utf8.ValidString(name) || !isPlain(child, depth+1) {
				return false
			}
		}
		return v != nil
	case []any:
		for _, child := range v {
			if !isPlain(child, depth+1) {
				return false
			}
		}
		return v != nil
	}
	return false
}
