package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
)

// What is asked of a pod by POST.

// checkBinding judges a binding.
func checkBinding(_ context.Context, a *registry.Action) error {
	b := a.Sent.(*corev1.Binding)
	if b.Name != a.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validatePodBinding(b); len(errs) > 0 { // which kube-apiserver has no Status for
		return registry.Unforeseen(errs.ToAggregate().Error())
	}
	return nil
}

// bind gives a pod its node: what a scheduler does.
func bind(ctx context.Context, a *registry.Action) (any, error) {
	b := a.Sent.(*corev1.Binding)
	conflict := func(why string) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, a.Name, errors.New(why))
	}
	_, err := a.Change(ctx, func(obj registry.Typed) error {
		if err := a.Meets(obj, b.UID, b.ResourceVersion); err != nil {
			return err
		}
		p := obj.(*corev1.Pod)
		switch {
		case p.DeletionTimestamp != nil:
			return conflict("pod " + p.Name + " is being deleted, cannot be assigned to a host")
		case p.Spec.NodeName != "":
			return conflict("pod " + p.Name + " is already assigned to node \"" + p.Spec.NodeName + "\"")
		case len(p.Spec.SchedulingGates) > 0:
			return conflict("pod " + p.Name + " has non-empty .spec.schedulingGates")
		}
		p.Spec.NodeName = b.Target.Name
		p.Status.NominatedNodeName = ""
		for name, value := range b.Annotations {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[name] = value
		}
		if p.Labels == nil && len(b.Labels) > 0 {
			p.Labels = map[string]string{}
		}
		maps.Copy(p.Labels, b.Labels)
		setPodCondition(&p.Status, a.Now, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
		return nil
	})
	return registry.Done(), err
}

// validatePodBinding checks which node a binding names.
func validatePodBinding(b *corev1.Binding) (errs field.ErrorList) {
	at := field.NewPath("target")
	isNode := b.Target.Kind == "" || b.Target.Kind == "Node"
	if !isNode {
		errs = append(errs, field.NotSupported(at.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	switch {
	case b.Target.Name == "":
		errs = append(errs, field.Required(at.Child("name"), ""))
	case isNode:
		errs = append(errs, rules.Problems(at.Child("name"), b.Target.Name, validation.NameIsDNSSubdomain(b.Target.Name, false))...)
	}
	return errs
}

// prepareEviction judges an eviction, and has its deletion say what the request says of a dry run.
func prepareEviction(_ context.Context, a *registry.Action) error {
	e := a.Sent.(*policyv1.Eviction)
	if e.Name != a.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	options := e.DeleteOptions
	if options == nil {
		return nil
	}
	if ignore := options.IgnoreStoreReadErrorWithClusterBreakingPotential; ignore != nil && *ignore {
		return apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), e.Name, field.ErrorList{field.Invalid(
			field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true, "can not be set for pod eviction, try after removing the option")})
	}
	if a.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return nil
}

// evict deletes a pod unless the budget that it counts in allows no more disruptions.
func evict(ctx context.Context, a *registry.Action) (any, error) {
	options := a.Sent.(*policyv1.Eviction).DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
		if a.DryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
	}
	for {
		obj, err := a.Get(ctx)
		if err != nil {
			return nil, err
		}
		pod := obj.(*corev1.Pod)
		var spared *policyv1.PodDisruptionBudget
		if counts(pod) {
			if spared, err = takeFromBudget(ctx, a, pod, len(options.DryRun) > 0); err != nil {
				return nil, err
			}
		}
		mayRun := pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil
		if spared == nil && !mayRun || options.Preconditions != nil && options.Preconditions.ResourceVersion != nil {
			return registry.Done(), disruptAndDelete(ctx, a, options)
		}
		// No budget was asked for a pod as it was. If it has changed since, it may count.
		asJudged := options.DeepCopy()
		if asJudged.Preconditions == nil {
			asJudged.Preconditions = &metav1.Preconditions{}
		}
		asJudged.Preconditions.ResourceVersion = &pod.ResourceVersion
		err = disruptAndDelete(ctx, a, asJudged)
		switch {
		case err == nil || !apierrors.IsConflict(err) || options.Preconditions != nil && options.Preconditions.UID != nil && *options.Preconditions.UID != pod.UID:
			return registry.Done(), err
		case spared != nil:
			return nil, notYet(spared)
		}
	}
}

