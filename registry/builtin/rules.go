package builtin

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Rules that several groups share.

// oneOf wants a value to be one of a list.
func oneOf[T ~string](at *field.Path, value T, known ...T) field.ErrorList {
	switch {
	case slices.Contains(known, value):
		return nil
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	}
	return field.ErrorList{field.NotSupported(at, value, known)}
}

// notNegative wants a number that isn't negative, if there is one.
func notNegative(at *field.Path, n *int32) field.ErrorList {
	if n == nil || *n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *n, "must be greater than or equal to 0")}
}

// problems makes an error of each text about a value.
func problems(at *field.Path, value any, texts []string) (errs field.ErrorList) {
	for _, text := range texts {
		errs = append(errs, field.Invalid(at, value, text))
	}
	return errs
}

// wholeSegment says what keeps a name from being a segment of a path.
func wholeSegment(name string) []string { return pathSegment(name, false) }

// pathSegment says what keeps a name, or what it's to begin with, from being a segment of a path. A prefix may be one of "."
// and "..". Kubernetes takes what NeverInPaths refuses besides, and names it in paths.
func pathSegment(name string, prefix bool) (texts []string) {
	if !prefix && (name == "." || name == "..") {
		texts = append(texts, "may not be '"+name+"'")
	}
	for _, bad := range []string{"/", "%"} {
		if strings.Contains(name, bad) {
			texts = append(texts, "may not contain '"+bad+"'")
		}
	}
	if len(texts) == 0 && strings.ContainsFunc(name, registry.NeverInPaths) {
		texts = append(texts, "may not contain ';', '\\' or control characters: no path could name the object")
	}
	return texts
}
