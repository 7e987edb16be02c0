// Package builtin knows the kinds that Kubernetes has built in. It owns one table with a line per kind and version (core.go
// and data.go), and what the lines refer to: defaults, rules, columns of tables, selectable fields, and the answers to
// reviews.
//
// The kinds are Go types of k8s.io/api, and are registered as any program registers its own (registry.Registry.Add). Core
// kinds are served unless the program asks for None. Data-only kinds are stored, shown and watched, and nothing acts on them:
// no pod runs. They're served if the program asks for All. Otherwise the table's second half is made only to explain a 404.
//
// Files: table.go has what lines are made of and Register. A file with the name of an API group has that group's defaults
// and rules. Of the larger groups, pods.go, podspec.go, podresources.go, services.go, configs.go and accounts.go have the
// core's, and workloads.go those of apps and batch. The rules for pods are podrules.go (the spec, which templates have too),
// containerrules.go, podresourcerules.go, proberules.go, podsecurity.go, podplacement.go, podvolumes.go, podannotations.go,
// podwindows.go, podstatus.go and podupdates.go (what each path may change); workloadrules.go and workloadstatus.go have those
// for what runs pods, jobs.go, jobstatus.go and cronjobs.go those for Jobs, volumerules.go and storagerules.go those for volumes and what has to do with them, and
// servicerules.go those for Services, Endpoints and slices. podwarnings.go and placementwarnings.go have what is warned of.
// untagged.go writes values as Kubernetes' refusals quote them. others.go has the groups with few rules. addresses.go hands out what
// Services take. reviews.go answers questions about rights, and actions.go does what a POST to a subresource asks for.
// policies.go has what the groups of admission share, rules.go what all share, and columns.go what the cells of tables are
// made of.
//
// Services get their addresses and ports from an allocator, which holds what writes have taken that the cache doesn't show
// yet. Its mutex is a leaf but for the locks of the cacher.
//
// The package starts no goroutine.
//
// # Bounds
//
// What the allocator holds (held) grows with the writes of Services under way, to at most one entry for each
// address and port of the ranges. The next write drops what the cache shows by then. What a write has taken whose
// outcome is unknown is held for unknownTimeout.
package builtin
