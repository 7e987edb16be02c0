package jsontree

// Children yields the values that a map or a list has, and none for any other value.
func Children(tree any) func(yield func(any) bool) {
	return func(yield func(any) bool) {
		switch v := tree.(type) {
		case map[string]any:
			for _, child := range v {
				if !yield(child) {
					return
				}
			}
		case []any:
			for _, child := range v {
				if !yield(child) {
					return
				}
			}
		}
	}
}

// Count returns how many values there are in a tree, at any depth, besides itself.
func Count(tree any) (n int) {
	for child := range Children(tree) {
		n += 1 + Count(child)
	}
	return n
}
