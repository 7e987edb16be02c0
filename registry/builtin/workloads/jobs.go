package workloads

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for Jobs and CronJobs.

// The most of what a Job may have.
const (
	maxIndexedParallelism int32 = 100_000
	maxFailedIndexes      int32 = 100_000
	manyCompletions       int32 = 100_000 // above, less is allowed of the two that follow
	parallelismOfMany     int32 = 10_000
	failedIndexesOfMany   int32 = 10_000
	maxPolicyRules              = 20
	maxPolicyPatterns           = 20
	maxPolicyExitCodes          = 255
	maxManagedBy                = 63        // characters
	maxIndexes                  = 64 * 1024 // characters
	maxCronJobName              = 52        // characters: a Job's name gets eleven more
)

func validateJob(j, old *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	errs := field.ErrorList{}
	if old == nil {
		errs = generatedSelector(j)
	}
	errs = append(errs, validateJobSpec(&j.Spec, pods.TemplateBefore(old), spec)...)
	values := old != nil && metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
	selector, unmatched, _ := validateOwnSelector(j.Spec.Selector, "", j.Spec.Template.Labels, values)
	errs = append(errs, selector...)
	errs = append(errs, unmatched...)
	if old != nil {
		errs = append(errs, validateJobUpdate(j, old, spec)...)
	}
	indexed := j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion
	if n := j.Spec.Completions; indexed && n != nil && *n > 0 {
		host := fmt.Sprintf("%s-%d", j.Name, *n-1)
		if len(validation.IsDNS1123Label(host)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name, "will not able to create pod with invalid DNS label: "+host))
		}
	}
	return errs
}

// generatedSelector wants a Job that didn't ask to select its pods itself to have what it got for that.
func generatedSelector(j *batchv1.Job) (errs field.ErrorList) {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return nil
	}
	at := field.NewPath("spec", "template", "metadata", "labels")
	own := labels.Set{}
	for _, label := range jobLabels(j) {
		own[label.name] = label.value
		switch value, has := j.Spec.Template.Labels[label.name]; {
		case !has:
			errs = append(errs, field.Required(at.Key(label.name), fmt.Sprintf("must be '%s'", label.value)))
		case value != label.value:
			errs = append(errs, field.Invalid(at.Key(label.name), j.Spec.Template.Labels, fmt.Sprintf("must be '%s'", label.value)))
		}
	}
	if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !s.Matches(own) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// jobLabel is a label by which a Job knows its pods.
type jobLabel struct{ name, value string }

func jobLabels(j *batchv1.Job) []jobLabel {
	uid := string(j.UID)
	return []jobLabel{{"controller-uid", uid}, {"job-name", j.Name}, {batchv1.ControllerUidLabel, uid}, {batchv1.JobNameLabel, j.Name}}
}

