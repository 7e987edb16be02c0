// Package crd holds the rules of CustomResourceDefinitions: defaults, validation, which names a definition
// gets, and its conditions. It's pure: it reads nothing, starts nothing and keeps nothing. The registry calls
// it for each write of a definition.
//
// Validation is Kubernetes's own, so that a definition which is refused there is refused here with the same
// words. Its parts (CEL environments, schemas) are built at their first use, not at start.
package crd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Definition is a CustomResourceDefinition in the only version that is served.
type Definition = apiextensionsv1.CustomResourceDefinition

// Finalizer holds a definition that is being deleted until its objects are gone.
const Finalizer = apiextensionsv1.CustomResourceCleanupFinalizer

// Default fills in what may be left out. A webhook that says nothing is as good as none: kube-apiserver's own form of a definition
// doesn't have it.
func Default(d *Definition) {
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(d)
	if c := d.Spec.Conversion; c != nil && c.Webhook != nil && c.Webhook.ClientConfig == nil && c.Webhook.ConversionReviewVersions == nil {
		c.Webhook = nil
	}
}

// MaxSchemas is how many schemas a definition may have: those of its versions, and those inside of others. Each takes up to 8 KiB
// while it's converted and checked, so these take some 200 MB. Kubernetes has no such bound: what a request may have (3 MiB), what
// etcd takes (1.5 MiB) and what rules in CEL may cost are all that ends a definition there, and an empty schema has three bytes. Real
// ones without any descriptions have some 45 bytes for each schema, so that one of a megabyte is taken.
const MaxSchemas = 25_000

// MaxVersions is how many versions a definition may have. Kubernetes' validation takes time with the square of their number: these
// take it milliseconds. Kubernetes has no such bound.
const MaxVersions = 1000

// tooMany refuses a definition that has more versions or schemas than are taken, unless the one before had as many: what is stored
// can still be changed.
func tooMany(d, old *Definition) *field.Error {
	versions := field.NewPath("spec", "versions")
	if n := len(d.Spec.Versions); n > MaxVersions && (old == nil || n > len(old.Spec.Versions)) {
		return field.TooMany(versions, n, MaxVersions)
	}
	n := countSchemas(d)
	if n <= MaxSchemas || old != nil && n <= countSchemas(old) {
		return nil
	}
	return &field.Error{
		Type: field.ErrorTypeTooMany, Field: versions.String(), BadValue: n,
		Detail: fmt.Sprintf("the schemas of all versions, with those inside of others, must be at most %d", MaxSchemas),
	}
}

func countSchemas(d *Definition) (n int) {
	for i := range d.Spec.Versions {
		if s := d.Spec.Versions[i].Schema; s != nil {
			n += countInside(s.OpenAPIV3Schema)
		}
	}
	return n
}

// countInside returns how many schemas there are in one, with itself.
func countInside(s *apiextensionsv1.JSONSchemaProps) int {
	if s == nil {
		return 0
	}
	n := 1 + countInside(s.Not)
	for _, all := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.OneOf, s.AnyOf} {
		n += countAll(all)
	}
	for _, named := range []map[string]apiextensionsv1.JSONSchemaProps{s.Properties, s.PatternProperties, s.Definitions} {
		for _, inside := range named {
			n += countInside(&inside)
		}
	}
	for _, d := range s.Dependencies {
		n += countInside(d.Schema)
	}
	for _, other := range []*apiextensionsv1.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
		if other != nil {
			n += countInside(other.Schema)
		}
	}
	if s.Items != nil {
		n += countInside(s.Items.Schema) + countAll(s.Items.JSONSchemas)
	}
	return n
}

func countAll(all []apiextensionsv1.JSONSchemaProps) (n int) {
	for i := range all {
		n += countInside(&all[i])
	}
	return n
}

