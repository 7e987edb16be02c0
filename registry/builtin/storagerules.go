package builtin

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules for claims and for the group storage.k8s.io, in the order in which Kubernetes asks them.

const (
	maxParameters         = 512
	maxParametersSize     = 256 << 10 // bytes
	maxAttachmentMetadata = 256 << 10 // bytes
	maxVolumeError        = 1024      // bytes
	maxNodeID             = 256       // bytes
	minAllocatablePeriod  = 10        // seconds
)

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
func (c *check) positive(at *field.Path, q resource.Quantity) {
	if q.Sign() <= 0 {
		c.add(field.Invalid(at, q.String(), "must be greater than zero"))
	}
}

func (c *check) notNegative(at *field.Path, q resource.Quantity) {
	if q.Sign() < 0 {
		c.add(field.Invalid(at, q.String(), "must be greater than or equal to 0"))
	}
}

// claimSpec checks a claim, or the template of one.
func (c *check) claimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) {
	if len(s.AccessModes) == 0 {
		c.add(field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	c.youngSelector(selectorValues, s.Selector, at.Child("selector"))
	c.accessModes(s.AccessModes, at.Child("accessModes"))
	size := at.Child("resources").Key(string(corev1.ResourceStorage))
	if q, ok := s.Resources.Requests[corev1.ResourceStorage]; ok {
		c.positive(size, q)
	} else {
		c.add(field.Required(size, ""))
	}
	if s.StorageClassName != nil {
		c.storageClass(at.Child("storageClassName"), *s.StorageClassName)
	}
	among(c, at.Child("volumeMode"), s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	if d := s.DataSource; d != nil {
		c.dataSource(d.APIGroup, d.Kind, d.Name, at.Child("dataSource"))
	}
	elsewhere := false
	if d := s.DataSourceRef; d != nil {
		c.dataSource(d.APIGroup, d.Kind, d.Name, at.Child("dataSourceRef"))
		if elsewhere = d.Namespace != nil && *d.Namespace != ""; elsewhere {
			c.label(at.Child("dataSourceRef", "namespace"), *d.Namespace)
		}
	}
	switch d, r := s.DataSource, s.DataSourceRef; {
	case d == nil || r == nil:
	case elsewhere:
		c.add(field.Invalid(at, at.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
	case !reflect.DeepEqual(d.APIGroup, r.APIGroup) || d.Kind != r.Kind || d.Name != r.Name:
		c.add(field.Invalid(at, at.Child("dataSource"), "must match dataSourceRef"))
	}
	if s.VolumeAttributesClassName != nil {
		c.storageClass(at.Child("volumeAttributesClassName"), *s.VolumeAttributesClassName)
	}
}

func (c *check) dataSource(group *string, kind, name string, at *field.Path) {
	c.required(at.Child("name"), name)
	c.required(at.Child("kind"), kind)
	switch {
	case group != nil && *group != "":
		c.young(claimGroups, problems(at.Child("apiGroup"), *group, validation.IsDNS1123Subdomain(*group))...)
	case kind != "PersistentVolumeClaim":
		c.add(field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
}

func validateClaim(claim, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	c := unlessOld(func(c *check, claim *corev1.PersistentVolumeClaim) { c.claimSpec(&claim.Spec, spec) }, claim, old)
	if old == nil {
		return c.errs
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
	if !equality.Semantic.DeepEqual(now, was) {
		c.add(field.Forbidden(spec, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+diff.Diff(untagged{was}, untagged{now})))
	}
	size, before, filled := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage], old.Status.Capacity[corev1.ResourceStorage]
	c.forbid(size.Cmp(before) < 0 && size.Cmp(filled) <= 0, spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity")
	c.immutable(field.NewPath("volumeMode"), claim.Spec.VolumeMode, old.Spec.VolumeMode)
	if class := claim.Spec.VolumeAttributesClassName; old.Status.CurrentVolumeAttributesClassName != nil && !equality.Semantic.DeepEqual(class, old.Spec.VolumeAttributesClassName) {
		at := spec.Child("volumeAttributesClassName")
		c.forbid(class == nil, at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")
		c.forbid(class != nil && *class == "", at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")
	}
	return c.errs
}

// claimClass checks how a claim's class has changed, and takes a change that may be out of its spec.
func (c *check) claimClass(claim, old *corev1.PersistentVolumeClaim, now *corev1.PersistentVolumeClaimSpec) {
	was, had := old.Annotations[corev1.BetaStorageClassAnnotation]
	is, has := claim.Annotations[corev1.BetaStorageClassAnnotation]
	next := claim.Spec.StorageClassName
	if had && old.Spec.StorageClassName == nil && next != nil && *next == was && (!has || is == was) { // from the annotation to the field
		now.StorageClassName = nil
		return
	}
	c.immutable(field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation), is, was)
	if old.Spec.StorageClassName == nil && next != nil && !had { // a default that came later
		now.StorageClassName = nil
	}
}

func validateClaimStatus(claim, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	c, status := &check{}, field.NewPath("status")
	for _, name := range slices.Sorted(maps.Keys(claim.Status.Capacity)) {
		if q := claim.Status.Capacity[name]; q.Sign() < 0 {
			c.add(field.Invalid(status.Child("capacity").Key(string(name)), q.Value(), "must be a valid resource quantity"))
		}
	}
	known := []corev1.ClaimResourceStatus{corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible}
	slices.Sort(known)
	for _, name := range slices.Sorted(maps.Keys(claim.Status.AllocatedResourceStatuses)) {
		at := status.Child("allocatedResourceStatuses")
		c.claimResource(at, name)
		if !slices.Contains(known, claim.Status.AllocatedResourceStatuses[name]) {
			c.add(field.NotSupported(at, name, known))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claim.Status.AllocatedResources)) {
		at := status.Child("allocatedResources")
		if !c.claimResource(at, name) {
			continue
		}
		if q := claim.Status.AllocatedResources[name]; q.Sign() < 0 {
			c.add(field.Invalid(at.Key(string(name)), q.Value(), "must be a valid resource quantity"))
		}
	}
	return c.errs
}

// claimResource wants storage, or a name of others.
func (c *check) claimResource(at *field.Path, name corev1.ResourceName) bool {
	before := len(c.errs)
	c.qualified(at, string(name))
	if len(c.errs) == before && name != corev1.ResourceStorage && (!strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)) {
		c.add(field.NotSupported(at, string(name), []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return len(c.errs) == before
}

func warnClaim(c, _ *corev1.PersistentVolumeClaim) (texts []string) {
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		texts = append(texts, fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.8; use "storageClassName" attribute instead`, corev1.BetaStorageClassAnnotation))
	}
	return append(texts, warnClaimSpec(&c.Spec, field.NewPath("spec"))...)
}

func warnClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) (texts []string) {
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

// parameters checks what a class hands to a driver. needed wants some.
func (c *check) parameters(all map[string]string, needed bool, at *field.Path) {
	if len(all) > maxParameters {
		c.add(field.TooLong(at, "", maxParameters))
		return
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name == "" {
			c.add(field.Invalid(at, name, "field can not be empty."))
		}
		size += len(name) + len(all[name])
	}
	if size > maxParametersSize {
		c.add(field.TooLong(at, "", maxParametersSize))
	}
	if needed && len(all) == 0 {
		c.add(field.Required(at, "must contain at least one key/value pair"))
	}
}

func validateStorageClass(class, old *storagev1.StorageClass) field.ErrorList {
	c, provisioner := &check{}, field.NewPath("provisioner")
	if class.Provisioner != "" {
		c.texts(provisioner, strings.ToLower(class.Provisioner), validation.IsQualifiedName(strings.ToLower(class.Provisioner)))
	}
	c.parameters(class.Parameters, false, field.NewPath("parameters"))
	if class.ReclaimPolicy != nil && *class.ReclaimPolicy != "" {
		among(c, field.NewPath("reclaimPolicy"), class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	}
	among(c, field.NewPath("volumeBindingMode"), class.VolumeBindingMode, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)
	c.topologies(class.AllowedTopologies, field.NewPath("allowedTopologies"))
	c.required(provisioner, class.Provisioner)
	if old != nil {
		c.declareImmutable(provisioner, class.Provisioner, old.Provisioner)
		c.declareImmutable(field.NewPath("parameters"), class.Parameters, old.Parameters)
		c.declareImmutable(field.NewPath("reclaimPolicy"), class.ReclaimPolicy, old.ReclaimPolicy)
		c.declareImmutable(field.NewPath("volumeBindingMode"), class.VolumeBindingMode, old.VolumeBindingMode)
	}
	return c.all()
}

func (c *check) topologies(terms []corev1.TopologySelectorTerm, at *field.Path) {
	// Kubernetes' list begins with as many empty terms as there are, so that each empty one is a duplicate.
	known := earlier[string]{"": true}
	for i, term := range terms {
		at := at.Index(i).Child("matchLabelExpressions")
		values := map[string]sets.Set[string]{}
		for j, e := range term.MatchLabelExpressions {
			at := at.Index(j)
			of := sets.New[string]()
			if len(e.Values) == 0 {
				c.add(field.Required(at.Child("values"), ""))
			}
			for k, value := range e.Values {
				if of.Has(value) {
					c.add(field.Duplicate(at.Child("values").Index(k), value))
				}
				of.Insert(value)
			}
			c.qualified(at.Child("key"), e.Key)
			if _, twice := values[e.Key]; twice {
				c.add(field.Duplicate(at.Child("key"), e.Key))
			}
			values[e.Key] = of
		}
		if known.had(topology(values)) {
			c.add(field.Duplicate(at, ""))
		}
	}
}

// topology is a text that two terms have in common if they say the same, in whatever order.
func topology(values map[string]sets.Set[string]) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&text, "%q%q", key, sets.List(values[key]))
	}
	return text.String()
}

func warnStorageClass(class, _ *storagev1.StorageClass) (texts []string) {
	for i, term := range class.AllowedTopologies {
		for j, e := range term.MatchLabelExpressions {
			if text, old := oldLabels[e.Key]; old {
				texts = append(texts, fmt.Sprintf("%s: %s", field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"), text))
			}
		}
	}
	return texts
}

func validateVolumeAttachment(a, old *storagev1.VolumeAttachment) field.ErrorList {
	c, spec := &check{}, field.NewPath("spec")
	source := spec.Child("source")
	switch s := &a.Spec.Source; {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		c.add(field.Required(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		c.add(field.Forbidden(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case s.PersistentVolumeName == nil:
		c.volumeSpec(s.InlineVolumeSpec, "", true, source.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		c.add(field.Required(source.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
	}
	c.subdomain(spec.Child("nodeName"), a.Spec.NodeName)
	status, size := field.NewPath("status"), 0
	for name, value := range a.Status.AttachmentMetadata {
		size += len(name) + len(value)
	}
	if size > maxAttachmentMetadata {
		c.add(field.TooLong(status.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	c.volumeError(a.Status.AttachError, status.Child("attachError"))
	c.volumeError(a.Status.DetachError, status.Child("detachError"))
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		c.subdomain(field.NewPath("spec.source.persistentVolumeName"), *name)
	}
	if old != nil && !equality.Semantic.DeepEqual(a.Spec, old.Spec) {
		c.declareImmutable(spec, a.Spec, old.Spec)
		return c.all()
	}
	//lint:ignore SA1019 kube-apiserver takes such names of drivers
	needed(c, spec.Child("attacher"), a.Spec.Attacher, orEmpty(old).Spec.Attacher, validate.LongNameCaseless, atMost[string](maxDriverName))
	return c.all()
}

func (c *check) volumeError(e *storagev1.VolumeError, at *field.Path) {
	if e == nil {
		return
	}
	if len(e.Message) > maxVolumeError {
		c.add(field.TooLong(at.Child("message"), "", maxVolumeError))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		c.add(field.Invalid(at.Child("errorCode"), *e.ErrorCode, validation.InclusiveRangeError(0, math.MaxInt32)))
	}
}

func validateCSIDriver(d, old *storagev1.CSIDriver) field.ErrorList {
	c, spec, s := &check{}, field.NewPath("spec"), &d.Spec
	among(c, spec.Child("fsGroupPolicy"), s.FSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	audiences := earlier[string]{}
	for i, r := range s.TokenRequests {
		at := spec.Child("tokenRequests").Index(i)
		switch seconds := r.ExpirationSeconds; {
		case audiences.had(r.Audience):
			c.add(field.Duplicate(at.Child("audience"), r.Audience))
		case seconds == nil:
		case *seconds < minTokenLife:
			c.add(field.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration less than 10 minutes"))
		case *seconds > maxTokenLife:
			c.add(field.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	for i := range s.VolumeLifecycleModes {
		among(c, spec.Child("volumeLifecycleModes"), &s.VolumeLifecycleModes[i], storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)
	}
	if n := s.NodeAllocatableUpdatePeriodSeconds; n != nil && *n < minAllocatablePeriod {
		c.add(field.Invalid(spec.Child("nodeAllocatableUpdatePeriodSeconds"), *n, "must be greater than or equal to 10 seconds"))
	}
	if s.ServiceAccountTokenInSecrets != nil && len(s.TokenRequests) == 0 {
		c.add(field.Invalid(spec.Child("serviceAccountTokenInSecrets"), s.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	if old != nil {
		c.immutable(spec.Child("attachedRequired"), s.AttachRequired, old.Spec.AttachRequired)
		c.immutable(spec.Child("volumeLifecycleModes"), s.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)
	}
	return c.errs
}

// countCSIDriver counts the changes of a driver, from none.
func countCSIDriver(d, old *storagev1.CSIDriver) int64 {
	switch {
	case old == nil:
		return d.Generation
	case equality.Semantic.DeepEqual(d.Spec, old.Spec):
		return old.Generation
	}
	return old.Generation + 1
}

func warnCSIDriver(d, old *storagev1.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil || old != nil && equality.Semantic.DeepEqual(d.Spec.TokenRequests, old.Spec.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
}

// prepareCSINode drops what belongs to a feature that is off in Kubernetes.
func prepareCSINode(n, old *storagev1.CSINode, _ string) {
	if old == nil || len(old.Status.StorageHealth) == 0 {
		n.Status.StorageHealth = nil
	}
}

func validateCSINode(n, old *storagev1.CSINode) field.ErrorList {
	c, drivers := &check{}, field.NewPath("spec", "drivers")
	names := earlier[string]{}
	for i, d := range n.Spec.Drivers {
		at := drivers.Index(i)
		c.driverName(at.Child("name"), d.Name)
		c.required(at.Child("nodeID"), d.NodeID)
		if len(d.NodeID) > maxNodeID {
			c.add(field.Invalid(at.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
		}
		if d.Allocatable != nil && d.Allocatable.Count != nil && *d.Allocatable.Count < 0 {
			c.add(field.Invalid(at.Child("allocatable", "count"), int64(*d.Allocatable.Count), "must be greater than or equal to 0").WithOrigin("minimum"))
		}
		if names.had(d.Name) {
			c.add(field.Duplicate(at.Child("name"), d.Name))
		}
		keys := earlier[string]{}
		for _, key := range d.TopologyKeys {
			c.required(at, key)
			if keys.had(key) {
				c.add(field.Duplicate(at, key))
			}
			c.qualified(at, key)
		}
	}
	if old == nil {
		return c.errs
	}
	now := map[string][]storagev1.CSINodeDriver{}
	for _, is := range n.Spec.Drivers {
		is.Allocatable = nil
		now[is.Name] = append(now[is.Name], is)
	}
	for _, was := range old.Spec.Drivers {
		was.Allocatable = nil
		for _, is := range now[was.Name] {
			if !equality.Semantic.DeepEqual(is, was) {
				c.add(field.Invalid(drivers, untagged{&is}, "field is immutable"))
			}
		}
	}
	return c.errs
}

func validateCSIStorageCapacity(s, old *storagev1.CSIStorageCapacity) field.ErrorList {
	topology, class := field.NewPath("nodeTopology"), field.NewPath("storageClassName")
	c := unlessOld(func(c *check, s *storagev1.CSIStorageCapacity) {
		c.youngSelector(selectorValues, s.NodeTopology, topology)
	}, s, old)
	c.subdomain(class, s.StorageClassName)
	if s.Capacity != nil {
		c.notNegative(field.NewPath("capacity"), *s.Capacity)
	}
	if old != nil {
		c.immutable(topology, s.NodeTopology, old.NodeTopology)
		c.immutable(class, s.StorageClassName, old.StorageClassName)
	}
	return c.errs
}

func warnCSIStorageCapacity(s, _ *storagev1.CSIStorageCapacity) []string {
	return warnNodeSelector(s.NodeTopology, field.NewPath("nodeTopology"))
}

// warnNodeSelector tells of old labels in a selector of nodes.
func warnNodeSelector(s *metav1.LabelSelector, at *field.Path) (texts []string) {
	if s == nil {
		return nil
	}
	for i, e := range s.MatchExpressions {
		if text, old := oldLabels[e.Key]; old {
			texts = append(texts, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), e.Key, text))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if text, old := oldLabels[name]; old {
			texts = append(texts, fmt.Sprintf("%s: %s", at.Child("matchLabels", name), text))
		}
	}
	return texts
}

func validateAttributesClass(class, old *storagev1.VolumeAttributesClass) field.ErrorList {
	c, driver, parameters := &check{}, field.NewPath("driverName"), field.NewPath("parameters")
	if old != nil {
		c.forbid(class.DriverName != old.DriverName, driver, "updates to driverName are forbidden.")
		c.forbid(!reflect.DeepEqual(class.Parameters, old.Parameters), parameters, "updates to parameters are forbidden.")
	}
	if c.required(driver, class.DriverName) {
		c.texts(driver, strings.ToLower(class.DriverName), validation.IsQualifiedName(strings.ToLower(class.DriverName)))
	}
	c.parameters(class.Parameters, true, parameters)
	return c.errs
}