// disruptAndDelete says in a pod's status why it goes, and deletes it.
func disruptAndDelete(ctx context.Context, a *registry.Action, options *metav1.DeleteOptions) error {
	if len(options.DryRun) > 0 {
		return a.Delete(ctx, options)
	}
	options = options.DeepCopy()
	version, err := a.Change(ctx, func(obj registry.Typed) error {
		p := obj.(*corev1.Pod)
		if err := meets(p, options.Preconditions); err != nil {
			return err
		}
		setPodCondition(&p.Status, a.Now, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		})
		return nil
	})
	if err != nil {
		return err
	}
	if pre := options.Preconditions; pre != nil && pre.ResourceVersion != nil {
		pre.ResourceVersion = &version
	}
	return a.Delete(ctx, options)
}

// meets refuses a deletion whose preconditions a pod doesn't meet.
func meets(p *corev1.Pod, pre *metav1.Preconditions) error {
	if pre == nil {
		return nil
	}
	about := schema.GroupResource{Resource: "Pod"}
	if uid := pre.UID; uid != nil && *uid != "" && *uid != p.UID {
		return apierrors.NewConflict(about, p.Name, fmt.Errorf("the UID in the precondition (%.64s) does not match the UID in record (%s). The object might have been deleted and then recreated", *uid, p.UID))
	}
	if v := pre.ResourceVersion; v != nil && *v != "" && *v != p.ResourceVersion {
		return apierrors.NewConflict(about, p.Name, fmt.Errorf("the ResourceVersion in the precondition (%.64s) does not match the ResourceVersion in record (%s). The object might have been modified", *v, p.ResourceVersion))
	}
	return nil
}

// setPodCondition makes a condition of a pod what's given. Its time changes with its status.
func setPodCondition(s *corev1.PodStatus, now metav1.Time, c corev1.PodCondition) {
	c.LastTransitionTime = now
	for i := range s.Conditions {
		if was := &s.Conditions[i]; was.Type == c.Type {
			if was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
			*was = c
			return
		}
	}
	s.Conditions = append(s.Conditions, c)
}

// counts tells whether a pod counts as available: one that has ended, waits or goes already doesn't.
func counts(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return false
	}
	return p.DeletionTimestamp == nil
}

// takeFromBudget notes a disruption in the budget that selects a pod, if there is one. spared is a budget that lets the pod go
// and loses nothing by it, because the pod isn't ready.
func takeFromBudget(ctx context.Context, a *registry.Action, pod *corev1.Pod, dryRun bool) (spared *policyv1.PodDisruptionBudget, err error) {
	for {
		endpoint, all, err := a.Cached(ctx, "policy/v1", "PodDisruptionBudget")
		if err != nil {
			return nil, err
		}
		var budget *policyv1.PodDisruptionBudget
		for _, obj := range all {
			b := obj.(*policyv1.PodDisruptionBudget)
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			if budget != nil {
				return nil, registry.Unforeseen("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
			}
			budget = b
		}
		if budget == nil {
			return nil, nil
		}
		if spares(budget, pod) {
			return budget, nil
		}
		if budget.Status.ObservedGeneration < budget.Generation {
			return nil, notYet(budget)
		}
		if budget.Status.DisruptionsAllowed <= 0 {
			return nil, overBudget(budget)
		}
		if dryRun {
			return nil, nil
		}
		err = disrupt(ctx, endpoint, budget, pod.Name)
		if !apierrors.IsConflict(err) { // else somebody else has changed it: look again
			return nil, err
		}
	}
}

// spares tells whether a pod may go without a disruption: one that isn't ready may if its budget always lets such pods go,
// or if enough others are healthy.
func spares(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if ready {
		return false
	}
	always := b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
	return always || b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// notYetSeconds is when an eviction may be tried again that came before its budget was up to date, as in Kubernetes.
const notYetSeconds = 10

// notYet refuses an eviction until somebody has worked on its budget.
func notYet(b *policyv1.PodDisruptionBudget) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", notYetSeconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name),
	})
	return err
}

