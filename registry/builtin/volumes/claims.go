package volumes

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for claims and for the group storage.k8s.io, in the order in which Kubernetes asks them.

// prepareClaim completes what a claim is filled from. Its writer doesn't own what is added.
func prepareClaim(c, old *corev1.PersistentVolumeClaim, subresource string) {
	if subresource == "status" {
		if old.Status.HealthStatus == nil {
			c.Status.HealthStatus = nil // of a feature that is off there
		}
		return
	}
	var was corev1.PersistentVolumeClaimSpec
	if old != nil {
		was = old.Spec
	}
	s := &c.Spec
	if r := s.DataSourceRef; r != nil && r.Namespace != nil && *r.Namespace != "" && was.DataSourceRef == nil {
		s.DataSourceRef = nil // other namespaces are of a feature that is off there
	}
	if s.DataSourceRef == nil && was.DataSource == nil && was.DataSourceRef == nil && !fills(s.DataSource) {
		s.DataSource = nil
	}
	switch { // one is the newer form of the other, which has no namespace
	case s.DataSource != nil && s.DataSourceRef == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: s.DataSource.APIGroup, Kind: s.DataSource.Kind, Name: s.DataSource.Name}
	case s.DataSource == nil && s.DataSourceRef != nil && (s.DataSourceRef.Namespace == nil || *s.DataSourceRef.Namespace == ""):
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: s.DataSourceRef.APIGroup, Kind: s.DataSourceRef.Kind, Name: s.DataSourceRef.Name}
	}
}

// fills tells whether the older field may name what a claim is filled from: other kinds are left out silently.
func fills(from *corev1.TypedLocalObjectReference) bool {
	if from == nil {
		return false
	}
	group := ""
	if from.APIGroup != nil {
		group = *from.APIGroup
	}
	return from.Kind == "PersistentVolumeClaim" && group == "" || from.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
}

// positive wants more than nothing.
func (c *Check) positive(at *field.Path, q resource.Quantity) {
	if q.Sign() <= 0 {
		c.Add(field.Invalid(at, q.String(), "must be greater than zero"))
	}
}