func validateJobUpdate(j, old *batchv1.Job, spec *field.Path) (errs field.ErrorList) {
	s, was := &j.Spec, &old.Spec
	at := spec.Child("completions")
	switch indexed := s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion; {
	case !indexed:
		errs = append(errs, apivalidation.ValidateImmutableField(s.Completions, was.Completions, at)...)
	case s.Completions != nil && (was.Completions == nil || *s.Completions != *was.Completions) && s.Parallelism != nil && *s.Completions != *s.Parallelism:
		errs = append(errs, field.Invalid(at, *s.Completions, "can only be modified in tandem with spec.parallelism"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, was.Selector, spec.Child("selector"))...)
	before, path := was.Template.DeepCopy(), "template"
	if ptr.Deref(was.Suspend, false) && old.Status.Active == 0 && (old.Status.StartTime == nil || jobHas(&old.Status, batchv1.JobSuspended, corev1.ConditionTrue)) { // nothing runs: where it will may change, and with what
		t := &s.Template
		switch now := pods.NodeAffinity(&t.Spec); {
		case before.Spec.Affinity != nil:
			before.Spec.Affinity.NodeAffinity = now
			if t.Spec.Affinity == nil && *before.Spec.Affinity == (corev1.Affinity{}) {
				before.Spec.Affinity = nil
			}
		case t.Spec.Affinity != nil:
			before.Spec.Affinity = &corev1.Affinity{NodeAffinity: now}
		}
		before.Spec.NodeSelector, before.Spec.Tolerations, before.Spec.SchedulingGates = t.Spec.NodeSelector, t.Spec.Tolerations, t.Spec.SchedulingGates
		before.Annotations, before.Labels = t.Annotations, t.Labels
		sameResources(t.Spec.Containers, before.Spec.Containers)
		sameResources(t.Spec.InitContainers, before.Spec.InitContainers)
		path = "template.spec"
		errs = append(errs, apivalidation.ValidateImmutableField(t.Spec, before.Spec, spec.Child(path))...)
	} else {
		errs = append(errs, apivalidation.ValidateImmutableField(&s.Template, before, spec.Child(path))...)
	}
	errs = append(errs, apivalidation.ValidateImmutableField(s.CompletionMode, was.CompletionMode, spec.Child("completionMode"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(s.PodFailurePolicy, was.PodFailurePolicy, spec.Child("podFailurePolicy"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(s.BackoffLimitPerIndex, was.BackoffLimitPerIndex, spec.Child("backoffLimitPerIndex"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(s.ManagedBy, was.ManagedBy, spec.Child("managedBy"))...)
	return append(errs, apivalidation.ValidateImmutableField(s.SuccessPolicy, was.SuccessPolicy, spec.Child("successPolicy"))...)
}

// sameResources gives containers the resources that they are to have.
func sameResources(now, before []corev1.Container) {
	for i := range before {
		if len(now) == len(before) && now[i].Name == before[i].Name {
			before[i].Resources = now[i].Resources
		}
	}
}

// validateJobSpec checks a Job's spec. before is what its template was, empty for a new one.
func validateJobSpec(s *batchv1.JobSpec, before *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	c := &rules.Check{}
	c.Add(rules.NotNegative(at.Child("parallelism"), s.Parallelism)...)
	c.Add(rules.NotNegative(at.Child("completions"), s.Completions)...)
	c.Add(rules.NotNegative(at.Child("activeDeadlineSeconds"), s.ActiveDeadlineSeconds)...)
	c.Add(rules.NotNegative(at.Child("backoffLimit"), s.BackoffLimit)...)
	c.Add(rules.NotNegative(at.Child("ttlSecondsAfterFinished"), s.TTLSecondsAfterFinished)...)
	c.Add(rules.NotNegative(at.Child("backoffLimitPerIndex"), s.BackoffLimitPerIndex)...)
	c.Add(rules.NotNegative(at.Child("maxFailedIndexes"), s.MaxFailedIndexes)...)
	c.Lack(s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil, at.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified")
	if s.ManagedBy != nil {
		c.Add(validation.IsDomainPrefixedPath(at.Child("managedBy"), *s.ManagedBy)...)
		c.NoLonger(at.Child("managedBy"), len(*s.ManagedBy), maxManagedBy)
	}
	c.Add(validateCompletion(s, at)...)
	if p := s.PodReplacementPolicy; p != nil {
		known := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
		if s.PodFailurePolicy != nil {
			known = known[:1]
		}
		rules.Among(c, at.Child("podReplacementPolicy"), p, known...)
	}
	c.Add(pods.ValidateTemplate(&s.Template, before, at.Child("template"))...)
	restart := at.Child("template", "spec", "restartPolicy")
	switch p := s.Template.Spec.RestartPolicy; {
	case p == corev1.RestartPolicyAlways || p == "":
		c.Add(field.Required(restart, `valid values: "OnFailure", "Never"`))
	case p != corev1.RestartPolicyOnFailure && p != corev1.RestartPolicyNever:
		c.Add(field.NotSupported(restart, p, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	case s.PodFailurePolicy != nil && p != corev1.RestartPolicyNever:
		c.Add(field.Invalid(restart, p, `only "Never" is supported when podFailurePolicy is specified`))
	}
	return c.Errs
}

// validateCompletion checks how a Job's pods are told from each other, and what that allows: when it has failed, and when succeeded.
func validateCompletion(s *batchv1.JobSpec, at *field.Path) (errs field.ErrorList) {
	mode := ptr.Deref(s.CompletionMode, batchv1.NonIndexedCompletion)
	switch mode {
	case batchv1.IndexedCompletion:
		errs = append(errs, validateIndexed(s, at)...)
	case batchv1.NonIndexedCompletion:
		if s.BackoffLimitPerIndex != nil {
			errs = append(errs, field.Invalid(at.Child("backoffLimitPerIndex"), *s.BackoffLimitPerIndex, "requires indexed completion mode"))
		}
		if s.MaxFailedIndexes != nil {
			errs = append(errs, field.Invalid(at.Child("maxFailedIndexes"), *s.MaxFailedIndexes, "requires indexed completion mode"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("completionMode"), mode, []batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion}))
	}
	if s.PodFailurePolicy != nil {
		errs = append(errs, validateFailurePolicy(s, at.Child("podFailurePolicy", "rules"))...)
	}
	switch {
	case s.SuccessPolicy == nil:
	case mode != batchv1.IndexedCompletion:
		errs = append(errs, field.Invalid(at.Child("successPolicy"), *s.SuccessPolicy, "requires indexed completion mode"))
	default:
		errs = append(errs, validateSuccessPolicy(s, at.Child("successPolicy", "rules"))...)
	}
	return errs
}

// validateIndexed checks a Job whose pods are numbered.
func validateIndexed(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	c := &rules.Check{}
	c.Lack(s.Completions == nil, at.Child("completions"), "when completion mode is Indexed")
	over := func(name string, n *int32, most int32, text string) {
		if n != nil && *n > most {
			c.Add(field.Invalid(at.Child(name), *n, text))
		}
	}
	over("parallelism", s.Parallelism, maxIndexedParallelism, fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", maxIndexedParallelism))
	if s.Completions != nil {
		over("maxFailedIndexes", s.MaxFailedIndexes, *s.Completions, "must be less than or equal to completions")
	}
	over("maxFailedIndexes", s.MaxFailedIndexes, maxFailedIndexes, fmt.Sprintf("must be less than or equal to %d", maxFailedIndexes))
	if s.Completions == nil || *s.Completions <= manyCompletions || s.BackoffLimitPerIndex == nil {
		return c.Errs
	}
	if s.MaxFailedIndexes == nil {
		c.Add(field.Required(at.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
	}
	const text = "must be less than or equal to %d when completions are above %d and used with backoff limit per index"
	over("parallelism", s.Parallelism, parallelismOfMany, fmt.Sprintf(text, parallelismOfMany, manyCompletions))
	over("maxFailedIndexes", s.MaxFailedIndexes, failedIndexesOfMany, fmt.Sprintf(text, failedIndexesOfMany, manyCompletions))
	return c.Errs
}

// wanted wants a value to be one of a list, which the refusal names.
func wanted[T ~string](at *field.Path, value T, known ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(at, fmt.Sprintf("valid values: %q", known))}
	case !slices.Contains(known, value):
		return field.ErrorList{field.NotSupported(at, value, known)}
	}
	return nil
}

func validateFailurePolicy(s *batchv1.JobSpec, list *field.Path) (errs field.ErrorList) {
	if n := len(s.PodFailurePolicy.Rules); n > maxPolicyRules {
		errs = append(errs, field.TooMany(list, n, maxPolicyRules))
	}
	for i, rule := range s.PodFailurePolicy.Rules {
		at := list.Index(i)
		if rule.Action == batchv1.PodFailurePolicyActionFailIndex && s.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Invalid(at.Child("action"), rule.Action, "requires the backoffLimitPerIndex to be set"))
		}
		errs = append(errs, wanted(at.Child("action"), rule.Action, batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)...)
		if rule.OnExitCodes != nil {
			errs = append(errs, validateExitCodes(rule.OnExitCodes, &s.Template.Spec, at.Child("onExitCodes"))...)
		}
		conditions := at.Child("onPodConditions")
		if n := len(rule.OnPodConditions); n > maxPolicyPatterns {
			errs = append(errs, field.TooMany(conditions, n, maxPolicyPatterns))
		}
		for j, c := range rule.OnPodConditions {
			at := conditions.Index(j)
			errs = append(errs, rules.Problems(at.Child("type"), string(c.Type), validation.IsQualifiedName(string(c.Type)))...)
			errs = append(errs, wanted(at.Child("status"), c.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
		}
		switch codes, patterns := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
		case codes && patterns:
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
		case !codes && !patterns:
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
		}
	}
	return errs
}

func validateExitCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.PodSpec, at *field.Path) field.ErrorList {
	c := &rules.Check{}
	c.Add(wanted(at.Child("operator"), r.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)...)
	if name := r.ContainerName; name != nil {
		named := func(o corev1.Container) bool { return o.Name == *name }
		if !slices.ContainsFunc(pod.Containers, named) && !slices.ContainsFunc(pod.InitContainers, named) {
			c.Add(field.Invalid(at.Child("containerName"), *name, "must be one of the container or initContainer names in the pod template"))
		}
	}
	at = at.Child("values")
	switch n := len(r.Values); {
	case n == 0:
		c.Add(field.Invalid(at, r.Values, "at least one value is required"))
	case n > maxPolicyExitCodes:
		c.Add(field.TooMany(at, n, maxPolicyExitCodes))
	}
	known := rules.Earlier[int32]{}
	for i, code := range r.Values {
		c.Refuse(code == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn, at.Index(i), code, "must not be 0 for the In operator")
		c.Twice(known.Had(code), at.Index(i), code)
	}
	c.Refuse(!slices.IsSorted(r.Values), at, r.Values, "must be ordered")
	return c.Errs
}

func validateSuccessPolicy(s *batchv1.JobSpec, list *field.Path) field.ErrorList {
	c := &rules.Check{}
	switch n := len(s.SuccessPolicy.Rules); {
	case n == 0:
		c.Add(field.Required(list, "at least one rules must be specified when the successPolicy is specified"))
	case n > maxPolicyRules:
		c.Add(field.TooMany(list, n, maxPolicyRules))
	}
	if s.Completions == nil {
		return c.Errs // which is refused already
	}
	for i, rule := range s.SuccessPolicy.Rules {
		at := list.Index(i)
		c.Lack(rule.SucceededCount == nil && rule.SucceededIndexes == nil, at, "at least one of succeededCount or succeededIndexes must be specified")
		var total int32
		if indexes := rule.SucceededIndexes; indexes != nil {
			at := at.Child("succeededIndexes")
			c.NoLonger(at, len(*indexes), maxIndexes)
			var err error
			if total, err = countIndexes(*indexes, *s.Completions); err != nil {
				c.Add(field.Invalid(at, *indexes, "error parsing succeededIndexes: "+err.Error()))
			}
		}
		if n := rule.SucceededCount; n != nil {
			at := at.Child("succeededCount")
			c.Add(rules.NotNegative(at, n)...)
			if *n > *s.Completions {
				c.Add(field.Invalid(at, *n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", *s.Completions)))
			}
			if rule.SucceededIndexes != nil && *n > total {
				c.Add(field.Invalid(at, *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total)))
			}
		}
	}
	return c.Errs
}

// countIndexes counts indexes as 0,2-4 has them, each below the number of completions, in their order.
func countIndexes(text string, completions int32) (total int32, err error) {
	if text == "" {
		return 0, nil
	}
	last := -1
	for part := range strings.SplitSeq(text, ",") {
		s, err := parseSpan(part, completions)
		if err != nil {
			return 0, err
		}
		if last >= s.first {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, s.first)
		}
		total += int32(s.last - s.first + 1)
		last = s.last
	}
	return total, nil
}

// span is an interval of indexes, the last one with it.
type span struct{ first, last int }

// parseSpan reads an interval as 2-4, or an index.
func parseSpan(text string, completions int32) (s span, err error) {
	index := func(text string) (int, error) {
		switch n, err := strconv.Atoi(text); {
		case err != nil:
			return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
		case n >= int(completions):
			return 0, fmt.Errorf("too large index: %q", text)
		default:
			return n, nil
		}
	}
	ends := strings.Split(text, "-")
	if len(ends) > 2 {
		return s, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	if s.first, err = index(ends[0]); err != nil {
		return s, err
	}
	if s.last = s.first; len(ends) == 1 {
		return s, nil
	}
	if s.last, err = index(ends[1]); err != nil {
		return s, err
	}
	if s.first >= s.last {
		return s, fmt.Errorf("non-increasing order, previous: %d, current: %d", s.first, s.last)
	}
	return s, nil
}
