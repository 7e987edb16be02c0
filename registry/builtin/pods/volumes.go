package pods

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/certificates"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/volumes"
)

// The rules for the volumes of pods.

// The bounds of modes and times.
const (
	maxFileMode       int32 = 0o777
	maxDirectoryMode  int32 = 0o1777
	minCertificate    int32 = 3600    // seconds
	maxCertificate    int32 = 7862400 // seconds: 91 days
	maxKubernetesLife int32 = 86400   // seconds: a day, for Kubernetes' own signers
)

// volumeKind is a source that a volume can have.
type volumeKind struct {
	name  string // as a refusal calls it
	set   func(s *corev1.VolumeSource) bool
	check func(c *PodCheck, v *corev1.Volume, at *field.Path) // at is that of the volume; nil: nothing is wrong with any
}

// volumeKinds are in Kubernetes' order: the first is the volume's, and further ones are too many.
var volumeKinds = []volumeKind{
	{"emptyDir", func(s *corev1.VolumeSource) bool { return s.EmptyDir != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		at = at.Child("emptyDir")
		if q := v.EmptyDir.SizeLimit; q != nil && q.Sign() < 0 {
			c.Add(field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity"))
		}
		if m := v.EmptyDir.Mode; m != nil && (*m < 0 || *m > maxDirectoryMode) {
			c.Add(field.Invalid(at.Child("mode"), *m, "must be a number between 0 and 01777 (octal), both inclusive"))
		}
	}},
	{"hostPath", func(s *corev1.VolumeSource) bool { return s.HostPath != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		at = at.Child("hostPath")
		if c.Required(at.Child("path"), v.HostPath.Path) {
			c.NoBacksteps(at.Child("path"), v.HostPath.Path)
			rules.Among(c, at.Child("type"), v.HostPath.Type, corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
				corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
		}
	}},
	{"gitRepo", func(s *corev1.VolumeSource) bool { return s.GitRepo != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("gitRepo", "repository"), v.GitRepo.Repository)
		c.LocalPath(at.Child("gitRepo", "directory"), v.GitRepo.Directory)
	}},
	{"gcePersistentDisk", func(s *corev1.VolumeSource) bool { return s.GCEPersistentDisk != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("persistentDisk", "pdName"), v.GCEPersistentDisk.PDName)
		c.Partition(at.Child("persistentDisk", "partition"), v.GCEPersistentDisk.Partition)
	}},
	{"awsElasticBlockStore", func(s *corev1.VolumeSource) bool { return s.AWSElasticBlockStore != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("awsElasticBlockStore", "volumeID"), v.AWSElasticBlockStore.VolumeID)
		c.Partition(at.Child("awsElasticBlockStore", "partition"), v.AWSElasticBlockStore.Partition)
	}},
	{"secret", func(s *corev1.VolumeSource) bool { return s.Secret != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		at = at.Child("secret")
		c.Required(at.Child("secretName"), v.Secret.SecretName)
		c.fileMode(at.Child("defaultMode"), v.Secret.DefaultMode)
		c.keys(v.Secret.Items, at)
	}},
	{"nfs", func(s *corev1.VolumeSource) bool { return s.NFS != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		at = at.Child("nfs")
		c.Required(at.Child("server"), v.NFS.Server)
		c.Required(at.Child("path"), v.NFS.Path)
		c.Refuse(!path.IsAbs(v.NFS.Path), at.Child("path"), v.NFS.Path, "must be an absolute path")
	}},
	{"iscsi", func(s *corev1.VolumeSource) bool { return s.ISCSI != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.iscsi(v.ISCSI, at.Child("iscsi"))
		if v.ISCSI.InitiatorName != nil && len(v.Name+":"+v.ISCSI.TargetPortal) > volumes.MaxISCSIName {
			c.Add(field.Invalid(at.Child("name"), v.Name, "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
		}
	}},
	{"glusterfs", func(s *corev1.VolumeSource) bool { return s.Glusterfs != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("glusterfs", "endpoints"), v.Glusterfs.EndpointsName)
		c.Required(at.Child("glusterfs", "path"), v.Glusterfs.Path)
	}},
	{"flocker", func(s *corev1.VolumeSource) bool { return s.Flocker != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) { c.Flocker(v.Flocker, at.Child("flocker")) }},
	{"persistentVolumeClaim", func(s *corev1.VolumeSource) bool { return s.PersistentVolumeClaim != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("persistentVolumeClaim", "claimName"), v.PersistentVolumeClaim.ClaimName)
	}},
	{"rbd", func(s *corev1.VolumeSource) bool { return s.RBD != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Lack(len(v.RBD.CephMonitors) == 0, at.Child("rbd", "monitors"), "")
		c.Required(at.Child("rbd", "image"), v.RBD.RBDImage)
	}},
	{"cinder", func(s *corev1.VolumeSource) bool { return s.Cinder != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("cinder", "volumeID"), v.Cinder.VolumeID)
		if r := v.Cinder.SecretRef; r != nil {
			c.Required(at.Child("cinder", "secretRef", "name"), r.Name)
		}
	}},
	{"cephFS", func(s *corev1.VolumeSource) bool { return s.CephFS != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Lack(len(v.CephFS.Monitors) == 0, at.Child("cephfs", "monitors"), "")
	}},
	{"quobyte", func(s *corev1.VolumeSource) bool { return s.Quobyte != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) { c.Quobyte(v.Quobyte, at.Child("quobyte")) }},
	{"downwarAPI", func(s *corev1.VolumeSource) bool { return s.DownwardAPI != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) { // the name is Kubernetes'
		at = at.Child("downwardAPI")
		c.fileMode(at.Child("defaultMode"), v.DownwardAPI.DefaultMode)
		for i := range v.DownwardAPI.Items {
			c.downwardFile(&v.DownwardAPI.Items[i], at)
		}
	}},
	{"fc", func(s *corev1.VolumeSource) bool { return s.FC != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) { c.FibreChannel(v.FC, at.Child("fc")) }},
	{"flexVolume", func(s *corev1.VolumeSource) bool { return s.FlexVolume != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("flexVolume", "driver"), v.FlexVolume.Driver)
		c.FlexOptions(v.FlexVolume.Options, at.Child("flexVolume"))
	}},
	{"configMap", func(s *corev1.VolumeSource) bool { return s.ConfigMap != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		at = at.Child("configMap")
		c.Required(at.Child("name"), v.ConfigMap.Name)
		c.fileMode(at.Child("defaultMode"), v.ConfigMap.DefaultMode)
		c.keys(v.ConfigMap.Items, at)
	}},
	{"azureFile", func(s *corev1.VolumeSource) bool { return s.AzureFile != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("azureFile", "secretName"), v.AzureFile.SecretName)
		c.Required(at.Child("azureFile", "shareName"), v.AzureFile.ShareName)
	}},
	{"vsphereVolume", func(s *corev1.VolumeSource) bool { return s.VsphereVolume != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("vsphereVolume", "volumePath"), v.VsphereVolume.VolumePath)
	}},
	{"photonPersistentDisk", func(s *corev1.VolumeSource) bool { return s.PhotonPersistentDisk != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("photonPersistentDisk", "pdID"), v.PhotonPersistentDisk.PdID)
	}},
	{"portworxVolume", func(s *corev1.VolumeSource) bool { return s.PortworxVolume != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("portworxVolume", "volumeID"), v.PortworxVolume.VolumeID)
	}},
	{"azureDisk", func(s *corev1.VolumeSource) bool { return s.AzureDisk != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) { c.AzureDisk(v.AzureDisk, at.Child("azureDisk")) }},
	{"storageos", func(s *corev1.VolumeSource) bool { return s.StorageOS != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		at = at.Child("storageos")
		c.Needs(at.Child("volumeName"), v.StorageOS.VolumeName, validation.IsDNS1123Label)
		if v.StorageOS.VolumeNamespace != "" {
			c.Label(at.Child("volumeNamespace"), v.StorageOS.VolumeNamespace)
		}
		if r := v.StorageOS.SecretRef; r != nil {
			c.Required(at.Child("secretRef", "name"), r.Name)
		}
	}},
	{"projected", func(s *corev1.VolumeSource) bool { return s.Projected != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) { c.projected(v.Projected, at.Child("projected")) }},
	{"scaleIO", func(s *corev1.VolumeSource) bool { return s.ScaleIO != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		c.Required(at.Child("scaleIO", "gateway"), v.ScaleIO.Gateway)
		c.Required(at.Child("scaleIO", "system"), v.ScaleIO.System)
		c.Required(at.Child("scaleIO", "volumeName"), v.ScaleIO.VolumeName)
	}},
	{"csi", func(s *corev1.VolumeSource) bool { return s.CSI != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		at = at.Child("csi")
		c.DriverName(at.Child("driver"), v.CSI.Driver)
		if r := v.CSI.NodePublishSecretRef; r != nil && c.Required(at.Child("nodePublishSecretRef", "name"), r.Name) {
			c.Subdomain(at.Child("name"), r.Name)
		}
	}},
	{"ephemeral", func(s *corev1.VolumeSource) bool { return s.Ephemeral != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		claim := at.Child("ephemeral", "volumeClaimTemplate")
		if v.Ephemeral.VolumeClaimTemplate == nil {
			c.Add(field.Required(claim, ""))
		} else {
			template := &volumes.Check{}
			template.ClaimTemplateMeta(&v.Ephemeral.VolumeClaimTemplate.ObjectMeta, claim.Child("metadata"))
			template.ClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec, claim.Child("spec"))
			c.Add(template.Errs...)
		}
		if c.pod != nil && c.pod.Name != "" && v.Name != "" {
			name := c.pod.Name + "-" + v.Name
			for _, text := range validation.IsDNS1123Subdomain(name) {
				c.Add(field.Invalid(at.Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", name, text)))
			}
		}
	}},
	{"image", func(s *corev1.VolumeSource) bool { return s.Image != nil }, func(c *PodCheck, v *corev1.Volume, at *field.Path) {
		at = at.Child("image")
		if v.Image.Reference == "" {
			c.Young(rules.ImagesNamed, field.Required(at.Child("reference"), ""))
		}
		c.Add(rules.OneOf(at.Child("pullPolicy"), v.Image.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	}},
}

// iscsi checks a target, and who asks for it. A name that isn't of one of the forms is told which there are.
func (c *PodCheck) iscsi(v *corev1.ISCSIVolumeSource, at *field.Path) {
	named := func(at *field.Path, name string) {
		if volumes.IscsiNames[name[:min(len(name), 3)]] == nil {
			c.Add(field.Invalid(at, name, "must be valid format starting with iqn, eui, or naa"))
			return
		}
		c.IscsiName(at, name)
	}
	c.Required(at.Child("targetPortal"), v.TargetPortal)
	if c.Required(at.Child("iqn"), v.IQN) {
		named(at.Child("iqn"), v.IQN)
	}
	if v.Lun < 0 || v.Lun > volumes.MaxLun {
		c.Add(field.Invalid(at.Child("lun"), v.Lun, validation.InclusiveRangeError(0, volumes.MaxLun)))
	}
	c.Lack((v.DiscoveryCHAPAuth || v.SessionCHAPAuth) && v.SecretRef == nil, at.Child("secretRef"), "")
	if v.InitiatorName != nil {
		named(at.Child("initiatorname"), *v.InitiatorName)
	}
}

// checkVolumes checks all volumes, and keeps those that can be mounted.
func (c *PodCheck) checkVolumes(at *field.Path) {
	all := c.Spec.Volumes
	if len(all) == 0 {
		return
	}
	c.volumes = make(map[string]*corev1.Volume, len(all))
	for i := range all {
		v, at, before := &all[i], at.Index(i), len(c.Errs)
		one := false
		for _, kind := range volumeKinds {
			switch set := kind.set(&v.VolumeSource); {
			case set && one:
				c.Add(field.Forbidden(at.Child(kind.name), "may not specify more than 1 volume type"))
			case set:
				one = true
				if kind.check != nil {
					kind.check(c, v, at)
				}
			}
		}
		c.Lack(!one, at, "must specify a volume type")
		c.Needs(at.Child("name"), v.Name, validation.IsDNS1123Label)
		if c.volumes[v.Name] != nil {
			c.Add(field.Duplicate(at.Child("name"), v.Name))
		}
		if len(c.Errs) == before {
			c.volumes[v.Name] = v
		}
		if claim := v.PersistentVolumeClaim; claim != nil && c.pod != nil && slices.ContainsFunc(all, func(other corev1.Volume) bool {
			return other.Ephemeral != nil && c.pod.Name != "" && c.pod.Name+"-"+other.Name == claim.ClaimName
		}) {
			c.Add(field.Invalid(at.Child("persistentVolumeClaim", "claimName"), claim.ClaimName, "must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
}

// keys checks which entries become files. at is the path of the source.
func (c *PodCheck) keys(items []corev1.KeyToPath, at *field.Path) {
	for i := range items {
		item, at := &items[i], at.Child("items").Index(i)
		c.Required(at.Child("key"), item.Key)
		c.Required(at.Child("path"), item.Path)
		c.filePath(at.Child("path"), item.Path)
		c.fileMode(at.Child("mode"), item.Mode)
	}
}

func (c *PodCheck) fileMode(at *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > maxFileMode) {
		c.Add(field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive"))
	}
}

// filePath wants the path of a file in a volume that a kubelet writes; it keeps names that begin with two dots for itself.
func (c *PodCheck) filePath(at *field.Path, p string) {
	c.LocalPath(at, p)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") {
		c.Add(field.Invalid(at, p, "must not start with '..'"))
	}
}

// downwardFile checks a file that tells of the pod. at is the path of the source: Kubernetes leaves out which file it is.
func (c *PodCheck) downwardFile(f *corev1.DownwardAPIVolumeFile, at *field.Path) {
	c.Required(at.Child("path"), f.Path)
	c.filePath(at.Child("path"), f.Path)
	switch {
	case f.FieldRef != nil:
		c.fieldRef(f.FieldRef, volumeFieldPaths, at.Child("fieldRef"))
		c.Refuse(f.ResourceFieldRef != nil, at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
	case f.ResourceFieldRef != nil:
		c.resourceFieldRef(f.ResourceFieldRef, at.Child("resourceFieldRef"), true)
	default:
		c.Add(field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	}
	c.fileMode(at.Child("mode"), f.Mode)
}

func (c *PodCheck) projected(p *corev1.ProjectedVolumeSource, at *field.Path) {
	c.fileMode(at.Child("defaultMode"), p.DefaultMode)
	taken := map[string]bool{}
	take := func(file string, value any) {
		c.Refuse(file != "" && taken[file], at, value, "conflicting duplicate paths")
		taken[file] = true
	}
	for i := range p.Sources {
		s, in := &p.Sources[i], at.Child("sources").Index(i)
		n := 0
		if s.Secret != nil {
			n++
			c.projectedKeys(s.Secret.Name, s.Secret.Items, in.Child("secret"), take)
		}
		if s.ConfigMap != nil {
			n++
			c.projectedKeys(s.ConfigMap.Name, s.ConfigMap.Items, in.Child("configMap"), take)
		}
		if d := s.DownwardAPI; d != nil {
			n++
			for j := range d.Items {
				c.downwardFile(&d.Items[j], in.Child("downwardAPI"))
				take(d.Items[j].Path, d.Items[j].Path)
			}
		}
		if t := s.ServiceAccountToken; t != nil {
			n++
			life := in.Child("serviceAccountToken", "expirationSeconds")
			switch seconds := t.ExpirationSeconds; {
			case seconds == nil:
				c.Add(field.Required(life, ""))
			case *seconds < volumes.MinTokenLife:
				c.Add(field.Invalid(life, *seconds, "may not specify a duration less than 10 minutes"))
			case *seconds > volumes.MaxTokenLife:
				c.Add(field.Invalid(life, *seconds, "may not specify a duration larger than 2^32 seconds"))
			}
			path := &PodCheck{}
			path.filePath(at.Child("path"), t.Path)
			c.Required(at.Child("path"), t.Path)
			c.Young(rules.TokenPaths, path.Errs...)
		}
		if b := s.ClusterTrustBundle; b != nil {
			n++
			c.trustBundle(b, in.Child("clusterTrustBundle"))
			if taken[b.Path] {
				c.Add(field.Invalid(at, b.Path, "conflicting duplicate paths"))
			}
			taken[b.Path] = true
		}
		if pc := s.PodCertificate; pc != nil {
			n++
			c.podCertificate(pc, in.Child("podCertificate"), take)
		}
		c.Forbid(n > 1, in, "may not specify more than 1 volume type per source")
	}
}

func (c *PodCheck) projectedKeys(name string, items []corev1.KeyToPath, at *field.Path, take func(string, any)) {
	c.Required(at.Child("name"), name)
	c.keys(items, at)
	for i := range items {
		take(items[i].Path, name)
	}
}

func (c *PodCheck) trustBundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		c.Add(field.Invalid(at, b, "only one of name and signerName may be used"))
	case b.Name != nil:
		c.Lack(*b.Name == "", at.Child("name"), "must be a valid object name")
		signer := (*b.Name)[:max(0, strings.LastIndexByte(*b.Name, ':'))]
		for _, why := range certificates.TrustBundleName(strings.ReplaceAll(signer, ":", "/"), *b.Name, false) {
			c.Add(field.Invalid(at.Child("name"), *b.Name, "not a valid clustertrustbundlename: "+why))
		}
		c.Refuse(b.LabelSelector != nil, at.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified")
	case b.SignerName != nil:
		c.Lack(*b.SignerName == "", at.Child("signerName"), "must be a valid signer name")
		c.Add(certificates.ValidateSignerName(at.Child("signerName"), *b.SignerName)...)
		bundles := &rules.Check{}
		bundles.Selector(b.LabelSelector, at.Child("labelSelector"))
		c.Add(bundles.Errs...)
	default:
		c.Add(field.Required(at, "either name or signerName must be specified"))
	}
	c.Required(at.Child("path"), b.Path)
	c.filePath(at.Child("path"), b.Path)
}

func (c *PodCheck) podCertificate(p *corev1.PodCertificateProjection, at *field.Path, take func(string, any)) {
	c.Add(certificates.ValidateSignerName(at.Child("signerName"), p.SignerName)...)
	c.Add(certificates.ValidateUserAnnotations(at.Child("userAnnotations"), p.UserAnnotations)...)
	kinds := []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}
	if !slices.Contains(kinds, p.KeyType) {
		c.Add(field.NotSupported(at.Child("keyType"), p.KeyType, kinds))
	}
	if n := p.MaxExpirationSeconds; n != nil {
		most := maxCertificate
		if strings.HasPrefix(p.SignerName, "kubernetes.io/") {
			most = maxKubernetesLife
		}
		if *n < minCertificate {
			c.Add(field.Invalid(at.Child("maxExpirationSeconds"), *n, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", minCertificate)))
		}
		if *n > most {
			c.Add(field.Invalid(at.Child("maxExpirationSeconds"), *n, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most)))
		}
	}
	files := 0
	for _, f := range []struct{ name, path string }{{"credentialBundlePath", p.CredentialBundlePath}, {"keyPath", p.KeyPath}, {"certificateChainPath", p.CertificateChainPath}} {
		if f.path != "" {
			files++
			c.filePath(at.Child(f.name), f.path)
			take(f.path, f.path)
		}
	}
	c.Lack(files == 0, at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
}