// Validate checks a definition that was defaulted and whose status was set; old is nil for a new one.
func Validate(ctx context.Context, d, old *Definition) field.ErrorList {
	if err := tooMany(d, old); err != nil {
		return field.ErrorList{err}
	}
	in, err := internal(d)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	if old == nil {
		return validation.ValidateCustomResourceDefinition(ctx, in)
	}
	prev, err := internal(old)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	return validation.ValidateCustomResourceDefinitionUpdate(ctx, in, prev)
}

// Warnings returns what a client is told of the schemas of a valid definition: of formats that nobody knows, and of sets of what isn't
// scalar. What old had already isn't repeated; it's nil for a new definition.
func Warnings(d, old *Definition) []string {
	formats, sets := doubtful(d)
	if old != nil {
		oldFormats, oldSets := doubtful(old)
		formats = slices.DeleteFunc(formats, func(f string) bool { return slices.Contains(oldFormats, f) })
		sets = slices.DeleteFunc(sets, func(s string) bool { return slices.Contains(oldSets, s) })
	}
	texts := make([]string, 0, len(formats)+len(sets))
	for _, format := range formats {
		texts = append(texts, fmt.Sprintf("unrecognized format %q", format))
	}
	return append(texts, sets...)
}

// doubtful returns the formats in a definition's schemas that nobody knows, and what is to be said of its sets.
func doubtful(d *Definition) (formats, sets []string) {
	in, err := internal(d)
	if err != nil {
		return nil, nil
	}
	at := environment.DefaultCompatibilityVersion()
	look := func(s *apiextensions.JSONSchemaProps) (found bool) {
		if s.Format != "" {
			of := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			for _, format := range schemavalidation.GetUnrecognizedFormats(of, at) {
				if !slices.Contains(formats, format) {
					formats = append(formats, format)
				}
			}
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil {
			if of := s.Items.Schema.Type; of == "object" || of == "array" {
				text := fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", of)
				if !slices.Contains(sets, text) {
					sets = append(sets, text)
				}
			}
		}
		return false
	}
	if in.Spec.Validation != nil {
		validation.SchemaHas(in.Spec.Validation.OpenAPIV3Schema, look)
	}
	for _, v := range in.Spec.Versions {
		if v.Schema != nil {
			validation.SchemaHas(v.Schema.OpenAPIV3Schema, look)
		}
	}
	slices.Sort(sets)
	return formats, sets
}

// ValidateStatus checks a definition whose status was written by a client. It takes any stored versions: those that the definition doesn't
// have are refused with the next change of the rest.
func ValidateStatus(ctx context.Context, d, old *Definition) field.ErrorList {
	in, err := internal(d)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("status"), err)}
	}
	prev, err := internal(old)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("status"), err)}
	}
	return validation.ValidateUpdateCustomResourceDefinitionStatus(ctx, in, prev)
}

// internal converts to the version that validation works on. The conversion moves parts of its input.
func internal(d *Definition) (*apiextensions.CustomResourceDefinition, error) {
	out := &apiextensions.CustomResourceDefinition{}
	err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d.DeepCopy(), out, nil)
	return out, err
}

// Names are the names that a definition asks for, and those of them that others in its API group have.
type Names struct {
	resources, kinds nameSet
}

// nameSet has the names that a definition asks for, and those of them that are taken.
type nameSet struct{ asked, taken []string }

// NamesFor returns the names that a definition asks for. Nobody has one of them yet.
func NamesFor(d *Definition) *Names {
	want := d.Spec.Names
	n := &Names{}
	n.resources.asked = append([]string{want.Plural, want.Singular}, want.ShortNames...)
	n.kinds.asked = []string{want.Kind, want.ListKind}
	return n
}

// Take notes that somebody has these names.
func (n *Names) Take(names apiextensionsv1.CustomResourceDefinitionNames) {
	n.resources.take(names.Plural)
	n.resources.take(names.Singular)
	for _, short := range names.ShortNames {
		n.resources.take(short)
	}
	n.kinds.take(names.Kind)
	n.kinds.take(names.ListKind)
}

