package workloads

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
)

// HorizontalPodAutoscaler, which is stored as version 2. What version 1 has no fields for, it keeps in annotations, as with
// kube-apiserver.

const (
	defaultMinReplicas    int32 = 1
	defaultCPUUtilization int32 = 80 // percent of what is requested
	scalingPeriod         int32 = 15 // seconds
	scalingPods           int32 = 4
	scalingPercent        int32 = 100
)

func defaultAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	for _, name := range keptAnnotations { // they're version 1's alone
		delete(a.Annotations, name)
	}
	line.OrPointTo(&a.Spec.MinReplicas, defaultMinReplicas)
	defaultMetrics(a)
	b := a.Spec.Behavior
	if b == nil {
		return
	}
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: scalingPercent, PeriodSeconds: scalingPeriod}
	pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: scalingPods, PeriodSeconds: scalingPeriod}
	line.OrPointTo(&b.ScaleUp, autoscalingv2.HPAScalingRules{})
	line.OrPointTo(&b.ScaleUp.StabilizationWindowSeconds, 0)
	defaultScaling(b.ScaleUp, pods, percent)
	line.OrPointTo(&b.ScaleDown, autoscalingv2.HPAScalingRules{})
	defaultScaling(b.ScaleDown, percent)
}

func defaultMetrics(a *autoscalingv2.HorizontalPodAutoscaler) {
	if len(a.Spec.Metrics) == 0 {
		cpu := defaultCPUUtilization
		a.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(&cpu)}
	}
}

func cpuMetric(percent *int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: percent},
	}}
}

func defaultScaling(r *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	line.OrPointTo(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if r.Policies == nil {
		r.Policies = policies
	}
}

func defaultAutoscalerV1(a *autoscalingv1.HorizontalPodAutoscaler) {
	line.OrPointTo(&a.Spec.MinReplicas, defaultMinReplicas)
	var others []autoscalingv1.MetricSpec
	if json.Unmarshal([]byte(a.Annotations[metricsAnnotation]), &others) != nil || len(others) == 0 {
		line.OrPointTo(&a.Spec.TargetCPUUtilizationPercentage, defaultCPUUtilization)
	}
}

// The annotations in which version 1 keeps what it has no fields for.
const (
	metricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
)

var (
	specAnnotations   = []string{metricsAnnotation, behaviorAnnotation}
	statusAnnotations = []string{currentAnnotation, conditionsAnnotation}
	keptAnnotations   = slices.Concat(specAnnotations, statusAnnotations)
)

// prepareAutoscalerV1 leaves what annotations keep of the part that a write isn't about as it was.
func prepareAutoscalerV1(a, old *autoscalingv1.HorizontalPodAutoscaler, subresource string) {
	others := statusAnnotations
	if subresource != "" {
		others = specAnnotations
	}
	for _, name := range others {
		delete(a.Annotations, name)
		if old == nil || old.Annotations[name] == "" {
			continue
		}
		if a.Annotations == nil {
			a.Annotations = map[string]string{}
		}
		a.Annotations[name] = old.Annotations[name]
	}
}

// changesAutoscalerV1 goes by what annotations keep of the spec, too.
func changesAutoscalerV1(a, old *autoscalingv1.HorizontalPodAutoscaler) bool {
	return !equality.Semantic.DeepEqual(inV2(a).Spec, inV2(old).Spec)
}

// A behavior as it is in its annotation, which has the names of Kubernetes' own type.
type (
	behaviorV1     struct{ ScaleUp, ScaleDown *scalingRulesV1 }
	scalingRulesV1 struct {
		StabilizationWindowSeconds *int32
		SelectPolicy               *autoscalingv2.ScalingPolicySelect
		Policies                   []scalingPolicyV1
		Tolerance                  *resource.Quantity
	}
	scalingPolicyV1 struct {
		Type                 autoscalingv2.HPAScalingPolicyType
		Value, PeriodSeconds int32
	}
)

func behaviorToV1(b *autoscalingv2.HorizontalPodAutoscalerBehavior) (out behaviorV1) {
	rules := func(r *autoscalingv2.HPAScalingRules) *scalingRulesV1 {
		if r == nil {
			return nil
		}
		return &scalingRulesV1{r.StabilizationWindowSeconds, r.SelectPolicy, each(r.Policies, func(p autoscalingv2.HPAScalingPolicy) scalingPolicyV1 { return scalingPolicyV1(p) }), r.Tolerance}
	}
	if b != nil {
		out.ScaleUp, out.ScaleDown = rules(b.ScaleUp), rules(b.ScaleDown)
	}
	return out
}

// autoscalerFromV2 makes version 1 of a stored autoscaler.
func autoscalerFromV2(tree map[string]any) error {
	in, out := &autoscalingv2.HorizontalPodAutoscaler{}, &autoscalingv1.HorizontalPodAutoscaler{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, in); err != nil {
		return err
	}
	out.Spec = autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef), MinReplicas: in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
	}
	out.Status = autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
		CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
	}
	var metrics []autoscalingv2.MetricSpec
	for _, m := range in.Spec.Metrics {
		if isCPU(m) {
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		} else {
			metrics = append(metrics, m)
		}
	}
	var current []autoscalingv2.MetricStatus
	for _, m := range in.Status.CurrentMetrics {
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		current = append(current, m)
	}
	for _, name := range keptAnnotations {
		delete(column.AsMap(column.AsMap(tree["metadata"])["annotations"]), name)
	}
	for _, kept := range []struct {
		name  string
		value any
		set   bool
	}{
		{metricsAnnotation, each(metrics, metricToV1), len(metrics) > 0}, {currentAnnotation, each(current, currentToV1), len(current) > 0},
		{conditionsAnnotation, in.Status.Conditions, len(in.Status.Conditions) > 0}, {behaviorAnnotation, behaviorToV1(in.Spec.Behavior), in.Spec.Behavior != nil},
	} {
		if kept.set {
			raw, err := json.Marshal(kept.value)
			if err != nil {
				return err
			}
			annotate(tree, kept.name, string(raw))
		}
	}
	return replaceContent(tree, out)
}

