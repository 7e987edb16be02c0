package workloads

import (
	"fmt"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules of HorizontalPodAutoscalers, in the order in which Kubernetes asks them.

// The longest times of a policy and of a window, in seconds.
const (
	maxScalingPeriod       = 1800
	maxStabilizationWindow = 3600
)

func validateAutoscaler(a, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	c, at, s := &scaleCheck{}, field.NewPath("spec"), &a.Spec
	c.Refuse(s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas, at.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to `minReplicas`")
	to, kept := s.ScaleTargetRef, false
	if old != nil {
		was := old.Spec.ScaleTargetRef
		kept = was.APIVersion == to.APIVersion && was.Kind == to.Kind
	}
	c.scaleTarget(to, at.Child("scaleTargetRef"), kept, to.Kind == "ReplicationController")
	c.metrics(s, old, at.Child("metrics"))
	if b, at := s.Behavior, at.Child("behavior"); b != nil {
		c.scalingRules(b.ScaleUp, at.Child("scaleUp"))
		c.scalingRules(b.ScaleDown, at.Child("scaleDown"))
	}
	if n := s.MinReplicas; n != nil && *n < 0 {
		c.Declare(field.Invalid(at.Child("minReplicas"), *n, "must be greater than or equal to 0"))
	}
	switch n := s.MaxReplicas; {
	case n == 0:
		c.Declare(field.Required(at.Child("maxReplicas"), ""))
	case n < 0:
		c.Declare(field.Invalid(at.Child("maxReplicas"), n, "must be greater than or equal to 1"))
	}
	return c.All()
}

// validateAutoscalerV1 asks about what version 2 has in other places, too.
func validateAutoscalerV1(a, old *autoscalingv1.HorizontalPodAutoscaler) field.ErrorList {
	var was *autoscalingv2.HorizontalPodAutoscaler
	if old != nil {
		was = inV2(old)
	}
	return validateAutoscaler(inV2(a), was)
}

// inV2 makes the content of version 2 of an autoscaler.
func inV2(a *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	if err == nil {
		var out *autoscalingv2.HorizontalPodAutoscaler
		if out, err = takeV2(tree); err == nil {
			return out
		}
	}
	return &autoscalingv2.HorizontalPodAutoscaler{} // no value of the type has what can't be converted
}

func validateAutoscalerStatus(a, _ *autoscalingv2.HorizontalPodAutoscaler) (errs field.ErrorList) {
	at := field.NewPath("status")
	for i, condition := range a.Status.Conditions {
		errs = append(errs, rules.NotNegative(at.Child("conditions").Index(i).Child("observedGeneration"), condition.ObservedGeneration)...)
	}
	return append(errs, statusReplicas(a.Status.CurrentReplicas, a.Status.DesiredReplicas)...)
}

func validateAutoscalerV1Status(a, _ *autoscalingv1.HorizontalPodAutoscaler) field.ErrorList {
	return statusReplicas(a.Status.CurrentReplicas, a.Status.DesiredReplicas)
}

func statusReplicas(current, desired int32) field.ErrorList {
	at := field.NewPath("status")
	return append(rules.NotNegative(at.Child("currentReplicas"), &current), rules.NotNegative(at.Child("desiredReplicas"), &desired)...)
}

// scaleCheck collects what is wrong with an autoscaler.
type scaleCheck struct{ rules.Check }

// scaleTarget checks a reference. Its version isn't looked at if it's the one of before, and may be one of the core.
func (c *scaleCheck) scaleTarget(to autoscalingv2.CrossVersionObjectReference, at *field.Path, anyVersion, core bool) {
	c.Needs(at.Child("kind"), to.Kind, content.IsPathSegmentName)
	c.Needs(at.Child("name"), to.Name, content.IsPathSegmentName)
	if err := wrongVersion(to, core); err != nil && !anyVersion {
		c.Add(field.Invalid(at.Child("apiVersion"), to.APIVersion, err.Error()))
	}
}

func wrongVersion(of autoscalingv2.CrossVersionObjectReference, core bool) error {
	version, err := schema.ParseGroupVersion(of.APIVersion)
	if err == nil && version.Group == "" && !core {
		err = fmt.Errorf("apiVersion must specify API group")
	}
	return err
}

func (c *scaleCheck) metrics(s *autoscalingv2.HorizontalPodAutoscalerSpec, old *autoscalingv2.HorizontalPodAutoscaler, at *field.Path) {
	wasWrong := old != nil && slices.ContainsFunc(old.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil && wrongVersion(m.Object.DescribedObject, true) != nil
	})
	wakes := false
	for i := range s.Metrics {
		c.metric(&s.Metrics[i], wasWrong, at.Index(i))
		wakes = wakes || s.Metrics[i].Type == autoscalingv2.ObjectMetricSourceType || s.Metrics[i].Type == autoscalingv2.ExternalMetricSourceType
	}
	c.Forbid(s.MinReplicas != nil && *s.MinReplicas == 0 && !wakes, at, "must specify at least one Object or External metric to support scaling to zero replicas")
}

var metricSources = []autoscalingv2.MetricSourceType{
	autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
	autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
}

// source is one that a metric can have.
type source struct {
	of    autoscalingv2.MetricSourceType
	name  string
	is    bool // whether the metric has it
	check func(at *field.Path)
}

// sources are what a metric can have, in the order in which they're looked for.
func (c *scaleCheck) sources(m *autoscalingv2.MetricSpec, anyVersion bool) []source {
	return []source{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) {
			c.scaleTarget(m.Object.DescribedObject, at.Child("describedObject"), anyVersion, true)
			c.metricSource(m.Object.Metric, m.Object.Target, at)
			c.Lack(m.Object.Target.Value == nil && m.Object.Target.AverageValue == nil, at.Child("target", "averageValue"), "must set either a target value or averageValue")
		}},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) {
			t := m.External.Target
			c.metricSource(m.External.Metric, t, at)
			c.Lack(t.Value == nil && t.AverageValue == nil, at.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target")
			c.Forbid(t.Value != nil && t.AverageValue != nil, at.Child("target", "value"), "may not set both a target value for metric and a per-pod target")
		}},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) {
			c.metricSource(m.Pods.Metric, m.Pods.Target, at)
			c.Lack(m.Pods.Target.AverageValue == nil, at.Child("target", "averageValue"), "must specify a positive target averageValue")
		}},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) {
			c.Lack(m.Resource.Name == "", at.Child("name"), "must specify a resource name")
			c.resourceTarget(m.Resource.Target, at.Child("target"))
		}},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(at *field.Path) {
			if name := m.ContainerResource.Name; name == "" {
				c.Add(field.Required(at.Child("name"), "must specify a resource name"))
			} else {
				c.Add(pods.ContainerResource(name, at.Child("name"))...)
			}
			if name := m.ContainerResource.Container; name == "" {
				c.Add(field.Required(at.Child("container"), "must specify a container"))
			} else {
				c.Label(at.Child("container"), name)
			}
			c.resourceTarget(m.ContainerResource.Target, at.Child("target"))
		}},
	}
}