func (n *nameSet) take(name string) {
	if name != "" && slices.Contains(n.asked, name) {
		n.taken = append(n.taken, name)
	}
}

// NoteStored adds the version in which objects are stored to those that they may be in: the first of several, which aren't valid.
func NoteStored(d *Definition) {
	i := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if i >= 0 && !slices.Contains(d.Status.StoredVersions, d.Spec.Versions[i].Name) {
		d.Status.StoredVersions = append(d.Status.StoredVersions, d.Spec.Versions[i].Name)
	}
}

// SetStatus does what kube-apiserver's controllers do after a definition was written. It gives the definition the names that
// it asks for and that are free, and sets the conditions that follow. taken are the names that others have. A definition that
// has its names is left as it is. One that is Established stays so, with the names it has.
func SetStatus(d *Definition, taken *Names, now metav1.Time) {
	if !Accepted(d) {
		setCondition(d, now, accept(d, taken))
		if !Established(d) {
			setCondition(d, now, apiextensionsv1.CustomResourceDefinitionCondition{
				Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
				Reason: "NotAccepted", Message: "not all names are accepted",
			})
		}
	}
	if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.NamesAccepted) && !Established(d) {
		setCondition(d, now, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
			Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
		})
	}
	if apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		setCondition(d, now, approval(d))
	}
	if d.DeletionTimestamp != nil && slices.Contains(d.Finalizers, Finalizer) {
		setCondition(d, now, terminating(InProgress))
	}
}

// KeepClaims keeps a client that writes the status of a definition from giving it names, or from establishing it: what only SetStatus
// may give is as it was in old, or gone.
func KeepClaims(d, old *Definition) {
	d.Status.AcceptedNames = *old.Status.AcceptedNames.DeepCopy()
	for _, decided := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		if !apihelpers.IsCRDConditionTrue(d, decided) || apihelpers.IsCRDConditionTrue(old, decided) {
			continue
		}
		was := apihelpers.FindCRDCondition(old, decided)
		d.Status.Conditions = slices.DeleteFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool { return c.Type == decided })
		if was != nil {
			d.Status.Conditions = append(d.Status.Conditions, *was)
		}
	}
}

// approval says whether a definition in one of Kubernetes' own groups has been approved.
func approval(d *Definition) apiextensionsv1.CustomResourceDefinitionCondition {
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse,
	}
	var state apihelpers.APIApprovalState
	switch state, c.Message = apihelpers.GetAPIApprovalState(d.Annotations); state {
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Reason = "MissingAnnotation"
	default:
		c.Reason = "InvalidAnnotation"
	}
	return c
}

// accept gives the definition the names that are free, and says whether those were all.
func accept(d *Definition, taken *Names) apiextensionsv1.CustomResourceDefinitionCondition {
	want, has := d.Spec.Names, &d.Status.AcceptedNames
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue,
		Reason: "NoConflicts", Message: "no conflicts found",
	}
	conflict := func(what string, err error) {
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, what+"Conflict", err.Error()
	}
	for _, n := range []struct {
		what, want string
		has        *string
		taken      []string
	}{
		{"Plural", want.Plural, &has.Plural, taken.resources.taken},
		{"Singular", want.Singular, &has.Singular, taken.resources.taken},
		{"Kind", want.Kind, &has.Kind, taken.kinds.taken},
		{"ListKind", want.ListKind, &has.ListKind, taken.kinds.taken},
	} {
		if err := free(n.want, *n.has, n.taken); err != nil {
			conflict(n.what, err)
		} else {
			*n.has = n.want
		}
	}
	var errs []error
	for _, short := range want.ShortNames {
		if !slices.Contains(has.ShortNames, short) {
			errs = append(errs, free(short, "", taken.resources.taken))
		}
	}
	if err := errors.Join(errs...); err != nil {
		conflict("ShortNames", errors.New(strings.ReplaceAll(err.Error(), "\n", ", ")))
	} else {
		has.ShortNames = want.ShortNames
	}
	has.Categories = want.Categories
	return c
}

