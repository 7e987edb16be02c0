// Package expression compiles and evaluates the CEL expressions of admission: those of ValidatingAdmissionPolicies and
// MutatingAdmissionPolicies, and match conditions. The language, its libraries and its costs are those of
// k8s.io/apiserver/pkg/cel, by which the schemas of definitions are validated, too.
//
// A Set has the expressions of one policy. Its variables are defined first, in their order, because each may use those
// before it, and what follows may use them all. Define and Compile change a Set, and one goroutine may call them. What they
// return is immutable: many goroutines may evaluate it at once, each with a Run of its own.
//
// A Run evaluates expressions for one request. It makes of the request only what the expressions name, and evaluates each
// variable at most once.
//
// Two bounds hold for what an expression may cost: apiserver's PerCallLimit for each evaluation, some 0.1 s, and the budget
// that a Run is given for all of them. An evaluation ends with its context, too.
//
// The environments in which expressions are compiled are made at their first use, once in a process, and never change.
// Whoever needs one that is being made waits for it. The package has no other lock, and starts no goroutine.
package expression
