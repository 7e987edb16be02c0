package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	config "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/admission/api/validation"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// PodSecurity holds pods to the Pod Security Standards that the labels of their namespace name: it refuses pods (enforce), and notes in
// the audit log (audit) and warns (warn) about pods and about what has a pod's template. What the levels mean is Kubernetes' own code.
type PodSecurity struct {
	registry   *registry.Registry
	unreadable func(*kube.Object, error)
	defaults   api.Policy // of a namespace without labels
	exempt     config.PodSecurityExemptions
	evaluator  func() (policy.Evaluator, error)
}

// NewPodSecurity returns the plug-in. configuration is a PodSecurityConfiguration as YAML or JSON; empty: namespaces have no level
// unless their labels name one. unreadable is told about pods that can't be decoded.
func NewPodSecurity(r *registry.Registry, configuration []byte, unreadable func(*kube.Object, error)) (*PodSecurity, error) {
	p := &PodSecurity{registry: r, unreadable: unreadable}
	p.evaluator = sync.OnceValues(func() (policy.Evaluator, error) { return policy.NewEvaluator(policy.DefaultChecks(), nil) })
	none := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	p.defaults = api.Policy{Enforce: none, Audit: none, Warn: none}
	if len(configuration) == 0 {
		return p, nil
	}
	c, err := load.LoadFromData(configuration)
	if err != nil {
		return nil, err
	}
	if p.defaults, err = config.ToPolicy(c.Defaults); err != nil {
		return nil, err
	}
	p.exempt = c.Exemptions
	return p, validation.ValidatePodSecurityConfiguration(c).ToAggregate()
}

const (
	// podsChecked is how many pods of a namespace are checked at most when its level becomes stricter, and podsCheckTime how long that
	// may take. Both are kube-apiserver's.
	podsChecked   = 3000
	podsCheckTime = time.Second
)

// templates says where a resource has a pod's template. A resource with an optional one has no pod without it.
var templates = map[schema.GroupResource]struct {
	path     []string
	optional bool
}{
	{Resource: "podtemplates"}:                {path: []string{"template"}},
	{Resource: "replicationcontrollers"}:      {path: []string{"spec", "template"}, optional: true},
	{Group: "apps", Resource: "replicasets"}:  {path: []string{"spec", "template"}},
	{Group: "apps", Resource: "deployments"}:  {path: []string{"spec", "template"}},
	{Group: "apps", Resource: "statefulsets"}: {path: []string{"spec", "template"}},
	{Group: "apps", Resource: "daemonsets"}:   {path: []string{"spec", "template"}},
	{Group: "batch", Resource: "jobs"}:        {path: []string{"spec", "template"}},
	{Group: "batch", Resource: "cronjobs"}:    {path: []string{"spec", "jobTemplate", "spec", "template"}},
}

// Concerns is about what is created and updated of pods, with the subresources that change a pod's spec, of what has a pod's template,
// and of namespaces. A namespace without levels costs the writers of templates nothing; for pods the audit log says that it has none.
func (p *PodSecurity) Concerns(a *registry.Attributes) bool {
	if a.Operation == registry.Delete {
		return false
	}
	if a.Resource.Group == "" {
		switch a.Resource.Resource {
		case "namespaces":
			return a.Subresource == ""
		case "pods":
			return a.Subresource == "" || a.Subresource == "ephemeralcontainers" || a.Subresource == "resize"
		}
	}
	_, has := templates[a.Resource.GroupResource()]
	return has && a.Subresource == "" && p.hasLevels(a.Namespace)
}

// hasLevels tells whether a namespace may have a level that matters, without a look at what its labels say.
func (p *PodSecurity) hasLevels(namespace string) bool {
	exempts := len(p.exempt.Namespaces)+len(p.exempt.Usernames) > 0 // which is noted, too
	if exempts || !p.defaults.FullyPrivileged() {
		return true
	}
	o := p.registry.Catalog().Object(namespacesPrefix, "", namespace)
	return o == nil || o.Err != nil || bytes.Contains(o.Metadata(), []byte(api.AuditAnnotationPrefix))
}

