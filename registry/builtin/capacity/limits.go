package capacity

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
)

// The rules of LimitRanges, in the order in which Kubernetes asks them.

func validateLimitRange(r, _ *corev1.LimitRange) field.ErrorList {
	c, types := &check{}, rules.Earlier[corev1.LimitType]{}
	for i := range r.Spec.Limits {
		limit, at := &r.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		c.limitType(limit.Type, at.Child("type"))
		c.Twice(types.Had(limit.Type), at.Child("type"), limit.Type)
		c.limit(limit, at)
	}
	return c.Errs
}

func (c *check) limitType(of corev1.LimitType, at *field.Path) {
	if texts := validation.IsQualifiedName(string(of)); len(texts) > 0 {
		c.Texts(at, of, texts)
		return
	}
	known := of == corev1.LimitTypePod || of == corev1.LimitTypeContainer || of == corev1.LimitTypePersistentVolumeClaim
	c.Refuse(!known && !strings.Contains(string(of), "/"), at, of, "must be a standard limit type or fully qualified")
}

func (c *check) limit(l *corev1.LimitRangeItem, at *field.Path) {
	names := sets.New[corev1.ResourceName]()
	list := func(name string, of corev1.ResourceList) {
		for _, resource := range slices.Sorted(maps.Keys(of)) {
			c.limitedResource(l.Type, resource, at.Child(name).Key(string(resource)))
			names.Insert(resource)
		}
	}
	list("max", l.Max)
	list("min", l.Min)
	defaults, requests := l.Default, l.DefaultRequest
	if l.Type == corev1.LimitTypePod {
		c.Forbid(len(defaults) > 0, at.Child("default"), "may not be specified when `type` is 'Pod'")
		c.Forbid(len(requests) > 0, at.Child("defaultRequest"), "may not be specified when `type` is 'Pod'")
		defaults, requests = nil, nil
	}
	list("default", defaults)
	list("defaultRequest", requests)
	if _, least := l.Min[corev1.ResourceStorage]; l.Type == corev1.LimitTypePersistentVolumeClaim && !least {
		if _, most := l.Max[corev1.ResourceStorage]; !most {
			c.Add(field.Required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	list("maxLimitRequestRatio", l.MaxLimitRequestRatio)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c.limitsFit(name, at, quantity(l.Min, name), quantity(l.Max, name), quantity(defaults, name), quantity(requests, name), quantity(l.MaxLimitRequestRatio, name))
	}
}

// limitedResource checks the name of what is limited. Pods and containers don't have all resources.
func (c *check) limitedResource(of corev1.LimitType, name corev1.ResourceName, at *field.Path) {
	if of == corev1.LimitTypePod || of == corev1.LimitTypeContainer {
		c.Add(pods.ContainerResource(name, at)...)
		return
	}
	texts := validation.IsQualifiedName(string(name))
	c.Texts(at, name, texts)
	c.Refuse(len(texts) == 0 && !strings.Contains(string(name), "/") && !pods.IsStandard(name), at, name, "must be a standard resource type or fully qualified")
}

// quantity is what a list has of a resource, nil if it doesn't name it.
func quantity(list corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
	if q, ok := list[name]; ok {
		return &q
	}
	return nil
}

// limitsFit checks what is said of one resource. What isn't said is nil.
func (c *check) limitsFit(name corev1.ResourceName, of *field.Path, least, most, otherwise, request, ratio *resource.Quantity) {
	at := func(member string) *field.Path { return of.Child(member).Key(string(name)) }
	ordered := func(low, high *resource.Quantity, member string, bad *resource.Quantity, text string) {
		if low != nil && high != nil && low.Cmp(*high) > 0 {
			c.Add(field.Invalid(at(member), bad, fmt.Sprintf(text, low.String(), high.String())))
		}
	}
	ordered(least, most, "min", least, "min value %s is greater than max value %s")
	ordered(least, request, "defaultRequest", request, "min value %s is greater than default request value %s")
	ordered(request, most, "defaultRequest", request, "default request value %s is greater than max value %s")
	ordered(request, otherwise, "defaultRequest", request, "default request value %s is greater than default limit value %s")
	ordered(least, otherwise, "default", least, "min value %s is greater than default value %s")
	ordered(otherwise, most, "default", most, "default value %s is greater than max value %s")
	if ratio != nil {
		if ratio.CmpInt64(1) < 0 {
			c.Add(field.Invalid(at("maxLimitRequestRatio"), ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String())))
		}
		if least != nil && most != nil {
			c.ratioFits(ratio, least, most, at("maxLimitRequestRatio"))
		}
	}
	if otherwise != nil && request != nil && (!quota.IsNative(name) || quota.IsHugePages(name)) && otherwise.Cmp(*request) != 0 {
		c.Add(field.Invalid(at("defaultRequest"), request, fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", otherwise.String(), request.String(), name)))
	}
}

// ratioFits checks a ratio by what the bounds allow, in thousandths if these can be counted.
func (c *check) ratioFits(ratio, least, most *resource.Quantity, at *field.Path) {
	asked, allowed := float64(ratio.Value()), float64(most.Value())/float64(least.Value())
	if ratio.Value() < resource.MaxMilliValue && least.Value() < resource.MaxMilliValue && most.Value() < resource.MaxMilliValue {
		asked, allowed = float64(ratio.MilliValue())/1000, float64(most.MilliValue())/float64(least.MilliValue())
	}
	if asked > allowed {
		c.Add(field.Invalid(at, ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), allowed)))
	}
}

// defaultLimitRange takes what a container gets from what it may have.
func defaultLimitRange(r *corev1.LimitRange) {
	for i := range r.Spec.Limits {
		l := &r.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{l.Max, l.Min, l.Default, l.DefaultRequest, l.MaxLimitRequestRatio} {
			line.RoundUp(list)
		}
		if l.Type != corev1.LimitTypeContainer {
			continue
		}
		l.Default = completed(l.Default, l.Max)
		l.DefaultRequest = completed(completed(l.DefaultRequest, l.Default), l.Min)
	}
}

// completed returns a list with what another has besides.
func completed(list, from corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, from)
	maps.Copy(out, list)
	return out
}
