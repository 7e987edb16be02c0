package access

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// containers are all of a pod's, of whatever sort.
func containers(pod *corev1.Pod) []corev1.Container {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

func usesSecret(pod *corev1.Pod, name string) bool { return slices.Contains(SecretNames(pod), name) }

func usesConfigMap(pod *corev1.Pod, name string) bool {
	return slices.Contains(ConfigMapNames(pod), name)
}

// SecretNames are the names of the Secrets that a pod uses, some maybe more than once.
func SecretNames(pod *corev1.Pod) []string { return referencesOf(pod).secrets }

// ConfigMapNames are the names of the ConfigMaps that a pod uses, some maybe more than once.
func ConfigMapNames(pod *corev1.Pod) []string { return referencesOf(pod).configMaps }

// references are names of what a pod uses.
type references struct{ secrets, configMaps []string }

func (r *references) secret(name string) {
	if name != "" {
		r.secrets = append(r.secrets, name)
	}
}

func (r *references) configMap(name string) {
	if name != "" {
		r.configMaps = append(r.configMaps, name)
	}
}

func referencesOf(pod *corev1.Pod) *references {
	r := &references{}
	for _, ref := range pod.Spec.ImagePullSecrets {
		r.secret(ref.Name)
	}
	for _, c := range containers(pod) {
		r.ofEnvironment(&c)
	}
	for i := range pod.Spec.Volumes {
		r.ofVolume(&pod.Spec.Volumes[i].VolumeSource)
	}
	return r
}

func (r *references) ofEnvironment(c *corev1.Container) {
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			r.secret(from.SecretRef.Name)
		}
		if from.ConfigMapRef != nil {
			r.configMap(from.ConfigMapRef.Name)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from != nil && from.SecretKeyRef != nil {
			r.secret(from.SecretKeyRef.Name)
		}
		if from != nil && from.ConfigMapKeyRef != nil {
			r.configMap(from.ConfigMapKeyRef.Name)
		}
	}
}

// ofVolume adds what a pod's volume needs.
func (r *references) ofVolume(v *corev1.VolumeSource) {
	if v.ConfigMap != nil {
		r.configMap(v.ConfigMap.Name)
	}
	if v.Projected != nil {
		r.ofProjected(v.Projected.Sources)
	}
	secret := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			r.secret(ref.Name)
		}
	}
	switch {
	case v.AzureFile != nil:
		r.secret(v.AzureFile.SecretName)
	case v.CephFS != nil:
		secret(v.CephFS.SecretRef)
	case v.Cinder != nil:
		secret(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		secret(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		secret(v.RBD.SecretRef)
	case v.Secret != nil:
		r.secret(v.Secret.SecretName)
	case v.ScaleIO != nil:
		secret(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		secret(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		secret(v.StorageOS.SecretRef)
	case v.CSI != nil:
		secret(v.CSI.NodePublishSecretRef)
	}
}

func (r *references) ofProjected(sources []corev1.VolumeProjection) {
	for i := range sources {
		if s := sources[i].Secret; s != nil {
			r.secret(s.Name)
		}
		if m := sources[i].ConfigMap; m != nil {
			r.configMap(m.Name)
		}
	}
}

// volumeSecrets are the Secrets of a volume that a node needs. Where old volumes name no namespace it's that of the claim.
func volumeSecrets(pv *corev1.PersistentVolume) (refs []corev1.SecretReference) {
	add := func(ref *corev1.SecretReference, namespace string) {
		if ref != nil {
			refs = append(refs, corev1.SecretReference{Namespace: cmp.Or(ref.Namespace, namespace), Name: ref.Name})
		}
	}
	claimNamespace := pv.Spec.ClaimRef.Namespace
	switch v := &pv.Spec.PersistentVolumeSource; {
	case v.AzureFile != nil:
		ref := corev1.SecretReference{Name: v.AzureFile.SecretName}
		if v.AzureFile.SecretNamespace != nil {
			ref.Namespace = *v.AzureFile.SecretNamespace
		}
		add(&ref, claimNamespace)
	case v.CephFS != nil:
		add(v.CephFS.SecretRef, claimNamespace)
	case v.Cinder != nil:
		add(v.Cinder.SecretRef, "")
	case v.FlexVolume != nil:
		add(v.FlexVolume.SecretRef, claimNamespace)
	case v.RBD != nil:
		add(v.RBD.SecretRef, claimNamespace)
	case v.ScaleIO != nil:
		add(v.ScaleIO.SecretRef, claimNamespace)
	case v.ISCSI != nil:
		add(v.ISCSI.SecretRef, claimNamespace)
	case v.StorageOS != nil && v.StorageOS.SecretRef != nil:
		refs = append(refs, corev1.SecretReference{Namespace: v.StorageOS.SecretRef.Namespace, Name: v.StorageOS.SecretRef.Name})
	case v.CSI != nil:
		add(v.CSI.NodePublishSecretRef, "")
		add(v.CSI.NodeStageSecretRef, "")
		add(v.CSI.NodeExpandSecretRef, "")
	}
	return refs
}

// usesClaim is about claims that a pod names, and those that are made for it.
func usesClaim(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == name ||
			v.PersistentVolumeClaim == nil && v.Ephemeral != nil && pod.Name+"-"+v.Name == name
	})
}

// usesResourceClaim is about claims that a pod names, and those that its status names as made for it.
func usesResourceClaim(pod *corev1.Pod, name string) bool {
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil && *c.ResourceClaimName == name {
			return true
		}
		made := slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool {
			return s.Name == c.Name && s.ResourceClaimName != nil && *s.ResourceClaimName == name
		})
		if c.ResourceClaimName == nil && c.ResourceClaimTemplateName != nil && made {
			return true
		}
	}
	extended := pod.Status.ExtendedResourceClaimStatus
	return extended != nil && extended.ResourceClaimName == name
}

func usesAccount(pod *corev1.Pod, name string) bool { return pod.Spec.ServiceAccountName == name }
