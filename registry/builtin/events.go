package builtin

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
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

// canonical gives an object the members that its Go type writes. Its metadata stays, and isn't looked into.
func canonical(tree map[string]any, obj any) error {
	content := maps.Clone(tree)
	for _, name := range wholeOnly {
		delete(content, name)
	}
	if err := jsontree.Into(content, obj); err != nil {
		return err
	}
	written, err := jsontree.Revise(content, obj, wholeOnly...)
	if err != nil {
		return err
	}
	for name := range content {
		delete(tree, name)
	}
	maps.Copy(tree, written)
	return nil
}

// wholeOnly are the members of an object that aren't its content.
var wholeOnly = []string{"apiVersion", "kind", "metadata"}

// What Kubernetes lets an event of the new kind hold, in bytes.
const (
	maxEventName    = 128
	maxEventMessage = 1024
)

// validateEvent checks an event as clients of the core group write it. Those that say when they happened
// (eventTime) have the fields of the new kind, too.
func validateEvent(e, _ *corev1.Event) field.ErrorList { return reported(e, "reportingComponent") }

// reported checks an event whose reporter has a name that differs between the groups.
func reported(e *corev1.Event, reporter string) field.ErrorList {
	c, at, of, dated := &check{}, field.NewPath("involvedObject", "namespace"), e.InvolvedObject.Namespace, !e.EventTime.IsZero()
	switch {
	case of == "" && e.Namespace != metav1.NamespaceDefault && (!dated || e.Namespace != metav1.NamespaceSystem), of != "" && of != e.Namespace && !dated:
		c.add(field.Invalid(at, of, "does not match event.namespace"))
	}
	if !dated {
		return c.errs
	}
	c.required(field.NewPath(reporter), e.ReportingController)
	c.qualified(field.NewPath(reporter), e.ReportingController)
	for _, f := range []struct{ name, value string }{{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason}} {
		if at := field.NewPath(f.name); c.required(at, f.value) && len(f.value) > maxEventName {
			c.add(field.Invalid(at, "", fmt.Sprintf("can have at most %d characters", maxEventName)))
		}
	}
	if len(e.Message) > maxEventMessage {
		c.add(field.Invalid(field.NewPath("message"), "", fmt.Sprintf("can have at most %d characters", maxEventMessage)))
	}
	return c.errs
}

// inCore makes an event of the core group of one of events.k8s.io: refusals name its members.
func inCore(e *eventsv1.Event) *corev1.Event {
	core := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Related: e.Related, Reason: e.Reason, Message: e.Note, Type: e.Type, Action: e.Action,
		EventTime: e.EventTime, ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
	}
	if e.Series != nil {
		core.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return core
}

// validateNewEvent checks an event as clients of events.k8s.io write it.
func validateNewEvent(sent, before *eventsv1.Event) field.ErrorList {
	e := inCore(sent)
	c := &check{errs: reported(e, "reportingController")}
	if before == nil {
		meta := field.NewPath("metadata")
		c.add(validation.ValidateObjectMeta(&e.ObjectMeta, true, validation.NameIsDNSSubdomain, meta)...)
		for i, f := range e.Finalizers {
			c.add(registry.QualifiedFinalizer(f, meta.Child("finalizers").Index(i))...)
		}
		c.eventSeries(e.Series)
		if e.EventTime.IsZero() {
			c.add(field.Required(field.NewPath("eventTime"), ""))
		}
		if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
			c.add(field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
		}
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"firstTimestamp", !e.FirstTimestamp.IsZero()}, {"lastTimestamp", !e.LastTimestamp.IsZero()}, {"count", e.Count != 0}, {"source", e.Source != corev1.EventSource{}},
		} {
			if f.set {
				c.add(field.Invalid(field.NewPath(f.name), "", "needs to be unset"))
			}
		}
		return c.errs
	}
	old := inCore(before)
	if !equality.Semantic.DeepEqual(e.Series, old.Series) {
		c.eventSeries(e.Series)
	}
	same := func(name string, now, before any) {
		if !equality.Semantic.DeepEqual(now, before) {
			if _, text := now.(string); !text {
				now = untagged{now}
			}
			c.add(field.Invalid(field.NewPath(name), now, "field is immutable"))
		}
	}
	same("involvedObject", e.InvolvedObject, old.InvolvedObject)
	same("reason", e.Reason, old.Reason)
	same("message", e.Message, old.Message)
	same("source", e.Source, old.Source)
	same("firstTimestamp", e.FirstTimestamp, old.FirstTimestamp)
	same("lastTimestamp", e.LastTimestamp, old.LastTimestamp)
	same("count", e.Count, old.Count)
	same("type", e.Type, old.Type)
	if !e.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		same("eventTime", e.EventTime, old.EventTime)
	}
	same("action", e.Action, old.Action)
	same("related", e.Related, old.Related)
	same("reportingController", e.ReportingController, old.ReportingController)
	same("reportingInstance", e.ReportingInstance, old.ReportingInstance)
	return c.errs
}

func (c *check) eventSeries(s *corev1.EventSeries) {
	if s == nil {
		return
	}
	if s.Count < 2 {
		c.add(field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if s.LastObservedTime.IsZero() {
		c.add(field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
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
