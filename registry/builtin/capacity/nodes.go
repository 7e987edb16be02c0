package capacity

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for nodes, and for the classes of what runs on them, in the order in which Kubernetes asks them.

const (
	taintsAnnotation    = "scheduler.alpha.kubernetes.io/taints"
	avoidPodsAnnotation = corev1.PreferAvoidPodsAnnotationKey
)

// defaultNode lets pods have all that a node has.
func defaultNode(n *corev1.Node) {
	line.RoundUp(n.Status.Capacity)
	line.RoundUp(n.Status.Allocatable)
	if n.Status.Allocatable == nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	s := &n.Spec // one field is the other's first element, and the older one counts
	if s.PodCIDR != "" && (len(s.PodCIDRs) == 0 || s.PodCIDRs[0] != s.PodCIDR) {
		s.PodCIDRs = []string{s.PodCIDR}
	}
	if len(s.PodCIDRs) > 0 {
		s.PodCIDR = s.PodCIDRs[0]
	}
}

// prepareNode drops what Kubernetes has no use for any more, or not yet.
func prepareNode(n, old *corev1.Node, subresource string) {
	if subresource == "status" {
		if old.Status.Config == nil {
			n.Status.Config = nil
		}
		return
	}
	if old == nil {
		n.Status.Config = nil
	}
	//lint:ignore SA1019 it's dropped, as kube-apiserver does
	if old == nil || old.Spec.ConfigSource == nil {
		//lint:ignore SA1019 it's dropped, as kube-apiserver does
		n.Spec.ConfigSource = nil
	}
	if old == nil || old.Spec.PodPreemptionPolicy == nil {
		n.Spec.PodPreemptionPolicy = nil
	}
}

