package pods

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
)

// Pods and their templates.

var podFields = []string{
	"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
	"status.phase", "status.podIP", "status.nominatedNodeName",
}

func defaultPod(p *corev1.Pod) {
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			defaultRequests(&containers[i].Resources)
			if p.Spec.HostNetwork {
				for j := range containers[i].Ports {
					line.OrDefault(&containers[i].Ports[j].HostPort, containers[i].Ports[j].ContainerPort)
				}
			}
		}
	}
	DefaultPodSpec(&p.Spec)
	line.OrPointTo(&p.Spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if *p.Spec.TerminationGracePeriodSeconds < 0 {
		*p.Spec.TerminationGracePeriodSeconds = 1
	}
	defaultPodStatus(&p.Status)
}

// defaultPodStatus rounds what a kubelet reports, and keeps the first of a pod's addresses in both of its fields. The older field counts
// where they differ.
func defaultPodStatus(s *corev1.PodStatus) {
	switch {
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	for _, statuses := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range statuses {
			line.RoundUp(statuses[i].AllocatedResources)
			roundUpAll(statuses[i].Resources)
		}
	}
	line.RoundUp(s.AllocatedResources)
	roundUpAll(s.Resources)
}

// podGrace returns how many seconds a pod has to end. One that runs nowhere, or has ended, has none.
func podGrace(obj registry.Typed, asked *int64) int64 {
	p := obj.(*corev1.Pod)
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case p.Spec.NodeName == "" || ended:
		return 0
	case asked != nil:
		return *asked
	case p.Spec.TerminationGracePeriodSeconds == nil:
		return 0
	case *p.Spec.TerminationGracePeriodSeconds < 0:
		return 1
	}
	return *p.Spec.TerminationGracePeriodSeconds
}

// preparer has the time of what it notes.
type preparer struct{ clock *clock.Clock }

// preparePod begins a pod as one that waits. Its quality of service follows from its spec, and its own resources are completed when
// admission has added the last container.
func (by preparer) preparePod(ctx context.Context, obj, was registry.Typed, subresource string) {
	p := obj.(*corev1.Pod)
	old, _ := was.(*corev1.Pod)
	if old == nil || subresource == "resize" {
		defaultPodResources(&p.Spec)
	}
	if old != nil && subresource == "" && p.Spec.Resources == nil { // whoever doesn't know the field leaves it out
		p.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
	if old == nil {
		mergeLabelKeys(p)
		takeAppArmor(ctx, p)
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosOf(&p.Spec)}
		if len(p.Spec.SchedulingGates) > 0 {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(by.clock.Now()),
				Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates",
			}}
		}
	} else if subresource == "status" {
		keepReported(&p.Status, &old.Status)
		dropGatedStatus(&p.Status, &old.Status)
	}
}

