package builtin

import "github.com/apiserver-lite/apiserver-lite/registry"

// Lines returns the table's lines of all kinds.
func Lines() []registry.Type { return append(core(nil, Options{}), data(nil, Options{}, nil)...) }

// CoreLines is how many of the Lines are served by default.
func CoreLines() int { return len(core(nil, Options{})) }
