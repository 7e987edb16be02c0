package builtin

import (
	"fmt"
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules for PersistentVolumes, in the order in which Kubernetes asks them.

const (
	maxPartition  = 255
	maxLun        = 255
	maxTenant     = 64 // characters
	maxDriverName = 63 // bytes
)

// volumeSource is what a PersistentVolume can be of.
type volumeSource struct {
	name  string // as a refusal of a second one calls it
	check func(c *check, s *corev1.PersistentVolumeSpec, volume string, at *field.Path) bool
}

// source makes a volumeSource of a member and a check of it, whose errors may call it by another name.
func source[T any](name, shown string, of func(s *corev1.PersistentVolumeSource) *T, fn func(c *check, v *T, volume string, at *field.Path)) volumeSource {
	return volumeSource{name, func(c *check, s *corev1.PersistentVolumeSpec, volume string, at *field.Path) bool {
		v := of(&s.PersistentVolumeSource)
		if v != nil && at != nil {
			fn(c, v, volume, at.Child(shown))
		}
		return v != nil
	}}
}

// needs makes a check of texts that must be there.
func needs[T any](names []string, of func(v *T) []string) func(c *check, v *T, volume string, at *field.Path) {
	return func(c *check, v *T, _ string, at *field.Path) {
		for i, value := range of(v) {
			c.required(at.Child(names[i]), value)
		}
	}
}

// volumeSources are in Kubernetes' order: the first is the volume's, and further ones are too many.
var volumeSources = []volumeSource{
	source("hostPath", "hostPath", func(s *corev1.PersistentVolumeSource) *corev1.HostPathVolumeSource { return s.HostPath },
		func(c *check, v *corev1.HostPathVolumeSource, _ string, at *field.Path) {
			if c.required(at.Child("path"), v.Path) {
				c.noBacksteps(at.Child("path"), v.Path)
				among(c, at.Child("type"), v.Type, corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
					corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
			}
		}),
	source("gcePersistentDisk", "persistentDisk", func(s *corev1.PersistentVolumeSource) *corev1.GCEPersistentDiskVolumeSource {
		return s.GCEPersistentDisk
	},
		func(c *check, v *corev1.GCEPersistentDiskVolumeSource, _ string, at *field.Path) {
			c.required(at.Child("pdName"), v.PDName)
			c.partition(at.Child("partition"), v.Partition)
		}),
	source("awsElasticBlockStore", "awsElasticBlockStore", func(s *corev1.PersistentVolumeSource) *corev1.AWSElasticBlockStoreVolumeSource {
		return s.AWSElasticBlockStore
	}, func(c *check, v *corev1.AWSElasticBlockStoreVolumeSource, _ string, at *field.Path) {
		c.required(at.Child("volumeID"), v.VolumeID)
		c.partition(at.Child("partition"), v.Partition)
	}),
	source("glusterfs", "glusterfs", func(s *corev1.PersistentVolumeSource) *corev1.GlusterfsPersistentVolumeSource { return s.Glusterfs },
		func(c *check, v *corev1.GlusterfsPersistentVolumeSource, _ string, at *field.Path) {
			c.required(at.Child("endpoints"), v.EndpointsName)
			c.required(at.Child("path"), v.Path)
			if ns := v.EndpointsNamespace; ns != nil {
				at := at.Child("endpointsNamespace")
				if *ns == "" {
					c.add(field.Invalid(at, *ns, "if the endpointnamespace is set, it must be a valid namespace name"))
				} else {
					c.label(at, *ns)
				}
			}
		}),
	source("flocker", "flocker", func(s *corev1.PersistentVolumeSource) *corev1.FlockerVolumeSource { return s.Flocker },
		func(c *check, v *corev1.FlockerVolumeSource, _ string, at *field.Path) { c.flocker(v, at) }),
	source("nfs", "nfs", func(s *corev1.PersistentVolumeSource) *corev1.NFSVolumeSource { return s.NFS },
		func(c *check, v *corev1.NFSVolumeSource, _ string, at *field.Path) {
			c.required(at.Child("server"), v.Server)
			c.required(at.Child("path"), v.Path)
			if !path.IsAbs(v.Path) {
				c.add(field.Invalid(at.Child("path"), v.Path, "must be an absolute path"))
			}
		}),
	source("rbd", "rbd", func(s *corev1.PersistentVolumeSource) *corev1.RBDPersistentVolumeSource { return s.RBD },
		func(c *check, v *corev1.RBDPersistentVolumeSource, _ string, at *field.Path) {
			c.monitors(v.CephMonitors, at)
			c.required(at.Child("image"), v.RBDImage)
		}),
	source("quobyte", "quobyte", func(s *corev1.PersistentVolumeSource) *corev1.QuobyteVolumeSource { return s.Quobyte },
		func(c *check, v *corev1.QuobyteVolumeSource, _ string, at *field.Path) { c.quobyte(v, at) }),
	source("cephFS", "cephfs", func(s *corev1.PersistentVolumeSource) *corev1.CephFSPersistentVolumeSource { return s.CephFS },
		func(c *check, v *corev1.CephFSPersistentVolumeSource, _ string, at *field.Path) {
			c.monitors(v.Monitors, at)
		}),
	source("iscsi", "iscsi", func(s *corev1.PersistentVolumeSource) *corev1.ISCSIPersistentVolumeSource { return s.ISCSI }, checkISCSI),
	source("cinder", "cinder", func(s *corev1.PersistentVolumeSource) *corev1.CinderPersistentVolumeSource { return s.Cinder },
		func(c *check, v *corev1.CinderPersistentVolumeSource, _ string, at *field.Path) {
			c.required(at.Child("volumeID"), v.VolumeID)
			if r := v.SecretRef; r != nil {
				c.required(at.Child("secretRef", "name"), r.Name)
				c.required(at.Child("secretRef", "namespace"), r.Namespace)
			}
		}),
	source("fc", "fc", func(s *corev1.PersistentVolumeSource) *corev1.FCVolumeSource { return s.FC },
		func(c *check, v *corev1.FCVolumeSource, _ string, at *field.Path) { c.fibreChannel(v, at) }),
	source("flexVolume", "flexVolume", func(s *corev1.PersistentVolumeSource) *corev1.FlexPersistentVolumeSource { return s.FlexVolume },
		func(c *check, v *corev1.FlexPersistentVolumeSource, _ string, at *field.Path) {
			c.required(at.Child("driver"), v.Driver)
			c.flexOptions(v.Options, at)
		}),
	source("azureFile", "azureFile", func(s *corev1.PersistentVolumeSource) *corev1.AzureFilePersistentVolumeSource { return s.AzureFile },
		func(c *check, v *corev1.AzureFilePersistentVolumeSource, _ string, at *field.Path) {
			c.required(at.Child("secretName"), v.SecretName)
			c.required(at.Child("shareName"), v.ShareName)
			if v.SecretNamespace != nil {
				c.required(at.Child("secretNamespace"), *v.SecretNamespace)
			}
		}),
	source("vsphereVolume", "vsphereVolume", func(s *corev1.PersistentVolumeSource) *corev1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume },
		needs([]string{"volumePath"}, func(v *corev1.VsphereVirtualDiskVolumeSource) []string { return []string{v.VolumePath} })),
	source("photonPersistentDisk", "photonPersistentDisk", func(s *corev1.PersistentVolumeSource) *corev1.PhotonPersistentDiskVolumeSource {
		return s.PhotonPersistentDisk
	}, needs([]string{"pdID"}, func(v *corev1.PhotonPersistentDiskVolumeSource) []string { return []string{v.PdID} })),
	source("portworxVolume", "portworxVolume", func(s *corev1.PersistentVolumeSource) *corev1.PortworxVolumeSource { return s.PortworxVolume },
		needs([]string{"volumeID"}, func(v *corev1.PortworxVolumeSource) []string { return []string{v.VolumeID} })),
	source("azureDisk", "azureDisk", func(s *corev1.PersistentVolumeSource) *corev1.AzureDiskVolumeSource { return s.AzureDisk },
		func(c *check, v *corev1.AzureDiskVolumeSource, _ string, at *field.Path) { c.azureDisk(v, at) }),
	source("scaleIO", "scaleIO", func(s *corev1.PersistentVolumeSource) *corev1.ScaleIOPersistentVolumeSource { return s.ScaleIO },
		needs([]string{"gateway", "system", "volumeName"}, func(v *corev1.ScaleIOPersistentVolumeSource) []string {
			return []string{v.Gateway, v.System, v.VolumeName}
		})),
	{"local", func(c *check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) bool {
		if s.Local != nil && at != nil {
			if name := at.Child("local", "path"); c.required(name, s.Local.Path) {
				c.noBacksteps(name, s.Local.Path)
			}
			if s.NodeAffinity == nil {
				c.add(field.Required(at.Child("nodeAffinity"), "Local volume requires node affinity"))
			}
		}
		return s.Local != nil
	}},
	source("storageos", "storageos", func(s *corev1.PersistentVolumeSource) *corev1.StorageOSPersistentVolumeSource { return s.StorageOS },
		func(c *check, v *corev1.StorageOSPersistentVolumeSource, _ string, at *field.Path) {
			if c.required(at.Child("volumeName"), v.VolumeName) {
				c.label(at.Child("volumeName"), v.VolumeName)
			}
			if v.VolumeNamespace != "" {
				c.label(at.Child("volumeNamespace"), v.VolumeNamespace)
			}
			if r := v.SecretRef; r != nil {
				c.required(at.Child("secretRef", "name"), r.Name)
				c.required(at.Child("secretRef", "namespace"), r.Namespace)
			}
		}),
	source("csi", "csi", func(s *corev1.PersistentVolumeSource) *corev1.CSIPersistentVolumeSource { return s.CSI },
		func(c *check, v *corev1.CSIPersistentVolumeSource, _ string, at *field.Path) {
			c.driverName(at.Child("driver"), v.Driver)
			c.required(at.Child("volumeHandle"), v.VolumeHandle)
			c.secretRef(v.ControllerPublishSecretRef, at.Child("controllerPublishSecretRef"))
			c.secretRef(v.ControllerExpandSecretRef, at.Child("controllerExpandSecretRef"))
			c.secretRef(v.NodePublishSecretRef, at.Child("nodePublishSecretRef"))
			c.secretRef(v.NodeExpandSecretRef, at.Child("nodeExpandSecretRef"))
		}),
}

func (c *check) partition(at *field.Path, n int32) {
	if n < 0 || n > maxPartition {
		c.add(field.Invalid(at, n, validation.InclusiveRangeError(1, maxPartition)))
	}
}

func (c *check) flocker(v *corev1.FlockerVolumeSource, at *field.Path) {
	switch name, uuid := v.DatasetName != "", v.DatasetUUID != ""; {
	case !name && !uuid:
		c.add(field.Required(at, "one of datasetName and datasetUUID is required"))
	case name && uuid:
		c.add(field.Invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
	}
	if strings.Contains(v.DatasetName, "/") {
		c.add(field.Invalid(at.Child("datasetName"), v.DatasetName, "must not contain '/'"))
	}
}

func (c *check) quobyte(v *corev1.QuobyteVolumeSource, at *field.Path) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case v.Registry == "":
		c.add(field.Required(at.Child("registry"), pairs))
	case len(v.Tenant) > maxTenant:
		c.add(field.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for pair := range strings.SplitSeq(v.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				c.add(field.Invalid(at.Child("registry"), v.Registry, pairs))
			}
		}
	}
	c.required(at.Child("volume"), v.Volume)
}