// Validate judges a namespace's labels, or a pod.
func (p *PodSecurity) Validate(ctx context.Context, r *request) (registry.Verdict, error) {
	if r.Resource.Resource == "namespaces" {
		return p.judgeNamespace(ctx, r)
	}
	switch {
	case slices.Contains(p.exempt.Namespaces, r.Namespace):
		annotate(ctx, api.ExemptionReasonAnnotationKey, "namespace")
		return registry.Verdict{}, nil
	case r.User.GetName() != "" && slices.Contains(p.exempt.Usernames, r.User.GetName()):
		annotate(ctx, api.ExemptionReasonAnnotationKey, "user")
		return registry.Verdict{}, nil
	}
	labels, err := p.registry.NamespaceLabels(ctx, r.Namespace)
	if err != nil && !apierrors.IsNotFound(err) { // what is missing is made, or nothing is stored in it
		return registry.Verdict{}, err
	}
	level, errs := api.PolicyToEvaluate(labels, p.defaults)
	if r.Resource.Resource == "pods" {
		return p.judgePod(ctx, r, level, errs)
	}
	return p.judgeTemplate(ctx, r, level, errs)
}

// privileged is how an audit log names the level of namespaces that have none.
var privileged = api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}.String()

// annotate notes something in the audit log.
func annotate(ctx context.Context, key, value string) {
	audit.Annotate(ctx, api.AuditAnnotationPrefix+key, value)
}

// judgePod holds a pod to the levels of its namespace. errs is what is wrong with these.
func (p *PodSecurity) judgePod(ctx context.Context, r *request, level api.Policy, errs field.ErrorList) (pass registry.Verdict, err error) {
	if len(errs) == 0 && level.FullyPrivileged() {
		annotate(ctx, api.EnforcedPolicyAnnotationKey, privileged)
		return pass, nil
	}
	pod, err := decode[corev1.Pod](r.Object)
	if err != nil {
		return registry.Refuse(apierrors.NewBadRequest("failed to decode object")), nil
	}
	if r.Operation == registry.Update {
		old, err := decode[corev1.Pod](r.Old)
		if err != nil {
			return registry.Refuse(apierrors.NewBadRequest("failed to decode old object")), nil
		}
		if !brings(pod, old) {
			return pass, nil
		}
	}
	return p.evaluate(ctx, r, subject{&pod.ObjectMeta, &pod.Spec, true}, level, errs)
}

