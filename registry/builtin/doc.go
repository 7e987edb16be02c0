// Package builtin knows the kinds that Kubernetes has built in. It has the table of them (table.go), of which each package below it has a
// part: a line for each kind and version, in a file kinds.go, and what the lines refer to: defaults, rules, columns of tables, selectable
// fields, and the answers to reviews. Kinds are in one package that are told together, which mostly is a group of Kubernetes' API.
//
// The kinds are Go types of k8s.io/api, and are registered as any program registers its own (registry.Registry.Add). Core
// kinds are served unless the program asks for None. Data-only kinds are stored, shown and watched, and nothing acts on them:
// no pod runs. They're served if the program asks for All. Otherwise the table's second half is made only to explain a 404.
//
// Package line has what lines are made of, package column what their columns are made of, and package rules what collects mistakes, with the
// rules that several groups share. metarules.go has the rules of metadata, of which some kinds have fewer.
//
// The package starts no goroutine, and neither does one below it.
package builtin
