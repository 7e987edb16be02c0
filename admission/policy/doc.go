// Package policy evaluates ValidatingAdmissionPolicies and MutatingAdmissionPolicies, with Kubernetes' rules and texts. What
// differs from Kubernetes is in docs/policies.md.
//
// The policies of a kind and their bindings are one value that is derived from what is stored (registry.Derive), and made anew
// by the first write after one of them has changed. A policy is compiled when a request matches it for the first time, and
// stays compiled until it changes. A policy without a binding does nothing.
//
// A request goes through the policies in the order of their names. Whether a policy is about the request is asked from cheap
// to costly: its rules and its binding's, which need no object (match.Path), then selectors, then match conditions, which are
// CEL. Then each binding's parameters are read, and the expressions are evaluated once for each of them. All objects that
// expressions see are in the version that the policy's rules name.
//
// What one evaluation may cost is bounded by Kubernetes' budgets (celconfig), and a message or an annotation by its length.
// The package starts no goroutine. What it makes of policies is immutable. Its one mutex is checks.mu, under which Prometheus
// takes its own.
package policy
