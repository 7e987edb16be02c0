package builtin

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// Events, which are stored as the core group has them, and are shown under other names in events.k8s.io.

// eventTTL is how long an event lives after its last write, as with kube-apiserver.
const eventTTL = time.Hour

var (
	// eventTimes are those of a stored event that its writer sets anew whenever it happens again.
	eventTimes = []string{"lastTimestamp", "eventTime", "series.lastObservedTime"}

	eventFields = []string{
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
		"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
	}
	newEventFields = []string{
		"reason", "regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "regarding.apiVersion",
		"regarding.resourceVersion", "regarding.fieldPath", "reportingController", "type",
	}
	newEventAliases = map[string]string{
		"regarding.kind": "involvedObject.kind", "regarding.namespace": "involvedObject.namespace", "regarding.name": "involvedObject.name",
		"regarding.uid": "involvedObject.uid", "regarding.apiVersion": "involvedObject.apiVersion",
		"regarding.resourceVersion": "involvedObject.resourceVersion", "regarding.fieldPath": "involvedObject.fieldPath",
		"reportingController": "reportingComponent",
	}
)

// renamedInEvents are the members that have another name in events.k8s.io, by their core names.
var renamedInEvents = [][2]string{
	{"involvedObject", "regarding"}, {"message", "note"}, {"reportingComponent", "reportingController"}, {"source", "deprecatedSource"},
	{"firstTimestamp", "deprecatedFirstTimestamp"}, {"lastTimestamp", "deprecatedLastTimestamp"}, {"count", "deprecatedCount"},
}

// eventToCore makes an event of the core group of one of events.k8s.io.
func eventToCore(tree map[string]any) error {
	for _, names := range renamedInEvents {
		rename(tree, names[1], names[0])
	}
	return canonical(tree, &corev1.Event{})
}

// eventFromCore is the way back.
func eventFromCore(tree map[string]any) error {
	for _, names := range renamedInEvents {
		rename(tree, names[0], names[1])
	}
	return canonical(tree, &eventsv1.Event{})
}

func rename(tree map[string]any, from, to string) {
	if v, ok := tree[from]; ok {
		delete(tree, from)
		tree[to] = v
	}
}

// canonical gives an object the members that its Go type writes. Its metadata stays.
func canonical(tree map[string]any, obj any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, obj); err != nil {
		return err
	}
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	for name := range tree {
		if name != "metadata" && name != "apiVersion" && name != "kind" {
			delete(tree, name)
		}
	}
	for name, v := range written {
		if _, ok := tree[name]; !ok {
			tree[name] = v
		}
	}
	return nil
}

// What Kubernetes lets an event of the new kind hold, in characters.
const (
	maxEventName    = 128
	maxEventMessage = 1024
)

// validateEvent checks an event as clients of the core group write it. Those that say when they happened
// (eventTime) have the fields of the new kind, too.
func validateEvent(e, _ *corev1.Event) (errs field.ErrorList) {
	at := field.NewPath("involvedObject", "namespace")
	switch of := e.InvolvedObject.Namespace; {
	case of == "" && e.Namespace != metav1.NamespaceDefault && (e.EventTime.IsZero() || e.Namespace != metav1.NamespaceSystem):
		errs = append(errs, field.Invalid(at, of, "does not match event.namespace"))
	case of != "" && of != e.Namespace && e.EventTime.IsZero():
		errs = append(errs, field.Invalid(at, of, "does not match event.namespace"))
	}
	if e.EventTime.IsZero() {
		return errs
	}
	return append(errs, validateReport(report{e.ReportingController, "reportingComponent", e.ReportingInstance, e.Action, e.Reason, e.Message, "message"})...)
}

// report is what the new kind of event asks for.
type report struct {
	controller, controllerField, instance, action, reason, message, messageField string
}

func validateReport(r report) (errs field.ErrorList) {
	at := field.NewPath(r.controllerField)
	if r.controller == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, problems(at, r.controller, validation.IsQualifiedName(r.controller))...)
	}
	for _, f := range []struct{ name, value string }{{"reportingInstance", r.instance}, {"action", r.action}, {"reason", r.reason}} {
		switch at := field.NewPath(f.name); {
		case f.value == "":
			errs = append(errs, field.Required(at, ""))
		case len(f.value) > maxEventName:
			errs = append(errs, field.Invalid(at, "", fmt.Sprintf("can have at most %d characters", maxEventName)))
		}
	}
	if utf8.RuneCountInString(r.message) > maxEventMessage {
		errs = append(errs, field.Invalid(field.NewPath(r.messageField), "", fmt.Sprintf("can have at most %d characters", maxEventMessage)))
	}
	return errs
}

