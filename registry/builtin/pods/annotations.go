package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
)

// The rules for annotations that say how a pod runs or ends, of which most are older than the field for the same.

// ValidateTemplate checks the template of a pod. before is what it was, empty for a new one, and at is its path.
func ValidateTemplate(t, before *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	spec := at.Child("spec")
	errs := ValidateTemplateMeta(t, before, at)
	errs = append(errs, validatePodSpec(&t.Spec, &before.Spec, nil, spec)...)
	errs = append(errs, validateProfiles(t.Annotations, &t.Spec, spec)...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// ValidateTemplateMeta checks the labels and annotations of a template.
func ValidateTemplateMeta(t, before *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, at.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))...)
	return append(errs, validatePodAnnotations(t.Annotations, before.Annotations, &t.Spec, at.Child("annotations"))...)
}

// validatePodAnnotations checks the annotations of a pod, or of a template. was are those that it had.
func validatePodAnnotations(annotations, was map[string]string, s *corev1.PodSpec, at *field.Path) (errs field.ErrorList) {
	if len(annotations) == 0 {
		return nil
	}
	if value, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && s.NodeName == "" {
		errs = append(errs, field.Invalid(at.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set"))
	}
	errs = append(errs, validateToleratedIn(annotations[corev1.TolerationsAnnotationKey], at)...)
	if !costsNumber(annotations) && costsNumber(was) {
		errs = append(errs, field.Invalid(at.Key(corev1.PodDeletionCost), annotations[corev1.PodDeletionCost], "must be a 32bit integer"))
	}
	if value, has := annotations[corev1.SeccompPodAnnotationKey]; has {
		errs = append(errs, validateSeccompIn(value, at.Child(corev1.SeccompPodAnnotationKey))...)
	}
	names := slices.Sorted(maps.Keys(annotations))
	for _, name := range names {
		if strings.HasPrefix(name, corev1.SeccompContainerAnnotationKeyPrefix) {
			errs = append(errs, validateSeccompIn(annotations[name], at.Child(name))...)
		}
	}
	for _, name := range names {
		if container, is := strings.CutPrefix(name, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix); is {
			errs = append(errs, validateAppArmorIn(annotations[name], container, s, at.Key(name))...)
		}
	}
	return errs
}

// costsNumber tells whether what a deletion costs is a number without a plus sign or leading zeros, if it's said. Behind a minus sign it may
// have those.
func costsNumber(annotations map[string]string) bool {
	text, costs := annotations[corev1.PodDeletionCost]
	_, err := strconv.ParseInt(text, 10, 32)
	return !costs || err == nil && text[0] != '+' && (text[0] != '0' || text == "0")
}

// validateToleratedIn checks the annotation that was there before the field tolerations.
func validateToleratedIn(text string, at *field.Path) field.ErrorList {
	if text == "" {
		return nil
	}
	var tolerations []corev1.Toleration
	if err := json.Unmarshal([]byte(text), &tolerations); err != nil {
		why := strings.ReplaceAll(err.Error(), "v1.Toleration", "core.Toleration") // as Kubernetes calls the type
		return field.ErrorList{field.Invalid(at, corev1.TolerationsAnnotationKey, why)}
	}
	c := &PodCheck{Spec: &corev1.PodSpec{Tolerations: tolerations}}
	c.Tolerations(at.Child(corev1.TolerationsAnnotationKey))
	return c.Errs
}

func validateSeccompIn(profile string, at *field.Path) field.ErrorList {
	switch profile {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
		return nil
	}
	path, local := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix)
	if !local {
		return field.ErrorList{field.Invalid(at, profile, "must be a valid seccomp profile")}
	}
	c := &PodCheck{}
	c.LocalPath(at, path)
	return c.Errs
}

func validateAppArmorIn(profile, container string, s *corev1.PodSpec, at *field.Path) (errs field.ErrorList) {
	found := false
	eachContainer(s, nil, func(c *corev1.Container, _ *field.Path) { found = found || c.Name == container })
	if !found {
		errs = append(errs, field.Invalid(at, container, "container not found"))
	}
	switch {
	case profile == "", profile == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, profile == corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
		strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
	default:
		errs = append(errs, field.Invalid(at, profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile)))
	}
	return errs
}