func isCPU(m autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
}

func annotate(tree map[string]any, name, value string) {
	metadata := column.AsMap(tree["metadata"])
	annotations := column.AsMap(metadata["annotations"])
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[name] = value
}

// autoscalerToV2 is the way back. An annotation that can't be read is dropped.
func autoscalerToV2(tree map[string]any) error {
	out, err := takeV2(tree)
	if err != nil {
		return err
	}
	defaultAutoscaler(out)
	return replaceContent(tree, out)
}

// takeV2 makes the content of version 2, and takes what it has of annotations out of them. Rules are about that: a behavior has its defaults
// when it's stored.
func takeV2(tree map[string]any) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	in, out := &autoscalingv1.HorizontalPodAutoscaler{}, &autoscalingv2.HorizontalPodAutoscaler{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, in); err != nil {
		return nil, err
	}
	out.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef), MinReplicas: in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
	}
	out.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
		CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
	}
	annotations := column.AsMap(column.AsMap(tree["metadata"])["annotations"])
	var metrics []autoscalingv1.MetricSpec
	var current []autoscalingv1.MetricStatus
	for name, into := range map[string]any{
		metricsAnnotation: &metrics, currentAnnotation: &current,
		conditionsAnnotation: &out.Status.Conditions, behaviorAnnotation: &out.Spec.Behavior,
	} {
		if json.Unmarshal([]byte(column.Str(annotations[name])), into) != nil {
			reflect.ValueOf(into).Elem().SetZero() // also what was read before the mistake
		}
		delete(annotations, name)
	}
	if len(annotations) == 0 {
		delete(column.AsMap(tree["metadata"]), "annotations")
	}
	out.Spec.Metrics, out.Status.CurrentMetrics = each(metrics, metricToV2), each(current, currentToV2)
	if percent := in.Spec.TargetCPUUtilizationPercentage; percent != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(percent))
	}
	if b := out.Spec.Behavior; b != nil && *b == (autoscalingv2.HorizontalPodAutoscalerBehavior{}) {
		out.Spec.Behavior = nil
	}
	if percent := in.Status.CurrentCPUUtilizationPercentage; percent != nil && len(out.Status.CurrentMetrics) == 0 {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: percent},
		}}}
	}
	defaultMetrics(out)
	return out, nil
}

