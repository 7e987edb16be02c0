package builtin

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules for the spec of a pod, which those of templates are too, in the order in which Kubernetes' ValidatePodSpec asks them: the
// order is that of a refusal's causes. What a feature gate guards that is off by default there is as if it were off.

// The most of some lists and texts.
const (
	maxNameservers      = 3
	maxSearchPaths      = 32
	maxSearchCharacters = 2048 // with a space between two
	maxHostnameOverride = 64   // characters, as Linux has
	maxRestartRules     = 20
	maxExitCodes        = 255
	maxSysctl           = 253  // characters
	maxAppArmorProfile  = 4095 // bytes: a path that Linux takes
	maxWeight           = 100
)

// podCheck collects what is wrong with the spec of a pod, and keeps what its parts know of each other.
type podCheck struct {
	check
	spec    *corev1.PodSpec
	pod     *metav1.ObjectMeta        // nil for a template
	volumes map[string]*corev1.Volume // those that nothing is wrong with, by name
	claims  map[string]bool           // the names of resourceClaims
}

// validatePodSpec checks the spec of a pod, or of a template if pod is nil.
func validatePodSpec(s *corev1.PodSpec, pod *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	c := &podCheck{spec: s, pod: pod}
	c.checkVolumes(at.Child("volumes"))
	c.resourceClaims(at.Child("resourceClaims"))
	c.containers(at.Child("containers"))
	c.initContainers(at.Child("initContainers"))
	c.ephemeralContainers(at.Child("ephemeralContainers"))
	c.podResources(at.Child("resources"))
	c.hostPorts(at.Child("containers"))
	c.add(oneOf(at.Child("restartPolicy"), s.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	c.add(oneOf(at.Child("dnsPolicy"), s.DNSPolicy, corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	c.add(metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
	c.podSecurity(s.SecurityContext, at.Child("securityContext"))
	if s.ShareProcessNamespace != nil && s.HostPID && *s.ShareProcessNamespace {
		c.add(field.Invalid(at.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	c.affinity(s.Affinity, at.Child("affinity"))
	c.dns(at.Child("dnsConfig"))
	for i, gate := range s.ReadinessGates {
		c.texts(at.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName(string(gate.ConditionType)))
	}
	c.schedulingGates(at.Child("schedulingGates"))
	c.spread(at.Child("topologySpreadConstraints"))
	c.hostProcesses(at)
	c.hostUsers(at)
	c.hostname(at)
	if s.ServiceAccountName != "" {
		c.subdomain(at.Child("serviceAccountName"), s.ServiceAccountName)
	}
	if s.NodeName != "" {
		c.subdomain(at.Child("nodeName"), s.NodeName)
	}
	if n := s.ActiveDeadlineSeconds; n != nil && (*n < 1 || *n > math.MaxInt32) {
		c.add(field.Invalid(at.Child("activeDeadlineSeconds"), *n, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if s.Hostname != "" {
		c.label(at.Child("hostname"), s.Hostname)
	}
	if s.Subdomain != "" {
		c.label(at.Child("subdomain"), s.Subdomain)
	}
	c.tolerations(at.Child("tolerations"))
	for i, alias := range s.HostAliases {
		at := at.Child("hostAliases").Index(i)
		c.add(validation.IsValidIPForLegacyField(at.Child("ip"), alias.IP, true, nil)...)
		for j, name := range alias.Hostnames {
			c.subdomain(at.Child("hostnames").Index(j), name)
		}
	}
	if s.PriorityClassName != "" {
		c.subdomain(at.Child("priorityClassName"), s.PriorityClassName)
	}
	if s.RuntimeClassName != nil {
		c.subdomain(at.Child("runtimeClassName"), *s.RuntimeClassName)
	}
	if s.PreemptionPolicy != nil {
		c.add(oneOf(at.Child("preemptionPolicy"), *s.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	if s.Overhead != nil {
		c.requirements(&corev1.ResourceRequirements{Limits: s.Overhead}, containerResource, at.Child("overhead"))
	}
	c.os(at)
	c.fileKeys(at)
	return c.errs
}

// resourceClaims checks the claims of a pod, and keeps their names.
func (c *podCheck) resourceClaims(at *field.Path) {
	for i, claim := range c.spec.ResourceClaims {
		at := at.Index(i)
		switch {
		case !c.required(at.Child("name"), claim.Name):
		case c.claims[claim.Name]:
			c.add(field.Duplicate(at.Child("name"), claim.Name))
		default:
			c.label(at.Child("name"), claim.Name)
			if c.claims == nil {
				c.claims = map[string]bool{}
			}
			c.claims[claim.Name] = true
		}
		switch named, made := claim.ResourceClaimName != nil, claim.ResourceClaimTemplateName != nil; {
		case named && made:
			c.add(field.Invalid(at, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case !named && !made:
			c.add(field.Invalid(at, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if claim.ResourceClaimName != nil {
			c.subdomain(at.Child("resourceClaimName"), *claim.ResourceClaimName)
		}
		if claim.ResourceClaimTemplateName != nil {
			c.subdomain(at.Child("resourceClaimTemplateName"), *claim.ResourceClaimTemplateName)
		}
	}
}

func (c *podCheck) containers(at *field.Path) {
	all := c.spec.Containers
	if len(all) == 0 {
		c.add(field.Required(at, ""))
	}
	known := earlier[string]{}
	for i := range all {
		o, at := &all[i], at.Index(i)
		c.container(o, at)
		if known.had(o.Name) {
			c.add(field.Duplicate(at.Child("name"), o.Name))
		}
		c.lifecycle(o.Lifecycle, at.Child("lifecycle"))
		c.probes(o, at)
		c.restart(o, at)
	}
	c.uniqueHostPorts(all, at)
}

func (c *podCheck) initContainers(at *field.Path) {
	all := c.spec.InitContainers
	containers, known := namesOf(c.spec.Containers), earlier[string]{}
	for i := range all {
		o, listed, at := &all[i], at, at.Index(i)
		c.container(o, at)
		c.restart(o, at)
		if containers.Has(o.Name) || o.Name != "" && known.had(o.Name) {
			c.add(field.Duplicate(at.Child("name"), o.Name))
		}
		c.uniqueHostPorts(all[i:i+1], listed)
		if goesOn(o) {
			c.lifecycle(o.Lifecycle, at.Child("lifecycle"))
			c.probes(o, at)
			continue
		}
		for _, part := range []struct {
			name string
			set  bool
		}{{"lifecycle", o.Lifecycle != nil}, {"livenessProbe", o.LivenessProbe != nil}, {"readinessProbe", o.ReadinessProbe != nil}, {"startupProbe", o.StartupProbe != nil}} {
			if part.set {
				c.add(field.Forbidden(at.Child(part.name), "may not be set for init containers without restartPolicy=Always"))
			}
		}
		for j, p := range o.ResizePolicy {
			if p.RestartPolicy == corev1.RestartContainer {
				c.add(field.Invalid(at.Child("resizePolicy").Index(j).Child("restartPolicy"), p.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers"))
			}
		}
	}
}

// goesOn tells whether an init container goes on beside those that start later.
func goesOn(o *corev1.Container) bool {
	return o.RestartPolicy != nil && *o.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// namesOf are the names of containers.
func namesOf(lists ...[]corev1.Container) sets.Set[string] {
	names := sets.New[string]()
	for _, list := range lists {
		for i := range list {
			names.Insert(list[i].Name)
		}
	}
	return names
}

func (c *podCheck) ephemeralContainers(at *field.Path) {
	others, known := namesOf(c.spec.Containers, c.spec.InitContainers), earlier[string]{}
	for i := range c.spec.EphemeralContainers {
		e, at := &c.spec.EphemeralContainers[i], at.Index(i)
		o := (*corev1.Container)(&e.EphemeralContainerCommon)
		c.container(o, at)
		c.trimmed(o, at)
		if others.Has(e.Name) || known.had(e.Name) {
			c.add(field.Duplicate(at.Child("name"), e.Name))
		}
		if e.TargetContainerName != "" && !others.Has(e.TargetContainerName) {
			c.add(field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
		}
		for _, part := range []struct {
			name string
			set  bool
		}{
			{"ports", o.Ports != nil}, {"resources", o.Resources.Limits != nil || o.Resources.Requests != nil || o.Resources.Claims != nil}, {"resizePolicy", o.ResizePolicy != nil},
			{"restartPolicy", o.RestartPolicy != nil}, {"restartPolicyRules", o.RestartPolicyRules != nil}, {"livenessProbe", o.LivenessProbe != nil},
			{"readinessProbe", o.ReadinessProbe != nil}, {"startupProbe", o.StartupProbe != nil}, {"lifecycle", o.Lifecycle != nil},
		} {
			if part.set {
				c.add(field.Forbidden(at.Child(part.name), "cannot be set for an Ephemeral Container"))
			}
		}
		for j, m := range o.VolumeMounts {
			at := at.Child("volumeMounts").Index(j)
			if m.SubPath != "" {
				c.add(field.Forbidden(at.Child("subPath"), "cannot be set for an Ephemeral Container"))
			}
			if m.SubPathExpr != "" {
				c.add(field.Forbidden(at.Child("subPathExpr"), "cannot be set for an Ephemeral Container"))
			}
		}
	}
}

// trimmed wants the image of a pod's container to be without white space around it. Templates may have that.
func (c *podCheck) trimmed(o *corev1.Container, at *field.Path) {
	if o.Image != strings.TrimSpace(o.Image) {
		c.add(field.Invalid(at.Child("image"), o.Image, "must not have leading or trailing whitespace"))
	}
}

// container checks what all kinds of containers have.
func (c *podCheck) container(o *corev1.Container, at *field.Path) {
	if c.required(at.Child("name"), o.Name) {
		c.label(at.Child("name"), o.Name)
	}
	c.required(at.Child("image"), o.Image)
	c.add(oneOf(at.Child("terminationMessagePolicy"), o.TerminationMessagePolicy, corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	c.add(validateContainerPorts(o.Ports, at.Child("ports"))...)
	c.env(o.Env, at.Child("env"))
	c.envFrom(o.EnvFrom, at.Child("envFrom"))
	c.mounts(o, at.Child("volumeMounts"))
	c.devices(o, at.Child("volumeDevices"))
	c.add(oneOf(at.Child("imagePullPolicy"), o.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	c.requirements(&o.Resources, containerResource, at.Child("resources"))
	c.resizePolicy(o.ResizePolicy, at.Child("resizePolicy"))
	c.security(o.SecurityContext, at.Child("securityContext"))
}

func (c *podCheck) env(vars []corev1.EnvVar, at *field.Path) {
	for i := range vars {
		v, at := &vars[i], at.Index(i)
		if c.required(at.Child("name"), v.Name) {
			c.texts(at.Child("name"), v.Name, validation.IsRelaxedEnvVarName(v.Name))
		}
		from := v.ValueFrom
		if from == nil {
			continue
		}
		at = at.Child("valueFrom")
		sources := 0
		if from.FieldRef != nil {
			sources++
			c.fieldRef(from.FieldRef, envFieldPaths, at.Child("fieldRef"))
		}
		if from.ResourceFieldRef != nil {
			sources++
			c.resourceFieldRef(from.ResourceFieldRef, at.Child("resourceFieldRef"), false)
		}
		if r := from.ConfigMapKeyRef; r != nil {
			sources++
			c.keyRef(r.Name, r.Key, at.Child("configMapKeyRef"))
		}
		if r := from.SecretKeyRef; r != nil {
			sources++
			c.keyRef(r.Name, r.Key, at.Child("secretKeyRef"))
		}
		if r := from.FileKeyRef; r != nil {
			sources++
			at := at.Child("fileKeyRef")
			if c.required(at.Child("key"), r.Key) {
				c.texts(at.Child("key"), r.Key, validation.IsRelaxedEnvVarName(r.Key))
			}
			if c.required(at.Child("volumeName"), r.VolumeName) {
				c.label(at.Child("volumeName"), r.VolumeName)
			}
			if c.required(at.Child("path"), r.Path) {
				c.noBacksteps(at.Child("path"), r.Path)
			}
		}
		switch {
		case sources == 0:
			c.add(field.Invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
		case v.Value != "":
			c.add(field.Invalid(at, "", "may not be specified when `value` is not empty"))
		case sources > 1:
			c.add(field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
	}
}

// keyRef checks a reference to an entry of a ConfigMap or a Secret.
func (c *podCheck) keyRef(name, key string, at *field.Path) {
	c.subdomain(at.Child("name"), name)
	if c.required(at.Child("key"), key) {
		c.texts(at.Child("key"), key, validation.IsConfigMapKey(key))
	}
}

// What a pod may tell its containers of itself, in alphabetic order.
var (
	envFieldPaths    = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
	volumeFieldPaths = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
	resourceFields   = []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"}
	byteDivisors     = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

// downwardLabels are the fields that Kubernetes knows for pods; only some of them may be told.
var downwardLabels = []string{
	"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.restartPolicy",
	"spec.serviceAccountName", "spec.schedulerName", "status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

func (c *podCheck) fieldRef(r *corev1.ObjectFieldSelector, known []string, at *field.Path) {
	if !c.required(at.Child("apiVersion"), r.APIVersion) || !c.required(at.Child("fieldPath"), r.FieldPath) {
		return
	}
	inPath := at.Child("fieldPath")
	if r.APIVersion != "v1" {
		c.add(field.Invalid(inPath, r.FieldPath, fmt.Sprintf("error converting fieldPath: unsupported pod version: %s", r.APIVersion)))
		return
	}
	path, subscript, subscripted := strings.Cut(strings.TrimSuffix(r.FieldPath, "']"), "['")
	subscripted = subscripted && strings.HasSuffix(r.FieldPath, "']")
	switch {
	case subscripted && path == "metadata.annotations":
		c.texts(at, strings.ToLower(subscript), validation.IsQualifiedName(strings.ToLower(subscript)))
	case subscripted && path == "metadata.labels":
		c.texts(at, subscript, validation.IsQualifiedName(subscript))
	case subscripted:
		c.add(field.Invalid(inPath, r.FieldPath, fmt.Sprintf("error converting fieldPath: field label does not support subscript: %s", r.FieldPath)))
	case r.FieldPath == "spec.host": // what the first version called it
		c.add(field.NotSupported(inPath, "spec.nodeName", known))
	case !slices.Contains(downwardLabels, r.FieldPath):
		c.add(field.Invalid(inPath, r.FieldPath, fmt.Sprintf("error converting fieldPath: field label not supported: %s", r.FieldPath)))
	case !slices.Contains(known, r.FieldPath):
		c.add(field.NotSupported(inPath, r.FieldPath, known))
	}
}

func (c *podCheck) resourceFieldRef(r *corev1.ResourceFieldSelector, at *field.Path, volume bool) {
	pages := strings.HasPrefix(r.Resource, "limits.hugepages-") || strings.HasPrefix(r.Resource, "requests.hugepages-")
	switch {
	case volume && r.ContainerName == "":
		c.add(field.Required(at.Child("containerName"), ""))
	case r.Resource == "":
		c.add(field.Required(at.Child("resource"), ""))
	case !pages && !slices.Contains(resourceFields, r.Resource):
		c.add(field.NotSupported(at.Child("resource"), r.Resource, resourceFields))
	}
	if r.Divisor.IsZero() {
		return
	}
	_, name, _ := strings.Cut(r.Resource, ".")
	const bytes = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the "
	wrong, known := "", byteDivisors
	switch {
	case pages:
		wrong = bytes + "hugepages resource"
	case !slices.Contains(resourceFields, r.Resource):
		return
	case name == "cpu":
		wrong, known = "only divisor's values 1m and 1 are supported with the cpu resource", []string{"1m", "1"}
	case name == "memory":
		wrong = bytes + "memory resource"
	default:
		wrong = bytes + "local ephemeral storage resource"
	}
	if !slices.Contains(known, r.Divisor.String()) {
		c.add(field.Invalid(at.Child("divisor"), r.Resource, wrong))
	}
}

func (c *podCheck) envFrom(sources []corev1.EnvFromSource, at *field.Path) {
	for i, s := range sources {
		list, at := at, at.Index(i)
		if s.Prefix != "" {
			c.texts(at.Child("prefix"), s.Prefix, validation.IsRelaxedEnvVarName(s.Prefix))
		}
		n := 0
		if s.ConfigMapRef != nil {
			n++
			c.envRef(s.ConfigMapRef.Name, at.Child("configMapRef"))
		}
		if s.SecretRef != nil {
			n++
			c.envRef(s.SecretRef.Name, at.Child("secretRef"))
		}
		switch {
		case n == 0:
			c.add(field.Invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"))
		case n > 1:
			c.add(field.Invalid(list, "", "may not have more than one field specified at a time"))
		}
	}
}

func (c *podCheck) envRef(name string, at *field.Path) {
	if c.required(at.Child("name"), name) {
		c.texts(at.Child("name"), name, apivalidation.NameIsDNSSubdomain(name, true))
	}
}

func (c *podCheck) mounts(o *corev1.Container, list *field.Path) {
	for i := range o.VolumeMounts {
		m, at := &o.VolumeMounts[i], list.Index(i)
		c.required(at.Child("name"), m.Name)
		volume := c.volumes[m.Name]
		if volume == nil {
			c.add(field.NotFound(at.Child("name"), m.Name))
		}
		c.required(at.Child("mountPath"), m.MountPath)
		if slices.ContainsFunc(o.VolumeMounts[:i], func(other corev1.VolumeMount) bool { return other.MountPath == m.MountPath }) {
			c.add(field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		if slices.ContainsFunc(o.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == m.Name }) {
			c.add(field.Invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices"))
		}
		if slices.ContainsFunc(o.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.DevicePath == m.MountPath }) {
			c.add(field.Invalid(at.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices"))
		}
		// The four that follow have the list's path there, without the index.
		c.localPath(list.Child("subPath"), m.SubPath)
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				c.add(field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
			}
			c.localPath(list.Child("subPathExpr"), m.SubPathExpr)
		}
		c.propagation(o, m, list)
	}
}

// propagation checks how mounts are seen in other places.
func (c *podCheck) propagation(o *corev1.Container, m *corev1.VolumeMount, list *field.Path) {
	if p := m.MountPropagation; p != nil {
		at := list.Child("mountPropagation")
		among(c, at, p, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
		if *p == corev1.MountPropagationBidirectional && (o.SecurityContext == nil || !isTrue(o.SecurityContext.Privileged)) {
			c.add(field.Forbidden(at, "Bidirectional mount propagation is available only to privileged containers"))
		}
	}
	if r := m.RecursiveReadOnly; r != nil && *r != corev1.RecursiveReadOnlyDisabled {
		at := list.Child("recursiveReadOnly")
		if *r != corev1.RecursiveReadOnlyEnabled && *r != corev1.RecursiveReadOnlyIfPossible {
			among(c, at, r, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
			return
		}
		if !m.ReadOnly {
			c.add(field.Forbidden(at, "may only be specified when readOnly is true"))
		}
		if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
			c.add(field.Forbidden(at, "may only be specified when mountPropagation is None or not specified"))
		}
	}
}

func (c *podCheck) devices(o *corev1.Container, at *field.Path) {
	for i, d := range o.VolumeDevices {
		at := at.Index(i)
		volume := c.volumes[d.Name]
		c.required(at.Child("name"), d.Name)
		if d.Name != "" && slices.ContainsFunc(o.VolumeDevices[:i], func(other corev1.VolumeDevice) bool { return other.Name == d.Name }) {
			c.add(field.Invalid(at.Child("name"), d.Name, "must be unique"))
		}
		if volume != nil && volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil {
			c.add(field.Invalid(at.Child("name"), d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		if volume == nil {
			c.add(field.NotFound(at.Child("name"), d.Name))
		}
		c.required(at.Child("devicePath"), d.DevicePath)
		if slices.ContainsFunc(o.VolumeDevices[:i], func(other corev1.VolumeDevice) bool { return other.DevicePath == d.DevicePath }) {
			c.add(field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique"))
		}
		if stepsBack(d.DevicePath) {
			c.add(field.Invalid(at.Child("devicePath"), d.DevicePath, "can not contain backsteps ('..')"))
		}
		if slices.ContainsFunc(o.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == d.Name }) {
			c.add(field.Invalid(at.Child("name"), d.Name, "must not already exist in volumeMounts"))
		}
		if slices.ContainsFunc(o.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == d.DevicePath }) {
			c.add(field.Invalid(at.Child("devicePath"), d.DevicePath, "must not already exist as a path in volumeMounts"))
		}
	}
}

// containerResource says whether a container can have a resource.
func containerResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	text := string(name)
	errs := problems(at, name, validation.IsQualifiedName(text))
	simple := !strings.Contains(text, "/")
	switch {
	case simple && len(errs) == 0 && !isStandard(name):
		return append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"), field.Invalid(at, name, "must be a standard resource for containers"))
	case simple && name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage && !isHugePages(name):
		return append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
	case !simple && !isNative(name) && !isExtended(name):
		return append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// podResource says whether a pod can have a resource for all of its containers together.
func podResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := problems(at, name, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	switch {
	case !strings.Contains(string(name), "/") && !isStandard(name):
		return field.ErrorList{field.Invalid(at, name, "must be a standard resource type or fully qualified")}
	case !ofWholePod(name):
		return field.ErrorList{field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory})}
	}
	return nil
}

// isStandard tells whether a name without a prefix is that of a resource that Kubernetes knows.
func isStandard(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage, corev1.ResourcePods, corev1.ResourceServices,
		corev1.ResourceReplicationControllers, corev1.ResourceQuotas, corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return isHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// isNative tells whether a resource is Kubernetes' own.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isExtended tells whether a resource is somebody else's, and has a name that a quota can have.
func isExtended(name corev1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// requirements checks what is requested and limited. known says whether there is such a resource.
func (c *podCheck) requirements(r *corev1.ResourceRequirements, known func(corev1.ResourceName, *field.Path) field.ErrorList, at *field.Path) {
	if len(r.Limits)+len(r.Requests)+len(r.Claims) == 0 {
		return
	}
	computes, pages := false, false
	quantity := func(name corev1.ResourceName, q resource.Quantity, at *field.Path) {
		c.add(known(name, at)...)
		c.quantity(name, q, at)
		computes = computes || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		if isHugePages(name) {
			pages = true
			if size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix)); err != nil || size.Sign() <= 0 || q.Value()%size.Value() != 0 {
				c.add(field.Invalid(at, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		quantity(name, r.Limits[name], at.Child("limits").Key(string(name)))
	}
	requests := at.Child("requests")
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		q := r.Requests[name]
		c.add(known(name, requests.Key(string(name)))...)
		c.quantity(name, q, requests.Key(string(name)))
		limit, limited := r.Limits[name]
		exact := !isNative(name) || isHugePages(name)
		switch {
		case limited && exact && q.Cmp(limit) != 0:
			c.add(field.Invalid(requests, q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && q.Cmp(limit) > 0:
			c.add(field.Invalid(requests, q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && exact:
			c.add(field.Required(at.Child("limits"), "Limit must be set for non overcommitable resources"))
		}
		computes = computes || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		pages = pages || isHugePages(name)
	}
	if pages && !computes {
		c.add(field.Forbidden(at, "HugePages require cpu or memory"))
	}
	c.usedClaims(r.Claims, at.Child("claims"))
}

// quantity checks an amount of a resource.
func (c *podCheck) quantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) {
	if q.Sign() < 0 {
		c.add(field.Invalid(at, q.String(), "must be greater than or equal to 0"))
	}
	if isExtended(name) && q.MilliValue()%1000 != 0 {
		c.add(field.Invalid(at, q, "must be an integer"))
	}
}

// usedClaims checks which of a pod's claims a container uses.
func (c *podCheck) usedClaims(claims []corev1.ResourceClaim, at *field.Path) {
	used := map[string]bool{}
	for i, claim := range claims {
		at := at.Index(i)
		if !c.required(at, claim.Name) {
			continue
		}
		key := claim.Name
		if claim.Request != "" {
			c.label(at.Child("request"), claim.Request)
			key += "/" + claim.Request
		}
		whole := claim.Request == "" && slices.ContainsFunc(claims[:i], func(other corev1.ResourceClaim) bool { return other.Name == claim.Name })
		switch {
		case used[claim.Name] || whole:
			c.add(field.Duplicate(at, claim.Name))
		case used[key]:
			c.add(field.Duplicate(at, key))
		}
		used[key] = true
		if !c.claims[claim.Name] {
			err := field.NotFound(at, claim.Name)
			err.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
			if len(c.claims) > 0 {
				err.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(slices.Sorted(maps.Keys(c.claims)), ", ")
			}
			c.add(err)
		}
	}
}

// podResources checks what all containers have together against what each has.
func (c *podCheck) podResources(at *field.Path) {
	r := c.spec.Resources
	if r == nil {
		return
	}
	if c.spec.OS != nil && c.spec.OS.Name == corev1.Windows {
		c.add(field.Forbidden(at, "may not be set for a windows pod"))
		return
	}
	if r.Claims != nil {
		c.add(field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	c.requirements(r, podResource, at)
	sum := requestsTogether(c.spec)
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		if own, has := r.Requests[name]; has && own.Cmp(sum[name]) < 0 {
			all := sum[name]
			c.add(field.Invalid(at.Child("requests").Key(string(name)), own.String(), "must be greater than or equal to aggregate container requests of "+all.String()))
		}
	}
	sum = limitsTogether(c.spec)
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		if own, has := r.Limits[name]; has && isHugePages(name) && own.Cmp(sum[name]) < 0 {
			all := sum[name]
			c.add(field.Invalid(at.Child("limits").Key(string(name)), own.String(), "must be greater than or equal to aggregate container limits of "+all.String()))
		}
	}
	for i := range c.spec.Containers {
		limits := c.spec.Containers[i].Resources.Limits
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			limit := limits[name]
			if own, has := r.Limits[name]; has && limit.Cmp(own) > 0 {
				c.add(field.Invalid(at.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(), "must be less than or equal to pod limits of "+own.String()))
			}
		}
	}
}

func (c *podCheck) resizePolicy(policies []corev1.ContainerResizePolicy, at *field.Path) {
	for i, p := range policies {
		if slices.ContainsFunc(policies[:i], func(other corev1.ContainerResizePolicy) bool { return other.ResourceName == p.ResourceName }) {
			c.add(field.Duplicate(at.Index(i), p.ResourceName))
		}
		c.add(oneOf(at, p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		c.add(oneOf(at, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		if c.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			c.add(field.Invalid(at, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
}

// restart checks when a container is restarted.
func (c *podCheck) restart(o *corev1.Container, at *field.Path) {
	if o.RestartPolicy == nil && len(o.RestartPolicyRules) > 0 {
		c.add(field.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	among(c, at.Child("restartPolicy"), o.RestartPolicy, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	if n := len(o.RestartPolicyRules); n > maxRestartRules {
		c.add(field.TooMany(at.Child("restartPolicyRules"), n, maxRestartRules))
	}
	for i, rule := range o.RestartPolicyRules {
		at := at.Child("restartPolicyRules").Index(i)
		among(c, at.Child("action"), &rule.Action, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		at = at.Child("exitCodes")
		if rule.ExitCodes == nil {
			c.add(field.Required(at, "must be specified"))
			continue
		}
		among(c, at.Child("operator"), &rule.ExitCodes.Operator, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n > maxExitCodes {
			c.add(field.TooMany(at.Child("values"), n, maxExitCodes))
		}
	}
}

func (c *podCheck) probes(o *corev1.Container, at *field.Path) {
	c.probe(o.LivenessProbe, at.Child("livenessProbe"))
	if p := o.LivenessProbe; p != nil && p.SuccessThreshold != 1 {
		c.add(field.Invalid(at.Child("livenessProbe", "successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	c.probe(o.ReadinessProbe, at.Child("readinessProbe"))
	if p := o.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		c.add(field.Invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	c.probe(o.StartupProbe, at.Child("startupProbe"))
	if p := o.StartupProbe; p != nil && p.SuccessThreshold != 1 {
		c.add(field.Invalid(at.Child("startupProbe", "successThreshold"), p.SuccessThreshold, "must be 1"))
	}
}

func (c *podCheck) probe(p *corev1.Probe, at *field.Path) {
	if p == nil {
		return
	}
	c.handler(handler{exec: p.Exec, httpGet: p.HTTPGet, tcpSocket: p.TCPSocket, grpc: p.GRPC}, at)
	c.add(notNegative(at.Child("initialDelaySeconds"), &p.InitialDelaySeconds)...)
	c.add(notNegative(at.Child("timeoutSeconds"), &p.TimeoutSeconds)...)
	c.add(notNegative(at.Child("periodSeconds"), &p.PeriodSeconds)...)
	c.add(notNegative(at.Child("successThreshold"), &p.SuccessThreshold)...)
	c.add(notNegative(at.Child("failureThreshold"), &p.FailureThreshold)...)
	if n := p.TerminationGracePeriodSeconds; n != nil && *n <= 0 {
		c.add(field.Invalid(at.Child("terminationGracePeriodSeconds"), *n, "must be greater than 0"))
	}
}

func (c *podCheck) lifecycle(l *corev1.Lifecycle, at *field.Path) {
	if l == nil {
		return
	}
	if h := l.PostStart; h != nil {
		c.handler(handler{exec: h.Exec, httpGet: h.HTTPGet, tcpSocket: h.TCPSocket, sleep: h.Sleep}, at.Child("postStart"))
	}
	if h := l.PreStop; h != nil {
		c.handler(handler{exec: h.Exec, httpGet: h.HTTPGet, tcpSocket: h.TCPSocket, sleep: h.Sleep}, at.Child("preStop"))
	}
	if l.StopSignal == nil {
		return
	}
	at = at.Child("stopSignal")
	switch os := c.spec.OS; {
	case os == nil:
		c.add(field.Forbidden(at, "may not be set for containers with empty `spec.os.name`"))
	case os.Name == corev1.Windows:
		among(c, at, l.StopSignal, corev1.SIGKILL, corev1.SIGTERM)
	case os.Name == corev1.Linux:
		among(c, at, l.StopSignal, linuxSignals...)
	}
}

// linuxSignals are all that a container of Linux can be ended by, in alphabetic order.
var linuxSignals = func() []corev1.Signal {
	all := []corev1.Signal{
		"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF",
		"SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM",
		"SIGWINCH", "SIGXCPU", "SIGXFSZ", "SIGRTMIN", "SIGRTMAX",
	}
	const fromMin, fromMax = 15, 14 // how many signals are named after the least and after the greatest of real time
	for i := 1; i <= fromMin; i++ {
		all = append(all, corev1.Signal("SIGRTMIN+"+strconv.Itoa(i)))
	}
	for i := 1; i <= fromMax; i++ {
		all = append(all, corev1.Signal("SIGRTMAX-"+strconv.Itoa(i)))
	}
	slices.Sort(all)
	return all
}()

// handler is what probes and hooks do; one of its members.
type handler struct {
	exec      *corev1.ExecAction
	httpGet   *corev1.HTTPGetAction
	tcpSocket *corev1.TCPSocketAction
	grpc      *corev1.GRPCAction
	sleep     *corev1.SleepAction
}

func (c *podCheck) handler(h handler, at *field.Path) {
	one := false
	is := func(name string, set bool, check func(at *field.Path)) {
		switch {
		case set && one:
			c.add(field.Forbidden(at.Child(name), "may not specify more than 1 handler type"))
		case set:
			one = true
			check(at.Child(name))
		}
	}
	is("exec", h.exec != nil, func(at *field.Path) {
		if len(h.exec.Command) == 0 {
			c.add(field.Required(at.Child("command"), ""))
		}
	})
	is("httpGet", h.httpGet != nil, func(at *field.Path) {
		c.required(at.Child("path"), h.httpGet.Path)
		c.add(validatePortOrName(h.httpGet.Port, at.Child("port"))...)
		among(c, at.Child("scheme"), &h.httpGet.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
		for _, header := range h.httpGet.HTTPHeaders {
			c.texts(at.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))
		}
	})
	is("tcpSocket", h.tcpSocket != nil, func(at *field.Path) { c.add(validatePortOrName(h.tcpSocket.Port, at.Child("port"))...) })
	is("grpc", h.grpc != nil, func(at *field.Path) {
		c.texts(at.Child("port"), int(h.grpc.Port), validation.IsValidPortNum(int(h.grpc.Port)))
	})
	is("sleep", h.sleep != nil, func(at *field.Path) {
		if grace := c.spec.TerminationGracePeriodSeconds; grace != nil && (h.sleep.Seconds < 0 || h.sleep.Seconds > *grace) {
			c.add(field.Invalid(at, h.sleep.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace)))
		}
	})
	if !one {
		c.add(field.Required(at, "must specify a handler type"))
	}
}

// uniqueHostPorts wants each port of a node to be one container's.
func (c *podCheck) uniqueHostPorts(containers []corev1.Container, at *field.Path) {
	var seen map[string]bool
	for i := range containers {
		for j, p := range containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			port := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if seen[port] {
				c.add(field.Duplicate(at.Index(i).Child("ports").Index(j).Child("hostPort"), port))
			}
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[port] = true
		}
	}
}

// hostPorts wants containers in the node's network to have the node's ports.
func (c *podCheck) hostPorts(at *field.Path) {
	if !c.spec.HostNetwork {
		return
	}
	for i := range c.spec.Containers {
		for j, p := range c.spec.Containers[i].Ports {
			if (c.pod != nil || p.HostPort != 0) && p.HostPort != p.ContainerPort {
				c.add(field.Invalid(at.Index(i).Child("ports").Index(j).Child("hostPort"), p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
}

func (c *podCheck) schedulingGates(at *field.Path) {
	for i, gate := range c.spec.SchedulingGates {
		at := at.Index(i)
		c.texts(at, gate.Name, validation.IsQualifiedName(gate.Name))
		if slices.ContainsFunc(c.spec.SchedulingGates[:i], func(other corev1.PodSchedulingGate) bool { return other.Name == gate.Name }) {
			c.add(field.Duplicate(at, gate.Name))
		}
	}
}

func (c *podCheck) dns(at *field.Path) {
	d := c.spec.DNSConfig
	if c.spec.DNSPolicy == corev1.DNSNone && d == nil {
		c.add(field.Required(at, "must provide `dnsConfig` when `dnsPolicy` is None"))
	}
	if d == nil {
		return
	}
	if c.spec.DNSPolicy == corev1.DNSNone && len(d.Nameservers) == 0 {
		c.add(field.Required(at.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None"))
		return
	}
	if len(d.Nameservers) > maxNameservers {
		c.add(field.Invalid(at.Child("nameservers"), d.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers)))
	}
	for i, server := range d.Nameservers {
		c.add(validation.IsValidIPForLegacyField(at.Child("nameservers").Index(i), server, true, nil)...)
	}
	if len(d.Searches) > maxSearchPaths {
		c.add(field.Invalid(at.Child("searches"), d.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearchPaths)))
	}
	if len(strings.Join(d.Searches, " ")) > maxSearchCharacters {
		c.add(field.Invalid(at.Child("searches"), d.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchCharacters)))
	}
	for i, search := range d.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			c.texts(at.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search))
		}
	}
	for i, option := range d.Options {
		if option.Name == "" {
			c.add(field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
}

// hostProcesses wants all containers of a pod for Windows to be processes of the host if one is.
func (c *podCheck) hostProcesses(at *field.Path) {
	var whole *bool
	if s := c.spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		whole = s.WindowsOptions.HostProcess
	}
	all, of := 0, 0
	eachContainer(c.spec, at, func(o *corev1.Container, at *field.Path) {
		all++
		own := whole
		if s := o.SecurityContext; s != nil && s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil {
			own = s.WindowsOptions.HostProcess
		}
		if whole != nil && *own != *whole {
			c.add(field.Invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own, fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *whole)))
		}
		if isTrue(own) {
			of++
		}
	})
	if of == 0 {
		return
	}
	if of != all {
		c.add(field.Invalid(at, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if !c.spec.HostNetwork {
		c.add(field.Invalid(at.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers"))
	}
}

func (c *podCheck) hostUsers(at *field.Path) {
	s := c.spec
	if s.HostUsers == nil || *s.HostUsers {
		return
	}
	const with = "when `hostUsers` is false"
	if s.HostNetwork {
		c.add(field.Forbidden(at.Child("hostNetwork"), with))
	}
	if s.HostPID {
		c.add(field.Forbidden(at.Child("HostPID"), with))
	}
	if s.HostIPC {
		c.add(field.Forbidden(at.Child("HostIPC"), with))
	}
	eachContainer(s, at, func(o *corev1.Container, at *field.Path) {
		if len(o.VolumeDevices) > 0 {
			c.add(field.Forbidden(at.Child("volumeDevices"), with))
		}
	})
}

// eachContainer visits all containers of a pod: those for its start, those that run, and those for debugging.
func eachContainer(s *corev1.PodSpec, at *field.Path, visit func(o *corev1.Container, at *field.Path)) {
	for i := range s.InitContainers {
		visit(&s.InitContainers[i], at.Child("initContainers").Index(i))
	}
	for i := range s.Containers {
		visit(&s.Containers[i], at.Child("containers").Index(i))
	}
	for i := range s.EphemeralContainers {
		visit((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon), at.Child("ephemeralContainers").Index(i))
	}
}

func (c *podCheck) hostname(at *field.Path) {
	name := c.spec.HostnameOverride
	if name == nil {
		return
	}
	at = at.Child("hostnameOverride")
	if isTrue(c.spec.SetHostnameAsFQDN) {
		c.add(field.Forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
	}
	if c.spec.HostNetwork {
		c.add(field.Forbidden(at, "may not be specified when hostNetwork is true"))
	}
	if len(*name) > maxHostnameOverride {
		c.add(field.TooLong(at, "", maxHostnameOverride))
	}
	c.subdomain(at, *name)
}

func (c *podCheck) tolerations(at *field.Path) {
	for i, t := range c.spec.Tolerations {
		at := at.Index(i)
		if t.Key != "" {
			c.add(metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			c.add(field.Invalid(at.Child("operator"), t.Operator, `operator must be Exists when `+"`key`"+` is empty, which means "match all values and all keys"`))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			c.add(field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if texts := validation.IsValidLabelValue(t.Value); len(texts) > 0 {
				c.add(field.Invalid(at.Child("operator"), t.Value, strings.Join(texts, ";")))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				c.add(field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			c.add(field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}))
		default:
			c.add(field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			c.add(oneOf(at.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
}

var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (c *podCheck) podSecurity(s *corev1.PodSecurityContext, at *field.Path) {
	if s == nil {
		return
	}
	c.ids(at, "fsGroup", s.FSGroup)
	c.ids(at, "runAsUser", s.RunAsUser)
	c.ids(at, "runAsGroup", s.RunAsGroup)
	for i, group := range s.SupplementalGroups {
		c.texts(at.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group))
	}
	for i, sysctl := range s.Sysctls {
		at := at.Child("sysctls").Index(i).Child("name")
		switch {
		case !c.required(at, sysctl.Name):
		case len(sysctl.Name) > maxSysctl || !sysctlName.MatchString(sysctl.Name):
			c.add(field.Invalid(at, sysctl.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctl, sysctlName)))
		case slices.ContainsFunc(s.Sysctls[:i], func(other corev1.Sysctl) bool { return other.Name == sysctl.Name }):
			c.add(field.Duplicate(at, sysctl.Name))
		}
		switch name := strings.ReplaceAll(sysctl.Name, "/", "."); {
		case c.spec.HostNetwork && strings.HasPrefix(name, "net."):
			c.add(field.Invalid(at, sysctl.Name, "may not be specified when 'hostNetwork' is true"))
		case c.spec.HostIPC && (strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || name == "kernel.sem" || strings.HasPrefix(name, "fs.mqueue.")):
			c.add(field.Invalid(at, sysctl.Name, "may not be specified when 'hostIPC' is true"))
		}
	}
	among(c, at.Child("fsGroupChangePolicy"), s.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	c.seccomp(s.SeccompProfile, at.Child("seccompProfile"))
	c.appArmor(s.AppArmorProfile, at.Child("appArmorProfile"))
	among(c, at.Child("supplementalGroupsPolicy"), s.SupplementalGroupsPolicy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	among(c, at.Child("seLinuxChangePolicy"), s.SELinuxChangePolicy, corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
}

// ids checks the number of a user or a group, for which the rule is the same.
func (c *podCheck) ids(at *field.Path, name string, id *int64) {
	if id != nil {
		c.texts(at.Child(name), *id, validation.IsValidUserID(*id))
	}
}

func (c *podCheck) security(s *corev1.SecurityContext, at *field.Path) {
	if s == nil {
		return
	}
	c.ids(at, "runAsUser", s.RunAsUser)
	c.ids(at, "runAsGroup", s.RunAsGroup)
	if p := s.ProcMount; p != nil {
		among(c, at.Child("procMount"), p, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if (c.spec.HostUsers == nil || *c.spec.HostUsers) && *p == corev1.UnmaskedProcMount {
			c.add(field.Invalid(at.Child("procMount"), *p, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	c.seccomp(s.SeccompProfile, at.Child("seccompProfile"))
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		if isTrue(s.Privileged) {
			c.add(field.Invalid(at, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") {
			c.add(field.Invalid(at, s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
		}
	}
	c.appArmor(s.AppArmorProfile, at.Child("appArmorProfile"))
}

func (c *podCheck) seccomp(p *corev1.SeccompProfile, at *field.Path) {
	if p == nil {
		return
	}
	if p.Type == "" {
		c.add(field.Required(at.Child("type"), "type is required when seccompProfile is set"))
	} else {
		among(c, at.Child("type"), &p.Type, corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	at = at.Child("localhostProfile")
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		c.add(field.Required(at, "must be set when seccomp type is Localhost"))
	case local:
		c.localPath(at, *p.LocalhostProfile)
	case p.LocalhostProfile != nil:
		c.add(field.Invalid(at, p, "can only be set when seccomp type is Localhost"))
	}
}

func (c *podCheck) appArmor(p *corev1.AppArmorProfile, at *field.Path) {
	if p == nil {
		return
	}
	local := at.Child("localhostProfile")
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		switch name := p.LocalhostProfile; {
		case name == nil || *name == "":
			c.add(field.Required(local, "must be set when AppArmor type is Localhost"))
		case strings.TrimSpace(*name) != *name:
			c.add(field.Invalid(local, *name, "must not be padded with whitespace"))
		case len(*name) > maxAppArmorProfile:
			c.add(field.TooLong(local, "", maxAppArmorProfile))
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			c.add(field.Invalid(local, p.LocalhostProfile, "can only be set when AppArmor type is Localhost"))
		}
	case "":
		c.add(field.Required(at.Child("type"), "type is required when appArmorProfile is set"))
	default:
		c.add(field.NotSupported(at.Child("type"), p.Type, []corev1.AppArmorProfileType{corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined}))
	}
}

// os checks that a pod has only what its system knows.
func (c *podCheck) os(at *field.Path) {
	s := c.spec
	if s.OS == nil {
		return
	}
	switch {
	case s.OS.Name == "":
		c.add(field.Required(at.Child("os", "name"), ""))
	case s.OS.Name == corev1.Linux:
		const forbidden = "windows options cannot be set for a linux pod"
		if s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil {
			c.add(field.Forbidden(at.Child("securityContext", "windowsOptions"), forbidden))
		}
		eachContainer(s, at, func(o *corev1.Container, at *field.Path) {
			if o.SecurityContext != nil && o.SecurityContext.WindowsOptions != nil {
				c.add(field.Forbidden(at.Child("securityContext", "windowsOptions"), forbidden))
			}
		})
	case s.OS.Name == corev1.Windows:
		c.windows(at)
	default:
		c.add(field.NotSupported(at.Child("os"), s.OS.Name, []corev1.OSName{corev1.Linux, corev1.Windows}))
	}
}

// windows refuses what only Linux knows.
func (c *podCheck) windows(at *field.Path) {
	type part struct {
		name string
		set  bool
	}
	refuse := func(at *field.Path, parts ...part) {
		for _, p := range parts {
			if p.set {
				c.add(field.Forbidden(at.Child(p.name), "cannot be set for a windows pod"))
			}
		}
	}
	if s := c.spec.SecurityContext; s != nil {
		refuse(at.Child("securityContext"), part{"appArmorProfile", s.AppArmorProfile != nil}, part{"seLinuxOptions", s.SELinuxOptions != nil}, part{"seccompProfile", s.SeccompProfile != nil},
			part{"fsGroup", s.FSGroup != nil}, part{"fsGroupChangePolicy", s.FSGroupChangePolicy != nil}, part{"sysctls", len(s.Sysctls) > 0}, part{"runAsUser", s.RunAsUser != nil},
			part{"runAsGroup", s.RunAsGroup != nil}, part{"supplementalGroups", s.SupplementalGroups != nil}, part{"supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil},
			part{"seLinuxChangePolicy", s.SELinuxChangePolicy != nil})
	}
	refuse(at, part{"hostUsers", c.spec.HostUsers != nil}, part{"hostPID", c.spec.HostPID}, part{"hostIPC", c.spec.HostIPC}, part{"shareProcessNamespace", c.spec.ShareProcessNamespace != nil})
	eachContainer(c.spec, at, func(o *corev1.Container, at *field.Path) {
		if s := o.SecurityContext; s != nil {
			refuse(at.Child("securityContext"), part{"appArmorProfile", s.AppArmorProfile != nil}, part{"seLinuxOptions", s.SELinuxOptions != nil}, part{"seccompProfile", s.SeccompProfile != nil},
				part{"capabilities", s.Capabilities != nil}, part{"readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil}, part{"privileged", s.Privileged != nil},
				part{"allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil}, part{"procMount", s.ProcMount != nil}, part{"runAsUser", s.RunAsUser != nil}, part{"runAsGroup", s.RunAsGroup != nil})
		}
	})
}

// fileKeys wants variables that come from a file to name an empty directory.
func (c *podCheck) fileKeys(at *field.Path) {
	eachContainer(c.spec, at, func(o *corev1.Container, at *field.Path) {
		for i := range o.Env {
			if o.Env[i].ValueFrom == nil || o.Env[i].ValueFrom.FileKeyRef == nil {
				continue
			}
			name, at := o.Env[i].ValueFrom.FileKeyRef.VolumeName, at.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			switch n := slices.IndexFunc(c.spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }); {
			case n < 0:
				c.add(field.NotFound(at, name))
			case c.spec.Volumes[n].EmptyDir == nil:
				c.add(field.Invalid(at, name, "referenced volume must be of type emptyDir"))
			}
		}
	})
}