// mergeLabelKeys selects the pods that have the same values of labels as a new pod, or others, where a selector names the labels alone.
func mergeLabelKeys(p *corev1.Pod) {
	merge := func(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, labelled := p.Labels[key]; labelled && selector != nil { // without a selector none is selected
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	term := func(t *corev1.PodAffinityTerm) {
		merge(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
		merge(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
	terms := func(preferred []corev1.WeightedPodAffinityTerm, required []corev1.PodAffinityTerm) {
		for i := range preferred {
			term(&preferred[i].PodAffinityTerm)
		}
		for i := range required {
			term(&required[i])
		}
	}
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
		terms(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		terms(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	for i := range p.Spec.TopologySpreadConstraints {
		s := &p.Spec.TopologySpreadConstraints[i]
		merge(s.LabelSelector, s.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// qosOf returns the quality of service of a pod: guaranteed if every container's cpu and memory are limited to what they
// request, best effort if none requests or limits anything. What is said of all containers together counts instead, if
// there is any.
func qosOf(s *corev1.PodSpec) corev1.PodQOSClass {
	var all []*corev1.ResourceRequirements
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			all = append(all, &containers[i].Resources)
		}
	}
	if hasPodResources(s.Resources) {
		all = []*corev1.ResourceRequirements{s.Resources}
	}
	guaranteed, anything := true, false
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := r.Limits[name], r.Requests[name]
			anything = anything || !limit.IsZero() || !request.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && limit.Cmp(request) == 0
		}
	}
	switch {
	case !anything:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// podParts are the parts of a pod with paths of their own.
var podParts = []registry.Subresource{
	{Name: "ephemeralcontainers", Verbs: []string{"get", "patch", "update"}, OwnsAll: true,
		Select: func(next, in map[string]any) { line.Carry(next, in, "spec", "ephemeralContainers") }},
	{Name: "resize", Verbs: []string{"get", "patch", "update"}, OwnsAll: true, Select: carryResources, Whole: changesContainers},
	{Name: "binding", Verbs: []string{"create"}, Kind: corev1.SchemeGroupVersion.WithKind("Binding"), New: func() registry.Typed { return &corev1.Binding{} }, Prepare: checkBinding, Act: bind},
	{Name: "eviction", Verbs: []string{"create"}, Kind: policyv1.SchemeGroupVersion.WithKind("Eviction"), Also: []schema.GroupVersionKind{{Group: "policy", Version: "v1beta1", Kind: "Eviction"}},
		New: func() registry.Typed { return &policyv1.Eviction{} }, Prepare: prepareEviction, Act: evict},
}

// podContainers are the lists of a pod's containers of which resources may change.
var podContainers = []string{"spec.containers", "spec.initContainers"}

// changesContainers tells whether there are more or fewer containers in a pod than in another.
func changesContainers(pod, in map[string]any) bool {
	return slices.ContainsFunc(podContainers, func(list string) bool {
		return len(column.AsList(column.At(pod, list))) != len(column.AsList(column.At(in, list)))
	})
}

// carryResources takes over the resources of a pod, and those of its containers. Of containers whose names or order differ, it takes over
// all, which the rules refuse.
func carryResources(next, in map[string]any) {
	spec := maps.Clone(column.AsMap(next["spec"]))
	if r := column.At(in, "spec.resources"); r != nil {
		spec["resources"] = r
	}
	for _, path := range podContainers {
		were, are := column.AsList(column.At(next, path)), column.AsList(column.At(in, path))
		name := strings.TrimPrefix(path, "spec.")
		if len(are) == 0 {
			continue
		}
		changed := make([]any, len(were))
		for i, c := range were {
			c := maps.Clone(column.AsMap(c))
			if column.At(are[i], "name") != c["name"] {
				changed = are
				break
			}
			for _, member := range []string{"resources", "resizePolicy"} {
				if delete(c, member); column.At(are[i], member) != nil {
					c[member] = column.At(are[i], member)
				}
			}
			changed[i] = c
		}
		spec[name] = changed
	}
	next["spec"] = spec
}

func defaultPodTemplate(t *corev1.PodTemplate) { DefaultPodSpec(&t.Template.Spec) }

func validatePodTemplate(t, old *corev1.PodTemplate) field.ErrorList {
	return ValidateTemplate(&t.Template, TemplateBefore(old), field.NewPath("template"))
}

func podColumns() []registry.Column {
	columns := []registry.Column{
		column.Cell("Ready", "The aggregate readiness state of this pod for accepting traffic.", func(o any) any {
			s := stateOf(o)
			return fmt.Sprintf("%d/%d", s.ready, s.total)
		}),
		column.Cell("Status", "The aggregate status of the containers in this pod.", func(o any) any { return stateOf(o).reason }),
		column.Cell("Restarts", "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.", restartsOf),
		column.Age(),
	}
	return append(columns, column.Wide(
		column.Cell("IP", corev1.PodStatus{}.SwaggerDoc()["podIP"], func(o any) any {
			ip := column.Str(column.At(o, "status.podIP"))
			for _, more := range column.AsList(column.At(o, "status.podIPs")) {
				ip = column.Or(ip, column.Str(column.At(more, "ip")))
			}
			return column.Or(ip, column.None)
		}),
		column.OrNone("Node", "spec.nodeName", corev1.PodSpec{}.SwaggerDoc()["nodeName"]),
		column.OrNone("Nominated Node", "status.nominatedNodeName", corev1.PodStatus{}.SwaggerDoc()["nominatedNodeName"]),
		column.Cell("Readiness Gates", corev1.PodSpec{}.SwaggerDoc()["readinessGates"], readinessGatesOf),
	)...)
}

// podState is what the containers of a pod say together.
type podState struct {
	reason       string // the most telling of what is known
	ready, total int    // containers; those of the init containers count that go on
	restarts     int64
	restarted    string // when the last was; "" for never
}

// stateOf sums up a pod as kubectl shows it.
func stateOf(o any) podState {
	s := podState{reason: column.Or(column.Str(column.At(o, "status.reason")), column.Str(column.At(o, "status.phase"))), total: len(column.AsList(column.At(o, "spec.containers")))}
	for _, c := range column.AsList(column.At(o, "status.conditions")) {
		if column.At(c, "type") == string(corev1.PodScheduled) && column.At(c, "reason") == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	goOn := map[any]bool{} // the names of init containers that go on beside the others
	for _, c := range column.AsList(column.At(o, "spec.initContainers")) {
		if column.At(c, "restartPolicy") == string(corev1.ContainerRestartPolicyAlways) {
			goOn[column.At(c, "name")] = true
			s.total++
		}
	}
	beside := s.initialize(o, goOn)
	if beside != nil {
		s.restarts, s.restarted = beside.restarts, beside.restarted
		s.run(o)
	}
	if column.At(o, "metadata.deletionTimestamp") != nil {
		switch phase := column.Str(column.At(o, "status.phase")); {
		case column.Str(column.At(o, "status.reason")) == "NodeLost":
			s.reason = "Unknown"
		case phase != string(corev1.PodSucceeded) && phase != string(corev1.PodFailed):
			s.reason = "Terminating"
		}
	}
	return s
}

// restartedBy adds what a container's status says of restarts.
func (s *podState) restartedBy(status any) {
	s.restarts += column.Num(column.At(status, "restartCount"))
	s.restarted = max(s.restarted, column.Str(column.At(status, "lastState.terminated.finishedAt")))
}

// initialize looks at the init containers. It returns the restarts of those that go on, or nil while the pod is initialized.
func (s *podState) initialize(o any, goOn map[any]bool) *podState {
	beside := &podState{}
	for i, c := range column.AsList(column.At(o, "status.initContainerStatuses")) {
		s.restartedBy(c)
		if goOn[column.At(c, "name")] {
			beside.restartedBy(c)
		}
		state := column.At(c, "state")
		terminated, waiting := column.AsMap(column.At(state, "terminated")), column.Str(column.At(state, "waiting.reason"))
		switch {
		case terminated != nil && column.Num(terminated["exitCode"]) == 0:
			continue
		case goOn[column.At(c, "name")] && column.At(c, "started") == true:
			if column.At(c, "ready") == true {
				s.ready++
			}
			continue
		case terminated != nil:
			s.reason = "Init:" + endOf(terminated)
		case waiting != "" && waiting != "PodInitializing":
			s.reason = "Init:" + waiting
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(column.AsList(column.At(o, "spec.initContainers"))))
		}
		if !holds(o, corev1.PodInitialized) {
			return nil
		}
		break
	}
	return beside
}

// run looks at the containers of a pod that is initialized.
func (s *podState) run(o any) {
	running := false
	statuses := column.AsList(column.At(o, "status.containerStatuses"))
	for i := len(statuses) - 1; i >= 0; i-- {
		c := statuses[i]
		s.restartedBy(c)
		state := column.At(c, "state")
		if waiting := column.Str(column.At(state, "waiting.reason")); waiting != "" {
			s.reason = waiting
		} else if terminated := column.AsMap(column.At(state, "terminated")); terminated != nil {
			s.reason = endOf(terminated)
		} else if column.At(c, "ready") == true && column.At(state, "running") != nil {
			running = true
			s.ready++
		}
	}
	if s.reason == "Completed" && running {
		if s.reason = "NotReady"; holds(o, corev1.PodReady) {
			s.reason = "Running"
		}
	}
}

// holds tells whether a condition of a pod is true.
func holds(o any, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(column.AsList(column.At(o, "status.conditions")), func(c any) bool {
		return column.At(c, "type") == string(condition) && column.At(c, "status") == string(corev1.ConditionTrue)
	})
}

// endOf says why a container ended.
func endOf(terminated map[string]any) string {
	switch {
	case column.Str(terminated["reason"]) != "":
		return column.Str(terminated["reason"])
	case column.Num(terminated["signal"]) != 0:
		return fmt.Sprintf("Signal:%d", column.Num(terminated["signal"]))
	}
	return fmt.Sprintf("ExitCode:%d", column.Num(terminated["exitCode"]))
}

// restartsOf shows how often containers were restarted, and when the last was.
func restartsOf(o any) any {
	s := stateOf(o)
	if s.restarts > 0 && s.restarted != "" {
		return column.Around(fmt.Sprintf("%d (%%s ago)", s.restarts), column.Elapsed(s.restarted))
	}
	return fmt.Sprint(s.restarts)
}

func readinessGatesOf(o any) any {
	gates := column.AsList(column.At(o, "spec.readinessGates"))
	if len(gates) == 0 {
		return column.None
	}
	met := 0
	for _, gate := range gates {
		if holds(o, corev1.PodConditionType(column.Str(column.At(gate, "conditionType")))) {
			met++
		}
	}
	return fmt.Sprintf("%d/%d", met, len(gates))
}

// TemplateColumns show what the pods of a template run. template is its path.
func TemplateColumns(template string) []registry.Column {
	list := func(name string) func(o any) any {
		return func(o any) any {
			return column.Joined(column.At(o, template+".spec.containers"), ",", func(c any) string { return column.Str(column.At(c, name)) })
		}
	}
	return []registry.Column{
		column.Cell("Containers", "Names of each container in the template.", list("name")),
		column.Cell("Images", "Images referenced by each container in the template.", list("image")),
	}
}

func podTemplateColumns() []registry.Column {
	return append(TemplateColumns("template"), column.Cell("Pod Labels", "The labels for the pod template.", func(o any) any { return column.LabelsText(column.At(o, "template.metadata.labels")) }))
}
