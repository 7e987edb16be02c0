package pods

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/volumes"
)

// What Kubernetes warns of in where pods run, and in the volumes that they have.

// deprecatedAnnotations are those that fields have replaced.
var deprecatedAnnotations = []struct{ name, text string }{
	{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

// placement warns of how nodes are chosen.
func (w *warner) placement(s *corev1.PodSpec, spec *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		if text, old := rules.OldLabels[name]; old {
			w.warn(spec.Child("nodeSelector").Key(name), "%s", text)
		}
	}
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		at := spec.Child("affinity", "nodeAffinity")
		if required := s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			for i := range required.NodeSelectorTerms {
				w.nodes(&required.NodeSelectorTerms[i], false, at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i))
			}
		}
		for i := range s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			preferred := &s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
			w.nodes(&preferred.Preference, true, at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"))
		}
	}
	for i, c := range s.TopologySpreadConstraints {
		at := spec.Child("topologySpreadConstraints").Index(i)
		if text, old := rules.OldLabels[c.TopologyKey]; old {
			w.warn(at.Child("topologyKey"), "%s is %s", c.TopologyKey, text)
		}
		if c.LabelSelector == nil {
			w.warn(at.Child("labelSelector"), noSelector)
		}
	}
}

// nodes warns of a term that selects nodes. What is required is refused for its values.
func (w *warner) nodes(t *corev1.NodeSelectorTerm, values bool, at *field.Path) {
	for i, e := range t.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		if text, old := rules.OldLabels[e.Key]; old {
			w.warn(at.Child("key"), "%s is %s", e.Key, text)
		}
		for j, value := range e.Values {
			if values {
				for _, why := range validation.IsValidLabelValue(value) {
					w.warn(at.Child("values").Index(j), "%s is invalid, %s", value, why)
				}
			}
		}
	}
}

func (w *warner) terms(at *field.Path, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	for i, t := range required {
		if t.LabelSelector == nil {
			w.warn(at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i).Child("labelSelector"), noSelector)
		}
	}
	for i, t := range preferred {
		if t.PodAffinityTerm.LabelSelector == nil {
			w.warn(at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm", "labelSelector"), noSelector)
		}
	}
}

// volumes warns of volumes that nothing mounts any more, and of files that have the same place.
func (w *warner) volumes(s *corev1.PodSpec, at *field.Path) {
	for i := range s.Volumes {
		v, at := &s.Volumes[i], at.Index(i)
		for _, old := range []struct {
			name string
			set  bool
			text string
		}{
			{"photonPersistentDisk", v.PhotonPersistentDisk != nil, "deprecated in v1.11, non-functional in v1.16+"},
			{"gitRepo", v.GitRepo != nil, "deprecated in v1.11, and disabled by default in v1.33+"},
			{"scaleIO", v.ScaleIO != nil, "deprecated in v1.16, non-functional in v1.22+"},
			{"flocker", v.Flocker != nil, "deprecated in v1.22, non-functional in v1.25+"},
			{"storageOS", v.StorageOS != nil, "deprecated in v1.22, non-functional in v1.25+"},
			{"quobyte", v.Quobyte != nil, "deprecated in v1.22, non-functional in v1.25+"},
			{"glusterfs", v.Glusterfs != nil, "deprecated in v1.25, non-functional in v1.26+"},
		} {
			if old.set {
				w.warn(at.Child(old.name), "%s", old.text)
			}
		}
		if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			w.texts = append(w.texts, volumes.WarnClaimSpec(&e.VolumeClaimTemplate.Spec, at.Child("ephemeral", "volumeClaimTemplate", "spec"))...)
		}
		const ceph = "deprecated in v1.28, non-functional in v1.31+"
		if v.CephFS != nil {
			w.warn(at.Child("cephfs"), ceph)
		}
		if v.RBD != nil {
			w.warn(at.Child("rbd"), ceph)
		}
	}
	for i := range s.Volumes {
		w.overlaps(&s.Volumes[i])
	}
}

// file is a place in a volume, and what is put there; "" where there's one source only.
type file struct{ path, source string }

