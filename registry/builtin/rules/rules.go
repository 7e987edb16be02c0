// Package rules collects what is wrong with objects, and has the rules that several groups of kinds share.
//
// A Check keeps errors in the order in which Kubernetes finds them, and lets an object go on breaking a younger rule that it broke before (UnlessOld). A
// group's package embeds it in a type of its own. Values are shown in refusals as Kubernetes shows them (Untagged).
package rules

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Check collects what is wrong with an object.
type Check struct {
	Errs field.ErrorList
	// declared is what Kubernetes says by declaration, which comes after all else.
	declared field.ErrorList
	// broken are the younger rules that are broken, and may those of which nothing is said.
	Broken, May youngerRule
}

// A youngerRule is a rule that objects may break which are older than it: they may go on breaking it.
type youngerRule uint

const (
	nodeValues youngerRule = 1 << iota
	AffinityValues
	SpreadSelectors
	HostSysctls
	TokenPaths
	PagesDivide
	ImagesNamed
	UsersNoDevices
	UsersNoNetwork
	InitsNotRestarted
	NoSysAdmin
	NoComparisons
	SelectorValues
	ClaimGroups
)

// Young adds what breaks a younger rule, unless that may be broken.
func (c *Check) Young(rule youngerRule, errs ...*field.Error) {
	if len(errs) > 0 {
		c.Broken |= rule
	}
	if c.May&rule == 0 {
		c.Add(errs...)
	}
}

// UnlessOld has see look at what an object is now, which may break the younger rules that it broke before. before is nil or empty for a new
// object. C is a check, or what embeds one.
func UnlessOld[T, C any, P interface {
	*C
	Collector
}](see func(c P, v *T), now, before *T) P {
	c := P(new(C))
	see(c, now)
	if before != nil && c.base().Broken != 0 {
		was := P(new(C))
		see(was, before)
		c = new(C)
		c.base().May = was.base().Broken
		see(c, now)
	}
	return c
}

// Collector is a check, or what embeds one.
type Collector interface {
	Add(errs ...*field.Error)
	Declare(errs ...*field.Error)
	base() *Check
}

func (c *Check) base() *Check { return c }

// Add adds errors.
func (c *Check) Add(errs ...*field.Error) { c.Errs = append(c.Errs, errs...) }

// Earlier are the keys that a list has had, for rules about what is there twice.
type Earlier[K comparable] map[K]bool

// Had tells whether a key was there before, and remembers it.
func (e Earlier[K]) Had(key K) bool {
	was := e[key]
	e[key] = true
	return was
}

// Declare adds errors that come after all others.
func (c *Check) Declare(errs ...*field.Error) { c.declared = append(c.declared, errs...) }

// All returns what is wrong, in Kubernetes' order.
func (c *Check) All() field.ErrorList { return append(c.Errs, c.declared...) }

// Required adds an error if a text is missing.
func (c *Check) Required(at *field.Path, text string) bool {
	if text == "" {
		c.Add(field.Required(at, ""))
	}
	return text != ""
}

// Texts adds an error of each text about a value.
func (c *Check) Texts(at *field.Path, value any, texts []string) {
	c.Add(Problems(at, value, texts)...)
}

// Label wants a label of DNS.
func (c *Check) Label(at *field.Path, name string) {
	c.Texts(at, name, validation.IsDNS1123Label(name))
}

// Subdomain wants a name of DNS.
func (c *Check) Subdomain(at *field.Path, name string) {
	c.Texts(at, name, validation.IsDNS1123Subdomain(name))
}

// Needs wants a text that is there and has nothing wrong with it.
func (c *Check) Needs(at *field.Path, text string, wrong func(string) []string) {
	if c.Required(at, text) {
		c.Texts(at, text, wrong(text))
	}
}

// DeclareImmutable adds an error if a field that is declared immutable has changed. Such errors don't say what was sent.
func (c *Check) DeclareImmutable(at *field.Path, now, before any) {
	if !equality.Semantic.DeepEqual(now, before) {
		c.Declare(field.Invalid(at, nil, apivalidation.FieldImmutableErrorMsg))
	}
}

// Immutable adds an error if a field that can be set once has changed.
func (c *Check) Immutable(at *field.Path, now, before any) {
	c.Add(apivalidation.ValidateImmutableField(now, before, at)...)
}

// Refuse adds an error if a value isn't what it may be.
func (c *Check) Refuse(is bool, at *field.Path, value any, why string) {
	if is {
		c.Add(field.Invalid(at, value, why))
	}
}

// Lack adds an error if something is missing.
func (c *Check) Lack(is bool, at *field.Path, why string) {
	if is {
		c.Add(field.Required(at, why))
	}
}

// Twice adds an error if a value has been there before.
func (c *Check) Twice(is bool, at *field.Path, value any) {
	if is {
		c.Add(field.Duplicate(at, value))
	}
}

// NoLonger wants a text of at most so many bytes.
func (c *Check) NoLonger(at *field.Path, length, most int) {
	if length > most {
		c.Add(field.TooLong(at, "", most))
	}
}

