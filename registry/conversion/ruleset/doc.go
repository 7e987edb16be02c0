// Package ruleset converts custom resources between versions by what their definition's annotation says, without a webhook.
//
// The annotation has a list of pairs of versions, each with its rules. A rule names fields of the first version (from) and of
// the second one (to), and serves both ways. The pairs must make a tree of all versions: an object goes along the one way
// between two of them. Within a pair the order of rules means nothing: all fields that rules name are taken out of the object
// first, and then what is made of them is put in. What no rule names stays where it is.
//
// New checks the rules against the schemas of the versions: no two rules may name the same field of a version, and each field
// that one version's schema has must be in the other's, or be named by a rule. What schemas can't tell is found out by a trial
// with each object that is written (see Difference).
//
// It's pure: it reads nothing, starts nothing and keeps nothing. Rules are immutable, and may be used by many goroutines.
package ruleset
