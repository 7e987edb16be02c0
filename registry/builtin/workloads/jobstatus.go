package workloads

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for the status of Jobs, which any controller may report. Most of them count only for what a report changes: what was wrong
// before stays writable, and so does what a change of the spec has made wrong.

// jobReport is a report of a Job's status, and the one before.
type jobReport struct {
	rules.Check
	job, old   *batchv1.Job
	now, was   *batchv1.JobStatus
	is, before jobEnds
	at         *field.Path
}

// jobEnds are the conditions by which a Job ends.
type jobEnds struct{ complete, failed, failing, succeeding bool }

func (e jobEnds) finished() bool { return e.complete || e.failed }

// jobHas tells whether a condition of a Job has a status.
func jobHas(s *batchv1.JobStatus, condition batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == condition && c.Status == status })
}

func endsOf(s *batchv1.JobStatus) jobEnds {
	holds := func(condition batchv1.JobConditionType) bool { return jobHas(s, condition, corev1.ConditionTrue) }
	return jobEnds{holds(batchv1.JobComplete), holds(batchv1.JobFailed), holds(batchv1.JobFailureTarget), holds(batchv1.JobSuccessCriteriaMet)}
}

func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	r := &jobReport{job: j, old: old, now: &j.Status, was: &old.Status, is: endsOf(&j.Status), before: endsOf(&old.Status), at: field.NewPath("status")}
	r.counts()
	r.times()
	r.conditions()
	r.finish()
	r.indexes()
	r.pods()
	r.policies()
	r.transitions()
	return r.Errs
}

// refuse adds what is wrong with a member if it's so. A condition has no value to show.
func (r *jobReport) refuse(is bool, member string, value any, why string) {
	r.Refuse(is, r.at.Child(member), value, why)
}

func (r *jobReport) refuseConditions(is bool, why string) {
	r.refuse(is, "conditions", field.OmitValueType{}, why)
}

func (r *jobReport) counts() {
	s := r.now
	r.Add(validateCounts(r.at, amount("active", s.Active), amount("succeeded", s.Succeeded), amount("failed", s.Failed), amountIfAny("ready", s.Ready), amountIfAny("terminating", s.Terminating))...)
	if s.UncountedTerminatedPods == nil {
		return
	}
	known := rules.Earlier[types.UID]{}
	for _, group := range []struct {
		name string
		uids []types.UID
	}{{"succeeded", s.UncountedTerminatedPods.Succeeded}, {"failed", s.UncountedTerminatedPods.Failed}} {
		for i, uid := range group.uids {
			at := r.at.Child("uncountedTerminatedPods", group.name).Index(i)
			switch {
			case uid == "":
				r.Add(field.Invalid(at, uid, "must not be empty"))
			case known.Had(uid):
				r.Add(field.Duplicate(at, uid))
			}
		}
	}
}

// times checks how a Job that completes has its time, and that other Jobs have none.
func (r *jobReport) times() {
	s, completes := r.now, r.is.complete != r.before.complete
	r.refuseConditions((completes || r.is.failed != r.before.failed) && r.is.complete && r.is.failed, "cannot set Complete=True and Failed=true conditions")
	r.refuseConditions((completes || r.is.failing != r.before.failing) && r.is.complete && r.is.failing, "cannot set Complete=True and FailureTarget=true conditions")
	timed := completes || !ptr.Equal(s.CompletionTime, r.was.CompletionTime)
	r.refuse(timed && s.CompletionTime != nil && !r.is.complete, "completionTime", s.CompletionTime, "cannot set completionTime when there is no Complete=True condition")
	r.Lack(timed && s.CompletionTime == nil && r.is.complete, r.at.Child("completionTime"), "completionTime is required for Complete jobs")
	moved := !ptr.Equal(s.StartTime, r.was.StartTime) || !ptr.Equal(s.CompletionTime, r.was.CompletionTime)
	r.refuse(moved && s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime), "completionTime", s.CompletionTime, "must be equal to or after `startTime`")
}

