package plugins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// LimitRanger gives containers the requests and limits that LimitRanges of their namespace have as defaults, and refuses pods and
// claims beyond the bounds of those.
type LimitRanger struct {
	ranges *registry.Derived[map[string][]*corev1.LimitRange]
}

// NewLimitRanger returns the plug-in. unreadable is told about LimitRanges that can't be decoded.
func NewLimitRanger(r *registry.Registry, unreadable func(*kube.Object, error)) *LimitRanger {
	return &LimitRanger{deriveByNamespace[corev1.LimitRange](r, storage.PrefixOf("", "limitranges"), unreadable)}
}

// limitAnnotation says on a pod what was set.
const limitAnnotation = "kubernetes.io/limit-ranger"

// Concerns is about pods, whose resources an update or a resize may change here, and claims, if there is a LimitRange.
func (l *LimitRanger) Concerns(a *registry.Attributes) bool {
	resize := a.Resource.Resource == "pods" && a.Resource.Group == "" && a.Subresource == "resize"
	return (resize || changes(a, "", "pods", registry.Create, registry.Update) || changes(a, "", "persistentvolumeclaims", registry.Create, registry.Update)) && len(l.ranges.Get()) > 0
}

// Complete sets defaults.
func (l *LimitRanger) Complete(_ context.Context, r *request) error {
	ranges := l.ranges.Get()[r.Namespace]
	if len(ranges) == 0 || r.Resource.Resource != "pods" || r.Operation == registry.Update && r.Subresource == "" {
		return nil
	}
	pod, err := decode[corev1.Pod](r.Object)
	if err != nil {
		return err
	}
	var set []string
	for _, lr := range ranges {
		set = append(set, applyDefaults(lr, &pod.Spec)...)
	}
	if len(set) == 0 {
		return nil
	}
	annotations := r.Object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[limitAnnotation] = "LimitRanger plugin set: " + strings.Join(set, "; ")
	r.Object.SetAnnotations(annotations)
	return setSpec(r.Object, &pod.Spec)
}

// applyDefaults gives containers the defaults of a LimitRange, and says what it set.
func applyDefaults(lr *corev1.LimitRange, spec *corev1.PodSpec) (set []string) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, item := range lr.Spec.Limits {
		if item.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(limits, item.Default)
		}
	}
	for _, group := range []struct {
		containers []corev1.Container
		kind       string
	}{{spec.Containers, "container"}, {spec.InitContainers, "init container"}} {
		for i := range group.containers {
			c := &group.containers[i]
			for _, part := range []struct {
				list     *corev1.ResourceList
				defaults corev1.ResourceList
				name     string
			}{{&c.Resources.Requests, requests, "request"}, {&c.Resources.Limits, limits, "limit"}} {
				if names := fillIn(part.list, part.defaults); len(names) > 0 {
					set = append(set, strings.Join(names, ", ")+" "+part.name+" for "+group.kind+" "+c.Name)
				}
			}
		}
	}
	return set
}

