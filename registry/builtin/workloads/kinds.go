// Package workloads has what runs pods, and says how many: the groups apps and batch, ReplicationControllers, HorizontalPodAutoscalers in both of their
// versions, and PodDisruptionBudgets.
package workloads

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

const (
	appsGroup        = "apps"
	batchGroup       = "batch"
	autoscalingGroup = "autoscaling"
	policyGroup      = "policy"
)

// Kinds are the lines of the table.
func Kinds() []registry.Type {
	replicas := &registry.Scale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", Selector: column.SelectorText}
	return []registry.Type{
		{Names: line.InAll(line.Names(appsGroup, "v1", "Deployment", "deploy")), New: line.New[appsv1.Deployment], Status: true, Parts: registry.Parts{Scale: replicas},
			Strategy: registry.Strategy{UnconditionalUpdate: true, AnnotationsCount: true, StatusResets: []string{"spec", "metadata.labels"}},
			Columns:  deploymentColumns, Default: line.Set(defaultDeployment), Prepare: pods.WithoutGated(nil), Validate: line.Parts(validateDeployment, validateDeploymentStatus), Warnings: line.Warnings(warnDeployment)},
		{Names: line.InAll(line.Names(appsGroup, "v1", "StatefulSet", "sts")), New: line.New[appsv1.StatefulSet], Status: true, Parts: registry.Parts{Scale: replicas},
			Strategy:  registry.Strategy{UnconditionalUpdate: true, StatusResets: line.SpecOnly},
			ValidName: apivalidation.NameIsDNSLabel, Columns: statefulSetColumns, Default: line.Set(defaultStatefulSet), Prepare: pods.WithoutGated(nil), Validate: line.Parts(validateStatefulSet, validateStatefulSetStatus), Warnings: line.Warnings(warnStatefulSet)},
		{Names: line.InAll(line.Names(appsGroup, "v1", "DaemonSet", "ds")), New: line.New[appsv1.DaemonSet], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: line.SpecOnly, HiddenAnnotation: appsv1.DeprecatedTemplateGeneration},
			Columns:  daemonSetColumns, Default: line.Set(defaultDaemonSet), Prepare: pods.WithoutGated(line.Prepare(prepareDaemonSet)), Validate: line.Parts(validateDaemonSet, validateDaemonSetStatus), Warnings: line.Warnings(warnDaemonSet)},
		{Names: line.InAll(line.Names(appsGroup, "v1", "ReplicaSet", "rs")), New: line.New[appsv1.ReplicaSet], Status: true, Parts: registry.Parts{Scale: replicas},
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: line.SpecOnly},
			Columns:  replicaSetColumns, Default: line.Set(defaultReplicaSet), Prepare: pods.WithoutGated(nil), Validate: line.Parts(validateReplicaSet, validateReplicaSetStatus), Warnings: line.Warnings(warnReplicaSet)},
		{Names: line.Names(appsGroup, "v1", "ControllerRevision"), New: line.New[appsv1.ControllerRevision],
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true},
			Columns:  revisionColumns, Validate: line.Rules(validateRevision)},
		{Names: line.InAll(line.Names("", "v1", "ReplicationController", "rc")), New: line.New[corev1.ReplicationController], Status: true, Parts: registry.Parts{Scale: replicas},
			Strategy:  registry.Strategy{UnconditionalUpdate: true, StatusResets: line.SpecOnly, Dependents: metav1.DeletePropagationOrphan},
			Selection: registry.Selection{Fields: []string{"status.replicas"}}, ValidName: rules.LongName, Columns: replicationControllerColumns, Default: line.Set(defaultReplicationController), Prepare: pods.WithoutGated(nil), Validate: line.Parts(validateReplicationController, validateReplicationControllerStatus), Warnings: line.Warnings(warnReplicationController)},
		{Names: line.InAll(line.Names(batchGroup, "v1", "Job")), New: line.New[batchv1.Job], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: line.SpecOnly, Dependents: metav1.DeletePropagationOrphan,
				DependentsWarning: "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"},
			Selection: registry.Selection{Fields: []string{"status.successful"}, Unknown: "field label %q not supported for Job", Aliases: map[string]string{"status.successful": "status.succeeded"}}, Columns: jobColumns,
			Default: line.Set(defaultJob), Prepare: pods.WithoutGated(prepareJob), Validate: line.Parts(validateJob, validateJobStatus), Warnings: line.Warnings(warnJob)},
		{Names: line.InAll(line.Names(batchGroup, "v1", "CronJob", "cj")), New: line.New[batchv1.CronJob], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: line.SpecOnly},
			Columns:  cronJobColumns, Default: line.Set(defaultCronJob), Prepare: pods.WithoutGated(nil), Validate: line.Rules(validateCronJob), Warnings: line.Warnings(warnCronJob)},
		{Names: line.InAll(line.Names(autoscalingGroup, "v2", "HorizontalPodAutoscaler", "hpa")), New: line.New[autoscalingv2.HorizontalPodAutoscaler], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: line.SpecOnly},
			Columns:  autoscalerColumns, Default: line.Set(defaultAutoscaler), Validate: line.Parts(validateAutoscaler, validateAutoscalerStatus)},
		{Names: line.InAll(line.Names(autoscalingGroup, "v1", "HorizontalPodAutoscaler", "hpa")), New: line.New[autoscalingv1.HorizontalPodAutoscaler], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: line.SpecOnly, Generation: line.Counted(changesAutoscalerV1)},
			Columns:  autoscalerV1Columns, Default: line.Set(defaultAutoscalerV1), Prepare: line.Prepare(prepareAutoscalerV1), Validate: line.Parts(validateAutoscalerV1, validateAutoscalerV1Status), Stored: registry.Stored{To: autoscalerToV2, From: autoscalerFromV2}},
		{Names: line.Names(policyGroup, "v1", "PodDisruptionBudget", "pdb"), New: line.New[policyv1.PodDisruptionBudget], Status: true,
			Strategy: registry.Strategy{StatusResets: line.SpecOnly},
			Columns:  budgetColumns, ValidName: rules.PathSegment, Prepare: line.Prepare(prepareBudget), Validate: line.Parts(validateBudget, validateBudgetStatus)},
	}
}

