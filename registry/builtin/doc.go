// Package builtin knows the kinds that Kubernetes has built in. It owns one table with a line per kind and version (core.go
// and data.go), and what the lines refer to: defaults, rules, columns of tables, selectable fields, and the answers to
// reviews.
//
// The kinds are Go types of k8s.io/api, and are registered as any program registers its own (registry.Registry.Add). Core
// kinds are always served. Data-only kinds are stored, shown and watched, and nothing acts on them: no pod runs. They're
// served if the program asks for them. Until then the table's second half isn't even made.
//
// Files: table.go has what lines are made of and Register. A file with the name of an API group has that group's defaults
// and rules. columns.go has what the cells of tables are made of.
//
// Services get their addresses and ports from an allocator, which holds what writes have taken that the cache doesn't show
// yet (addresses.go). Its mutex is a leaf but for the locks of the cacher.
//
// The package starts no goroutine.
package builtin
