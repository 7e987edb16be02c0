package workloads

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// The columns of workloads.

// runs are the columns that all workloads have for -o wide.
func runs(template string, more ...registry.Column) []registry.Column {
	return column.Wide(append(pods.TemplateColumns(template), more...)...)
}

// share shows how many of how many.
func share(have, want string) func(o any) any {
	return func(o any) any {
		return fmt.Sprintf("%d/%d", column.Num(column.At(o, have)), column.Num(column.At(o, want)))
	}
}

func deploymentColumns() []registry.Column {
	doc := appsv1.DeploymentStatus{}.SwaggerDoc()
	return append([]registry.Column{
		column.Cell("Ready", "Number of the pod with ready state", share("status.readyReplicas", "spec.replicas")),
		column.AsText(column.Number("Up-to-date", "status.updatedReplicas", doc["updatedReplicas"])),
		column.AsText(column.Number("Available", "status.availableReplicas", doc["availableReplicas"])),
		column.Age(),
	}, runs("spec.template", column.Cell("Selector", appsv1.DeploymentSpec{}.SwaggerDoc()["selector"], column.SelectorCell("spec.selector")))...)
}

func statefulSetColumns() []registry.Column {
	return append([]registry.Column{column.Cell("Ready", "Number of the pod with ready state", share("status.readyReplicas", "spec.replicas")), column.Age()}, runs("spec.template")...)
}

func daemonSetColumns() []registry.Column {
	doc := appsv1.DaemonSetStatus{}.SwaggerDoc()
	return append([]registry.Column{
		column.Number("Desired", "status.desiredNumberScheduled", doc["desiredNumberScheduled"]),
		column.Number("Current", "status.currentNumberScheduled", doc["currentNumberScheduled"]),
		column.Number("Ready", "status.numberReady", doc["numberReady"]),
		column.Number("Up-to-date", "status.updatedNumberScheduled", doc["updatedNumberScheduled"]),
		column.Number("Available", "status.numberAvailable", doc["numberAvailable"]),
		column.Cell("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"], func(o any) any { return column.LabelsText(column.At(o, "spec.template.spec.nodeSelector")) }),
		column.Age(),
	}, runs("spec.template", column.Cell("Selector", appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"], column.SelectorCell("spec.selector")))...)
}

func replicaSetColumns() []registry.Column {
	return replicaColumns(appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc())
}

func replicationControllerColumns() []registry.Column {
	return replicaColumns(corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc())
}

func replicaColumns(spec, status map[string]string) []registry.Column {
	return append([]registry.Column{
		column.Number("Desired", "spec.replicas", spec["replicas"]),
		column.Number("Current", "status.replicas", status["replicas"]),
		column.Number("Ready", "status.readyReplicas", status["readyReplicas"]),
		column.Age(),
	}, runs("spec.template", column.Cell("Selector", spec["selector"], column.SelectorCell("spec.selector")))...)
}

func jobColumns() []registry.Column {
	return append([]registry.Column{
		column.Cell("Status", "Status of the job.", jobStatus),
		column.Cell("Completions", batchv1.JobStatus{}.SwaggerDoc()["succeeded"], func(o any) any {
			done := column.Num(column.At(o, "status.succeeded"))
			if want := column.At(o, "spec.completions"); want != nil {
				return fmt.Sprintf("%d/%d", done, column.Num(want))
			}
			if parallel := column.Num(column.At(o, "spec.parallelism")); parallel > 1 {
				return fmt.Sprintf("%d/1 of %d", done, parallel)
			}
			return fmt.Sprintf("%d/1", done)
		}),
		column.Cell("Duration", "Time required to complete the job.", func(o any) any {
			began, err := time.Parse(time.RFC3339, column.Str(column.At(o, "status.startTime")))
			if err != nil {
				return ""
			}
			end, err := time.Parse(time.RFC3339, column.Str(column.At(o, "status.completionTime")))
			if err != nil {
				return form.Ago{At: began}
			}
			return duration.HumanDuration(end.Sub(began))
		}),
		column.Age(),
	}, runs("spec.template", column.Cell("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"], column.SelectorCell("spec.selector")))...)
}

func jobStatus(o any) any {
	holds := func(condition batchv1.JobConditionType) bool {
		return slices.ContainsFunc(column.AsList(column.At(o, "status.conditions")), func(c any) bool {
			return column.At(c, "type") == string(condition) && column.At(c, "status") == "True"
		})
	}
	switch {
	case holds(batchv1.JobComplete):
		return "Complete"
	case holds(batchv1.JobFailed):
		return "Failed"
	case column.At(o, "metadata.deletionTimestamp") != nil:
		return "Terminating"
	case holds(batchv1.JobSuspended):
		return "Suspended"
	case holds(batchv1.JobFailureTarget):
		return "FailureTarget"
	}
	return "Running"
}

func cronJobColumns() []registry.Column {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return append([]registry.Column{
		column.Text("Schedule", "spec.schedule", spec["schedule"]),
		column.OrNone("Timezone", "spec.timeZone", spec["timeZone"]),
		{Name: "Suspend", Type: "boolean", Description: spec["suspend"], Cell: func(o any) any { return capital(column.At(o, "spec.suspend")) }},
		{Name: "Active", Type: "integer", Description: status["active"], Cell: func(o any) any { return int64(len(column.AsList(column.At(o, "status.active")))) }},
		column.Cell("Last Schedule", status["lastScheduleTime"], func(o any) any {
			if last := column.At(o, "status.lastScheduleTime"); last != nil {
				return column.Elapsed(last)
			}
			return column.None
		}),
		column.Age(),
	}, runs("spec.jobTemplate.spec.template", column.Cell("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"], column.SelectorCell("spec.jobTemplate.spec.selector")))...)
}

// capital shows a boolean as kubectl does for some kinds.
func capital(v any) string {
	switch v {
	case nil:
		return column.Unset
	case true:
		return "True"
	}
	return "False"
}

func revisionColumns() []registry.Column {
	return []registry.Column{
		column.Cell("Controller", "Controller of the object", func(o any) any {
			for _, owner := range column.AsList(column.At(o, "metadata.ownerReferences")) {
				if column.At(owner, "controller") == true {
					apiVersion := column.Str(column.At(owner, "apiVersion"))
					kind := strings.ToLower(column.Str(column.At(owner, "kind")))
					if group, _, grouped := strings.Cut(apiVersion, "/"); grouped {
						kind += "." + group
					}
					return kind + "/" + column.Str(column.At(owner, "name"))
				}
			}
			return column.None
		}),
		column.AsText(column.Number("Revision", "revision", appsv1.ControllerRevision{}.SwaggerDoc()["revision"])),
		column.Age(),
	}
}