// ClaimSpec checks a claim, or the template of one.
func (c *Check) ClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) {
	c.Lack(len(s.AccessModes) == 0, at.Child("accessModes"), "at least 1 access mode is required")
	c.YoungSelector(rules.SelectorValues, s.Selector, at.Child("selector"))
	c.accessModes(s.AccessModes, at.Child("accessModes"))
	size := at.Child("resources").Key(string(corev1.ResourceStorage))
	if q, ok := s.Resources.Requests[corev1.ResourceStorage]; ok {
		c.positive(size, q)
	} else {
		c.Add(field.Required(size, ""))
	}
	if s.StorageClassName != nil {
		c.storageClass(at.Child("storageClassName"), *s.StorageClassName)
	}
	rules.Among(c, at.Child("volumeMode"), s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	if d := s.DataSource; d != nil {
		c.dataSource(d.APIGroup, d.Kind, d.Name, at.Child("dataSource"))
	}
	elsewhere := false
	if d := s.DataSourceRef; d != nil {
		c.dataSource(d.APIGroup, d.Kind, d.Name, at.Child("dataSourceRef"))
		if elsewhere = d.Namespace != nil && *d.Namespace != ""; elsewhere {
			c.Label(at.Child("dataSourceRef", "namespace"), *d.Namespace)
		}
	}
	switch d, r := s.DataSource, s.DataSourceRef; {
	case d == nil || r == nil:
	case elsewhere:
		c.Add(field.Invalid(at, at.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
	case !reflect.DeepEqual(d.APIGroup, r.APIGroup) || d.Kind != r.Kind || d.Name != r.Name:
		c.Add(field.Invalid(at, at.Child("dataSource"), "must match dataSourceRef"))
	}
	if s.VolumeAttributesClassName != nil {
		c.storageClass(at.Child("volumeAttributesClassName"), *s.VolumeAttributesClassName)
	}
}

func (c *Check) dataSource(group *string, kind, name string, at *field.Path) {
	c.Required(at.Child("name"), name)
	c.Required(at.Child("kind"), kind)
	switch {
	case group != nil && *group != "":
		c.Young(rules.ClaimGroups, rules.Problems(at.Child("apiGroup"), *group, validation.IsDNS1123Subdomain(*group))...)
	case kind != "PersistentVolumeClaim":
		c.Add(field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
}

func validateClaim(claim, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	c := rules.UnlessOld(func(c *Check, claim *corev1.PersistentVolumeClaim) { c.ClaimSpec(&claim.Spec, spec) }, claim, old)
	if old == nil {
		return c.Errs
	}
	now, was := claim.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = now.VolumeName // which may come later
	}
	c.claimClass(claim, old, now)
	if claim.Status.Phase == corev1.ClaimBound {
		if now.Resources.Requests != nil {
			now.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
		now.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	c.Forbid(!equality.Semantic.DeepEqual(now, was), spec, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+diff.Diff(rules.Untagged(was), rules.Untagged(now)))
	size, before, filled := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage], old.Status.Capacity[corev1.ResourceStorage]
	c.Forbid(size.Cmp(before) < 0 && size.Cmp(filled) <= 0, spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity")
	c.Immutable(field.NewPath("volumeMode"), claim.Spec.VolumeMode, old.Spec.VolumeMode)
	if class := claim.Spec.VolumeAttributesClassName; old.Status.CurrentVolumeAttributesClassName != nil && !equality.Semantic.DeepEqual(class, old.Spec.VolumeAttributesClassName) {
		at := spec.Child("volumeAttributesClassName")
		c.Forbid(class == nil, at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")
		c.Forbid(class != nil && *class == "", at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")
	}
	return c.Errs
}

// claimClass checks how a claim's class has changed, and takes a change that may be out of its spec.
func (c *Check) claimClass(claim, old *corev1.PersistentVolumeClaim, now *corev1.PersistentVolumeClaimSpec) {
	was, had := old.Annotations[corev1.BetaStorageClassAnnotation]
	is, has := claim.Annotations[corev1.BetaStorageClassAnnotation]
	next := claim.Spec.StorageClassName
	if had && old.Spec.StorageClassName == nil && next != nil && *next == was && (!has || is == was) { // from the annotation to the field
		now.StorageClassName = nil
		return
	}
	c.Immutable(field.NewPath("metadata", "annotations", corev1.BetaStorageClassAnnotation), is, was)
	if old.Spec.StorageClassName == nil && next != nil && !had { // a default that came later
		now.StorageClassName = nil
	}
}

func validateClaimStatus(claim, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	c, status := &Check{}, field.NewPath("status")
	for _, name := range slices.Sorted(maps.Keys(claim.Status.Capacity)) {
		if q := claim.Status.Capacity[name]; q.Sign() < 0 {
			c.Add(field.Invalid(status.Child("capacity").Key(string(name)), q.Value(), "must be a valid resource quantity"))
		}
	}
	known := []corev1.ClaimResourceStatus{corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible}
	slices.Sort(known)
	for _, name := range slices.Sorted(maps.Keys(claim.Status.AllocatedResourceStatuses)) {
		at := status.Child("allocatedResourceStatuses")
		c.claimResource(at, name)
		if !slices.Contains(known, claim.Status.AllocatedResourceStatuses[name]) {
			c.Add(field.NotSupported(at, name, known))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claim.Status.AllocatedResources)) {
		at := status.Child("allocatedResources")
		if !c.claimResource(at, name) {
			continue
		}
		if q := claim.Status.AllocatedResources[name]; q.Sign() < 0 {
			c.Add(field.Invalid(at.Key(string(name)), q.Value(), "must be a valid resource quantity"))
		}
	}
	return c.Errs
}

// claimResource wants storage, or a name of others.
func (c *Check) claimResource(at *field.Path, name corev1.ResourceName) bool {
	before := len(c.Errs)
	c.Qualified(at, string(name))
	if len(c.Errs) == before && name != corev1.ResourceStorage && (!strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)) {
		c.Add(field.NotSupported(at, string(name), []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return len(c.Errs) == before
}

func warnClaim(c, _ *corev1.PersistentVolumeClaim) (texts []string) {
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		texts = append(texts, fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.8; use "storageClassName" attribute instead`, corev1.BetaStorageClassAnnotation))
	}
	return append(texts, WarnClaimSpec(&c.Spec, field.NewPath("spec"))...)
}

// WarnClaimSpec warns of amounts that are no whole bytes.
func WarnClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) (texts []string) {
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"requests", s.Resources.Requests}, {"limits", s.Resources.Limits}} {
		if q := list.of[corev1.ResourceStorage]; q.MilliValue()%1000 != 0 {
			texts = append(texts, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", at.Child("resources", list.name).Key(string(corev1.ResourceStorage)), q.String()))
		}
	}
	return texts
}
