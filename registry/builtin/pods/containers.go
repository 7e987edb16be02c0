package pods

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/volumes"
)

// The rules for a container: its variables, mounts and devices.

func (c *PodCheck) containers(at *field.Path) {
	all := c.Spec.Containers
	c.Lack(len(all) == 0, at, "")
	known := rules.Earlier[string]{}
	for i := range all {
		o, at := &all[i], at.Index(i)
		c.container(o, at)
		if known.Had(o.Name) {
			c.Add(field.Duplicate(at.Child("name"), o.Name))
		}
		c.lifecycle(o.Lifecycle, at.Child("lifecycle"))
		c.probes(o, at)
		c.restart(o, at)
	}
	c.uniqueHostPorts(all, at)
}

func (c *PodCheck) initContainers(at *field.Path) {
	all := c.Spec.InitContainers
	containers, known := namesOf(c.Spec.Containers), rules.Earlier[string]{}
	for i := range all {
		o, listed, at := &all[i], at, at.Index(i)
		c.container(o, at)
		c.restart(o, at)
		if containers.Has(o.Name) || o.Name != "" && known.Had(o.Name) {
			c.Add(field.Duplicate(at.Child("name"), o.Name))
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
			c.Forbid(part.set, at.Child(part.name), "may not be set for init containers without restartPolicy=Always")
		}
		for j, p := range o.ResizePolicy {
			if p.RestartPolicy == corev1.RestartContainer {
				c.Young(rules.InitsNotRestarted, field.Invalid(at.Child("resizePolicy").Index(j).Child("restartPolicy"), p.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers"))
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

func (c *PodCheck) ephemeralContainers(at *field.Path) {
	others, known := namesOf(c.Spec.Containers, c.Spec.InitContainers), rules.Earlier[string]{}
	for i := range c.Spec.EphemeralContainers {
		e, at := &c.Spec.EphemeralContainers[i], at.Index(i)
		o := (*corev1.Container)(&e.EphemeralContainerCommon)
		c.container(o, at)
		c.trimmed(o, at)
		c.Twice(others.Has(e.Name) || known.Had(e.Name), at.Child("name"), e.Name)
		if e.TargetContainerName != "" && !others.Has(e.TargetContainerName) {
			c.Add(field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
		}
		for _, part := range []struct {
			name string
			set  bool
		}{
			{"ports", o.Ports != nil}, {"resources", o.Resources.Limits != nil || o.Resources.Requests != nil || o.Resources.Claims != nil}, {"resizePolicy", o.ResizePolicy != nil},
			{"restartPolicy", o.RestartPolicy != nil}, {"restartPolicyRules", o.RestartPolicyRules != nil}, {"livenessProbe", o.LivenessProbe != nil},
			{"readinessProbe", o.ReadinessProbe != nil}, {"startupProbe", o.StartupProbe != nil}, {"lifecycle", o.Lifecycle != nil},
		} {
			c.Forbid(part.set, at.Child(part.name), "cannot be set for an Ephemeral Container")
		}
		for j, m := range o.VolumeMounts {
			at := at.Child("volumeMounts").Index(j)
			c.Forbid(m.SubPath != "", at.Child("subPath"), "cannot be set for an Ephemeral Container")
			c.Forbid(m.SubPathExpr != "", at.Child("subPathExpr"), "cannot be set for an Ephemeral Container")
		}
	}
}

// trimmed wants the image of a pod's container to be without white space around it. Templates may have that.
func (c *PodCheck) trimmed(o *corev1.Container, at *field.Path) {
	if o.Image != strings.TrimSpace(o.Image) {
		c.Add(field.Invalid(at.Child("image"), o.Image, "must not have leading or trailing whitespace"))
	}
}

// container checks what all kinds of containers have.
func (c *PodCheck) container(o *corev1.Container, at *field.Path) {
	c.Needs(at.Child("name"), o.Name, validation.IsDNS1123Label)
	c.Required(at.Child("image"), o.Image)
	c.Add(rules.OneOf(at.Child("terminationMessagePolicy"), o.TerminationMessagePolicy, corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	c.Add(validateContainerPorts(o.Ports, at.Child("ports"))...)
	c.env(o.Env, at.Child("env"))
	c.envFrom(o.EnvFrom, at.Child("envFrom"))
	c.mounts(o, at.Child("volumeMounts"))
	c.devices(o, at.Child("volumeDevices"))
	c.Add(rules.OneOf(at.Child("imagePullPolicy"), o.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	c.Requirements(&o.Resources, ContainerResource, at.Child("resources"))
	c.resizePolicy(o.ResizePolicy, at.Child("resizePolicy"))
	c.security(o.SecurityContext, at.Child("securityContext"))
}

func (c *PodCheck) env(vars []corev1.EnvVar, at *field.Path) {
	for i := range vars {
		v, at := &vars[i], at.Index(i)
		c.Needs(at.Child("name"), v.Name, validation.IsRelaxedEnvVarName)
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
			c.Needs(at.Child("key"), r.Key, validation.IsRelaxedEnvVarName)
			c.Needs(at.Child("volumeName"), r.VolumeName, validation.IsDNS1123Label)
			if c.Required(at.Child("path"), r.Path) {
				c.NoBacksteps(at.Child("path"), r.Path)
			}
		}
		switch {
		case sources == 0:
			c.Add(field.Invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
		case v.Value != "":
			c.Add(field.Invalid(at, "", "may not be specified when `value` is not empty"))
		case sources > 1:
			c.Add(field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
	}
}

// keyRef checks a reference to an entry of a ConfigMap or a Secret.
func (c *PodCheck) keyRef(name, key string, at *field.Path) {
	c.Subdomain(at.Child("name"), name)
	c.Needs(at.Child("key"), key, validation.IsConfigMapKey)
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

func (c *PodCheck) fieldRef(r *corev1.ObjectFieldSelector, known []string, at *field.Path) {
	if !c.Required(at.Child("apiVersion"), r.APIVersion) || !c.Required(at.Child("fieldPath"), r.FieldPath) {
		return
	}
	inPath := at.Child("fieldPath")
	if r.APIVersion != "v1" {
		c.Add(field.Invalid(inPath, r.FieldPath, fmt.Sprintf("error converting fieldPath: unsupported pod version: %s", r.APIVersion)))
		return
	}
	path, subscript, subscripted := strings.Cut(strings.TrimSuffix(r.FieldPath, "']"), "['")
	subscripted = subscripted && strings.HasSuffix(r.FieldPath, "']")
	switch {
	case subscripted && path == "metadata.annotations":
		c.Texts(at, strings.ToLower(subscript), validation.IsQualifiedName(strings.ToLower(subscript)))
	case subscripted && path == "metadata.labels":
		c.Texts(at, subscript, validation.IsQualifiedName(subscript))
	case subscripted:
		c.Add(field.Invalid(inPath, r.FieldPath, fmt.Sprintf("error converting fieldPath: field label does not support subscript: %s", r.FieldPath)))
	case r.FieldPath == "spec.host": // what the first version called it
		c.Add(field.NotSupported(inPath, "spec.nodeName", known))
	case !slices.Contains(downwardLabels, r.FieldPath):
		c.Add(field.Invalid(inPath, r.FieldPath, fmt.Sprintf("error converting fieldPath: field label not supported: %s", r.FieldPath)))
	case !slices.Contains(known, r.FieldPath):
		c.Add(field.NotSupported(inPath, r.FieldPath, known))
	}
}

func (c *PodCheck) resourceFieldRef(r *corev1.ResourceFieldSelector, at *field.Path, volume bool) {
	pages := strings.HasPrefix(r.Resource, "limits.hugepages-") || strings.HasPrefix(r.Resource, "requests.hugepages-")
	switch {
	case volume && r.ContainerName == "":
		c.Add(field.Required(at.Child("containerName"), ""))
	case r.Resource == "":
		c.Add(field.Required(at.Child("resource"), ""))
	case !pages && !slices.Contains(resourceFields, r.Resource):
		c.Add(field.NotSupported(at.Child("resource"), r.Resource, resourceFields))
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
		c.Add(field.Invalid(at.Child("divisor"), r.Resource, wrong))
	}
}

func (c *PodCheck) envFrom(sources []corev1.EnvFromSource, at *field.Path) {
	for i, s := range sources {
		list, at := at, at.Index(i)
		if s.Prefix != "" {
			c.Texts(at.Child("prefix"), s.Prefix, validation.IsRelaxedEnvVarName(s.Prefix))
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
			c.Add(field.Invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"))
		case n > 1:
			c.Add(field.Invalid(list, "", "may not have more than one field specified at a time"))
		}
	}
}

func (c *PodCheck) envRef(name string, at *field.Path) {
	if c.Required(at.Child("name"), name) {
		c.Texts(at.Child("name"), name, apivalidation.NameIsDNSSubdomain(name, true))
	}
}

func (c *PodCheck) mounts(o *corev1.Container, list *field.Path) {
	for i := range o.VolumeMounts {
		m, at := &o.VolumeMounts[i], list.Index(i)
		c.Required(at.Child("name"), m.Name)
		volume := c.volumes[m.Name]
		if volume == nil {
			c.Add(field.NotFound(at.Child("name"), m.Name))
		}
		c.Required(at.Child("mountPath"), m.MountPath)
		if slices.ContainsFunc(o.VolumeMounts[:i], func(other corev1.VolumeMount) bool { return other.MountPath == m.MountPath }) {
			c.Add(field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		if slices.ContainsFunc(o.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == m.Name }) {
			c.Add(field.Invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices"))
		}
		if slices.ContainsFunc(o.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.DevicePath == m.MountPath }) {
			c.Add(field.Invalid(at.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices"))
		}
		// The four that follow have the list's path there, without the index.
		c.LocalPath(list.Child("subPath"), m.SubPath)
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				c.Add(field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
			}
			c.LocalPath(list.Child("subPathExpr"), m.SubPathExpr)
		}
		c.propagation(o, m, list)
	}
}

// propagation checks how mounts are seen in other places.
func (c *PodCheck) propagation(o *corev1.Container, m *corev1.VolumeMount, list *field.Path) {
	if p := m.MountPropagation; p != nil {
		at := list.Child("mountPropagation")
		rules.Among(c, at, p, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
		c.Forbid(*p == corev1.MountPropagationBidirectional && (o.SecurityContext == nil || !ptr.Deref(o.SecurityContext.Privileged, false)), at, "Bidirectional mount propagation is available only to privileged containers")
	}
	if r := m.RecursiveReadOnly; r != nil && *r != corev1.RecursiveReadOnlyDisabled {
		at := list.Child("recursiveReadOnly")
		if *r != corev1.RecursiveReadOnlyEnabled && *r != corev1.RecursiveReadOnlyIfPossible {
			rules.Among(c, at, r, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
			return
		}
		c.Forbid(!m.ReadOnly, at, "may only be specified when readOnly is true")
		c.Forbid(m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone, at, "may only be specified when mountPropagation is None or not specified")
	}
}

func (c *PodCheck) devices(o *corev1.Container, at *field.Path) {
	for i, d := range o.VolumeDevices {
		at := at.Index(i)
		volume := c.volumes[d.Name]
		c.Required(at.Child("name"), d.Name)
		c.Refuse(d.Name != "" && slices.ContainsFunc(o.VolumeDevices[:i], func(other corev1.VolumeDevice) bool { return other.Name == d.Name }), at.Child("name"), d.Name, "must be unique")
		if volume != nil && volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil {
			c.Add(field.Invalid(at.Child("name"), d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		if volume == nil {
			c.Add(field.NotFound(at.Child("name"), d.Name))
		}
		c.Required(at.Child("devicePath"), d.DevicePath)
		if slices.ContainsFunc(o.VolumeDevices[:i], func(other corev1.VolumeDevice) bool { return other.DevicePath == d.DevicePath }) {
			c.Add(field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique"))
		}
		c.Refuse(volumes.StepsBack(d.DevicePath), at.Child("devicePath"), d.DevicePath, "can not contain backsteps ('..')")
		c.Refuse(slices.ContainsFunc(o.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == d.Name }), at.Child("name"), d.Name, "must not already exist in volumeMounts")
		if slices.ContainsFunc(o.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == d.DevicePath }) {
			c.Add(field.Invalid(at.Child("devicePath"), d.DevicePath, "must not already exist as a path in volumeMounts"))
		}
	}
}

// uniqueHostPorts wants each port of a node to be one container's.
func (c *PodCheck) uniqueHostPorts(containers []corev1.Container, at *field.Path) {
	var seen map[string]bool
	for i := range containers {
		for j, p := range containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			port := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if seen[port] {
				c.Add(field.Duplicate(at.Index(i).Child("ports").Index(j).Child("hostPort"), port))
			}
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[port] = true
		}
	}
}

// fileKeys wants variables that come from a file to name an empty directory.
func (c *PodCheck) fileKeys(at *field.Path) {
	eachContainer(c.Spec, at, func(o *corev1.Container, at *field.Path) {
		for i := range o.Env {
			if o.Env[i].ValueFrom == nil || o.Env[i].ValueFrom.FileKeyRef == nil {
				continue
			}
			name, at := o.Env[i].ValueFrom.FileKeyRef.VolumeName, at.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			switch n := slices.IndexFunc(c.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }); {
			case n < 0:
				c.Add(field.NotFound(at, name))
			case c.Spec.Volumes[n].EmptyDir == nil:
				c.Add(field.Invalid(at, name, "referenced volume must be of type emptyDir"))
			}
		}
	})
}