// replaceContent makes an object's content that of a value of its type.
func replaceContent(tree map[string]any, obj any) error {
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	for _, name := range []string{"spec", "status"} {
		tree[name] = written[name]
	}
	return nil
}

func autoscalerColumns() []registry.Column { return columnsOfAutoscalers(targetsOf) }

func autoscalerV1Columns() []registry.Column {
	return columnsOfAutoscalers(func(o any) any {
		target := percentText(column.At(o, "spec.targetCPUUtilizationPercentage"))
		if target == "" {
			return column.None
		}
		return "cpu: " + column.Or(percentText(column.At(o, "status.currentCPUUtilizationPercentage")), "<unknown>") + "/" + target
	})
}

func columnsOfAutoscalers(targets func(o any) any) []registry.Column {
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(), autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	return []registry.Column{
		column.Cell("Reference", spec["scaleTargetRef"], func(o any) any {
			return column.Str(column.At(o, "spec.scaleTargetRef.kind")) + "/" + column.Str(column.At(o, "spec.scaleTargetRef.name"))
		}),
		column.Cell("Targets", spec["metrics"], targets),
		column.OrUnset("MinPods", "spec.minReplicas", spec["minReplicas"]),
		column.AsText(column.Number("MaxPods", "spec.maxReplicas", spec["maxReplicas"])),
		column.AsText(column.Number("Replicas", "status.currentReplicas", status["currentReplicas"])),
		column.Age(),
	}
}

// targetsOf shows what each metric is, and should be.
func targetsOf(o any) any {
	var all []string
	now := column.AsList(column.At(o, "status.currentMetrics"))
	for i, m := range column.AsList(column.At(o, "spec.metrics")) {
		var is any
		if i < len(now) {
			is = now[i]
		}
		all = append(all, targetOf(m, is))
	}
	if len(all) == 0 {
		return column.None
	}
	const most = 2 // metrics that a cell shows
	if len(all) > most {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// targetOf shows what a metric should be, and is.
func targetOf(metric, is any) string {
	kind := autoscalingv2.MetricSourceType(column.Str(column.At(metric, "type")))
	part, ok := map[autoscalingv2.MetricSourceType]string{
		autoscalingv2.ResourceMetricSourceType: "resource", autoscalingv2.ContainerResourceMetricSourceType: "containerResource",
		autoscalingv2.PodsMetricSourceType: "pods", autoscalingv2.ObjectMetricSourceType: "object", autoscalingv2.ExternalMetricSourceType: "external",
	}[kind]
	if !ok {
		return "<unknown type>"
	}
	now, want := column.At(is, part+".current"), column.At(metric, part+".target")
	perContainer := part == "resource" || part == "containerResource"
	var have, target, suffix string
	switch average := column.Str(column.At(want, "averageValue")); {
	case average != "":
		have, target = column.Str(column.At(now, "averageValue")), average
		if part == "object" || part == "external" {
			suffix = " (avg)"
		}
	case perContainer:
		have, target = percentText(column.At(now, "averageUtilization")), column.Or(percentText(column.At(want, "averageUtilization")), "<auto>")
	default:
		have, target = column.Str(column.At(now, "value")), column.Str(column.At(want, "value"))
	}
	text := column.Or(have, "<unknown>") + "/" + target + suffix
	if perContainer {
		text = column.Str(column.At(metric, part+".name")) + ": " + text
	}
	return text
}

func percentText(n any) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%d%%", column.Num(n))
}
