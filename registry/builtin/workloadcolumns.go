package builtin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// The columns of workloads.

// selectorText is the selector of a workload as a Scale shows it. ReplicationController has no LabelSelector but labels.
func selectorText(content map[string]any) (string, error) {
	tree := asMap(at(content, "spec.selector"))
	if tree == nil {
		return "", nil
	}
	s := &metav1.LabelSelector{}
	if isLabels(tree) {
		tree = map[string]any{"matchLabels": tree}
	}
	if err := jsontree.Into(tree, s); err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}

// isLabels tells a map of labels from a LabelSelector.
func isLabels(tree map[string]any) bool {
	for _, v := range tree {
		if _, ok := v.(string); !ok {
			return false
		}
	}
	return true
}

// selectorCell shows a selector as kubectl does: app=a,tier in (x,y).
func selectorCell(path string) func(o any) any {
	return func(o any) any {
		text, err := selectorText(map[string]any{"spec": map[string]any{"selector": at(o, path)}})
		if err != nil || text == "" {
			return none
		}
		return text
	}
}

// runs are the columns that all workloads have for -o wide.
func runs(template string, more ...column) []column {
	return wide(append(templateColumns(template), more...)...)
}

// share shows how many of how many.
func share(have, want string) func(o any) any {
	return func(o any) any { return fmt.Sprintf("%d/%d", num(at(o, have)), num(at(o, want))) }
}

func deploymentColumns() []column {
	doc := appsv1.DeploymentStatus{}.SwaggerDoc()
	return append([]column{
		cell("Ready", "Number of the pod with ready state", share("status.readyReplicas", "spec.replicas")),
		asText(number("Up-to-date", "status.updatedReplicas", doc["updatedReplicas"])),
		asText(number("Available", "status.availableReplicas", doc["availableReplicas"])),
		age(),
	}, runs("spec.template", cell("Selector", appsv1.DeploymentSpec{}.SwaggerDoc()["selector"], selectorCell("spec.selector")))...)
}

// asText declares a column of numbers as one of strings, as kube-apiserver has some.
func asText(c column) column {
	c.Type = "string"
	return c
}

func statefulSetColumns() []column {
	return append([]column{cell("Ready", "Number of the pod with ready state", share("status.readyReplicas", "spec.replicas")), age()}, runs("spec.template")...)
}

func daemonSetColumns() []column {
	doc := appsv1.DaemonSetStatus{}.SwaggerDoc()
	return append([]column{
		number("Desired", "status.desiredNumberScheduled", doc["desiredNumberScheduled"]),
		number("Current", "status.currentNumberScheduled", doc["currentNumberScheduled"]),
		number("Ready", "status.numberReady", doc["numberReady"]),
		number("Up-to-date", "status.updatedNumberScheduled", doc["updatedNumberScheduled"]),
		number("Available", "status.numberAvailable", doc["numberAvailable"]),
		cell("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"], func(o any) any { return labelsText(at(o, "spec.template.spec.nodeSelector")) }),
		age(),
	}, runs("spec.template", cell("Selector", appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"], selectorCell("spec.selector")))...)
}

func replicaSetColumns() []column {
	return replicaColumns(appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc())
}

func replicationControllerColumns() []column {
	return replicaColumns(corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc())
}

func replicaColumns(spec, status map[string]string) []column {
	return append([]column{
		number("Desired", "spec.replicas", spec["replicas"]),
		number("Current", "status.replicas", status["replicas"]),
		number("Ready", "status.readyReplicas", status["readyReplicas"]),
		age(),
	}, runs("spec.template", cell("Selector", spec["selector"], selectorCell("spec.selector")))...)
}

func jobColumns() []column {
	return append([]column{
		cell("Status", "Status of the job.", jobStatus),
		cell("Completions", batchv1.JobStatus{}.SwaggerDoc()["succeeded"], func(o any) any {
			done := num(at(o, "status.succeeded"))
			if want := at(o, "spec.completions"); want != nil {
				return fmt.Sprintf("%d/%d", done, num(want))
			}
			if parallel := num(at(o, "spec.parallelism")); parallel > 1 {
				return fmt.Sprintf("%d/1 of %d", done, parallel)
			}
			return fmt.Sprintf("%d/1", done)
		}),
		cell("Duration", "Time required to complete the job.", func(o any) any {
			began, err := time.Parse(time.RFC3339, str(at(o, "status.startTime")))
			if err != nil {
				return ""
			}
			end, err := time.Parse(time.RFC3339, str(at(o, "status.completionTime")))
			if err != nil {
				end = time.Now()
			}
			return duration.HumanDuration(end.Sub(began))
		}),
		age(),
	}, runs("spec.template", cell("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"], selectorCell("spec.selector")))...)
}

func jobStatus(o any) any {
	holds := func(condition batchv1.JobConditionType) bool {
		return slices.ContainsFunc(asList(at(o, "status.conditions")), func(c any) bool {
			return at(c, "type") == string(condition) && at(c, "status") == "True"
		})
	}
	switch {
	case holds(batchv1.JobComplete):
		return "Complete"
	case holds(batchv1.JobFailed):
		return "Failed"
	case at(o, "metadata.deletionTimestamp") != nil:
		return "Terminating"
	case holds(batchv1.JobSuspended):
		return "Suspended"
	case holds(batchv1.JobFailureTarget):
		return "FailureTarget"
	}
	return "Running"
}

func cronJobColumns() []column {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return append([]column{
		text("Schedule", "spec.schedule", spec["schedule"]),
		orNone("Timezone", "spec.timeZone", spec["timeZone"]),
		{Name: "Suspend", Type: "boolean", Description: spec["suspend"], Cell: func(o any) any { return capital(at(o, "spec.suspend")) }},
		{Name: "Active", Type: "integer", Description: status["active"], Cell: func(o any) any { return int64(len(asList(at(o, "status.active")))) }},
		cell("Last Schedule", status["lastScheduleTime"], func(o any) any {
			if last := at(o, "status.lastScheduleTime"); last != nil {
				return elapsed(last)
			}
			return none
		}),
		age(),
	}, runs("spec.jobTemplate.spec.template", cell("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"], selectorCell("spec.jobTemplate.spec.selector")))...)
}

// capital shows a boolean as kubectl does for some kinds.
func capital(v any) string {
	switch v {
	case nil:
		return unset
	case true:
		return "True"
	}
	return "False"
}

func revisionColumns() []column {
	return []column{
		cell("Controller", "Controller of the object", func(o any) any {
			for _, owner := range asList(at(o, "metadata.ownerReferences")) {
				if at(owner, "controller") == true {
					apiVersion := str(at(owner, "apiVersion"))
					kind := strings.ToLower(str(at(owner, "kind")))
					if group, _, grouped := strings.Cut(apiVersion, "/"); grouped {
						kind += "." + group
					}
					return kind + "/" + str(at(owner, "name"))
				}
			}
			return none
		}),
		asText(number("Revision", "revision", appsv1.ControllerRevision{}.SwaggerDoc()["revision"])),
		age(),
	}
}
