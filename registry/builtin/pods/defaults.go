package pods

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/volumes"
)

// What pods and the templates of pods have in common.

// The defaults of pods, as the API documentation names them.
const (
	defaultGracePeriod     int64 = 30   // seconds until a pod that ends is killed
	defaultTokenExpiration int64 = 3600 // seconds
	defaultFileMode        int32 = 0o644
	defaultProbeTimeout    int32 = 1  // seconds
	defaultProbePeriod     int32 = 10 // seconds
	defaultProbeSuccesses  int32 = 1
	defaultProbeFailures   int32 = 3
)

// DefaultPodSpec fills in what a pod and a template leave out.
func DefaultPodSpec(s *corev1.PodSpec) {
	line.OrDefault(&s.DNSPolicy, corev1.DNSClusterFirst)
	line.OrDefault(&s.RestartPolicy, corev1.RestartPolicyAlways)
	line.OrDefault(&s.SchedulerName, corev1.DefaultSchedulerName)
	line.OrPointTo(&s.SecurityContext, corev1.PodSecurityContext{})
	line.OrPointTo(&s.TerminationGracePeriodSeconds, defaultGracePeriod)
	if s.ServiceAccountName == "" { // the older name says the same
		s.ServiceAccountName = s.DeprecatedServiceAccount
	}
	s.DeprecatedServiceAccount = s.ServiceAccountName
	line.RoundUp(s.Overhead)
	roundUpAll(s.Resources)
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i])
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		defaultContainer((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// roundUpAll rounds what is requested and what it is limited to; nil has nothing.
func roundUpAll(r *corev1.ResourceRequirements) {
	if r != nil {
		line.RoundUp(r.Limits)
		line.RoundUp(r.Requests)
	}
}

func defaultContainer(c *corev1.Container) {
	line.OrDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	line.OrDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	c.ImagePullPolicy = cmp.Or(c.ImagePullPolicy, pullPolicyOf(c.Image))
	roundUpAll(&c.Resources)
	for i := range c.Ports {
		line.OrDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				line.OrPointTo(&from.FileKeyRef.Optional, false)
			}
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil {
			continue
		}
		line.OrDefault(&p.TimeoutSeconds, defaultProbeTimeout)
		line.OrDefault(&p.PeriodSeconds, defaultProbePeriod)
		line.OrDefault(&p.SuccessThreshold, defaultProbeSuccesses)
		line.OrDefault(&p.FailureThreshold, defaultProbeFailures)
		defaultHTTPGet(p.HTTPGet)
		if p.GRPC != nil {
			line.OrPointTo(&p.GRPC.Service, "")
		}
	}
	if l := c.Lifecycle; l != nil {
		for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// maxRepository is how long the name of a repository of images may be, in bytes, without the domain.
const maxRepository = 255

// imageNames match the domain of an image's name, and what follows it: the repository, perhaps a tag and perhaps a digest, which are
// captured. They're compiled when the first pod comes.
var imageNames = sync.OnceValue(func() (names struct{ domain, rest *regexp.Regexp }) {
	const (
		label  = `[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?`
		part   = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
		digest = `sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}`
	)
	names.domain = regexp.MustCompile(`^(?:` + label + `(?:\.` + label + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?$`)
	names.rest = regexp.MustCompile(`^(` + part + `(?:/` + part + `)*)(?::(\w[\w.-]{0,127}))?(?:@(` + digest + `))?$`)
	return names
})

// imageID matches what is the id of an image and not its name.
var imageID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-f0-9]{64}$`) })

// pullPolicyOf is Always for the tag latest, which an image without a tag or digest has. Where there's no image, or no name of one, it's
// the other one.
func pullPolicyOf(image string) corev1.PullPolicy {
	domain, rest, found := strings.Cut(image, "/")
	if !found || !strings.ContainsAny(domain, ".:") && domain != "localhost" && domain == strings.ToLower(domain) {
		domain, rest = "localhost", image // it's a part of the repository's name
	}
	repository, _, _ := strings.Cut(rest, "@")
	if _, tag, tagged := strings.Cut(repository, ":"); tagged && tag != "latest" {
		return corev1.PullIfNotPresent // also if it's no tag, since then it's no name
	}
	parts := imageNames().rest.FindStringSubmatch(rest)
	if parts == nil || len(parts[1]) > maxRepository || imageID().MatchString(image) || !imageNames().domain.MatchString(domain) {
		return corev1.PullIfNotPresent // from there nothing can be pulled
	}
	if tag, digest := parts[2], parts[3]; tag == "latest" || tag == "" && digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultHTTPGet(a *corev1.HTTPGetAction) {
	if a != nil {
		line.OrDefault(&a.Path, "/")
		line.OrDefault(&a.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(r *corev1.ObjectFieldSelector) {
	if r != nil {
		line.OrDefault(&r.APIVersion, "v1")
	}
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

// defaultVolume makes a volume without a source an empty directory, and completes the others.
func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if s := v.HostPath; s != nil {
		line.OrPointTo(&s.Type, corev1.HostPathUnset)
	}
	if s := v.Secret; s != nil {
		line.OrPointTo(&s.DefaultMode, defaultFileMode)
	}
	if s := v.ConfigMap; s != nil {
		line.OrPointTo(&s.DefaultMode, defaultFileMode)
	}
	if s := v.DownwardAPI; s != nil {
		line.OrPointTo(&s.DefaultMode, defaultFileMode)
		defaultDownwardItems(s.Items)
	}
	if s := v.Projected; s != nil {
		line.OrPointTo(&s.DefaultMode, defaultFileMode)
		for i := range s.Sources {
			if d := s.Sources[i].DownwardAPI; d != nil {
				defaultDownwardItems(d.Items)
			}
			if t := s.Sources[i].ServiceAccountToken; t != nil {
				line.OrPointTo(&t.ExpirationSeconds, defaultTokenExpiration)
			}
		}
	}
	if s := v.Image; s != nil {
		line.OrDefault(&s.PullPolicy, pullPolicyOf(s.Reference))
	}
	if s := v.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		volumes.DefaultClaimSpec(&s.VolumeClaimTemplate.Spec)
	}
	defaultNetworkVolume(&v.VolumeSource)
}

// defaultNetworkVolume completes the sources of particular storage systems.
func defaultNetworkVolume(v *corev1.VolumeSource) {
	if s := v.ISCSI; s != nil {
		line.OrDefault(&s.ISCSIInterface, "default")
	}
	if s := v.RBD; s != nil {
		line.OrDefault(&s.RBDPool, "rbd")
		line.OrDefault(&s.RadosUser, "admin")
		line.OrDefault(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := v.AzureDisk; s != nil {
		line.OrPointTo(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		line.OrPointTo(&s.FSType, "ext4")
		line.OrPointTo(&s.ReadOnly, false)
		line.OrPointTo(&s.Kind, corev1.AzureSharedBlobDisk)
	}
	if s := v.ScaleIO; s != nil {
		line.OrDefault(&s.StorageMode, "ThinProvisioned")
		line.OrDefault(&s.FSType, "xfs")
	}
}

func validateContainerPorts(ports []corev1.ContainerPort, at *field.Path) (errs field.ErrorList) {
	for i, p := range ports {
		at := at.Index(i)
		if p.Name != "" {
			switch texts := validation.IsValidPortName(p.Name); {
			case len(texts) > 0:
				errs = append(errs, rules.Problems(at.Child("name"), p.Name, texts)...)
			case slices.ContainsFunc(ports[:i], func(other corev1.ContainerPort) bool { return other.Name == p.Name }):
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, rules.Problems(at.Child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort)))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, rules.Problems(at.Child("hostPort"), p.HostPort, validation.IsValidPortNum(int(p.HostPort)))...)
		}
		errs = append(errs, rules.ValidateProtocol(p.Protocol, at.Child("protocol"))...)
	}
	return errs
}
