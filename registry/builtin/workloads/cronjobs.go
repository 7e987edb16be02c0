package workloads

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for CronJobs, and for the schedules that say when they run.

func validateCronJob(cron, old *batchv1.CronJob) field.ErrorList {
	c := &rules.Check{}
	s, spec := &cron.Spec, field.NewPath("spec")
	if s.Schedule != "" {
		c.Add(validateSchedule(s, old, spec.Child("schedule"))...)
	}
	c.Add(rules.NotNegative(spec.Child("startingDeadlineSeconds"), s.StartingDeadlineSeconds)...)
	if s.TimeZone != nil && (old == nil || old.Spec.TimeZone == nil || *old.Spec.TimeZone != *s.TimeZone) {
		c.Add(validateTimeZone(*s.TimeZone, spec.Child("timeZone"))...)
	}
	c.Add(rules.OneOf(spec.Child("concurrencyPolicy"), s.ConcurrencyPolicy, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	template, at := &s.JobTemplate.Spec, spec.Child("jobTemplate", "spec")
	c.Add(validateJobSpec(template, pods.TemplateBefore(old), at)...)
	c.Refuse(template.Selector != nil, at.Child("selector"), template.Selector, "`selector` will be auto-generated")
	if ptr.Deref(template.ManualSelector, false) {
		c.Add(field.NotSupported(at.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	c.Add(rules.NotNegative(spec.Child("successfulJobsHistoryLimit"), s.SuccessfulJobsHistoryLimit)...)
	c.Add(rules.NotNegative(spec.Child("failedJobsHistoryLimit"), s.FailedJobsHistoryLimit)...)
	c.Refuse(old == nil && len(cron.Name) > maxCronJobName, field.NewPath("metadata", "name"), cron.Name, "must be no more than 52 characters")
	c.Required(spec.Child("schedule"), s.Schedule) // by a rule of the type, which comes after the others there
	return c.Errs
}

// validateSchedule checks when a CronJob runs.
func validateSchedule(s *batchv1.CronJobSpec, old *batchv1.CronJob, at *field.Path) (errs field.ErrorList) {
	zoned := strings.Contains(s.Schedule, "TZ")
	if err := parseSchedule(s.Schedule); err != nil {
		errs = append(errs, field.Invalid(at, s.Schedule, err.Error()))
	}
	switch had := old != nil && strings.Contains(old.Spec.Schedule, "TZ"); {
	case zoned && !had:
		errs = append(errs, field.Invalid(at, s.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	case zoned && s.TimeZone != nil:
		errs = append(errs, field.Invalid(at, s.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	}
	return errs
}

// cronField is one of a schedule's five.
type cronField struct {
	least, most int
	words       []string // the names of the values, from the first
}

var cronFields = []cronField{
	{0, 59, nil}, {0, 23, nil}, {1, 31, nil},
	{1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// parseSchedule says what is wrong with a schedule, in the words of the library that Kubernetes reads schedules with.
func parseSchedule(text string) error {
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		zone, rest, ok := strings.Cut(text, " ")
		if !ok {
			return errors.New("provided bad location " + zone)
		}
		text = strings.TrimSpace(rest)
	}
	if name, described := strings.CutPrefix(text, "@"); described {
		if every, ok := strings.CutPrefix(name, "every "); ok {
			if _, err := time.ParseDuration(every); err != nil {
				return fmt.Errorf("failed to parse duration %s: %w", text, err)
			}
			return nil
		}
		if !slices.Contains([]string{"yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"}, name) {
			return fmt.Errorf("unrecognized descriptor: %s", text)
		}
		return nil
	}
	parts := strings.Fields(text)
	if len(parts) != len(cronFields) {
		return fmt.Errorf("expected exactly %d fields, found %d: %v", len(cronFields), len(parts), parts)
	}
	for i, part := range parts {
		for expr := range strings.SplitSeq(part, ",") {
			if err := cronFields[i].parse(expr); err != nil {
				return err
			}
		}
	}
	return nil
}

// parse reads one range of a field: *, 1, 1-5, with a step after a slash.
func (f cronField) parse(expr string) error {
	if expr == "" {
		return nil
	}
	span, step, stepped := strings.Cut(expr, "/")
	if strings.Contains(step, "/") {
		return fmt.Errorf("too many slashes: %s", expr)
	}
	ends := strings.Split(span, "-")
	start, end := f.least, f.most
	if ends[0] != "*" && ends[0] != "?" {
		var err error
		if start, err = f.value(ends[0]); err != nil {
			return err
		}
		switch len(ends) {
		case 1:
			if end = start; stepped {
				end = f.most
			}
		case 2:
			if end, err = f.value(ends[1]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("too many hyphens: %s", expr)
		}
	}
	by := 1
	if stepped {
		var err error
		if by, err = cronNumber(step); err != nil {
			return err
		}
	}
	switch {
	case start < f.least:
		return fmt.Errorf("beginning of range (%d) below minimum (%d): %s", start, f.least, expr)
	case end > f.most:
		return fmt.Errorf("end of range (%d) above maximum (%d): %s", end, f.most, expr)
	case start > end:
		return fmt.Errorf("beginning of range (%d) beyond end of range (%d): %s", start, end, expr)
	case by == 0:
		return fmt.Errorf("step of range should be a positive number: %s", expr)
	}
	return nil
}

func (f cronField) value(text string) (int, error) {
	if i := slices.Index(f.words, strings.ToLower(text)); i >= 0 {
		return f.least + i, nil
	}
	return cronNumber(text)
}

func cronNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("failed to parse int from %s: %w", text, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("negative number (%d) not allowed: %s", n, text)
	}
	return n, nil
}

var zoneName = regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)

func validateTimeZone(zone string, at *field.Path) (errs field.ErrorList) {
	if zone == "" {
		return field.ErrorList{field.Invalid(at, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zoneName.MatchString(part) {
			return field.ErrorList{field.Invalid(at, zone, "unknown time zone "+zone)}
		}
	}
	if strings.EqualFold(zone, "Local") {
		errs = append(errs, field.Invalid(at, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		errs = append(errs, field.Invalid(at, zone, err.Error()))
	}
	return errs
}
