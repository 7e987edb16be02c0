package jsontree

import "unicode/utf8"

// Plain returns a tree as Copy does, and the tree itself where Decode could have made it.
func Plain(tree any) (any, error) {
	if isPlain(tree, 0) {
		return tree, nil
	}
	return Copy(tree)
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

// Copy returns what encoding a tree and decoding the JSON gives: a tree that shares nothing with it but strings, of the
// types that Decode makes. An error is encoding/json's, about a value that JSON doesn't have, or Decode's.
func Copy(tree any) (any, error) { return copied(tree, 0) }

func copied(tree any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, ErrTooDeep
	}
	switch v := tree.(type) {
	case nil, bool, int64:
		return v, nil
	case string:
		if utf8.ValidString(v) {
			return v, nil
		}
	case map[string]any:
		if v != nil {
			return copiedObject(v, depth+1)
		}
	case []any:
		if v != nil {
			return copiedList(v, depth+1)
		}
	}
	return throughText(tree)
}

// throughText copies what isn't plain: numbers that may turn out to be whole, text that isn't UTF-8, and whatever else a program
// may have put there.
func throughText(tree any) (any, error) {
	text, err := Append(nil, tree)
	if err != nil {
		return nil, err
	}
	out, _, err := Decode(text)
	return out, err
}

func copiedObject(m map[string]any, depth int) (any, error) {
	out := make(map[string]any, len(m))
	for name, v := range m {
		if !utf8.ValidString(name) {
			return throughText(m)
		}
		c, err := copied(v, depth)
		if err != nil {
			return nil, err
		}
		out[name] = c
	}
	return out, nil
}

func copiedList(list []any, depth int) (any, error) {
	out := make([]any, len(list))
	for i, v := range list {
		c, err := copied(v, depth)
		if err != nil {
			return nil, err
		}
		out[i] = c
	}
	return out, nil
}