// NoMore wants a list of at most so many items.
func (c *Check) NoMore(at *field.Path, n, most int) {
	if n > most {
		c.Add(field.TooMany(at, n, most))
	}
}

// Forbid adds an error if something is set that may not be.
func (c *Check) Forbid(is bool, at *field.Path, why string) {
	if is {
		c.Add(field.Forbidden(at, why))
	}
}

// Selector checks a selector of labels; nil selects nothing.
func (c *Check) Selector(s *metav1.LabelSelector, at *field.Path) { c.YoungSelector(0, s, at) }

// YoungSelector is selector where a younger rule is about the values.
func (c *Check) YoungSelector(rule youngerRule, s *metav1.LabelSelector, at *field.Path) {
	errs := metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: c.May&rule != 0}, at)
	if len(errs) > 0 {
		c.Broken |= rule
	}
	c.Add(errs...)
}

// Qualified wants a name such as "example.com/name".
func (c *Check) Qualified(at *field.Path, name string) {
	c.Texts(at, name, validation.IsQualifiedName(name))
}

// Among adds an error if there is a value that isn't one of those known, which a caller names in alphabetic order.
func Among[T ~string](c Collector, at *field.Path, value *T, known ...T) {
	if value != nil && !slices.Contains(known, *value) {
		c.Add(field.NotSupported(at, *value, known))
	}
}

// OneOf wants a value to be one of a list.
func OneOf[T ~string](at *field.Path, value T, known ...T) field.ErrorList {
	switch {
	case slices.Contains(known, value):
		return nil
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	}
	return field.ErrorList{field.NotSupported(at, value, known)}
}

// NotNegative wants a number that isn't negative, if there is one.
func NotNegative[T int32 | int64](at *field.Path, n *T) field.ErrorList {
	if n == nil || *n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *n, "must be greater than or equal to 0")}
}

// Problems makes an error of each text about a value.
func Problems(at *field.Path, value any, texts []string) (errs field.ErrorList) {
	for _, text := range texts {
		errs = append(errs, field.Invalid(at, value, text))
	}
	return errs
}

// LongName says what keeps a name from being a subdomain, for kinds whose generateName Kubernetes doesn't look at: the name that comes of it
// counts.
func LongName(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return content.IsDNS1123Subdomain(name)
}

// JudgedLater is the ValidName of a kind whose Validate judges names, by what else an object has.
func JudgedLater(string, bool) []string { return nil }

// WholeSegment says what keeps a name from being a segment of a path.
func WholeSegment(name string) []string { return PathSegment(name, false) }

// PathSegment says what keeps a name, or what it's to begin with, from being a segment of a path. A prefix may be one of "."
// and "..". Kubernetes takes what NeverInPaths refuses besides, and names it in paths.
func PathSegment(name string, prefix bool) (texts []string) {
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

// ClaimTemplateMeta checks the metadata that claims get of a template, which has labels and annotations alone.
func (c *Check) ClaimTemplateMeta(m *metav1.ObjectMeta, at *field.Path) {
	c.Add(apivalidation.ValidateAnnotations(m.Annotations, at.Child("annotations"))...)
	c.Add(metavalidation.ValidateLabels(m.Labels, at.Child("labels"))...)
	v := reflect.ValueOf(*m)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Labels" && name != "Annotations" {
			c.Forbid(!v.Field(i).IsZero(), at.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set")
		}
	}
}

// MaxDriverName is how long the name of a driver of CSI may be, in bytes.
const MaxDriverName = 63

// DriverName wants the name of a driver of CSI, of which the case doesn't matter.
func (c *Check) DriverName(at *field.Path, name string) {
	if !c.Required(at, name) {
		return
	}
	c.NoLonger(at, len(name), MaxDriverName)
	c.Texts(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
}

// ValidateProtocol wants a protocol that has ports.
func ValidateProtocol(p corev1.Protocol, at *field.Path) field.ErrorList {
	return OneOf(at, p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// ValidatePortOrName checks a port that may be given by its name.
func ValidatePortOrName(p intstr.IntOrString, at *field.Path) field.ErrorList {
	if p.Type == intstr.String {
		return Problems(at, p.StrVal, validation.IsValidPortName(p.StrVal))
	}
	return Problems(at, p.IntVal, validation.IsValidPortNum(p.IntValue()))
}

// NotNegative wants an amount that isn't negative.
func (c *Check) NotNegative(at *field.Path, q resource.Quantity) {
	if q.Sign() < 0 {
		c.Add(field.Invalid(at, q.String(), "must be greater than or equal to 0"))
	}
}

// Conditions returns what is wrong with conditions. None of it is last: what Kubernetes declares of them isn't in force.
func Conditions(conditions []metav1.Condition, at *field.Path) field.ErrorList {
	errs := metavalidation.ValidateConditions(conditions, at)
	for _, err := range errs {
		err.CoveredByDeclarative = false
	}
	return errs
}
