package builtin

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// Volumes, and the group storage.k8s.io.

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	orDefault(&v.Status.Phase, corev1.VolumePending)
	orDefault(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	orPointTo(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	defaultVolumeSpec(&v.Spec)
}

// defaultVolumeSpec completes what a volume is, wherever that is described.
func defaultVolumeSpec(v *corev1.PersistentVolumeSpec) {
	roundUp(v.Capacity)
	if s := v.HostPath; s != nil {
		orPointTo(&s.Type, corev1.HostPathUnset)
	}
	if s := v.ISCSI; s != nil {
		orDefault(&s.ISCSIInterface, "default")
	}
	if s := v.RBD; s != nil {
		orDefault(&s.RBDPool, "rbd")
		orDefault(&s.RadosUser, "admin")
		orDefault(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := v.ScaleIO; s != nil {
		orDefault(&s.StorageMode, "ThinProvisioned")
		orDefault(&s.FSType, "xfs")
	}
	if s := v.AzureDisk; s != nil {
		orPointTo(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		orPointTo(&s.FSType, "ext4")
		orPointTo(&s.ReadOnly, false)
		orPointTo(&s.Kind, corev1.AzureSharedBlobDisk)
	}
}

func defaultClaim(c *corev1.PersistentVolumeClaim) {
	orDefault(&c.Status.Phase, corev1.ClaimPending)
	roundUp(c.Status.Capacity)
	roundUp(c.Status.AllocatedResources)
	defaultClaimSpec(&c.Spec)
}

func defaultClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	orPointTo(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundUp(s.Resources.Limits)
	roundUp(s.Resources.Requests)
}

func defaultStorageClass(c *storagev1.StorageClass) {
	orPointTo(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	orPointTo(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

func defaultVolumeAttachment(a *storagev1.VolumeAttachment) {
	if v := a.Spec.Source.InlineVolumeSpec; v != nil {
		defaultVolumeSpec(v)
	}
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	orPointTo(&s.AttachRequired, true)
	orPointTo(&s.PodInfoOnMount, false)
	orPointTo(&s.StorageCapacity, false)
	orPointTo(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	orPointTo(&s.RequiresRepublish, false)
	orPointTo(&s.SELinuxMount, false)
	orPointTo(&s.PreventPodSchedulingIfMissing, false)
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
		if slices.Contains(asList(v), any(string(mode.name))) {
			shown = append(shown, mode.short)
		}
	}
	return strings.Join(shown, ",")
}

// orUnset is text that shows where nothing is set.
func orUnset(name, path, description string) column {
	return cell(name, description, func(o any) any { return or(str(at(o, path)), unset) })
}

func persistentVolumeColumns() []column {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	return append([]column{
		cell("Capacity", spec["capacity"], func(o any) any { return or(str(at(o, "spec.capacity.storage")), "0") }),
		cell("Access Modes", spec["accessModes"], func(o any) any { return modesText(at(o, "spec.accessModes")) }),
		text("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", spec["persistentVolumeReclaimPolicy"]),
		cell("Status", status["phase"], phase),
		cell("Claim", spec["claimRef"], func(o any) any {
			if ref := at(o, "spec.claimRef"); ref != nil {
				return str(at(ref, "namespace")) + "/" + str(at(ref, "name"))
			}
			return ""
		}),
		cell("StorageClass", "StorageClass of the pv", storageClassOf),
		orUnset("VolumeAttributesClass", "spec.volumeAttributesClassName", "VolumeAttributesClass of the pv"),
		text("Reason", "status.reason", status["reason"]),
		age(),
	}, wide(orUnset("VolumeMode", "spec.volumeMode", spec["volumeMode"]))...)
}

// storageClassOf shows the class of a volume or claim, which may be in the older annotation.
func storageClassOf(o any) any {
	if class, ok := asMap(at(o, "metadata.annotations"))[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return str(at(o, "spec.storageClassName"))
}

// nameOrDefault shows the name of a class, and whether it's the one that is taken if none is named. annotations say so.
func nameOrDefault(annotations ...string) column {
	c := nameColumn()
	c.JSONPath = ""
	c.Cell = func(o any) any {
		name := str(at(o, "metadata.name"))
		for _, a := range annotations {
			if asMap(at(o, "metadata.annotations"))[a] == "true" {
				return name + " (default)"
			}
		}
		return name
	}
	return c
}

// phase shows the phase of a volume or claim.
func phase(o any) any {
	if at(o, "metadata.deletionTimestamp") != nil {
		return "Terminating"
	}
	return str(at(o, "status.phase"))
}

func claimColumns() []column {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	bound := func(show func(o any) any) func(o any) any {
		return func(o any) any {
			if str(at(o, "spec.volumeName")) == "" {
				return ""
			}
			return show(o)
		}
	}
	return append([]column{
		cell("Status", status["phase"], phase),
		text("Volume", "spec.volumeName", spec["volumeName"]),
		cell("Capacity", status["capacity"], bound(func(o any) any { return or(str(at(o, "status.capacity.storage")), "0") })),
		cell("Access Modes", status["accessModes"], bound(func(o any) any { return modesText(at(o, "status.accessModes")) })),
		cell("StorageClass", "StorageClass of the pvc", storageClassOf),
		orUnset("VolumeAttributesClass", "spec.volumeAttributesClassName", "VolumeAttributesClass of the pvc"),
		age(),
	}, wide(orUnset("VolumeMode", "spec.volumeMode", spec["volumeMode"]))...)
}

// flag shows a boolean that is false where it's absent.
func flag(name, path, description string) column {
	return column{Name: name, Type: "boolean", Description: description, Cell: func(o any) any { return at(o, path) == true }}
}

func storageClassColumns() []column {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	return []column{
		nameOrDefault("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"),
		text("Provisioner", "provisioner", doc["provisioner"]),
		text("ReclaimPolicy", "reclaimPolicy", doc["reclaimPolicy"]),
		text("VolumeBindingMode", "volumeBindingMode", doc["volumeBindingMode"]),
		asText(flag("AllowVolumeExpansion", "allowVolumeExpansion", doc["allowVolumeExpansion"])),
		age(),
	}
}

func volumeAttachmentColumns() []column {
	spec := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	name := form.NameColumn()
	return []column{ // two are called names
		{Name: name.Name, Type: name.Type, Format: name.Format, Description: name.Description, Cell: func(o any) any { return str(at(o, "metadata.name")) }},
		{Name: "Attacher", Type: "string", Format: name.Format, Description: spec["attacher"], Cell: func(o any) any { return str(at(o, "spec.attacher")) }},
		text("PV", "spec.source.persistentVolumeName", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]),
		text("Node", "spec.nodeName", spec["nodeName"]),
		flag("Attached", "status.attached", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]),
		age(),
	}
}

func csiDriverColumns() []column {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return []column{
		flag("AttachRequired", "spec.attachRequired", doc["attachRequired"]),
		flag("PodInfoOnMount", "spec.podInfoOnMount", doc["podInfoOnMount"]),
		flag("StorageCapacity", "spec.storageCapacity", doc["storageCapacity"]),
		cell("TokenRequests", doc["tokenRequests"], func(o any) any {
			if at(o, "spec.tokenRequests") == nil {
				return unset
			}
			return joined(at(o, "spec.tokenRequests"), ",", func(r any) string { return str(at(r, "audience")) })
		}),
		flag("RequiresRepublish", "spec.requiresRepublish", doc["requiresRepublish"]),
		cell("Modes", doc["volumeLifecycleModes"], func(o any) any { return or(joined(at(o, "spec.volumeLifecycleModes"), ",", str), none) }),
		age(),
	}
}

func csiNodeColumns() []column {
	return []column{
		count("Drivers", "spec.drivers", "Drivers indicates the number of CSI drivers registered on the node"),
		age(),
	}
}

func attributesClassColumns() []column {
	return []column{nameOrDefault("storageclass.kubernetes.io/is-default-class"), text("DriverName", "driverName", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]), age()}
}