// disrupt writes a budget's status with one disruption more.
func disrupt(ctx context.Context, e *registry.Endpoint, b *policyv1.PodDisruptionBudget, pod string) error {
	now := e.Res.Registry.Now()
	status := map[string]any{"disruptionsAllowed": b.Status.DisruptionsAllowed - 1, "disruptedPods": map[string]any{pod: now}}
	if b.Status.DisruptionsAllowed == 1 {
		conditions := slices.Clone(b.Status.Conditions)
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Status.ObservedGeneration,
			LastTransitionTime: now,
		})
		status["conditions"] = conditions
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": b.ResourceVersion}, "status": status})
	if err != nil {
		return err
	}
	_, err = writes.Of(e).Patch(ctx, &registry.Request{
		Target: registry.Target{Namespace: b.Namespace, Name: b.Name, Subresource: "status"}, Body: patch, PatchType: "application/merge-patch+json", UserAgent: e.Res.Registry.Manager,
	})
	return err
}

// overBudget refuses an eviction for now.
func overBudget(b *policyv1.PodDisruptionBudget) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Code = http.StatusTooManyRequests
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy),
	})
	return err
}

// The paths of a pod that lead to its kubelet, of which there is none: what kube-apiserver itself refuses there.

// podStreams are the paths that lead to a pod's kubelet.
func podStreams() map[string]registry.Absent {
	all := line.OnlyProxy()
	for name, methods := range map[string][]string{"log": {"GET", "HEAD"}, "exec": {"GET", "POST"}, "attach": {"GET", "POST"}, "portforward": {"GET", "POST"}} {
		path := line.WithoutKubelet(name)
		path.Methods, path.Creates = methods, name != "log"
		switch name {
		case "log":
			path.Asked = logOptions
		case "portforward":
			path.Asked = portOptions
		}
		path.Unreached = func(query url.Values, object []byte) error { return withoutHost(name, query, object) }
		all[name] = path
	}
	return all
}

// withoutHost is what kube-apiserver answers to who wants to get at a container of a pod that's on no node, or at one that the pod
// doesn't have. Ports are the whole pod's. Of a pod on no node the log is empty.
func withoutHost(part string, query url.Values, object []byte) error {
	var pod corev1.Pod
	if json.Unmarshal(object, &pod) != nil {
		return nil
	}
	var names []string
	eachContainer(&pod.Spec, nil, func(c *corev1.Container, _ *field.Path) { names = append(names, c.Name) })
	switch asked := query.Get("container"); {
	case part == "portforward":
	case asked != "" && !slices.Contains(names, asked):
		return apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", asked, pod.Name))
	case asked == "" && len(pod.Spec.Containers) > 1:
		return apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
	}
	switch {
	case pod.Spec.NodeName != "":
		return nil
	case part == "log":
		return registry.ErrNoContent
	}
	return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
}

// logOptions refuses what can't be asked of a log, whether there's a pod or not.
func logOptions(pod string, query url.Values) error {
	var since *metav1.Time
	numbers := map[string]*int64{}
	number := func(name string) (err error) {
		if values := query[name]; len(values) > 0 {
			var n *int64
			err = runtime.Convert_Slice_string_To_Pointer_int64(&values, &n, nil)
			numbers[name] = n
		}
		return err
	}
	errs := []error{number("sinceSeconds")}
	if values := query["sinceTime"]; len(values) > 0 {
		errs = append(errs, metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, &since, nil))
	}
	for _, err := range append(errs, number("tailLines"), number("limitBytes")) {
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	c, seconds := &rules.Check{}, numbers["sinceSeconds"]
	c.Add(rules.NotNegative(field.NewPath("tailLines"), numbers["tailLines"])...)
	if n := numbers["limitBytes"]; n != nil && *n < 1 {
		c.Add(field.Invalid(field.NewPath("limitBytes"), *n, "must be greater than 0"))
	}
	switch {
	case seconds != nil && since != nil:
		c.Add(field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case seconds != nil && *seconds < 1:
		c.Add(field.Invalid(field.NewPath("sinceSeconds"), *seconds, "must be greater than 0"))
	}
	c.Forbid(query.Has("stream"), field.NewPath("stream"), "may not be specified") // it's of a feature that is off there
	if len(c.Errs) > 0 {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), pod, c.Errs)
	}
	return nil
}

// portOptions refuses ports that aren't.
func portOptions(_ string, query url.Values) error {
	ports := query["ports"]
	if err := metav1.Convert_Slice_string_To_Slice_int32(&ports, new([]int32), nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}
