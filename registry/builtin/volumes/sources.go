package volumes

import (
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// Where the bytes of a PersistentVolume may be, each with its rules.

const (
	MaxISCSIName = 64 // characters, with the portal
	maxPartition = 255
	MaxLun       = 255
	maxTenant    = 64 // characters
)

// volumeSources are in Kubernetes' order: the first is the volume's, and further ones are too many.
var volumeSources = []volumeSource{
	{"hostPath", func(s *corev1.PersistentVolumeSource) bool { return s.HostPath != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		at = at.Child("hostPath")
		if c.Required(at.Child("path"), s.HostPath.Path) {
			c.NoBacksteps(at.Child("path"), s.HostPath.Path)
			rules.Among(c, at.Child("type"), s.HostPath.Type, corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
				corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
		}
	}},
	{"gcePersistentDisk", func(s *corev1.PersistentVolumeSource) bool { return s.GCEPersistentDisk != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.Required(at.Child("persistentDisk", "pdName"), s.GCEPersistentDisk.PDName)
		c.Partition(at.Child("persistentDisk", "partition"), s.GCEPersistentDisk.Partition)
	}},
	{"awsElasticBlockStore", func(s *corev1.PersistentVolumeSource) bool { return s.AWSElasticBlockStore != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.Required(at.Child("awsElasticBlockStore", "volumeID"), s.AWSElasticBlockStore.VolumeID)
		c.Partition(at.Child("awsElasticBlockStore", "partition"), s.AWSElasticBlockStore.Partition)
	}},
	{"glusterfs", func(s *corev1.PersistentVolumeSource) bool { return s.Glusterfs != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		at = at.Child("glusterfs")
		c.Required(at.Child("endpoints"), s.Glusterfs.EndpointsName)
		c.Required(at.Child("path"), s.Glusterfs.Path)
		if ns := s.Glusterfs.EndpointsNamespace; ns != nil {
			at := at.Child("endpointsNamespace")
			if *ns == "" {
				c.Add(field.Invalid(at, *ns, "if the endpointnamespace is set, it must be a valid namespace name"))
			} else {
				c.Label(at, *ns)
			}
		}
	}},
	{"flocker", func(s *corev1.PersistentVolumeSource) bool { return s.Flocker != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.Flocker(s.Flocker, at.Child("flocker"))
	}},
	{"nfs", func(s *corev1.PersistentVolumeSource) bool { return s.NFS != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		at = at.Child("nfs")
		c.Required(at.Child("server"), s.NFS.Server)
		c.Required(at.Child("path"), s.NFS.Path)
		c.Refuse(!path.IsAbs(s.NFS.Path), at.Child("path"), s.NFS.Path, "must be an absolute path")
	}},
	{"rbd", func(s *corev1.PersistentVolumeSource) bool { return s.RBD != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.monitors(s.RBD.CephMonitors, at.Child("rbd"))
		c.Required(at.Child("rbd", "image"), s.RBD.RBDImage)
	}},
	{"quobyte", func(s *corev1.PersistentVolumeSource) bool { return s.Quobyte != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.Quobyte(s.Quobyte, at.Child("quobyte"))
	}},
	{"cephFS", func(s *corev1.PersistentVolumeSource) bool { return s.CephFS != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.monitors(s.CephFS.Monitors, at.Child("cephfs"))
	}},
	{"iscsi", func(s *corev1.PersistentVolumeSource) bool { return s.ISCSI != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, volume string, at *field.Path) {
		checkISCSI(c, s.ISCSI, volume, at.Child("iscsi"))
	}},
	{"cinder", func(s *corev1.PersistentVolumeSource) bool { return s.Cinder != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		at = at.Child("cinder")
		c.Required(at.Child("volumeID"), s.Cinder.VolumeID)
		if r := s.Cinder.SecretRef; r != nil {
			c.Required(at.Child("secretRef", "name"), r.Name)
			c.Required(at.Child("secretRef", "namespace"), r.Namespace)
		}
	}},
	{"fc", func(s *corev1.PersistentVolumeSource) bool { return s.FC != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.FibreChannel(s.FC, at.Child("fc"))
	}},
	{"flexVolume", func(s *corev1.PersistentVolumeSource) bool { return s.FlexVolume != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.Required(at.Child("flexVolume", "driver"), s.FlexVolume.Driver)
		c.FlexOptions(s.FlexVolume.Options, at.Child("flexVolume"))
	}},
	{"azureFile", func(s *corev1.PersistentVolumeSource) bool { return s.AzureFile != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		at = at.Child("azureFile")
		c.Required(at.Child("secretName"), s.AzureFile.SecretName)
		c.Required(at.Child("shareName"), s.AzureFile.ShareName)
		if s.AzureFile.SecretNamespace != nil {
			c.Required(at.Child("secretNamespace"), *s.AzureFile.SecretNamespace)
		}
	}},
	{"vsphereVolume", func(s *corev1.PersistentVolumeSource) bool { return s.VsphereVolume != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.Required(at.Child("vsphereVolume", "volumePath"), s.VsphereVolume.VolumePath)
	}},
	{"photonPersistentDisk", func(s *corev1.PersistentVolumeSource) bool { return s.PhotonPersistentDisk != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.Required(at.Child("photonPersistentDisk", "pdID"), s.PhotonPersistentDisk.PdID)
	}},
	{"portworxVolume", func(s *corev1.PersistentVolumeSource) bool { return s.PortworxVolume != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.Required(at.Child("portworxVolume", "volumeID"), s.PortworxVolume.VolumeID)
	}},
	{"azureDisk", func(s *corev1.PersistentVolumeSource) bool { return s.AzureDisk != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		c.AzureDisk(s.AzureDisk, at.Child("azureDisk"))
	}},
	{"scaleIO", func(s *corev1.PersistentVolumeSource) bool { return s.ScaleIO != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		at = at.Child("scaleIO")
		c.Required(at.Child("gateway"), s.ScaleIO.Gateway)
		c.Required(at.Child("system"), s.ScaleIO.System)
		c.Required(at.Child("volumeName"), s.ScaleIO.VolumeName)
	}},
	{"local", func(s *corev1.PersistentVolumeSource) bool { return s.Local != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		if name := at.Child("local", "path"); c.Required(name, s.Local.Path) {
			c.NoBacksteps(name, s.Local.Path)
		}
		c.Lack(s.NodeAffinity == nil, at.Child("nodeAffinity"), "Local volume requires node affinity")
	}},
	{"storageos", func(s *corev1.PersistentVolumeSource) bool { return s.StorageOS != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		at = at.Child("storageos")
		c.Needs(at.Child("volumeName"), s.StorageOS.VolumeName, validation.IsDNS1123Label)
		if s.StorageOS.VolumeNamespace != "" {
			c.Label(at.Child("volumeNamespace"), s.StorageOS.VolumeNamespace)
		}
		if r := s.StorageOS.SecretRef; r != nil {
			c.Required(at.Child("secretRef", "name"), r.Name)
			c.Required(at.Child("secretRef", "namespace"), r.Namespace)
		}
	}},
	{"csi", func(s *corev1.PersistentVolumeSource) bool { return s.CSI != nil }, func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) {
		at = at.Child("csi")
		c.DriverName(at.Child("driver"), s.CSI.Driver)
		c.Required(at.Child("volumeHandle"), s.CSI.VolumeHandle)
		c.secretRef(s.CSI.ControllerPublishSecretRef, at.Child("controllerPublishSecretRef"))
		c.secretRef(s.CSI.ControllerExpandSecretRef, at.Child("controllerExpandSecretRef"))
		c.secretRef(s.CSI.NodePublishSecretRef, at.Child("nodePublishSecretRef"))
		c.secretRef(s.CSI.NodeExpandSecretRef, at.Child("nodeExpandSecretRef"))
	}},
}

// Partition wants the number of a partition.
func (c *Check) Partition(at *field.Path, n int32) {
	c.Refuse(n < 0 || n > maxPartition, at, n, validation.InclusiveRangeError(1, maxPartition))
}

// Flocker checks a source that pods have, too, as do those below.
func (c *Check) Flocker(v *corev1.FlockerVolumeSource, at *field.Path) {
	switch name, uuid := v.DatasetName != "", v.DatasetUUID != ""; {
	case !name && !uuid:
		c.Add(field.Required(at, "one of datasetName and datasetUUID is required"))
	case name && uuid:
		c.Add(field.Invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
	}
	c.Refuse(strings.Contains(v.DatasetName, "/"), at.Child("datasetName"), v.DatasetName, "must not contain '/'")
}

// Quobyte checks one of Quobyte.
func (c *Check) Quobyte(v *corev1.QuobyteVolumeSource, at *field.Path) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case v.Registry == "":
		c.Add(field.Required(at.Child("registry"), pairs))
	case len(v.Tenant) > maxTenant:
		c.Add(field.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for pair := range strings.SplitSeq(v.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				c.Add(field.Invalid(at.Child("registry"), v.Registry, pairs))
			}
		}
	}
	c.Required(at.Child("volume"), v.Volume)
}

