package volumes

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
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules of the group storage.k8s.io.

const (
	MinTokenLife          int64 = 10 * 60 // seconds
	MaxTokenLife          int64 = 1 << 32 // seconds
	maxParameters               = 512
	maxParametersSize           = 256 << 10 // bytes
	maxAttachmentMetadata       = 256 << 10 // bytes
	maxVolumeError              = 1024      // bytes
	maxNodeID                   = 256       // bytes
	minAllocatablePeriod        = 10        // seconds
)

// parameters checks what a class hands to a driver. needed wants some.
func (c *Check) parameters(all map[string]string, needed bool, at *field.Path) {
	if len(all) > maxParameters {
		c.Add(field.TooLong(at, "", maxParameters))
		return
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c.Refuse(name == "", at, name, "field can not be empty.")
		size += len(name) + len(all[name])
	}
	c.NoLonger(at, size, maxParametersSize)
	c.Lack(needed && len(all) == 0, at, "must contain at least one key/value pair")
}

func validateStorageClass(class, old *storagev1.StorageClass) field.ErrorList {
	c, provisioner := &Check{}, field.NewPath("provisioner")
	if class.Provisioner != "" {
		c.Texts(provisioner, strings.ToLower(class.Provisioner), validation.IsQualifiedName(strings.ToLower(class.Provisioner)))
	}
	c.parameters(class.Parameters, false, field.NewPath("parameters"))
	if class.ReclaimPolicy != nil && *class.ReclaimPolicy != "" {
		rules.Among(c, field.NewPath("reclaimPolicy"), class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	}
	rules.Among(c, field.NewPath("volumeBindingMode"), class.VolumeBindingMode, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)
	c.topologies(class.AllowedTopologies, field.NewPath("allowedTopologies"))
	c.Required(provisioner, class.Provisioner)
	if old != nil {
		c.DeclareImmutable(provisioner, class.Provisioner, old.Provisioner)
		c.DeclareImmutable(field.NewPath("parameters"), class.Parameters, old.Parameters)
		c.DeclareImmutable(field.NewPath("reclaimPolicy"), class.ReclaimPolicy, old.ReclaimPolicy)
		c.DeclareImmutable(field.NewPath("volumeBindingMode"), class.VolumeBindingMode, old.VolumeBindingMode)
	}
	return c.All()
}

func (c *Check) topologies(terms []corev1.TopologySelectorTerm, at *field.Path) {
	// Kubernetes' list begins with as many empty terms as there are, so that each empty one is a duplicate.
	known := rules.Earlier[string]{"": true}
	for i, term := range terms {
		at := at.Index(i).Child("matchLabelExpressions")
		values := map[string]sets.Set[string]{}
		for j, e := range term.MatchLabelExpressions {
			at := at.Index(j)
			of := sets.New[string]()
			c.Lack(len(e.Values) == 0, at.Child("values"), "")
			for k, value := range e.Values {
				c.Twice(of.Has(value), at.Child("values").Index(k), value)
				of.Insert(value)
			}
			c.Qualified(at.Child("key"), e.Key)
			c.Twice(values[e.Key] != nil, at.Child("key"), e.Key)
			values[e.Key] = of
		}
		c.Twice(known.Had(topology(values)), at, "")
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
			if text, old := rules.OldLabels[e.Key]; old {
				texts = append(texts, fmt.Sprintf("%s: %s", field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"), text))
			}
		}
	}
	return texts
}

func validateVolumeAttachment(a, old *storagev1.VolumeAttachment) field.ErrorList {
	c, spec := &Check{}, field.NewPath("spec")
	source := spec.Child("source")
	switch s := &a.Spec.Source; {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		c.Add(field.Required(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		c.Add(field.Forbidden(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case s.PersistentVolumeName == nil:
		c.volumeSpec(s.InlineVolumeSpec, "", true, source.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		c.Add(field.Required(source.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
	}
	c.Subdomain(spec.Child("nodeName"), a.Spec.NodeName)
	status, size := field.NewPath("status"), 0
	for name, value := range a.Status.AttachmentMetadata {
		size += len(name) + len(value)
	}
	c.NoLonger(status.Child("attachmentMetadata"), size, maxAttachmentMetadata)
	c.volumeError(a.Status.AttachError, status.Child("attachError"))
	c.volumeError(a.Status.DetachError, status.Child("detachError"))
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		c.Subdomain(field.NewPath("spec.source.persistentVolumeName"), *name)
	}
	if old != nil && !equality.Semantic.DeepEqual(a.Spec, old.Spec) {
		c.DeclareImmutable(spec, a.Spec, old.Spec)
		return c.All()
	}
	//lint:ignore SA1019 kube-apiserver takes such names of drivers
	rules.Needed(c, spec.Child("attacher"), a.Spec.Attacher, rules.OrEmpty(old).Spec.Attacher, validate.LongNameCaseless, rules.AtMost[string](rules.MaxDriverName))
	return c.All()
}

func (c *Check) volumeError(e *storagev1.VolumeError, at *field.Path) {
	if e == nil {
		return
	}
	c.NoLonger(at.Child("message"), len(e.Message), maxVolumeError)
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		c.Add(field.Invalid(at.Child("errorCode"), *e.ErrorCode, validation.InclusiveRangeError(0, math.MaxInt32)))
	}
}

func validateCSIDriver(d, old *storagev1.CSIDriver) field.ErrorList {
	c, spec, s := &Check{}, field.NewPath("spec"), &d.Spec
	rules.Among(c, spec.Child("fsGroupPolicy"), s.FSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	audiences := rules.Earlier[string]{}
	for i, r := range s.TokenRequests {
		at := spec.Child("tokenRequests").Index(i)
		switch seconds := r.ExpirationSeconds; {
		case audiences.Had(r.Audience):
			c.Add(field.Duplicate(at.Child("audience"), r.Audience))
		case seconds == nil:
		case *seconds < MinTokenLife:
			c.Add(field.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration less than 10 minutes"))
		case *seconds > MaxTokenLife:
			c.Add(field.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	for i := range s.VolumeLifecycleModes {
		rules.Among(c, spec.Child("volumeLifecycleModes"), &s.VolumeLifecycleModes[i], storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)
	}
	if n := s.NodeAllocatableUpdatePeriodSeconds; n != nil && *n < minAllocatablePeriod {
		c.Add(field.Invalid(spec.Child("nodeAllocatableUpdatePeriodSeconds"), *n, "must be greater than or equal to 10 seconds"))
	}
	c.Refuse(s.ServiceAccountTokenInSecrets != nil && len(s.TokenRequests) == 0, spec.Child("serviceAccountTokenInSecrets"), s.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified")
	if old != nil {
		c.Immutable(spec.Child("attachedRequired"), s.AttachRequired, old.Spec.AttachRequired)
		c.Immutable(spec.Child("volumeLifecycleModes"), s.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)
	}
	return c.Errs
}

// countCSIDriver counts the changes of a driver, from what its author says.
func countCSIDriver(obj, old registry.Typed) int64 {
	if before, _ := old.(*storagev1.CSIDriver); before == nil {
		return obj.GetObjectMeta().GetGeneration()
	}
	return line.Counted(func(d, old *storagev1.CSIDriver) bool { return !equality.Semantic.DeepEqual(d.Spec, old.Spec) })(obj, old)
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
	c, drivers := &Check{}, field.NewPath("spec", "drivers")
	names := rules.Earlier[string]{}
	for i, d := range n.Spec.Drivers {
		at := drivers.Index(i)
		c.DriverName(at.Child("name"), d.Name)
		c.Required(at.Child("nodeID"), d.NodeID)
		if len(d.NodeID) > maxNodeID {
			c.Add(field.Invalid(at.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
		}
		if d.Allocatable != nil && d.Allocatable.Count != nil && *d.Allocatable.Count < 0 {
			c.Add(field.Invalid(at.Child("allocatable", "count"), int64(*d.Allocatable.Count), "must be greater than or equal to 0").WithOrigin("minimum"))
		}
		c.Twice(names.Had(d.Name), at.Child("name"), d.Name)
		keys := rules.Earlier[string]{}
		for _, key := range d.TopologyKeys {
			c.Required(at, key)
			c.Twice(keys.Had(key), at, key)
			c.Qualified(at, key)
		}
	}
	if old == nil {
		return c.Errs
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
				c.Add(field.Invalid(drivers, rules.Untagged(&is), "field is immutable"))
			}
		}
	}
	return c.Errs
}

func validateCSIStorageCapacity(s, old *storagev1.CSIStorageCapacity) field.ErrorList {
	topology, class := field.NewPath("nodeTopology"), field.NewPath("storageClassName")
	c := rules.UnlessOld(func(c *Check, s *storagev1.CSIStorageCapacity) {
		c.YoungSelector(rules.SelectorValues, s.NodeTopology, topology)
	}, s, old)
	c.Subdomain(class, s.StorageClassName)
	if s.Capacity != nil {
		c.NotNegative(field.NewPath("capacity"), *s.Capacity)
	}
	if old != nil {
		c.Immutable(topology, s.NodeTopology, old.NodeTopology)
		c.Immutable(class, s.StorageClassName, old.StorageClassName)
	}
	return c.Errs
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
		if text, old := rules.OldLabels[e.Key]; old {
			texts = append(texts, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), e.Key, text))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if text, old := rules.OldLabels[name]; old {
			texts = append(texts, fmt.Sprintf("%s: %s", at.Child("matchLabels", name), text))
		}
	}
	return texts
}

func validateAttributesClass(class, old *storagev1.VolumeAttributesClass) field.ErrorList {
	c, driver, parameters := &Check{}, field.NewPath("driverName"), field.NewPath("parameters")
	if old != nil {
		c.Forbid(class.DriverName != old.DriverName, driver, "updates to driverName are forbidden.")
		c.Forbid(!reflect.DeepEqual(class.Parameters, old.Parameters), parameters, "updates to parameters are forbidden.")
	}
	if c.Required(driver, class.DriverName) {
		c.Texts(driver, strings.ToLower(class.DriverName), validation.IsQualifiedName(strings.ToLower(class.DriverName)))
	}
	c.parameters(class.Parameters, true, parameters)
	return c.Errs
}