func free(want, has string, taken []string) error {
	if want != has && slices.Contains(taken, want) {
		return fmt.Errorf("%q is already in use", want)
	}
	return nil
}

// setCondition sets a condition. Its time moves only when its status does, in whole seconds as it's stored.
func setCondition(d *Definition, now metav1.Time, c apiextensionsv1.CustomResourceDefinitionCondition) {
	c.LastTransitionTime = now.Rfc3339Copy()
	if old := apihelpers.FindCRDCondition(d, c.Type); old != nil && old.Status == c.Status {
		if !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
		c.ObservedGeneration = old.ObservedGeneration
	}
	apihelpers.SetCRDCondition(d, c)
	apihelpers.FindCRDCondition(d, c.Type).LastTransitionTime = c.LastTransitionTime // which the library sets by the machine's clock
}

// Established tells whether the definition is served.
func Established(d *Definition) bool {
	return apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established)
}

// Accepted tells whether the definition has all the names it asks for.
func Accepted(d *Definition) bool {
	return equality.Semantic.DeepEqual(d.Spec.Names, d.Status.AcceptedNames)
}

// SameSpec tells whether two definitions define the same.
func SameSpec(a, b *Definition) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames)
}

// MarkDeleted makes a definition wait for its objects' deletion.
func MarkDeleted(d *Definition, now metav1.Time) {
	if !slices.Contains(d.Finalizers, Finalizer) {
		d.Finalizers = append(d.Finalizers, Finalizer)
	}
	setCondition(d, now, terminating(Pending))
}

// Release lets a definition go whose objects are gone. overlaps tells that they belong to a Go type of the program.
func Release(d *Definition, overlaps bool, now metav1.Time) {
	d.Finalizers = slices.DeleteFunc(d.Finalizers, func(f string) bool { return f == Finalizer })
	switch {
	case overlaps:
		setCondition(d, now, terminating(Overlapping))
	case !Established(d):
		setCondition(d, now, terminating(NeverServed))
	default:
		setCondition(d, now, terminating(Completed))
	}
}

// Wait notes in a definition that finalizers hold some of its objects.
func Wait(d *Definition, now metav1.Time) { setCondition(d, now, terminating(Waiting)) }

// Progress is how far the deletion of a definition's objects is, as the reason of the condition Terminating.
type Progress string

// The reasons, which are Kubernetes' own.
const (
	Pending     Progress = "InstanceDeletionPending"
	InProgress  Progress = "InstanceDeletionInProgress"
	Waiting     Progress = "InstanceDeletionCheck"
	Completed   Progress = "InstanceDeletionCompleted"
	NeverServed Progress = "NeverEstablished"
	Overlapping Progress = "OverlappingBuiltInResource"
)

var progress = map[Progress]string{
	Pending:     "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	InProgress:  "CustomResource deletion is in progress",
	Waiting:     "could not confirm zero CustomResources remaining: finalizers hold some",
	Completed:   "removed all instances",
	NeverServed: "resource was never established",
	Overlapping: "instances overlap with built-in resources in storage",
}

// terminating returns the condition Terminating.
func terminating(p Progress) apiextensionsv1.CustomResourceDefinitionCondition {
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: string(p), Message: progress[p],
	}
	if p == Completed || p == NeverServed || p == Overlapping {
		c.Status = apiextensionsv1.ConditionFalse
	}
	return c
}

// FieldLabels returns the labels under which a version's selectable fields are known: their JSON paths
// without the leading dot.
func FieldLabels(v *apiextensionsv1.CustomResourceDefinitionVersion) []string {
	labels := make([]string, 0, len(v.SelectableFields))
	for _, f := range v.SelectableFields {
		labels = append(labels, strings.TrimPrefix(f.JSONPath, "."))
	}
	return labels
}
