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

// source makes a volumeSource of a member and a check of it, whose errors may call it by another name.
func source[T any](name, shown string, of func(s *corev1.PersistentVolumeSource) *T, fn func(c *Check, v *T, volume string, at *field.Path)) volumeSource {
	return volumeSource{name, func(c *Check, s *corev1.PersistentVolumeSpec, volume string, at *field.Path) bool {
		v := of(&s.PersistentVolumeSource)
		if v != nil && at != nil {
			fn(c, v, volume, at.Child(shown))
		}
		return v != nil
	}}
}

// needs makes a check of texts that must be there.
func needs[T any](names []string, of func(v *T) []string) func(c *Check, v *T, volume string, at *field.Path) {
	return func(c *Check, v *T, _ string, at *field.Path) {
		for i, value := range of(v) {
			c.Required(at.Child(names[i]), value)
		}
	}
}

// volumeSources are in Kubernetes' order: the first is the volume's, and further ones are too many.
var volumeSources = []volumeSource{
	source("hostPath", "hostPath", func(s *corev1.PersistentVolumeSource) *corev1.HostPathVolumeSource { return s.HostPath },
		func(c *Check, v *corev1.HostPathVolumeSource, _ string, at *field.Path) {
			if c.Required(at.Child("path"), v.Path) {
				c.NoBacksteps(at.Child("path"), v.Path)
				rules.Among(c, at.Child("type"), v.Type, corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
					corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
			}
		}),
	source("gcePersistentDisk", "persistentDisk", func(s *corev1.PersistentVolumeSource) *corev1.GCEPersistentDiskVolumeSource {
		return s.GCEPersistentDisk
	},
		func(c *Check, v *corev1.GCEPersistentDiskVolumeSource, _ string, at *field.Path) {
			c.Required(at.Child("pdName"), v.PDName)
			c.Partition(at.Child("partition"), v.Partition)
		}),
	source("awsElasticBlockStore", "awsElasticBlockStore", func(s *corev1.PersistentVolumeSource) *corev1.AWSElasticBlockStoreVolumeSource {
		return s.AWSElasticBlockStore
	}, func(c *Check, v *corev1.AWSElasticBlockStoreVolumeSource, _ string, at *field.Path) {
		c.Required(at.Child("volumeID"), v.VolumeID)
		c.Partition(at.Child("partition"), v.Partition)
	}),
	source("glusterfs", "glusterfs", func(s *corev1.PersistentVolumeSource) *corev1.GlusterfsPersistentVolumeSource { return s.Glusterfs },
		func(c *Check, v *corev1.GlusterfsPersistentVolumeSource, _ string, at *field.Path) {
			c.Required(at.Child("endpoints"), v.EndpointsName)
			c.Required(at.Child("path"), v.Path)
			if ns := v.EndpointsNamespace; ns != nil {
				at := at.Child("endpointsNamespace")
				if *ns == "" {
					c.Add(field.Invalid(at, *ns, "if the endpointnamespace is set, it must be a valid namespace name"))
				} else {
					c.Label(at, *ns)
				}
			}
		}),
	source("flocker", "flocker", func(s *corev1.PersistentVolumeSource) *corev1.FlockerVolumeSource { return s.Flocker },
		func(c *Check, v *corev1.FlockerVolumeSource, _ string, at *field.Path) { c.Flocker(v, at) }),
	source("nfs", "nfs", func(s *corev1.PersistentVolumeSource) *corev1.NFSVolumeSource { return s.NFS },
		func(c *Check, v *corev1.NFSVolumeSource, _ string, at *field.Path) {
			c.Required(at.Child("server"), v.Server)
			c.Required(at.Child("path"), v.Path)
			c.Refuse(!path.IsAbs(v.Path), at.Child("path"), v.Path, "must be an absolute path")
		}),
	source("rbd", "rbd", func(s *corev1.PersistentVolumeSource) *corev1.RBDPersistentVolumeSource { return s.RBD },
		func(c *Check, v *corev1.RBDPersistentVolumeSource, _ string, at *field.Path) {
			c.monitors(v.CephMonitors, at)
			c.Required(at.Child("image"), v.RBDImage)
		}),
	source("quobyte", "quobyte", func(s *corev1.PersistentVolumeSource) *corev1.QuobyteVolumeSource { return s.Quobyte },
		func(c *Check, v *corev1.QuobyteVolumeSource, _ string, at *field.Path) { c.Quobyte(v, at) }),
	source("cephFS", "cephfs", func(s *corev1.PersistentVolumeSource) *corev1.CephFSPersistentVolumeSource { return s.CephFS },
		func(c *Check, v *corev1.CephFSPersistentVolumeSource, _ string, at *field.Path) {
			c.monitors(v.Monitors, at)
		}),
	source("iscsi", "iscsi", func(s *corev1.PersistentVolumeSource) *corev1.ISCSIPersistentVolumeSource { return s.ISCSI }, checkISCSI),
	source("cinder", "cinder", func(s *corev1.PersistentVolumeSource) *corev1.CinderPersistentVolumeSource { return s.Cinder },
		func(c *Check, v *corev1.CinderPersistentVolumeSource, _ string, at *field.Path) {
			c.Required(at.Child("volumeID"), v.VolumeID)
			if r := v.SecretRef; r != nil {
				c.Required(at.Child("secretRef", "name"), r.Name)
				c.Required(at.Child("secretRef", "namespace"), r.Namespace)
			}
		}),
	source("fc", "fc", func(s *corev1.PersistentVolumeSource) *corev1.FCVolumeSource { return s.FC },
		func(c *Check, v *corev1.FCVolumeSource, _ string, at *field.Path) { c.FibreChannel(v, at) }),
	source("flexVolume", "flexVolume", func(s *corev1.PersistentVolumeSource) *corev1.FlexPersistentVolumeSource { return s.FlexVolume },
		func(c *Check, v *corev1.FlexPersistentVolumeSource, _ string, at *field.Path) {
			c.Required(at.Child("driver"), v.Driver)
			c.FlexOptions(v.Options, at)
		}),
	source("azureFile", "azureFile", func(s *corev1.PersistentVolumeSource) *corev1.AzureFilePersistentVolumeSource { return s.AzureFile },
		func(c *Check, v *corev1.AzureFilePersistentVolumeSource, _ string, at *field.Path) {
			c.Required(at.Child("secretName"), v.SecretName)
			c.Required(at.Child("shareName"), v.ShareName)
			if v.SecretNamespace != nil {
				c.Required(at.Child("secretNamespace"), *v.SecretNamespace)
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
		func(c *Check, v *corev1.AzureDiskVolumeSource, _ string, at *field.Path) { c.AzureDisk(v, at) }),
	source("scaleIO", "scaleIO", func(s *corev1.PersistentVolumeSource) *corev1.ScaleIOPersistentVolumeSource { return s.ScaleIO },
		needs([]string{"gateway", "system", "volumeName"}, func(v *corev1.ScaleIOPersistentVolumeSource) []string {
			return []string{v.Gateway, v.System, v.VolumeName}
		})),
	{"local", func(c *Check, s *corev1.PersistentVolumeSpec, _ string, at *field.Path) bool {
		if s.Local != nil && at != nil {
			if name := at.Child("local", "path"); c.Required(name, s.Local.Path) {
				c.NoBacksteps(name, s.Local.Path)
			}
			c.Lack(s.NodeAffinity == nil, at.Child("nodeAffinity"), "Local volume requires node affinity")
		}
		return s.Local != nil
	}},
	source("storageos", "storageos", func(s *corev1.PersistentVolumeSource) *corev1.StorageOSPersistentVolumeSource { return s.StorageOS },
		func(c *Check, v *corev1.StorageOSPersistentVolumeSource, _ string, at *field.Path) {
			c.Needs(at.Child("volumeName"), v.VolumeName, validation.IsDNS1123Label)
			if v.VolumeNamespace != "" {
				c.Label(at.Child("volumeNamespace"), v.VolumeNamespace)
			}
			if r := v.SecretRef; r != nil {
				c.Required(at.Child("secretRef", "name"), r.Name)
				c.Required(at.Child("secretRef", "namespace"), r.Namespace)
			}
		}),
	source("csi", "csi", func(s *corev1.PersistentVolumeSource) *corev1.CSIPersistentVolumeSource { return s.CSI },
		func(c *Check, v *corev1.CSIPersistentVolumeSource, _ string, at *field.Path) {
			c.DriverName(at.Child("driver"), v.Driver)
			c.Required(at.Child("volumeHandle"), v.VolumeHandle)
			c.secretRef(v.ControllerPublishSecretRef, at.Child("controllerPublishSecretRef"))
			c.secretRef(v.ControllerExpandSecretRef, at.Child("controllerExpandSecretRef"))
			c.secretRef(v.NodePublishSecretRef, at.Child("nodePublishSecretRef"))
			c.secretRef(v.NodeExpandSecretRef, at.Child("nodeExpandSecretRef"))
		}),
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
