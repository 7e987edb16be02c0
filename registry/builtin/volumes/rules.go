package volumes

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for PersistentVolumes, in the order in which Kubernetes asks them.

// volumeSource is what a PersistentVolume can be of.
type volumeSource struct {
	name  string // as a refusal of a second one calls it
	set   func(s *corev1.PersistentVolumeSource) bool
	check func(c *Check, s *corev1.PersistentVolumeSpec, volume string, at *field.Path) // at is the spec's path
}

// Check collects what is wrong with volumes and what asks for them.
type Check struct{ rules.Check }

// accessModes checks how a volume may be mounted, and of a claim how it is to be.
func (c *Check) accessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) {
	known := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	others := false
	for i := range modes {
		rules.Among(c, at, &modes[i], known...)
		others = others || modes[i] != corev1.ReadWriteOncePod && slices.Contains(known, modes[i])
	}
	c.Forbid(others && slices.Contains(modes, corev1.ReadWriteOncePod), at, "may not use ReadWriteOncePod with other access modes")
}

// storageClass checks the name of a class, if one is named.
func (c *Check) storageClass(at *field.Path, name string) {
	if name != "" {
		c.Subdomain(at, name)
	}
}

// volumeSpec checks what a volume is. inline is that of a VolumeAttachment, which isn't bound to a claim.
func (c *Check) volumeSpec(s *corev1.PersistentVolumeSpec, volume string, inline bool, at *field.Path) {
	const inInline = " in the context of inline volumes"
	forbid := func(name string, is bool) {
		c.Forbid(is, at.Child(name), "may not be specified"+inInline)
	}
	if inline {
		forbid("claimRef", s.ClaimRef != nil)
		forbid("capacity", len(s.Capacity) > 0)
		c.Lack(s.CSI == nil, at.Child("csi"), "has to be specified"+inInline)
	}
	c.Lack(len(s.AccessModes) == 0, at.Child("accessModes"), "")
	c.accessModes(s.AccessModes, at.Child("accessModes"))
	if !inline {
		c.volumeCapacity(s.Capacity, at.Child("capacity"))
	}
	switch policy := s.PersistentVolumeReclaimPolicy; {
	case policy == "":
	case !inline:
		rules.Among(c, at.Child("persistentVolumeReclaimPolicy"), &policy, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	case policy != corev1.PersistentVolumeReclaimRetain:
		c.Add(field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may only be Retain"+inInline))
	}
	if inline {
		forbid("nodeAffinity", s.NodeAffinity != nil)
	} else {
		c.volumeNodes(s.NodeAffinity, at.Child("nodeAffinity"))
	}
	c.volumeSource(s, volume, at)
	c.Forbid(s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle, at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	if inline {
		forbid("storageClassName", s.StorageClassName != "")
	} else {
		c.storageClass(at.Child("storageClassName"), s.StorageClassName)
	}
	switch {
	case !inline:
		rules.Among(c, at.Child("volumeMode"), s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	case s.VolumeMode != nil && *s.VolumeMode != corev1.PersistentVolumeFilesystem:
		c.Add(field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than Filesystem"+inInline))
	}
	if class := s.VolumeAttributesClassName; class != nil && !inline {
		if *class == "" {
			c.Add(field.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed"))
		} else {
			c.Subdomain(at.Child("volumeAttributesClassName"), *class)
		}
		c.Lack(s.CSI == nil, at.Child("csi"), "has to be specified when using volumeAttributesClassName")
	}
}

func (c *Check) volumeCapacity(capacity corev1.ResourceList, at *field.Path) {
	c.Lack(len(capacity) == 0, at, "")
	if _, ok := capacity[corev1.ResourceStorage]; !ok || len(capacity) > 1 {
		c.Add(field.NotSupported(at, capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		q, at := capacity[name], at.Key(string(name))
		if q.Sign() < 0 {
			c.Add(field.Invalid(at, q.Value(), "must be a valid resource quantity"))
		}
		if q.Sign() <= 0 {
			c.Add(field.Invalid(at, q.String(), "must be greater than zero"))
		}
	}
}

func (c *Check) volumeNodes(a *corev1.VolumeNodeAffinity, at *field.Path) {
	switch {
	case a == nil:
	case a.Required == nil:
		c.Add(field.Required(at.Child("required"), "must specify required node constraints"))
	default:
		c.NodeSelector(a.Required, at.Child("required"))
	}
}

func (c *Check) volumeSource(s *corev1.PersistentVolumeSpec, volume string, at *field.Path) {
	one := false
	for _, source := range volumeSources {
		switch set := source.set(&s.PersistentVolumeSource); {
		case set && one && source.name != "flexVolume": // of which Kubernetes doesn't mind a second one
			c.Add(field.Forbidden(at.Child(source.name), "may not specify more than 1 volume type"))
		case set:
			one = true
			source.check(c, s, volume, at)
		}
	}
	c.Lack(!one, at, "must specify a volume type")
}

// mountable tells whether a volume's type takes options of a mount.
func mountable(s *corev1.PersistentVolumeSource) bool {
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil || s.RBD != nil || s.Quobyte != nil || s.ISCSI != nil ||
		s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil || s.VsphereVolume != nil || s.AzureDisk != nil || s.PhotonPersistentDisk != nil
}

func validatePersistentVolume(v, old *corev1.PersistentVolume) field.ErrorList {
	c := rules.UnlessOld(func(c *Check, v *corev1.PersistentVolume) {
		c.volumeSpec(&v.Spec, v.Name, false, field.NewPath("spec"))
	}, v, old)
	if _, ok := v.Annotations[corev1.MountOptionAnnotation]; ok && !mountable(&v.Spec.PersistentVolumeSource) {
		c.Add(field.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation), "may not specify mount options for this volume type"))
	}
	if old == nil {
		return c.Errs
	}
	now, was := v.Spec.PersistentVolumeSource.DeepCopy(), &old.Spec.PersistentVolumeSource
	if was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil && now.CSI != nil {
		now.CSI.ControllerExpandSecretRef = nil // which may come later
	}
	if !equality.Semantic.DeepEqual(now, was) {
		c.Add(field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\n"+diff.Diff(rules.Untagged(was), rules.Untagged(now))))
	}
	c.Add(apivalidation.ValidateImmutableField(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	c.Refuse(old.Spec.NodeAffinity != nil && !equality.Semantic.DeepEqual(renamedNodes(old.Spec.NodeAffinity, v.Spec.NodeAffinity), v.Spec.NodeAffinity), field.NewPath("nodeAffinity"), rules.Untagged(v.Spec.NodeAffinity), "field is immutable, except for updating from beta label to GA")
	c.Forbid(old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil, field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
	return c.Errs
}

// warnNodes tells of old labels in a term that selects nodes.
func warnNodes(term *corev1.NodeSelectorTerm, at *field.Path) (texts []string) {
	for i, e := range term.MatchExpressions {
		if text, old := rules.OldLabels[e.Key]; old {
			texts = append(texts, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), e.Key, text))
		}
	}
	return texts
}

// stableLabels are the labels of nodes that have a new name, by the old one.
var stableLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os": corev1.LabelOSStable, "beta.kubernetes.io/arch": corev1.LabelArchStable, corev1.LabelInstanceType: corev1.LabelInstanceTypeStable,
}

// renamedNodes returns what selects a volume's nodes with the new names of labels where now has them.
func renamedNodes(was, now *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	if was.Required == nil || now == nil || now.Required == nil || len(was.Required.NodeSelectorTerms) != len(now.Required.NodeSelectorTerms) {
		return was
	}
	was = was.DeepCopy()
	for i, term := range was.Required.NodeSelectorTerms {
		for j := range term.MatchExpressions {
			next := now.Required.NodeSelectorTerms[i].MatchExpressions
			if e := &term.MatchExpressions[j]; j < len(next) && stableLabels[e.Key] == next[j].Key { // a label that isn't renamed may lose its key
				e.Key = next[j].Key
			}
		}
	}
	return was
}

// prepareVolume notes when a volume's phase has changed.
func prepareVolume(c *clock.Clock) func(v, old *corev1.PersistentVolume, subresource string) {
	now := func() *metav1.Time { return new(metav1.NewTime(c.Now()).Rfc3339Copy()) }
	return func(v, old *corev1.PersistentVolume, subresource string) {
		switch {
		case old == nil:
			v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: now()}
		case subresource != "status":
		case v.Status.Phase == old.Status.Phase:
			v.Status.LastPhaseTransitionTime = cmp.Or(v.Status.LastPhaseTransitionTime, old.Status.LastPhaseTransitionTime)
		case v.Status.LastPhaseTransitionTime == nil || v.Status.LastPhaseTransitionTime.Equal(old.Status.LastPhaseTransitionTime):
			v.Status.LastPhaseTransitionTime = now()
		}
	}
}

func warnVolume(v, _ *corev1.PersistentVolume) (texts []string) {
	for _, old := range []struct{ name, text string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, ok := v.Annotations[old.name]; ok {
			texts = append(texts, fmt.Sprintf("metadata.annotations[%s]: %s", old.name, old.text))
		}
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		texts = append(texts, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i := range a.Required.NodeSelectorTerms {
			texts = append(texts, warnNodes(&a.Required.NodeSelectorTerms[i], field.NewPath("spec", "nodeAffinity", "required", "nodeSelectorTerms").Index(i))...)
		}
	}
	return append(texts, warnSources(&v.Spec)...)
}

// warnSources tells of sources that nothing mounts any more.
func warnSources(s *corev1.PersistentVolumeSpec) (texts []string) {
	for _, gone := range []struct {
		set              bool
		name, since, end string
	}{
		{s.CephFS != nil, "cephfs", "1.28", "1.31"}, {s.PhotonPersistentDisk != nil, "photonPersistentDisk", "1.11", "1.16"},
		{s.ScaleIO != nil, "scaleIO", "1.16", "1.22"}, {s.StorageOS != nil, "storageOS", "1.22", "1.25"},
		{s.Glusterfs != nil, "glusterfs", "1.25", "1.26"}, {s.RBD != nil, "rbd", "1.28", "1.31"},
	} {
		if gone.set {
			texts = append(texts, fmt.Sprintf("spec.%s: deprecated in v%s, non-functional in v%s+", gone.name, gone.since, gone.end))
		}
	}
	return texts
}