func (c *check) fibreChannel(v *corev1.FCVolumeSource, at *field.Path) {
	names, lun := at.Child("targetWWNs"), at.Child("lun")
	switch targets, ids := len(v.TargetWWNs) > 0, len(v.WWIDs) > 0; {
	case !targets && !ids:
		c.add(field.Required(names, "must specify either targetWWNs or wwids, but not both"))
	case targets && ids:
		c.add(field.Invalid(names, v.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	switch {
	case len(v.TargetWWNs) == 0:
	case v.Lun == nil:
		c.add(field.Required(lun, "lun is required if targetWWNs is specified"))
	case *v.Lun < 0 || *v.Lun > maxLun:
		c.add(field.Invalid(lun, v.Lun, validation.InclusiveRangeError(0, maxLun)))
	}
}

// flexOptions wants options that aren't Kubernetes' own.
func (c *check) flexOptions(options map[string]string, at *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(options)) {
		domain, _, _ := strings.Cut(name, "/")
		if domain = "." + strings.ToLower(domain); strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			c.add(field.Invalid(at.Child("options").Key(name), name, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
}

func (c *check) monitors(all []string, at *field.Path) {
	if len(all) == 0 {
		c.add(field.Required(at.Child("monitors"), ""))
	}
}

// driverName wants the name of a driver of CSI, of which the case doesn't matter.
func (c *check) driverName(at *field.Path, name string) {
	if !c.required(at, name) {
		return
	}
	if len(name) > maxDriverName {
		c.add(field.TooLong(at, "", maxDriverName))
	}
	c.texts(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
}

// secretRef checks a reference to a Secret, if there is one.
func (c *check) secretRef(r *corev1.SecretReference, at *field.Path) {
	if r == nil {
		return
	}
	if c.required(at.Child("name"), r.Name) {
		c.subdomain(at.Child("name"), r.Name)
	}
	if c.required(at.Child("namespace"), r.Namespace) {
		c.label(at.Child("namespace"), r.Namespace)
	}
}

// The forms of names of iSCSI, by what they begin with.
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.[[:alnum:]-.]+:[^,;*&$|\s]+$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

func (c *check) iscsiName(at *field.Path, name string) {
	form := iscsiNames[name[:min(len(name), 3)]]
	if form == nil || !form.MatchString(name) {
		c.add(field.Invalid(at, name, "must be valid format"))
	}
}

func checkISCSI(c *check, v *corev1.ISCSIPersistentVolumeSource, volume string, at *field.Path) {
	c.required(at.Child("targetPortal"), v.TargetPortal)
	if v.InitiatorName != nil && len(volume+":"+v.TargetPortal) > maxISCSIName {
		c.add(field.Invalid(at.Child("targetportal"), v.TargetPortal,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	if c.required(at.Child("iqn"), v.IQN) {
		c.iscsiName(at.Child("iqn"), v.IQN)
	}
	if v.Lun < 0 || v.Lun > maxLun {
		c.add(field.Invalid(at.Child("lun"), v.Lun, validation.InclusiveRangeError(0, maxLun)))
	}
	if (v.DiscoveryCHAPAuth || v.SessionCHAPAuth) && v.SecretRef == nil {
		c.add(field.Required(at.Child("secretRef"), ""))
	}
	if v.SecretRef != nil {
		c.required(at.Child("secretRef", "name"), v.SecretRef.Name)
	}
	if v.InitiatorName != nil {
		c.iscsiName(at.Child("initiatorname"), *v.InitiatorName)
	}
}

func (c *check) azureDisk(v *corev1.AzureDiskVolumeSource, at *field.Path) {
	c.required(at.Child("diskName"), v.DiskName)
	c.required(at.Child("diskURI"), v.DataDiskURI)
	among(c, at.Child("cachingMode"), v.CachingMode, corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
	among(c, at.Child("kind"), v.Kind, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)
	if v.Kind == nil {
		return
	}
	begin, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *v.Kind == corev1.AzureManagedDisk {
		begin, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(v.DataDiskURI, begin) {
		c.add(field.NotSupported(at.Child("diskURI"), v.DataDiskURI, []string{form}))
	}
}

// accessModes checks how a volume may be mounted, and of a claim how it is to be.
func (c *check) accessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) {
	known := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	others := false
	for i := range modes {
		among(c, at, &modes[i], known...)
		others = others || modes[i] != corev1.ReadWriteOncePod && slices.Contains(known, modes[i])
	}
	if others && slices.Contains(modes, corev1.ReadWriteOncePod) {
		c.add(field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
}

// storageClass checks the name of a class, if one is named.
func (c *check) storageClass(at *field.Path, name string) {
	if name != "" {
		c.subdomain(at, name)
	}
}

// volumeSpec checks what a volume is. inline is that of a VolumeAttachment, which isn't bound to a claim.
func (c *check) volumeSpec(s *corev1.PersistentVolumeSpec, volume string, inline bool, at *field.Path) {
	const inInline = " in the context of inline volumes"
	forbid := func(name string, is bool) {
		if is {
			c.add(field.Forbidden(at.Child(name), "may not be specified"+inInline))
		}
	}
	if inline {
		forbid("claimRef", s.ClaimRef != nil)
		forbid("capacity", len(s.Capacity) > 0)
		if s.CSI == nil {
			c.add(field.Required(at.Child("csi"), "has to be specified"+inInline))
		}
	}
	if len(s.AccessModes) == 0 {
		c.add(field.Required(at.Child("accessModes"), ""))
	}
	c.accessModes(s.AccessModes, at.Child("accessModes"))
	if !inline {
		c.volumeCapacity(s.Capacity, at.Child("capacity"))
	}
	switch policy := s.PersistentVolumeReclaimPolicy; {
	case policy == "":
	case !inline:
		among(c, at.Child("persistentVolumeReclaimPolicy"), &policy, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	case policy != corev1.PersistentVolumeReclaimRetain:
		c.add(field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may only be Retain"+inInline))
	}
	if inline {
		forbid("nodeAffinity", s.NodeAffinity != nil)
	} else {
		c.volumeNodes(s.NodeAffinity, at.Child("nodeAffinity"))
	}
	c.volumeSource(s, volume, at)
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		c.add(field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
	}
	if inline {
		forbid("storageClassName", s.StorageClassName != "")
	} else {
		c.storageClass(at.Child("storageClassName"), s.StorageClassName)
	}
	switch {
	case !inline:
		among(c, at.Child("volumeMode"), s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	case s.VolumeMode != nil && *s.VolumeMode != corev1.PersistentVolumeFilesystem:
		c.add(field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than Filesystem"+inInline))
	}
	if class := s.VolumeAttributesClassName; class != nil && !inline {
		if *class == "" {
			c.add(field.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed"))
		} else {
			c.subdomain(at.Child("volumeAttributesClassName"), *class)
		}
		if s.CSI == nil {
			c.add(field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
		}
	}
}

func (c *check) volumeCapacity(capacity corev1.ResourceList, at *field.Path) {
	if len(capacity) == 0 {
		c.add(field.Required(at, ""))
	}
	if _, ok := capacity[corev1.ResourceStorage]; !ok || len(capacity) > 1 {
		c.add(field.NotSupported(at, capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		q, at := capacity[name], at.Key(string(name))
		if q.Sign() < 0 {
			c.add(field.Invalid(at, q.Value(), "must be a valid resource quantity"))
		}
		if q.Sign() <= 0 {
			c.add(field.Invalid(at, q.String(), "must be greater than zero"))
		}
	}
}

func (c *check) volumeNodes(a *corev1.VolumeNodeAffinity, at *field.Path) {
	switch {
	case a == nil:
	case a.Required == nil:
		c.add(field.Required(at.Child("required"), "must specify required node constraints"))
	default:
		c.nodeSelector(a.Required, at.Child("required"))
	}
}

func (c *check) volumeSource(s *corev1.PersistentVolumeSpec, volume string, at *field.Path) {
	one := false
	for _, source := range volumeSources {
		if one && source.name != "flexVolume" { // of which Kubernetes doesn't mind a second one
			if source.check(c, s, volume, nil) {
				c.add(field.Forbidden(at.Child(source.name), "may not specify more than 1 volume type"))
			}
			continue
		}
		one = source.check(c, s, volume, at) || one
	}
	if !one {
		c.add(field.Required(at, "must specify a volume type"))
	}
}

// mountable tells whether a volume's type takes options of a mount.
func mountable(s *corev1.PersistentVolumeSource) bool {
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil || s.RBD != nil || s.Quobyte != nil || s.ISCSI != nil ||
		s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil || s.VsphereVolume != nil || s.AzureDisk != nil || s.PhotonPersistentDisk != nil
}

func validatePersistentVolume(v, old *corev1.PersistentVolume) field.ErrorList {
	c := unlessOld(func(c *check, v *corev1.PersistentVolume) {
		c.volumeSpec(&v.Spec, v.Name, false, field.NewPath("spec"))
	}, v, old)
	if _, ok := v.Annotations[corev1.MountOptionAnnotation]; ok && !mountable(&v.Spec.PersistentVolumeSource) {
		c.add(field.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation), "may not specify mount options for this volume type"))
	}
	if old == nil {
		return c.errs
	}
	now, was := v.Spec.PersistentVolumeSource.DeepCopy(), &old.Spec.PersistentVolumeSource
	if was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil && now.CSI != nil {
		now.CSI.ControllerExpandSecretRef = nil // which may come later
	}
	if !equality.Semantic.DeepEqual(now, was) {
		c.add(field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\n"+diff.Diff(untagged{was}, untagged{now})))
	}
	c.add(unchanged(field.NewPath("volumeMode"), v.Spec.VolumeMode, old.Spec.VolumeMode)...)
	if old.Spec.NodeAffinity != nil && !equality.Semantic.DeepEqual(renamedNodes(old.Spec.NodeAffinity, v.Spec.NodeAffinity), v.Spec.NodeAffinity) {
		c.add(field.Invalid(field.NewPath("nodeAffinity"), untagged{v.Spec.NodeAffinity}, "field is immutable, except for updating from beta label to GA"))
	}
	c.forbid(old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil, field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
	return c.errs
}

// oldLabels are labels of nodes that clients should no longer use, and what they're told.
var oldLabels = map[string]string{
	"beta.kubernetes.io/arch":           `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":             `deprecated since v1.14; use "kubernetes.io/os" instead`,
	corev1.LabelFailureDomainBetaRegion: `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	corev1.LabelFailureDomainBetaZone:   `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	corev1.LabelInstanceType:            `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":      "deprecated since v1.9",
	corev1.PreferAvoidPodsAnnotationKey: "deprecated since v1.22; use Taints and Tolerations instead",
	"node-role.kubernetes.io/master":    `use "node-role.kubernetes.io/control-plane" instead`,
}

// warnNodes tells of old labels in a term that selects nodes.
func warnNodes(term *corev1.NodeSelectorTerm, at *field.Path) (texts []string) {
	for i, e := range term.MatchExpressions {
		if text, old := oldLabels[e.Key]; old {
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
func prepareVolume(v, old *corev1.PersistentVolume, subresource string) {
	switch {
	case old == nil:
		v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: now()}
	case subresource != "status":
	case v.Status.Phase == old.Status.Phase:
		if v.Status.LastPhaseTransitionTime == nil {
			v.Status.LastPhaseTransitionTime = old.Status.LastPhaseTransitionTime
		}
	case v.Status.LastPhaseTransitionTime == nil || v.Status.LastPhaseTransitionTime.Equal(old.Status.LastPhaseTransitionTime):
		v.Status.LastPhaseTransitionTime = now()
	}
}

func now() *metav1.Time { return &metav1.Time{Time: time.Now().Truncate(time.Second)} }

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