// validateNewEvent checks an event as clients of events.k8s.io write it.
func validateNewEvent(e, old *eventsv1.Event) (errs field.ErrorList) {
	if of := e.Regarding.Namespace; of != e.Namespace && (of != "" || e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem) {
		errs = append(errs, field.Invalid(field.NewPath("regarding", "namespace"), of, "does not match event.namespace"))
	}
	if old == nil {
		if e.EventTime.IsZero() {
			errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
		}
		errs = append(errs, oneOf(field.NewPath("type"), e.Type, corev1.EventTypeNormal, corev1.EventTypeWarning)...)
		errs = append(errs, validateReport(report{e.ReportingController, "reportingController", e.ReportingInstance, e.Action, e.Reason, e.Note, "note"})...)
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"firstTimestamp", !e.DeprecatedFirstTimestamp.IsZero()}, {"lastTimestamp", !e.DeprecatedLastTimestamp.IsZero()},
			{"count", e.DeprecatedCount != 0}, {"source", e.DeprecatedSource != corev1.EventSource{}},
		} {
			if f.set {
				errs = append(errs, field.Invalid(field.NewPath(f.name), "", "needs to be unset"))
			}
		}
		return append(errs, validateSeries(e.Series)...)
	}
	for _, f := range []struct {
		name        string
		now, before any
	}{
		{"regarding", e.Regarding, old.Regarding}, {"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance}, {"action", e.Action, old.Action}, {"reason", e.Reason, old.Reason},
		{"related", e.Related, old.Related}, {"note", e.Note, old.Note}, {"type", e.Type, old.Type},
		{"source", e.DeprecatedSource, old.DeprecatedSource}, {"firstTimestamp", e.DeprecatedFirstTimestamp, old.DeprecatedFirstTimestamp},
		{"lastTimestamp", e.DeprecatedLastTimestamp, old.DeprecatedLastTimestamp}, {"count", e.DeprecatedCount, old.DeprecatedCount},
	} {
		errs = append(errs, unchanged(field.NewPath(f.name), f.now, f.before)...)
	}
	if !equality.Semantic.DeepEqual(e.EventTime, old.EventTime) {
		errs = append(errs, field.Invalid(field.NewPath("eventTime"), e.EventTime, "field is immutable"))
	}
	return append(errs, validateSeries(e.Series)...)
}

func validateSeries(s *eventsv1.EventSeries) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	if s.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series", "count"), s.Count, "should be at least 2"))
	}
	if s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series", "lastObservedTime"), ""))
	}
	return errs
}

// eventMembers are the names of members in one of the two groups.
type eventMembers struct{ object, message, controller, source, first, last, count string }

func eventColumns() []column {
	return columnsOfEvents(eventMembers{"involvedObject", "message", "reportingComponent", "source", "firstTimestamp", "lastTimestamp", "count"})
}

func newEventColumns() []column {
	return columnsOfEvents(eventMembers{"regarding", "note", "reportingController", "deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount"})
}

// columnsOfEvents are special in that the name comes last.
func columnsOfEvents(m eventMembers) []column {
	doc, objectDoc := corev1.Event{}.SwaggerDoc(), corev1.ObjectReference{}.SwaggerDoc()
	columns := []column{
		cell("Last Seen", doc["lastTimestamp"], func(o any) any {
			return elapsed(at(o, "series.lastObservedTime"), at(o, m.last), at(o, m.first), at(o, "eventTime"))
		}),
		text("Type", "type", doc["type"]),
		text("Reason", "reason", doc["reason"]),
		cell("Object", doc["involvedObject"], func(o any) any {
			kind, name := strings.ToLower(str(at(o, m.object+".kind"))), str(at(o, m.object+".name"))
			if name == "" {
				return kind
			}
			return kind + "/" + name
		}),
	}
	columns = append(columns, wide(
		text("Subobject", m.object+".fieldPath", objectDoc["fieldPath"]),
		cell("Source", doc["source"], func(o any) any {
			component, host := or(str(at(o, m.source+".component")), str(at(o, m.controller))), or(str(at(o, m.source+".host")), str(at(o, "reportingInstance")))
			if host == "" {
				return component
			}
			return component + ", " + host
		}),
	)...)
	columns = append(columns, cell("Message", doc["message"], func(o any) any { return strings.TrimSpace(str(at(o, m.message))) }))
	columns = append(columns, wide(
		cell("First Seen", doc["firstTimestamp"], func(o any) any { return elapsed(at(o, m.first), at(o, "eventTime")) }),
		cell("Count", doc["count"], func(o any) any {
			if n := num(at(o, "series.count")); n > 0 {
				return n
			}
			return max(num(at(o, m.count)), 1)
		}),
		nameColumn(),
	)...)
	return columns
}

// nameColumn declares where the name is shown, for tables that don't begin with it.
func nameColumn() column {
	name := form.NameColumn()
	return column{Name: name.Name, Type: name.Type, Format: name.Format, Description: name.Description, JSONPath: ".metadata.name"}
}