// brings tells whether an update brings a container, or an image, to a pod. Nothing else that matters can be changed.
func brings(pod, old *corev1.Pod) bool {
	differ := func(a, b corev1.Container) bool { return a.Image != b.Image }
	for _, lists := range [][2][]corev1.Container{{pod.Spec.Containers, old.Spec.Containers}, {pod.Spec.InitContainers, old.Spec.InitContainers}} {
		if !slices.EqualFunc(lists[0], lists[1], func(a, b corev1.Container) bool { return !differ(a, b) }) {
			return true
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		i := slices.IndexFunc(old.Spec.EphemeralContainers, func(o corev1.EphemeralContainer) bool { return o.Name == c.Name })
		if i < 0 || old.Spec.EphemeralContainers[i].Image != c.Image {
			return true
		}
	}
	return false
}

// judgeTemplate notes and warns about what pods of a template would be refused for.
func (p *PodSecurity) judgeTemplate(ctx context.Context, r *request, level api.Policy, errs field.ErrorList) (pass registry.Verdict, err error) {
	if len(errs) == 0 && level.Warn.Level == api.LevelPrivileged && level.Audit.Level == api.LevelPrivileged {
		return pass, nil
	}
	at := templates[r.Resource.GroupResource()]
	var tree any = r.Object.Object
	for _, name := range at.path {
		of, _ := tree.(map[string]any)
		tree = of[name]
	}
	var template corev1.PodTemplateSpec
	if of, ok := tree.(map[string]any); ok {
		if err := jsontree.Into(of, &template); err != nil {
			annotate(ctx, "error", fmt.Sprintf("failed to decode object: %v", err))
			return pass, nil
		}
	} else if at.optional {
		return pass, nil
	}
	return p.evaluate(ctx, r, subject{&template.ObjectMeta, &template.Spec, false}, level, errs)
}

// subject is a pod, or what one would be made of.
type subject struct {
	meta     *metav1.ObjectMeta
	spec     *corev1.PodSpec
	enforced bool // it's a pod
}

// exemptClass tells whether pods of a RuntimeClass are exempt.
func (p *PodSecurity) exemptClass(name *string) bool {
	return name != nil && *name != "" && slices.Contains(p.exempt.RuntimeClasses, *name)
}

func (p *PodSecurity) evaluate(ctx context.Context, r *request, s subject, level api.Policy, errs field.ErrorList) (pass registry.Verdict, err error) {
	if p.exemptClass(s.spec.RuntimeClassName) {
		annotate(ctx, api.ExemptionReasonAnnotationKey, "runtimeClass")
		return pass, nil
	}
	evaluator, err := p.evaluator()
	if err != nil {
		return pass, err
	}
	if len(errs) > 0 {
		annotate(ctx, "error", fmt.Sprintf("Failed to parse policy: %v", errs.ToAggregate()))
	}
	known := map[api.LevelVersion]policy.AggregateCheckResult{}
	result := func(of api.LevelVersion) policy.AggregateCheckResult {
		if _, has := known[of]; !has {
			known[of] = policy.AggregateCheckResults(evaluator.EvaluatePod(of, s.meta, s.spec))
		}
		return known[of]
	}
	verdict := pass
	if s.enforced {
		annotate(ctx, api.EnforcedPolicyAnnotationKey, level.Enforce.String())
		if got := result(level.Enforce); !got.Allowed {
			verdict = registry.Refuse(fmt.Errorf("violates PodSecurity %q: %s", level.Enforce.String(), got.ForbiddenDetail()))
		}
	}
	if got := result(level.Audit); !got.Allowed {
		annotate(ctx, api.AuditViolationsAnnotationKey, fmt.Sprintf("would violate PodSecurity %q: %s", level.Audit.String(), got.ForbiddenDetail()))
	}
	if verdict.Refused() {
		return verdict, nil
	}
	if got := result(level.Warn); !got.Allowed {
		r.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", level.Warn.String(), got.ForbiddenDetail()))
	}
	return pass, nil
}

// judgeNamespace refuses labels that name no level, and warns of the pods that a stricter level would refuse.
func (p *PodSecurity) judgeNamespace(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	labels := r.Object.GetLabels()
	level, errs := api.PolicyToEvaluate(labels, p.defaults)
	if r.Operation == registry.Create {
		if len(errs) > 0 {
			return refuseLabels(r, errs), nil
		}
		p.warnExempt(r, level, labels)
		return pass, nil
	}
	before, wrongBefore := api.PolicyToEvaluate(r.Old.GetLabels(), p.defaults)
	if len(errs) > 0 && !slices.EqualFunc(errs, wrongBefore, func(a, b *field.Error) bool { return a.Error() == b.Error() }) {
		return refuseLabels(r, errs), nil
	}
	now, old := level.Enforce, before.Enforce
	if now == old || now.Level == api.LevelPrivileged || now.Version == old.Version && api.CompareLevels(now.Level, old.Level) < 1 {
		return pass, nil
	}
	if slices.Contains(p.exempt.Namespaces, r.Name) {
		p.warnExempt(r, level, labels)
		return pass, nil
	}
	return pass, p.warnPods(ctx, r, now)
}

func refuseLabels(r *request, errs field.ErrorList) registry.Verdict {
	return registry.Refuse(apierrors.NewInvalid(r.Kind.GroupKind(), r.Name, errs))
}

// warnExempt tells that nobody goes by the labels of an exempt namespace.
func (p *PodSecurity) warnExempt(r *request, level api.Policy, labels map[string]string) {
	if !slices.Contains(p.exempt.Namespaces, r.Name) || level.FullyPrivileged() || level.Equivalent(&p.defaults) {
		return
	}
	var ignored []string
	for _, mode := range []struct {
		name                     string
		of                       api.LevelVersion
		levelLabel, versionLabel string
	}{
		{"enforce", level.Enforce, api.EnforceLevelLabel, api.EnforceVersionLabel},
		{"audit", level.Audit, api.AuditLevelLabel, api.AuditVersionLabel},
		{"warn", level.Warn, api.WarnLevelLabel, api.WarnVersionLabel},
	} {
		_, hasLevel := labels[mode.levelLabel]
		_, hasVersion := labels[mode.versionLabel]
		if mode.of.Level != api.LevelPrivileged && (hasLevel || hasVersion) {
			ignored = append(ignored, mode.name+"="+mode.of.String())
		}
	}
	r.Warn(fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", r.Name, strings.Join(ignored, ", ")))
}

// warnPods warns of the pods in a namespace that its new level would refuse.
func (p *PodSecurity) warnPods(ctx context.Context, r *request, level api.LevelVersion) error {
	evaluator, err := p.evaluator()
	if err != nil {
		return err
	}
	until := time.Now().Add(podsCheckTime)
	if end, ok := ctx.Deadline(); ok { // half of what is left of it
		if half := time.Now().Add(time.Until(end) / 2); half.Before(until) {
			until = half
		}
	}
	pods, err := p.podsIn(r.Name)
	if err != nil {
		r.Warn("failed to list pods while checking new PodSecurity enforce level")
		return nil
	}
	found, checked := violations{}, 0
	for _, o := range pods {
		if checked == podsChecked || time.Now().After(until) || ctx.Err() != nil {
			break
		}
		checked++
		pod := &corev1.Pod{}
		if err := json.Unmarshal(o.Raw(), pod); err != nil {
			p.unreadable(o, err)
			continue
		}
		if p.exemptClass(pod.Spec.RuntimeClassName) {
			continue
		}
		if result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
			found.add(result.ForbiddenReason(), pod.Name)
		}
	}
	if checked < len(pods) {
		r.Warn(fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(pods)))
	}
	if len(found) > 0 {
		r.Warn(fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", r.Name, level.String()))
	}
	for _, line := range found.lines() {
		r.Warn(line)
	}
	return nil
}

// violations are pods that a level refuses, by why: how many there are, and the first one by name.
type violations map[string]struct {
	first string
	count int
}

func (all violations) add(why, pod string) {
	v := all[why]
	if v.count == 0 || pod < v.first {
		v.first = pod
	}
	v.count++
	all[why] = v
}

// lines tell of them, in order.
func (all violations) lines() (lines []string) {
	for why, v := range all {
		others := ""
		if v.count == 2 {
			others = " (and 1 other pod)"
		} else if v.count > 2 {
			others = fmt.Sprintf(" (and %d other pods)", v.count-1)
		}
		lines = append(lines, v.first+others+": "+why)
	}
	slices.Sort(lines)
	return lines
}

// podsIn returns the pods in a namespace, those whose owner has one already at the end: they are mostly alike.
func (p *PodSecurity) podsIn(namespace string) (pods []*kube.Object, err error) {
	served := p.registry.Catalog().Prefix(podsPrefix)
	in, err := podsPrefix.Namespace(namespace)
	if err != nil || served == nil {
		return nil, err
	}
	var others []*kube.Object
	seen := map[string]bool{}
	for o := range served.Cache().Snapshot().All(in) {
		owners := o.Lineage().Owners
		if len(owners) > 0 && seen[owners[0].UID] {
			others = append(others, o)
			continue
		}
		if len(owners) > 0 {
			seen[owners[0].UID] = true
		}
		pods = append(pods, o)
	}
	return append(pods, others...), nil
}