func validateBudget(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
	c, spec := &rules.Check{}, field.NewPath("spec")
	c.Refuse(b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil, spec, rules.Untagged(b.Spec), "minAvailable and maxUnavailable cannot be both set")
	if n := b.Spec.MinAvailable; n != nil {
		c.Add(validateShare(*n, spec.Child("minAvailable"))...)
		c.Add(atMostAll(*n, spec.Child("minAvailable"))...)
	}
	if n := b.Spec.MaxUnavailable; n != nil {
		c.Add(validateShare(*n, spec.Child("maxUnavailable"))...)
		c.Add(atMostAll(*n, spec.Child("maxUnavailable"))...)
	}
	c.Add(rules.UnlessOld(func(c *rules.Check, b *policyv1.PodDisruptionBudget) {
		c.YoungSelector(rules.SelectorValues, b.Spec.Selector, spec.Child("selector"))
	}, b, old).Errs...)
	rules.Among(c, spec.Child("unhealthyPodEvictionPolicy"), b.Spec.UnhealthyPodEvictionPolicy, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)
	return c.Errs
}

func validateBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s, at := b.Status, field.NewPath("status")
	errs := rules.Conditions(s.Conditions, at.Child("conditions"))
	for _, f := range []struct {
		name string
		n    int32
	}{{"disruptionsAllowed", s.DisruptionsAllowed}, {"currentHealthy", s.CurrentHealthy}, {"desiredHealthy", s.DesiredHealthy}, {"expectedPods", s.ExpectedPods}} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(f.n), at.Child(f.name))...)
	}
	return errs
}

// oldBudgetLabel is what a selector of the kind's beta was written with, which is no label of pods.
const oldBudgetLabel = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// prepareBudget drops what isn't a client's from a selector, unless that selects nothing by it.
func prepareBudget(b, old *policyv1.PodDisruptionBudget, subresource string) {
	s := b.Spec.Selector
	nothing := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: oldBudgetLabel, Operator: metav1.LabelSelectorOpExists}}}
	if subresource != "" || s == nil || old != nil && equality.Semantic.DeepEqual(s, old.Spec.Selector) || equality.Semantic.DeepEqual(s, nothing) {
		return
	}
	s.MatchExpressions = slices.DeleteFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == oldBudgetLabel })
}

func budgetColumns() []registry.Column {
	notSet := func(path string) func(o any) any {
		return func(o any) any { return column.Or(column.Str(column.At(o, path)), "N/A") }
	}
	return []registry.Column{
		column.Cell("Min Available", "The minimum number of pods that must be available.", notSet("spec.minAvailable")),
		column.Cell("Max Unavailable", "The maximum number of pods that may be unavailable.", notSet("spec.maxUnavailable")),
		column.Number("Allowed Disruptions", "status.disruptionsAllowed", "Calculated number of pods that may be disrupted at this time."),
		column.Age(),
	}
}
