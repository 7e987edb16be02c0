// Package volumes has PersistentVolumes, the claims to them, and the group storage.k8s.io. Pods and workloads check with its Check the templates of
// claims that they have.
package volumes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

const storageGroup = "storage.k8s.io"

// Kinds are the lines of the table.
func Kinds(c *clock.Clock) []registry.Type {
	return []registry.Type{
		{Names: line.Names("", "v1", "PersistentVolume", "pv"), New: line.New[corev1.PersistentVolume], ClusterScoped: true, Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, StatusResets: line.SpecOnly},
			Columns:  persistentVolumeColumns, Default: line.Set(defaultPersistentVolume),
			Prepare: line.Prepare(prepareVolume(c)), Validate: line.Rules(validatePersistentVolume), Warnings: line.Warnings(warnVolume)},
		{Names: line.Names("", "v1", "PersistentVolumeClaim", "pvc"), New: line.New[corev1.PersistentVolumeClaim], Status: true,
			Strategy: registry.Strategy{SettledByUpdate: true, UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, StatusResets: line.SpecOnly},
			Columns:  claimColumns, Default: line.Set(DefaultClaim), Prepare: line.Prepare(prepareClaim),
			Validate: line.Parts(validateClaim, validateClaimStatus), Warnings: line.Warnings(warnClaim)},
		{Names: line.Names(storageGroup, "v1", "StorageClass", "sc"), New: line.New[storagev1.StorageClass], ClusterScoped: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, Awaited: true},
			Columns:  storageClassColumns, Default: line.Set(defaultStorageClass), Validate: line.Rules(validateStorageClass), Warnings: line.Warnings(warnStorageClass)},
		{Names: line.Names(storageGroup, "v1", "VolumeAttachment"), New: line.New[storagev1.VolumeAttachment], ClusterScoped: true, Status: true,
			Strategy: registry.Strategy{NoGeneration: true, ReturnDeleted: true},
			Columns:  volumeAttachmentColumns, Default: line.Set(defaultVolumeAttachment), Validate: line.Parts(validateVolumeAttachment, nil)},
		{Names: line.Names(storageGroup, "v1", "CSIDriver"), New: line.New[storagev1.CSIDriver], ClusterScoped: true, Columns: csiDriverColumns, Default: line.Set(defaultCSIDriver), Validate: line.Rules(validateCSIDriver), Warnings: line.Warnings(warnCSIDriver),
			Strategy: registry.Strategy{NoGeneration: true, ReturnDeleted: true, Generation: countCSIDriver}},
		{Names: line.Names(storageGroup, "v1", "CSINode"), New: line.New[storagev1.CSINode], ClusterScoped: true, Status: true, Columns: csiNodeColumns,
			Prepare: line.Prepare(prepareCSINode), Validate: line.Rules(validateCSINode),
			Strategy: registry.Strategy{NoGeneration: true, ReturnDeleted: true}},
		{Names: registry.Names{Group: storageGroup, Version: "v1", Kind: "CSIStorageCapacity", Plural: "csistoragecapacities"}, New: line.New[storagev1.CSIStorageCapacity],
			Strategy: registry.Strategy{NoGeneration: true},
			Columns:  column.Created, Validate: line.Rules(validateCSIStorageCapacity), Warnings: line.Warnings(warnCSIStorageCapacity)},
		{Names: line.Names(storageGroup, "v1", "VolumeAttributesClass", "vac"), New: line.New[storagev1.VolumeAttributesClass], ClusterScoped: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true},
			Columns:  attributesClassColumns, Validate: line.Rules(validateAttributesClass)},
	}
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	line.OrDefault(&v.Status.Phase, corev1.VolumePending)
	line.OrDefault(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	line.OrPointTo(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	defaultVolumeSpec(&v.Spec)
}

// defaultVolumeSpec completes what a volume is, wherever that is described.
func defaultVolumeSpec(v *corev1.PersistentVolumeSpec) {
	line.RoundUp(v.Capacity)
	if s := v.HostPath; s != nil {
		line.OrPointTo(&s.Type, corev1.HostPathUnset)
	}
	if s := v.ISCSI; s != nil {
		line.OrDefault(&s.ISCSIInterface, "default")
	}
	if s := v.RBD; s != nil {
		line.OrDefault(&s.RBDPool, "rbd")
		line.OrDefault(&s.RadosUser, "admin")
		line.OrDefault(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := v.ScaleIO; s != nil {
		line.OrDefault(&s.StorageMode, "ThinProvisioned")
		line.OrDefault(&s.FSType, "xfs")
	}
	if s := v.AzureDisk; s != nil {
		line.OrPointTo(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		line.OrPointTo(&s.FSType, "ext4")
		line.OrPointTo(&s.ReadOnly, false)
		line.OrPointTo(&s.Kind, corev1.AzureSharedBlobDisk)
	}
}

// DefaultClaim completes a claim.
func DefaultClaim(c *corev1.PersistentVolumeClaim) {
	line.OrDefault(&c.Status.Phase, corev1.ClaimPending)
	line.RoundUp(c.Status.Capacity)
	line.RoundUp(c.Status.AllocatedResources)
	DefaultClaimSpec(&c.Spec)
}

// DefaultClaimSpec completes what a claim asks for.
func DefaultClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	line.OrPointTo(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	line.RoundUp(s.Resources.Limits)
	line.RoundUp(s.Resources.Requests)
}

func defaultStorageClass(c *storagev1.StorageClass) {
	line.OrPointTo(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	line.OrPointTo(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

func defaultVolumeAttachment(a *storagev1.VolumeAttachment) {
	if v := a.Spec.Source.InlineVolumeSpec; v != nil {
		defaultVolumeSpec(v)
	}
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	line.OrPointTo(&s.AttachRequired, true)
	line.OrPointTo(&s.PodInfoOnMount, false)
	line.OrPointTo(&s.StorageCapacity, false)
	line.OrPointTo(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	line.OrPointTo(&s.RequiresRepublish, false)
	line.OrPointTo(&s.SELinuxMount, false)
	line.OrPointTo(&s.PreventPodSchedulingIfMissing, false)
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// modesText shows access modes in short.
func modesText(v any) string {
	var shown []string
	for _, mode := range []struct {
		name  corev1.PersistentVolumeAccessMode
		short string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(column.AsList(v), any(string(mode.name))) {
			shown = append(shown, mode.short)
		}
	}
	return strings.Join(shown, ",")
}

func persistentVolumeColumns() []registry.Column {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	return append([]registry.Column{
		column.Cell("Capacity", spec["capacity"], func(o any) any { return column.Or(column.Str(column.At(o, "spec.capacity.storage")), "0") }),
		column.Cell("Access Modes", spec["accessModes"], func(o any) any { return modesText(column.At(o, "spec.accessModes")) }),
		column.Text("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", spec["persistentVolumeReclaimPolicy"]),
		column.Cell("Status", status["phase"], phase),
		column.Cell("Claim", spec["claimRef"], func(o any) any {
			if ref := column.At(o, "spec.claimRef"); ref != nil {
				return column.Str(column.At(ref, "namespace")) + "/" + column.Str(column.At(ref, "name"))
			}
			return ""
		}),
		column.Cell("StorageClass", "StorageClass of the pv", storageClassOf),
		column.OrUnset("VolumeAttributesClass", "spec.volumeAttributesClassName", "VolumeAttributesClass of the pv"),
		column.Text("Reason", "status.reason", status["reason"]),
		column.Age(),
	}, column.Wide(column.OrUnset("VolumeMode", "spec.volumeMode", spec["volumeMode"]))...)
}

// storageClassOf shows the class of a volume or claim, which may be in the older annotation.
func storageClassOf(o any) any {
	if class, ok := column.AsMap(column.At(o, "metadata.annotations"))[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return column.Str(column.At(o, "spec.storageClassName"))
}

// nameOrDefault shows the name of a class, and whether it's the one that is taken if none is named. annotations say so.
func nameOrDefault(annotations ...string) registry.Column {
	c := column.NameColumn()
	c.JSONPath = ""
	c.Cell = func(o any) any {
		name := column.Str(column.At(o, "metadata.name"))
		for _, a := range annotations {
			if column.AsMap(column.At(o, "metadata.annotations"))[a] == "true" {
				return name + " (default)"
			}
		}
		return name
	}
	return c
}

// phase shows the phase of a volume or claim.
func phase(o any) any {
	if column.At(o, "metadata.deletionTimestamp") != nil {
		return "Terminating"
	}
	return column.Str(column.At(o, "status.phase"))
}

func claimColumns() []registry.Column {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	bound := func(show func(o any) any) func(o any) any {
		return func(o any) any {
			if column.Str(column.At(o, "spec.volumeName")) == "" {
				return ""
			}
			return show(o)
		}
	}
	return append([]registry.Column{
		column.Cell("Status", status["phase"], phase),
		column.Text("Volume", "spec.volumeName", spec["volumeName"]),
		column.Cell("Capacity", status["capacity"], bound(func(o any) any { return column.Or(column.Str(column.At(o, "status.capacity.storage")), "0") })),
		column.Cell("Access Modes", status["accessModes"], bound(func(o any) any { return modesText(column.At(o, "status.accessModes")) })),
		column.Cell("StorageClass", "StorageClass of the pvc", storageClassOf),
		column.OrUnset("VolumeAttributesClass", "spec.volumeAttributesClassName", "VolumeAttributesClass of the pvc"),
		column.Age(),
	}, column.Wide(column.OrUnset("VolumeMode", "spec.volumeMode", spec["volumeMode"]))...)
}

func storageClassColumns() []registry.Column {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	return []registry.Column{
		nameOrDefault("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"),
		column.Text("Provisioner", "provisioner", doc["provisioner"]),
		column.Text("ReclaimPolicy", "reclaimPolicy", doc["reclaimPolicy"]),
		column.Text("VolumeBindingMode", "volumeBindingMode", doc["volumeBindingMode"]),
		column.AsText(column.Flag("AllowVolumeExpansion", "allowVolumeExpansion", doc["allowVolumeExpansion"])),
		column.Age(),
	}
}

func volumeAttachmentColumns() []registry.Column {
	spec := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	name := form.NameColumn()
	return []registry.Column{ // two are called names
		{Name: name.Name, Type: name.Type, Format: name.Format, Description: name.Description, Cell: func(o any) any { return column.Str(column.At(o, "metadata.name")) }},
		{Name: "Attacher", Type: "string", Format: name.Format, Description: spec["attacher"], Cell: func(o any) any { return column.Str(column.At(o, "spec.attacher")) }},
		column.Text("PV", "spec.source.persistentVolumeName", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]),
		column.Text("Node", "spec.nodeName", spec["nodeName"]),
		column.Flag("Attached", "status.attached", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]),
		column.Age(),
	}
}

func csiDriverColumns() []registry.Column {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return []registry.Column{
		column.Flag("AttachRequired", "spec.attachRequired", doc["attachRequired"]),
		column.Flag("PodInfoOnMount", "spec.podInfoOnMount", doc["podInfoOnMount"]),
		column.Flag("StorageCapacity", "spec.storageCapacity", doc["storageCapacity"]),
		column.Cell("TokenRequests", doc["tokenRequests"], func(o any) any {
			if column.At(o, "spec.tokenRequests") == nil {
				return column.Unset
			}
			return column.Joined(column.At(o, "spec.tokenRequests"), ",", func(r any) string { return column.Str(column.At(r, "audience")) })
		}),
		column.Flag("RequiresRepublish", "spec.requiresRepublish", doc["requiresRepublish"]),
		column.Cell("Modes", doc["volumeLifecycleModes"], func(o any) any {
			return column.Or(column.Joined(column.At(o, "spec.volumeLifecycleModes"), ",", column.Str), column.None)
		}),
		column.Age(),
	}
}

func csiNodeColumns() []registry.Column {
	return []registry.Column{
		column.Count("Drivers", "spec.drivers", "Drivers indicates the number of CSI drivers registered on the node"),
		column.Age(),
	}
}

func attributesClassColumns() []registry.Column {
	return []registry.Column{nameOrDefault("storageclass.kubernetes.io/is-default-class"), column.Text("DriverName", "driverName", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]), column.Age()}
}