// metric checks the first source that a metric has, and that it's the one of its type.
func (c *scaleCheck) metric(m *autoscalingv2.MetricSpec, anyVersion bool, at *field.Path) {
	known := slices.Contains(metricSources, m.Type)
	c.Lack(m.Type == "", at.Child("type"), "must specify a metric source type")
	if !known {
		c.Add(field.NotSupported(at.Child("type"), m.Type, metricSources))
	}
	sources := c.sources(m, anyVersion)
	present := slices.DeleteFunc(slices.Clone(sources), func(s source) bool { return !s.is })
	if len(present) > 0 {
		present[0].check(at.Child(present[0].name))
	}
	for _, s := range sources {
		c.Lack(s.of == m.Type && !s.is, at.Child(s.name), "must populate information for the given metric source")
	}
	if !known {
		c.Add(field.NotSupported(at.Child("type"), m.Type, metricSources))
	}
	if len(present) == 1 { // whichever it is
		return
	}
	slices.SortFunc(present, func(a, b source) int { return strings.Compare(a.name, b.name) })
	for _, s := range present {
		c.Forbid(s.of != m.Type, at.Child(s.name), "must populate the given metric source only")
	}
}

func (c *scaleCheck) metricSource(id autoscalingv2.MetricIdentifier, t autoscalingv2.MetricTarget, at *field.Path) {
	if name := at.Child("metric", "name"); id.Name == "" {
		c.Add(field.Required(name, "must specify a metric name"))
	} else {
		c.Texts(name, id.Name, content.IsPathSegmentName(id.Name))
	}
	c.metricTarget(t, at.Child("target"))
}

func (c *scaleCheck) resourceTarget(t autoscalingv2.MetricTarget, at *field.Path) {
	c.metricTarget(t, at)
	c.Lack(t.AverageUtilization == nil && t.AverageValue == nil, at.Child("averageUtilization"), "must set either a target raw value or a target utilization")
	c.Forbid(t.AverageUtilization != nil && t.AverageValue != nil, at.Child("averageValue"), "may not set both a target raw value and a target utilization")
}

func (c *scaleCheck) metricTarget(t autoscalingv2.MetricTarget, at *field.Path) {
	c.Lack(t.Type == "", at.Child("type"), "must specify a metric target type")
	c.Refuse(!slices.Contains([]autoscalingv2.MetricTargetType{autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType}, t.Type), at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue")
	c.Refuse(t.Value != nil && t.Value.Sign() <= 0, at.Child("value"), t.Value, "must be positive")
	c.Refuse(t.AverageValue != nil && t.AverageValue.Sign() <= 0, at.Child("averageValue"), t.AverageValue, "must be positive")
	c.Refuse(t.AverageUtilization != nil && *t.AverageUtilization < 1, at.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0")
}

func (c *scaleCheck) scalingRules(r *autoscalingv2.HPAScalingRules, at *field.Path) {
	if r == nil {
		return
	}
	if n, at := r.StabilizationWindowSeconds, at.Child("stabilizationWindowSeconds"); n != nil {
		c.Refuse(*n < 0, at, *n, "must be greater than or equal to zero")
		if *n > maxStabilizationWindow {
			c.Add(field.Invalid(at, *n, fmt.Sprintf("must be less than or equal to %d", maxStabilizationWindow)))
		}
	}
	rules.Among(c, at.Child("selectPolicy"), r.SelectPolicy, autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)
	policies := at.Child("policies")
	c.Lack(len(r.Policies) == 0, policies, "must specify at least one Policy")
	for i, p := range r.Policies {
		at := policies.Index(i)
		rules.Among(c, at.Child("type"), &p.Type, autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
		c.Refuse(p.Value <= 0, at.Child("value"), p.Value, "must be greater than zero")
		c.Refuse(p.PeriodSeconds <= 0, at.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero")
		if p.PeriodSeconds > maxScalingPeriod {
			c.Add(field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxScalingPeriod)))
		}
	}
	if r.Tolerance != nil {
		c.NotNegative(at.Child("tolerance"), *r.Tolerance)
	}
}