// FibreChannel checks one of Fibre Channel.
func (c *Check) FibreChannel(v *corev1.FCVolumeSource, at *field.Path) {
	names, lun := at.Child("targetWWNs"), at.Child("lun")
	switch targets, ids := len(v.TargetWWNs) > 0, len(v.WWIDs) > 0; {
	case !targets && !ids:
		c.Add(field.Required(names, "must specify either targetWWNs or wwids, but not both"))
	case targets && ids:
		c.Add(field.Invalid(names, v.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	switch {
	case len(v.TargetWWNs) == 0:
	case v.Lun == nil:
		c.Add(field.Required(lun, "lun is required if targetWWNs is specified"))
	case *v.Lun < 0 || *v.Lun > MaxLun:
		c.Add(field.Invalid(lun, v.Lun, validation.InclusiveRangeError(0, MaxLun)))
	}
}

// FlexOptions wants options that aren't Kubernetes' own.
func (c *Check) FlexOptions(options map[string]string, at *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(options)) {
		domain, _, _ := strings.Cut(name, "/")
		if domain = "." + strings.ToLower(domain); strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			c.Add(field.Invalid(at.Child("options").Key(name), name, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
}

func (c *Check) monitors(all []string, at *field.Path) {
	c.Lack(len(all) == 0, at.Child("monitors"), "")
}

// secretRef checks a reference to a Secret, if there is one.
func (c *Check) secretRef(r *corev1.SecretReference, at *field.Path) {
	if r == nil {
		return
	}
	c.Needs(at.Child("name"), r.Name, validation.IsDNS1123Subdomain)
	c.Needs(at.Child("namespace"), r.Namespace, validation.IsDNS1123Label)
}

// The forms of names of iSCSI, by what they begin with.
var IscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.[[:alnum:]-.]+:[^,;*&$|\s]+$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

// IscsiName wants a name in one of the forms of iSCSI.
func (c *Check) IscsiName(at *field.Path, name string) {
	form := IscsiNames[name[:min(len(name), 3)]]
	c.Refuse(form == nil || !form.MatchString(name), at, name, "must be valid format")
}

func checkISCSI(c *Check, v *corev1.ISCSIPersistentVolumeSource, volume string, at *field.Path) {
	c.Required(at.Child("targetPortal"), v.TargetPortal)
	if v.InitiatorName != nil && len(volume+":"+v.TargetPortal) > MaxISCSIName {
		c.Add(field.Invalid(at.Child("targetportal"), v.TargetPortal,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	if c.Required(at.Child("iqn"), v.IQN) {
		c.IscsiName(at.Child("iqn"), v.IQN)
	}
	c.Refuse(v.Lun < 0 || v.Lun > MaxLun, at.Child("lun"), v.Lun, validation.InclusiveRangeError(0, MaxLun))
	c.Lack((v.DiscoveryCHAPAuth || v.SessionCHAPAuth) && v.SecretRef == nil, at.Child("secretRef"), "")
	if v.SecretRef != nil {
		c.Required(at.Child("secretRef", "name"), v.SecretRef.Name)
	}
	if v.InitiatorName != nil {
		c.IscsiName(at.Child("initiatorname"), *v.InitiatorName)
	}
}

// AzureDisk checks one of Azure.
func (c *Check) AzureDisk(v *corev1.AzureDiskVolumeSource, at *field.Path) {
	c.Required(at.Child("diskName"), v.DiskName)
	c.Required(at.Child("diskURI"), v.DataDiskURI)
	rules.Among(c, at.Child("cachingMode"), v.CachingMode, corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
	rules.Among(c, at.Child("kind"), v.Kind, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)
	if v.Kind == nil {
		return
	}
	begin, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *v.Kind == corev1.AzureManagedDisk {
		begin, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(v.DataDiskURI, begin) {
		c.Add(field.NotSupported(at.Child("diskURI"), v.DataDiskURI, []string{form}))
	}
}

// LocalPath wants a path that leads nowhere but down.
func (c *Check) LocalPath(at *field.Path, p string) {
	c.Refuse(path.IsAbs(p), at, p, "must be a relative path")
	c.NoBacksteps(at, p)
}

// NoBacksteps wants a path that never leads up.
func (c *Check) NoBacksteps(at *field.Path, p string) {
	c.Refuse(StepsBack(p), at, p, "must not contain '..'")
}

// StepsBack tells whether a path leads up somewhere.
func StepsBack(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }
