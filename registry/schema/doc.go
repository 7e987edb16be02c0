// Package schema applies the schema of one version of a CustomResourceDefinition to objects: it brings them
// into the schema's form (Shape, Prune) and checks them (Validate, ValidateStatus).
//
// The rules are Kubernetes's own, from k8s.io/apiextensions-apiserver, in the order in which kube-apiserver
// applies them to custom resources: Shape is what its decoder does, Validate and ValidateStatus what its
// strategies do. What isn't here, because it isn't the schema's: apiVersion, kind and metadata of the object
// itself, and the values of the scale subresource.
//
// # Cost
//
// Nothing is compiled before it's needed, and nothing twice: the structural schema with the first Shape, the
// checks of values with the first Validate, rules (CEL) only if the schema has some. A Schema that was
// never used is two pointers and a few words.
//
// Upstream's passes walk the whole object and allocate for each field, also where nothing is to be done. So
// they are asked only when needed: one walk tells what there is to prune, to drop and to fill in (see node),
// another whether an object is surely valid (see quick). Neither decides anything else: what they don't know
// is upstream's to do, in its own words. Schemas with embedded resources always take the long way.
//
// # Bounds
//
// Unknown fields are listed up to maxUnknown, and their paths up to maxUnknownPath bytes. Errors of values
// stop at about maxErrors, because upstream compares each with all others; whether the object is valid doesn't
// depend on that. Rules have Kubernetes's cost budget. The context ends everything that can take long, except
// what is in branches of anyOf, oneOf, allOf and not, which upstream checks in one go. Recursion is as deep as
// the schema, but for nested arrays that are pruned, and those the decoder bounds.
//
// # Goroutines and locks
//
// The package starts no goroutine. Its only locks are the sync.Onces of a Schema's four lazy values. Upstream's
// compilers run under them, and no other lock of ours.
package schema