// fillIn adds what a list lacks, and returns the names, sorted.
func fillIn(list *corev1.ResourceList, defaults corev1.ResourceList) (names []string) {
	for name, q := range defaults {
		if _, has := (*list)[name]; has {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q.DeepCopy()
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// Check refuses what is beyond the bounds.
func (l *LimitRanger) Check(_ context.Context, r *request) error {
	ranges := l.ranges.Get()[r.Namespace]
	if len(ranges) == 0 {
		return nil
	}
	var subjects []limited
	if r.Resource.Resource == "pods" {
		pod, err := decode[corev1.Pod](r.Object)
		if err != nil {
			return err
		}
		if r.Operation == registry.Update {
			old, err := decode[corev1.Pod](r.Old)
			if err != nil || r.Subresource == "" && slices.EqualFunc(limitedOfPod(&pod.Spec), limitedOfPod(&old.Spec), limited.equal) {
				return err // it may be older than the LimitRange
			}
		}
		subjects = limitedOfPod(&pod.Spec)
	} else {
		claim, err := decode[corev1.PersistentVolumeClaim](r.Object)
		if err != nil {
			return err
		}
		subjects = []limited{{of: corev1.LimitTypePersistentVolumeClaim, requests: claim.Spec.Resources.Requests}}
	}
	for _, lr := range ranges {
		var errs []error
		for _, item := range lr.Spec.Limits {
			for _, s := range subjects {
				if s.of == item.Type {
					errs = append(errs, s.check(item)...)
				}
			}
		}
		if err := utilerrors.NewAggregate(errs); err != nil {
			return err
		}
	}
	return nil
}

// limited is something that a LimitRange bounds.
type limited struct {
	of               corev1.LimitType
	requests, limits corev1.ResourceList
}

func (s limited) equal(other limited) bool {
	return s.of == other.of && equality.Semantic.DeepEqual(s.requests, other.requests) && equality.Semantic.DeepEqual(s.limits, other.limits)
}

// limitedOfPod returns the containers of a pod, and the pod as a whole: without its overhead, which isn't of its author's choice.
func limitedOfPod(spec *corev1.PodSpec) (all []limited) {
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for _, c := range containers {
			all = append(all, limited{corev1.LimitTypeContainer, c.Resources.Requests, c.Resources.Limits})
		}
	}
	pod, without := &corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	return append(all, limited{corev1.LimitTypePod, resourcehelper.PodRequests(pod, without), resourcehelper.PodLimits(pod, without)})
}

// check compares with one item of a LimitRange. A claim has requests only.
func (s limited) check(item corev1.LimitRangeItem) (errs []error) {
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	claim := s.of == corev1.LimitTypePersistentVolumeClaim
	for _, name := range sorted(item.Min) {
		bound, request, limit := item.Min[name], s.requests[name], s.limits[name]
		_, requested := s.requests[name]
		_, isLimited := s.limits[name]
		switch {
		case !requested:
			refuse("minimum %s usage per %s is %s.  No request is specified", name, s.of, bound.String())
		case request.Cmp(bound) < 0:
			refuse("minimum %s usage per %s is %s, but request is %s", name, s.of, bound.String(), request.String())
		case isLimited && limit.Cmp(bound) < 0:
			refuse("minimum %s usage per %s is %s, but limit is %s", name, s.of, bound.String(), limit.String())
		}
	}
	for _, name := range sorted(item.Max) {
		bound, request, limit := item.Max[name], s.requests[name], s.limits[name]
		_, requested := s.requests[name]
		_, isLimited := s.limits[name]
		switch {
		case claim && !requested:
			refuse("maximum %s usage per %s is %s.  No request is specified", name, s.of, bound.String())
		case !claim && !isLimited:
			refuse("maximum %s usage per %s is %s.  No limit is specified", name, s.of, bound.String())
		case !claim && limit.Cmp(bound) > 0:
			refuse("maximum %s usage per %s is %s, but limit is %s", name, s.of, bound.String(), limit.String())
		case requested && request.Cmp(bound) > 0:
			refuse("maximum %s usage per %s is %s, but request is %s", name, s.of, bound.String(), request.String())
		}
	}
	for _, name := range sorted(item.MaxLimitRequestRatio) {
		bound, request, limit := item.MaxLimitRequestRatio[name], s.requests[name], s.limits[name]
		switch {
		case claim:
		case request.Sign() == 0:
			refuse("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, s.of, bound.String())
		case limit.Sign() == 0:
			refuse("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, s.of, bound.String())
		default:
			if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > bound.AsApproximateFloat64() {
				refuse("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, s.of, bound.String(), ratio)
			}
		}
	}
	return errs
}

// sorted returns the names of a list in order, so that messages don't change from one time to the next.
func sorted(list map[corev1.ResourceName]resource.Quantity) (names []corev1.ResourceName) {
	return slices.Sorted(maps.Keys(list))
}