// validateAnnotationUpdate refuses changes of annotations that a pod keeps, and checks those that it has.
func validateAnnotationUpdate(p, old *corev1.Pod) (errs field.ErrorList) {
	at := field.NewPath("metadata", "annotations")
	kept := func(name string) (what string) {
		switch {
		case strings.HasPrefix(name, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			return "AppArmor annotations"
		case name == corev1.MirrorPodAnnotationKey:
			return "mirror pod annotation"
		}
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(old.Annotations)) {
		if now, has := p.Annotations[name]; kept(name) != "" && (!has || now != old.Annotations[name]) {
			errs = append(errs, field.Forbidden(at.Key(name), "may not remove or update "+kept(name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Annotations)) {
		if _, had := old.Annotations[name]; kept(name) != "" && !had {
			errs = append(errs, field.Forbidden(at.Key(name), "may not add "+kept(name)))
		}
	}
	return append(errs, validatePodAnnotations(p.Annotations, old.Annotations, &p.Spec, at)...)
}

// validateProfiles wants what a new pod, or a template, says of seccomp and AppArmor in fields to be what its annotations say. at is the
// spec's path.
func validateProfiles(annotations map[string]string, s *corev1.PodSpec, at *field.Path) (errs field.ErrorList) {
	if len(annotations) == 0 {
		return nil
	}
	security := s.SecurityContext
	if security == nil {
		security = &corev1.PodSecurityContext{}
	}
	if value, has := annotations[corev1.SeccompPodAnnotationKey]; has {
		errs = append(errs, sameSeccomp(value, security.SeccompProfile, at.Child("securityContext", "seccompProfile"))...)
	}
	own := func(c *corev1.Container) *corev1.SecurityContext {
		if c.SecurityContext == nil {
			return &corev1.SecurityContext{}
		}
		return c.SecurityContext
	}
	eachContainer(s, at, func(c *corev1.Container, at *field.Path) {
		if value, has := annotations[corev1.SeccompContainerAnnotationKeyPrefix+c.Name]; has {
			errs = append(errs, sameSeccomp(value, own(c).SeccompProfile, at.Child("securityContext", "seccompProfile"))...)
		}
	})
	if isWindows(s) {
		return errs
	}
	eachContainer(s, at, func(c *corev1.Container, at *field.Path) {
		profile := cmp.Or(own(c).AppArmorProfile, security.AppArmorProfile)
		if value, has := annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; has {
			errs = append(errs, sameAppArmor(value, profile, at.Child("securityContext", "appArmorProfile"))...)
		}
	})
	return errs
}

func isWindows(s *corev1.PodSpec) bool { return s.OS != nil && s.OS.Name == corev1.Windows }

func sameSeccomp(annotation string, p *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	runtime := annotation == corev1.SeccompProfileRuntimeDefault || annotation == corev1.DeprecatedSeccompProfileDockerDefault
	local, isLocal := strings.CutPrefix(annotation, corev1.SeccompLocalhostProfileNamePrefix)
	switch {
	case p.Type == corev1.SeccompProfileTypeUnconfined && annotation != corev1.SeccompProfileNameUnconfined,
		p.Type == corev1.SeccompProfileTypeRuntimeDefault && !runtime,
		p.Type == corev1.SeccompProfileTypeLocalhost && !isLocal:
		return field.ErrorList{field.Forbidden(at.Child("type"), "seccomp type in annotation and field must match")}
	case p.Type == corev1.SeccompProfileTypeLocalhost && (p.LocalhostProfile == nil || *p.LocalhostProfile != local):
		return field.ErrorList{field.Forbidden(at.Child("localhostProfile"), "seccomp profile in annotation and field must match")}
	}
	return nil
}

func sameAppArmor(annotation string, p *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	local, isLocal := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case p.Type == corev1.AppArmorProfileTypeUnconfined && annotation != corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
		p.Type == corev1.AppArmorProfileTypeRuntimeDefault && annotation != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault,
		p.Type == corev1.AppArmorProfileTypeLocalhost && !isLocal:
		return field.ErrorList{field.Forbidden(at.Child("type"), "apparmor type in annotation and field must match")}
	case p.Type == corev1.AppArmorProfileTypeLocalhost && (p.LocalhostProfile == nil || *p.LocalhostProfile != local):
		return field.ErrorList{field.Forbidden(at.Child("localhostProfile"), "apparmor profile in annotation and field must match")}
	}
	return nil
}

// appArmorOf returns the profile that an annotation names; nil if it names none.
func appArmorOf(annotation string) *corev1.AppArmorProfile {
	local, isLocal := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case isLocal && local != "":
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
	}
	return nil
}

const annotatedAppArmor = `deprecated since v1.30; use the "appArmorProfile" field instead`

// takeAppArmor gives the containers of a new pod the profiles that its annotations name, where they have none of their own, and warns of
// such annotations.
func takeAppArmor(ctx context.Context, p *corev1.Pod) {
	if len(p.Annotations) == 0 || isWindows(&p.Spec) {
		return
	}
	var whole *corev1.AppArmorProfile
	if p.Spec.SecurityContext != nil {
		whole = p.Spec.SecurityContext.AppArmorProfile
	}
	eachContainer(&p.Spec, nil, func(c *corev1.Container, _ *field.Path) {
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
		annotation, has := p.Annotations[key]
		if !has || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			return
		}
		profile, check := appArmorOf(annotation), &PodCheck{}
		if check.appArmor(profile, nil); len(check.Errs) > 0 {
			profile = nil
		}
		if profile != nil && equality.Semantic.DeepEqual(profile, whole) {
			return
		}
		if profile != nil {
			line.OrPointTo(&c.SecurityContext, corev1.SecurityContext{})
			c.SecurityContext.AppArmorProfile = profile
		}
		warning.AddWarning(ctx, "", field.NewPath("metadata", "annotations").Key(key).String()+": "+annotatedAppArmor)
	})
}