func (r *jobReport) conditions() {
	failing := r.is.failed != r.before.failed || !ptr.Equal(r.now.FailedIndexes, r.was.FailedIndexes)
	r.refuseConditions(failing && r.is.failed && !r.is.failing, "cannot set Failed=True condition without the FailureTarget=true condition")
	completing := r.is.complete != r.before.complete || r.is.succeeding != r.before.succeeding
	r.refuseConditions(completing && r.is.complete && !r.is.succeeding, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
}

// finish checks what a Job that has ended has left.
func (r *jobReport) finish() {
	s, ends := r.now, r.is.finished() != r.before.finished()
	if !r.is.finished() {
		return
	}
	r.refuse((ends || s.Active != r.was.Active) && s.Active > 0, "active", s.Active, "active>0 is invalid for finished job")
	n := r.job.Spec.Completions
	neverRuns := ptr.Deref(r.job.Spec.Suspend, false) && n != nil && *n == 0
	r.Lack((ends || !ptr.Equal(s.StartTime, r.was.StartTime)) && !neverRuns && s.StartTime == nil, r.at.Child("startTime"), "startTime is required for finished job")
	left := s.UncountedTerminatedPods
	r.refuse((ends || !equality.Semantic.DeepEqual(left, r.was.UncountedTerminatedPods)) && left != nil && len(left.Failed)+len(left.Succeeded) > 0,
		"uncountedTerminatedPods", left, "must be empty for finished job")
}

func (r *jobReport) indexes() {
	s, spec := r.now, &r.job.Spec
	completed, failed := s.CompletedIndexes != r.was.CompletedIndexes, !ptr.Equal(s.FailedIndexes, r.was.FailedIndexes)
	if completed && spec.Completions != nil {
		if _, err := countIndexes(s.CompletedIndexes, *spec.Completions); err != nil {
			r.refuse(true, "completedIndexes", s.CompletedIndexes, "error parsing completedIndexes: "+err.Error())
		}
	}
	if failed && spec.Completions != nil && spec.BackoffLimitPerIndex != nil && s.FailedIndexes != nil {
		if _, err := countIndexes(*s.FailedIndexes, *spec.Completions); err != nil {
			r.refuse(true, "failedIndexes", *s.FailedIndexes, "error parsing failedIndexes: "+err.Error())
		}
	}
	indexed := spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
	r.refuse(completed && s.CompletedIndexes != "" && !indexed, "completedIndexes", s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
	if s.FailedIndexes == nil {
		return
	}
	r.refuse(failed && spec.BackoffLimitPerIndex == nil, "failedIndexes", *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	if (failed || completed) && spec.Completions != nil {
		if err := overlap(s.CompletedIndexes, *s.FailedIndexes, *spec.Completions); err != nil {
			r.refuse(true, "failedIndexes", *s.FailedIndexes, err.Error())
		}
	}
}

// spansOf returns the intervals of a text that are ones: what isn't has been refused.
func spansOf(text string, completions int32) (spans []span) {
	for part := range strings.SplitSeq(text, ",") {
		if s, err := parseSpan(part, completions); err == nil {
			spans = append(spans, s)
		}
	}
	return spans
}

// overlap says at which index first a Job has both completed and failed.
func overlap(completed, failed string, completions int32) error {
	if completed == "" || failed == "" {
		return nil
	}
	done, gone := spansOf(completed, completions), spansOf(failed, completions)
	for len(done) > 0 && len(gone) > 0 {
		d, g := done[0], gone[0]
		if d.first <= g.last && g.first <= d.last {
			return fmt.Errorf("failedIndexes and completedIndexes overlap at index: %d", max(d.first, g.first))
		}
		if d.first <= g.first {
			done = done[1:]
		} else {
			gone = gone[1:]
		}
	}
	return nil
}

func (r *jobReport) pods() {
	s, ends := r.now, r.is.finished() != r.before.finished()
	r.refuse((ends || !ptr.Equal(s.Terminating, r.was.Terminating)) && s.Terminating != nil && *s.Terminating > 0 && r.is.finished(), "terminating", s.Terminating, "terminating>0 is invalid for finished job")
	if s.Ready != nil {
		r.refuse((!ptr.Equal(s.Ready, r.was.Ready) || s.Active != r.was.Active) && *s.Ready > s.Active, "ready", *s.Ready, "cannot set more ready pods than active")
	}
}

func (r *jobReport) policies() {
	r.refuseConditions(r.is.succeeding && r.is.failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	r.refuseConditions(r.is.succeeding && r.is.failing, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	r.refuseConditions(r.job.Spec.SuccessPolicy != nil && !r.is.succeeding && r.is.complete, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
}

// transitions refuses that a Job goes back.
func (r *jobReport) transitions() {
	s, spec := r.now, &r.job.Spec
	for _, end := range []struct {
		name    batchv1.JobConditionType
		was, is bool
	}{{batchv1.JobFailed, r.before.failed, r.is.failed}, {batchv1.JobComplete, r.before.complete, r.is.complete}, {batchv1.JobFailureTarget, r.before.failing, r.is.failing}} {
		r.refuseConditions(end.was && !end.is, fmt.Sprintf("cannot disable the terminal %s=True condition", end.name))
	}
	r.refuse(s.Failed < r.was.Failed, "failed", s.Failed, "cannot decrease the failed counter")
	indexed := spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
	scales := indexed && ptr.Equal(spec.Completions, spec.Parallelism) // then there may be fewer than there were
	r.refuse(!scales && s.Succeeded < r.was.Succeeded, "succeeded", s.Succeeded, "cannot decrease the succeeded counter")
	r.refuse(s.CompletionTime != nil && r.was.CompletionTime != nil && !ptr.Equal(s.CompletionTime, r.was.CompletionTime), "completionTime", s.CompletionTime, "field is immutable")
	resumes := jobHas(r.was, batchv1.JobSuspended, corev1.ConditionTrue) && jobHas(s, batchv1.JobSuspended, corev1.ConditionFalse)
	r.refuse(!resumes && r.was.StartTime != nil && !ptr.Equal(s.StartTime, r.was.StartTime) && !ptr.Deref(spec.Suspend, false), "startTime", s.StartTime, "field is immutable for unsuspended job once set")
	r.refuseConditions(r.before.succeeding && !r.is.succeeding, "cannot disable the SuccessCriteriaMet=True condition")
	r.refuseConditions(r.before.complete && !r.before.succeeding && r.is.succeeding, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}
