// Package selectors parses, matches and prints the label and field selectors of the Kubernetes API.
//
// A client narrows a list or a watch with `labelSelector=tier in (front,back),!legacy` and
// `fieldSelector=metadata.name=web`. ParseLabels and ParseFields turn such text into a LabelSelector or
// a FieldSelector; Matches asks whether an object's Set of labels, or its Fields, is selected. What is
// accepted and what matches is what k8s.io/apimachinery's labels.Parse and fields.ParseSelector accept
// and match, oddities included, because clients were written against those; the fuzz tests compare with
// them. Messages are our own: each ParseError says what was found, where, and what belongs there.
//
// Two selectors that differ only in spelling (order, repetition, `==` for `=`, `in (a)` for `=a`)
// become the same value when they're parsed and so print the same String, which can therefore be a map
// key for "all who ask for the same". Term names one requirement by which objects or watchers can be
// indexed.
//
// # Label selectors
//
// Requirements are joined by commas, and all of them must hold:
//
//	tier              the label exists
//	!tier             it doesn't
//	tier=front        it has this value; also tier==front; `tier=` asks for the empty value
//	tier!=front       it has another value, or doesn't exist
//	tier in (a,b)     it has one of the values; an empty place, as in (a,) or (), is the empty value
//	tier notin (a,b)  it has none of them, or doesn't exist
//	size>3            it is an integer above (below, with <) this one, which has no sign
//
// White space (blank, tab, carriage return, line feed) may come between any two of these words and
// symbols. A NUL byte where one of them could begin ends the selector; directly after one it's skipped.
//
// # Field selectors
//
// Terms are joined by commas, and all of them must hold: `f=v`, `f==v`, `f!=v`. An absent field is the
// empty string. In a value a backslash goes before each backslash, comma and equals sign. White space
// counts. Empty terms are skipped, and so is a term without both field and value. Which fields there are
// is the caller's business: see FieldSelector.Names.
//
// # Any field
//
// ParseExpression parses what the server takes as a fieldSelector with lite=true. Comparisons are joined by commas, which mean "and", and by `||`,
// which means "or" and binds less:
//
//	spec.size                    the field is there, and isn't null
//	!spec.size                   it isn't
//	spec.size=3                  it has this value; also ==, and != for another one or none
//	spec.size in (3,4)           it has one of the values; notin: none of them, or it isn't there
//	spec.size>3                  also >=, < and <=
//	spec.host^=eu-               it begins so
//	spec.ports[*].port=80        an element of the list fits
//	metadata.annotations['a.b']  a name with other signs
//
// A path may begin with a dot. A value with signs of the grammar in it is in quotes of either sort, or has a backslash before each. Resolve gives the
// expression the types of the fields, which decide what is equal and what is more.
//
// # Cost
//
// The package starts no goroutines and has no mutable state; selectors and sets are immutable and safe
// for concurrent use. Parsing takes time and memory linear in the input but for sorting (n log n); the
// input's length is bounded by who reads it (a server bounds its URLs). LabelSelector.Matches doesn't
// allocate, and takes a binary search per requirement in the labels and in its values.
// FieldSelector.Matches asks for one field per term, and allocates only what that does.
package selectors