func validateNode(n, old *corev1.Node) field.ErrorList {
	c := &check{}
	c.nodeAnnotations(n.Annotations)
	c.taints(n.Spec.Taints, field.NewPath("metadata", "taints")) // it's the spec's; Kubernetes says so
	c.nodeStatus(&n.Status)
	at := field.NewPath("spec", "podCIDRs")
	for i, cidr := range n.Spec.PodCIDRs {
		c.Add(validation.IsValidCIDRForLegacyField(at.Index(i), cidr, true, nil)...)
	}
	if cidrs := n.Spec.PodCIDRs; len(cidrs) > 1 {
		both, err := netutils.IsDualStackCIDRStrings(cidrs)
		if err != nil {
			c.Add(field.InternalError(at, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
		}
		c.Refuse(!both || len(cidrs) > 2, at, cidrs, "may specify no more than one CIDR for each IP family")
	}
	if old != nil {
		c.nodeUpdate(n, old)
	}
	return c.Errs
}

func validateNodeStatus(n, old *corev1.Node) field.ErrorList {
	c := &check{}
	c.nodeUpdate(n, old)
	return c.Errs
}

// check collects what is wrong with nodes and what bounds the use of them.
type check struct{ rules.Check }

func (c *check) nodeUpdate(n, old *corev1.Node) {
	c.nodeAnnotations(n.Annotations)
	c.nodeStatus(&n.Status)
	seen := rules.Earlier[corev1.NodeAddress]{}
	for i, a := range n.Status.Addresses {
		c.Twice(seen.Had(a), field.NewPath("status", "addresses").Index(i), rules.Untagged(a))
	}
	const once = `node updates may not change podCIDR except from "" to valid`
	was, is, at := old.Spec.PodCIDRs, n.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs")
	switch {
	case len(was) == 0:
	case len(was) != len(is):
		c.Add(field.Forbidden(at, once))
	default:
		for i := range was {
			c.Forbid(was[i] != is[i], at, once)
		}
	}
	switch at := field.NewPath("spec", "providerID"); {
	case old.Spec.ProviderID == "" || old.Spec.ProviderID == n.Spec.ProviderID:
	case n.Spec.ProviderID == "":
		c.Add(field.Invalid(at, nil, "field cannot be cleared once set"))
	default:
		c.Add(field.Invalid(at, nil, "field cannot be modified once set"))
	}
	c.taints(n.Spec.Taints, field.NewPath("metadata", "taints"))
	c.Forbid(n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID, field.NewPath("spec", "externalID"), "may not be updated")
}

// nodeAnnotations checks what older servers kept in annotations.
func (c *check) nodeAnnotations(annotations map[string]string) {
	at := field.NewPath("metadata", "annotations")
	if text := annotations[taintsAnnotation]; text != "" {
		var taints []corev1.Taint
		if err := json.Unmarshal([]byte(text), &taints); err != nil {
			c.Add(field.Invalid(at, taintsAnnotation, err.Error()))
		} else {
			c.taints(taints, at.Child(taintsAnnotation))
		}
	}
	if text := annotations[avoidPodsAnnotation]; text != "" {
		var avoid corev1.AvoidPods
		if err := json.Unmarshal([]byte(text), &avoid); err != nil {
			c.Add(field.Invalid(at.Child("AvoidPods"), avoidPodsAnnotation, err.Error()))
		}
		for i, entry := range avoid.PreferAvoidPods {
			at := at.Child(avoidPodsAnnotation).Index(i).Child("PodSignature")
			owner := entry.PodSignature.PodController
			if owner == nil {
				c.Add(field.Required(at, ""))
			} else if owner.Controller == nil || !*owner.Controller {
				c.Add(field.Invalid(at.Child("PodController").Child("Controller"), false, "must point to a controller"))
			}
		}
	}
}

func (c *check) taints(taints []corev1.Taint, list *field.Path) {
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := rules.Earlier[key]{}
	for i, t := range taints {
		at := list.Index(i)
		c.Add(metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		if texts := validation.IsValidLabelValue(t.Value); len(texts) > 0 {
			c.Add(field.Invalid(at.Child("value"), t.Value, strings.Join(texts, ";")))
		}
		c.Add(rules.OneOf(at.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		if seen.Had(key{t.Key, t.Effect}) {
			twice := field.Duplicate(at, rules.Untagged(t))
			twice.Detail = "taints must be unique by key and effect pair"
			c.Add(twice)
		}
	}
}

var declaredFeature = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

func (c *check) nodeStatus(s *corev1.NodeStatus) {
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"capacity", s.Capacity}, {"allocatable", s.Allocatable}} {
		for _, name := range slices.Sorted(maps.Keys(list.of)) {
			c.Add(validateQuantity(name, list.of[name], field.NewPath("status", list.name, string(name)))...)
		}
	}
	at := field.NewPath("status", "declaredFeatures")
	for i, feature := range s.DeclaredFeatures {
		if i > 0 {
			switch before := s.DeclaredFeatures[i-1]; {
			case before == feature:
				c.Add(field.Duplicate(at.Index(i), feature))
			case before > feature:
				c.Add(field.Invalid(at.Index(i), feature, "list must be sorted alphabetically"))
			}
		}
		switch {
		case len(feature) > validation.DNS1123SubdomainMaxLength:
			c.Add(field.Invalid(at.Index(i), feature, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", feature, validation.DNS1123SubdomainMaxLength)))
		case !declaredFeature.MatchString(feature):
			c.Add(field.Invalid(at.Index(i), feature, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", feature)))
		}
	}
}

func warnNode(n, _ *corev1.Node) (texts []string) {
	//lint:ignore SA1019 it's warned of
	if n.Spec.ConfigSource != nil {
		texts = append(texts, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		texts = append(texts, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		texts = append(texts, validation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return texts
}

func validateRuntimeClass(class, old *nodev1.RuntimeClass) field.ErrorList {
	c := &pods.PodCheck{Spec: &corev1.PodSpec{}}
	if handler := field.NewPath("handler"); class.Handler == "" {
		c.Add(field.Required(handler, "").MarkCoveredByDeclarative())
	} else {
		for _, text := range content.IsDNS1123Label(class.Handler) {
			c.Add(field.Invalid(handler, class.Handler, text).MarkCoveredByDeclarative())
		}
	}
	if class.Overhead != nil {
		c.Requirements(&corev1.ResourceRequirements{Limits: class.Overhead.PodFixed}, pods.ContainerResource, field.NewPath("overhead"))
	}
	if s, at := class.Scheduling, field.NewPath("scheduling"); s != nil {
		c.Add(metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		at = at.Child("tolerations")
		c.Spec.Tolerations = s.Tolerations
		c.Tolerations(at)
		seen := rules.Earlier[corev1.Toleration]{}
		for i, t := range s.Tolerations {
			key := corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}
			c.Twice(seen.Had(key), at.Index(i), rules.Untagged(t))
		}
	}
	if old != nil {
		c.DeclareImmutable(field.NewPath("handler"), class.Handler, old.Handler)
	}
	return c.All()
}

func warnRuntimeClass(class, _ *nodev1.RuntimeClass) (texts []string) {
	if class.Scheduling == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		if text, ok := rules.OldLabels[key]; ok {
			texts = append(texts, "scheduling.nodeSelector: "+text)
		}
	}
	return texts
}

func runtimeClassColumns() []registry.Column {
	return []registry.Column{column.Text("Handler", "handler", ""), column.Age()}
}

func nodeColumns() []registry.Column {
	info := corev1.NodeSystemInfo{}.SwaggerDoc()
	address := func(kind corev1.NodeAddressType) func(o any) any {
		return func(o any) any {
			for _, a := range column.AsList(column.At(o, "status.addresses")) {
				if column.At(a, "type") == string(kind) {
					return column.Str(column.At(a, "address"))
				}
			}
			return column.None
		}
	}
	unknown := func(name, path, description string) registry.Column {
		return column.Cell(name, description, func(o any) any { return column.Or(column.Str(column.At(o, path)), "<unknown>") })
	}
	addresses := corev1.NodeStatus{}.SwaggerDoc()["addresses"]
	return append([]registry.Column{
		column.Cell("Status", "The status of the node", nodeStatus),
		column.Cell("Roles", "The roles of the node", nodeRoles),
		column.Age(),
		column.Text("Version", "status.nodeInfo.kubeletVersion", info["kubeletVersion"]),
	}, column.Wide(
		column.Cell("Internal-IP", addresses, address(corev1.NodeInternalIP)),
		column.Cell("External-IP", addresses, address(corev1.NodeExternalIP)),
		unknown("OS-Image", "status.nodeInfo.osImage", info["osImage"]),
		column.Cell("Kernel-Version", info["kernelVersion"], func(o any) any {
			kernel := column.Or(column.Str(column.At(o, "status.nodeInfo.kernelVersion")), "<unknown>")
			if processor := column.Str(column.At(o, "status.nodeInfo.architecture")); processor != "" {
				kernel += " (" + processor + ")"
			}
			return kernel
		}),
		unknown("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", info["containerRuntimeVersion"]),
	)...)
}

func nodeStatus(o any) any {
	status := "Unknown"
	for _, c := range column.AsList(column.At(o, "status.conditions")) {
		if column.At(c, "type") == string(corev1.NodeReady) {
			if status = "NotReady"; column.At(c, "status") == "True" {
				status = "Ready"
			}
		}
	}
	if column.At(o, "spec.unschedulable") == true {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(o any) any {
	const prefix = "node-role.kubernetes.io/"
	labels := column.AsMap(column.At(o, "metadata.labels"))
	var roles []string
	for _, name := range column.SortedKeys(labels) {
		if role, ok := strings.CutPrefix(name, prefix); ok && role != "" {
			roles = append(roles, role)
		}
	}
	if role := column.Str(labels["kubernetes.io/role"]); role != "" {
		roles = append(roles, role)
	}
	slices.Sort(roles)
	return column.Or(strings.Join(slices.Compact(roles), ","), column.None)
}
