package builtin

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Rules that several groups share.

// check collects what is wrong with an object.
type check struct {
	errs field.ErrorList
	// declared is what Kubernetes says by declaration, which comes after all else.
	declared field.ErrorList
	// broken are the younger rules that are broken, and may those of which nothing is said.
	broken, may youngerRule
}

// A youngerRule is a rule that objects may break which are older than it: they may go on breaking it.
type youngerRule uint

const (
	nodeValues youngerRule = 1 << iota
	affinityValues
	spreadSelectors
	hostSysctls
	tokenPaths
	pagesDivide
	imagesNamed
	usersNoDevices
	usersNoNetwork
	initsNotRestarted
	noSysAdmin
	noComparisons
	selectorValues
	claimGroups
)

// young adds what breaks a younger rule, unless that may be broken.
func (c *check) young(rule youngerRule, errs ...*field.Error) {
	if len(errs) > 0 {
		c.broken |= rule
	}
	if c.may&rule == 0 {
		c.add(errs...)
	}
}

// unlessOld has see look at what an object is now, which may break the younger rules that it broke before. before is nil or empty for a new object.
func unlessOld[T any](see func(c *check, v *T), now, before *T) *check {
	c := &check{}
	see(c, now)
	if before != nil && c.broken != 0 {
		was := &check{}
		see(was, before)
		c = &check{may: was.broken}
		see(c, now)
	}
	return c
}

// collector is a check, or what has one.
type collector interface{ add(errs ...*field.Error) }

func (c *check) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// earlier are the keys that a list has had, for rules about what is there twice.
type earlier[K comparable] map[K]bool

// had tells whether a key was there before, and remembers it.
func (e earlier[K]) had(key K) bool {
	was := e[key]
	e[key] = true
	return was
}

// declare adds errors that come after all others.
func (c *check) declare(errs ...*field.Error) { c.declared = append(c.declared, errs...) }

// all returns what is wrong, in Kubernetes' order.
func (c *check) all() field.ErrorList { return append(c.errs, c.declared...) }

// required adds an error if a text is missing.
func (c *check) required(at *field.Path, text string) bool {
	if text == "" {
		c.add(field.Required(at, ""))
	}
	return text != ""
}

// texts adds an error of each text about a value.
func (c *check) texts(at *field.Path, value any, texts []string) {
	c.add(problems(at, value, texts)...)
}

func (c *check) label(at *field.Path, name string) {
	c.texts(at, name, validation.IsDNS1123Label(name))
}

func (c *check) subdomain(at *field.Path, name string) {
	c.texts(at, name, validation.IsDNS1123Subdomain(name))
}

// declareImmutable adds an error if a field that is declared immutable has changed. Such errors don't say what was sent.
func (c *check) declareImmutable(at *field.Path, now, before any) {
	if !equality.Semantic.DeepEqual(now, before) {
		c.declare(field.Invalid(at, nil, apivalidation.FieldImmutableErrorMsg))
	}
}

// immutable adds an error if a field that can be set once has changed.
func (c *check) immutable(at *field.Path, now, before any) { c.add(unchanged(at, now, before)...) }

// forbid adds an error if something is set that may not be.
func (c *check) forbid(is bool, at *field.Path, why string) {
	if is {
		c.add(field.Forbidden(at, why))
	}
}

// selector checks a selector of labels; nil selects nothing.
func (c *check) selector(s *metav1.LabelSelector, at *field.Path) { c.youngSelector(0, s, at) }

// youngSelector is selector where a younger rule is about the values.
func (c *check) youngSelector(rule youngerRule, s *metav1.LabelSelector, at *field.Path) {
	errs := metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: c.may&rule != 0}, at)
	if len(errs) > 0 {
		c.broken |= rule
	}
	c.add(errs...)
}

// qualified wants a name such as "example.com/name".
func (c *check) qualified(at *field.Path, name string) {
	c.texts(at, name, validation.IsQualifiedName(name))
}

// among adds an error if there is a value that isn't one of those known, which a caller names in alphabetic order.
func among[T ~string](c collector, at *field.Path, value *T, known ...T) {
	if value != nil && !slices.Contains(known, *value) {
		c.add(field.NotSupported(at, *value, known))
	}
}

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

// longName says what keeps a name from being a subdomain, for kinds whose generateName Kubernetes doesn't look at: the name that comes of it
// counts.
func longName(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return content.IsDNS1123Subdomain(name)
}

// judgedLater is the ValidName of a kind whose Validate judges names, by what else an object has.
func judgedLater(string, bool) []string { return nil }

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
