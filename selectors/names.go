package selectors

import (
	"fmt"
	"strings"
)

// Lengths in bytes. Source: Kubernetes' rules for label keys and values, and RFC 1123 for DNS names.
const (
	maxNameLength   = 63
	maxPrefixLength = 253
)

const nameRule = "letters, digits, '-', '_' and '.' only, with a letter or digit first and last"

// keyProblem says why key isn't a label key (a "qualified name"), or returns "".
func keyProblem(key string) string {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	}
	switch {
	case strings.Contains(name, "/"):
		return "a label key has at most one '/', between an optional DNS subdomain and the name, as in example.com/tier"
	case found && prefix == "":
		return "the part of a label key before '/' must not be empty; without a prefix leave out the '/'"
	case len(prefix) > maxPrefixLength:
		return fmt.Sprintf("the part of a label key before '/' must have at most %d bytes, this one has %d", maxPrefixLength, len(prefix))
	case found && !isSubdomain(prefix):
		return "the part of a label key before '/' must be a DNS subdomain, as in example.com: lower case letters, " +
			"digits, '-' and '.' only, with a letter or digit at both ends of each part between dots"
	case name == "":
		return "the name in a label key, after '/', must not be empty"
	case len(name) > maxNameLength:
		return fmt.Sprintf("the name in a label key must have at most %d bytes, this one has %d", maxNameLength, len(name))
	case !isName(name):
		return "the name in a label key must consist of " + nameRule
	}
	return ""
}

// valueProblem says why value isn't a label value, or returns "".
func valueProblem(value string) string {
	switch {
	case len(value) > maxNameLength:
		return fmt.Sprintf("a label value must have at most %d bytes, this one has %d", maxNameLength, len(value))
	case value != "" && !isName(value):
		return "a label value must be empty, or consist of " + nameRule
	}
	return ""
}

// isName reports whether s, which isn't empty, keeps to nameRule.
func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case isLowerOrDigit(c), 'A' <= c && c <= 'Z':
		case c == '-' || c == '_' || c == '.':
			if i == 0 || i == len(s)-1 {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// isSubdomain reports whether s is a DNS subdomain of RFC 1123, whatever its length.
func isSubdomain(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || !isLowerOrDigit(part[0]) || !isLowerOrDigit(part[len(part)-1]) {
			return false
		}
		for i := range len(part) {
			if !isLowerOrDigit(part[i]) && part[i] != '-' {
				return false
			}
		}
	}
	return true
}

// isLowerOrDigit reports whether c is a lower case letter or a digit.
func isLowerOrDigit(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