func (f file) String() string {
	if f.source == "" {
		return strconv.Quote(f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// overlaps warns of files of a volume that are where another is, or below it.
func (w *warner) overlaps(v *corev1.Volume) {
	keys := func(items []corev1.KeyToPath, source string) (files []file) {
		for _, item := range items {
			files = append(files, file{item.Path, source})
		}
		return files
	}
	fields := func(items []corev1.DownwardAPIVolumeFile, source string) (files []file) {
		for _, item := range items {
			files = append(files, file{item.Path, source})
		}
		return files
	}
	switch {
	case v.ConfigMap != nil:
		w.together(v.Name, fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), keys(v.ConfigMap.Items, ""))
	case v.Secret != nil:
		w.together(v.Name, fmt.Sprintf("Secret %q", v.Secret.SecretName), keys(v.Secret.Items, ""))
	case v.DownwardAPI != nil:
		w.together(v.Name, "DownwardAPI", fields(v.DownwardAPI.Items, ""))
	case v.Projected != nil:
		var files []file
		for _, s := range v.Projected.Sources {
			switch {
			case s == corev1.VolumeProjection{}:
				w.texts = append(w.texts, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
			case s.ConfigMap != nil && s.ConfigMap.Items != nil:
				files = append(files, keys(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))...)
			case s.Secret != nil && s.Secret.Items != nil:
				files = append(files, keys(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))...)
			case s.DownwardAPI != nil && s.DownwardAPI.Items != nil:
				files = append(files, fields(s.DownwardAPI.Items, "DownwardAPI")...)
			case s.ServiceAccountToken != nil:
				files = append(files, file{s.ServiceAccountToken.Path, "ServiceAccountToken"})
			case s.ClusterTrustBundle != nil:
				name := ""
				if s.ClusterTrustBundle.Name != nil {
					name = *s.ClusterTrustBundle.Name
				} else if s.ClusterTrustBundle.SignerName != nil {
					name = *s.ClusterTrustBundle.SignerName
				}
				files = append(files, file{s.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", name)})
			case s.PodCertificate != nil:
				files = append(files, file{s.PodCertificate.CertificateChainPath, "PodCertificate chain"}, file{s.PodCertificate.KeyPath, "PodCertificate key"},
					file{s.PodCertificate.CredentialBundlePath, "PodCertificate credential bundle"})
			}
		}
		w.together(v.Name, "Projected", files)
	}
}

func (w *warner) together(volume, source string, files []file) {
	for i := range files {
		files[i].path = strings.TrimRight(files[i].path, "/")
	}
	files = overlapping(files)
	for i, f := range files {
		for _, other := range files[:i] {
			if w.full() {
				return
			}
			if strings.HasPrefix(other.path+"/", f.path+"/") || strings.HasPrefix(f.path+"/", other.path+"/") {
				w.texts = append(w.texts, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", volume, source, f, other))
			}
		}
	}
}

// overlapping returns the files that are where another is, or above or below one, in their order. It takes no time with the square of
// their number.
func overlapping(files []file) (found []file) {
	order := make([]int, 0, len(files))
	for i := range files {
		if files[i].path != "" {
			order = append(order, i)
		}
	}
	if len(order) < 2 {
		return nil
	}
	inside := func(i, j int) bool { return strings.HasPrefix(files[i].path+"/", files[j].path+"/") }
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(files[i].path+"/", files[j].path+"/") })
	overlaps := make([]bool, len(files))
	top := order[0] // what lies in it follows it
	for _, i := range order[1:] {
		if inside(i, top) {
			overlaps[i], overlaps[top] = true, true
		} else {
			top = i
		}
	}
	for i, is := range overlaps {
		if is {
			found = append(found, files[i])
		}
	}
	return found
}

// The rules for where pods run.

func (c *PodCheck) affinity(a *corev1.Affinity, at *field.Path) {
	if a == nil {
		return
	}
	if n := a.NodeAffinity; n != nil {
		at := at.Child("nodeAffinity")
		if required := n.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			c.NodeSelector(required, at.Child("requiredDuringSchedulingIgnoredDuringExecution"))
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			term, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
			c.weight(term.Weight, at)
			c.Nodes(&term.Preference, false, at.Child("preference"))
		}
	}
	if p := a.PodAffinity; p != nil {
		c.nearTo(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		c.nearTo(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
}

func (c *PodCheck) weight(weight int32, at *field.Path) {
	c.Refuse(weight <= 0 || weight > maxWeight, at.Child("weight"), weight, "must be in the range 1-100")
}

// nearTo checks the terms that select pods to be near to, or far from.
func (c *PodCheck) nearTo(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) {
	for i := range required {
		c.pods(&required[i], at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
	}
	for i := range preferred {
		at := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		c.weight(preferred[i].Weight, at)
		c.pods(&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))
	}
}

func (c *PodCheck) pods(t *corev1.PodAffinityTerm, at *field.Path) {
	c.YoungSelector(rules.AffinityValues, t.LabelSelector, at.Child("labelSelector"))
	c.YoungSelector(rules.AffinityValues, t.NamespaceSelector, at.Child("namespaceSelector"))
	for _, name := range t.Namespaces {
		c.Label(at.Child("namespace"), name)
	}
	c.labelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, at)
	c.Lack(t.TopologyKey == "", at.Child("topologyKey"), "can not be empty")
	c.Add(metavalidation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
}

// labelKeys checks the labels by whose values pods are selected that have the same as this one, or another.
func (c *PodCheck) labelKeys(match, mismatch []string, selector *metav1.LabelSelector, at *field.Path) {
	for _, group := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		if len(group.keys) > 0 && selector == nil {
			c.Add(field.Forbidden(at.Child(group.name), "must not be specified when labelSelector is not set"))
			continue
		}
		for i, key := range group.keys {
			c.Add(metavalidation.ValidateLabelName(key, at.Child(group.name).Index(i))...)
		}
	}
	if selector != nil {
		for n, e := range selector.MatchExpressions {
			_, known := selector.MatchLabels[e.Key]
			known = known || slices.ContainsFunc(selector.MatchExpressions[:n], func(other metav1.LabelSelectorRequirement) bool { return other.Key == e.Key })
			if i := slices.Index(match, e.Key); i >= 0 && known {
				c.Add(field.Invalid(at.Index(i), e.Key, "exists in both matchLabelKeys and labelSelector"))
			}
		}
	}
	for i, key := range match {
		c.Refuse(slices.Contains(mismatch, key), at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")
	}
}

// spread checks how evenly pods are to be spread.
func (c *PodCheck) spread(at *field.Path) {
	all := c.Spec.TopologySpreadConstraints
	for i := range all {
		s, at := &all[i], at.Index(i)
		c.Refuse(s.MaxSkew <= 0, at.Child("maxSkew"), s.MaxSkew, "must be greater than zero")
		c.Lack(s.TopologyKey == "", at.Child("topologyKey"), "can not be empty")
		rules.Among(c, at.Child("whenUnsatisfiable"), &s.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		if slices.ContainsFunc(all[i+1:], func(other corev1.TopologySpreadConstraint) bool {
			return other.TopologyKey == s.TopologyKey && other.WhenUnsatisfiable == s.WhenUnsatisfiable
		}) {
			c.Add(field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", s.TopologyKey, s.WhenUnsatisfiable)))
		}
		if n := s.MinDomains; n != nil {
			c.Refuse(*n <= 0, at.Child("minDomains"), *n, "must be greater than zero")
			if s.WhenUnsatisfiable != corev1.DoNotSchedule {
				c.Add(field.Invalid(at.Child("minDomains"), *n, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, s.WhenUnsatisfiable)))
			}
		}
		rules.Among(c, at.Child("nodeAffinityPolicy"), s.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		rules.Among(c, at.Child("nodeTaintsPolicy"), s.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		c.labelKeys(s.MatchLabelKeys, nil, s.LabelSelector, at)
		c.Young(rules.SpreadSelectors, metavalidation.ValidateLabelSelector(s.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	}
}
