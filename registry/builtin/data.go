package builtin

import "github.com/apiserver-lite/apiserver-lite/registry"

// data are the kinds that are stored and shown, and that nothing acts on.
func data(o Options) []registry.Type { return nil }
