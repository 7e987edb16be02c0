// Package events has Events, which two groups have in forms of their own. Both are stored in the core's, and expire.
package events

import (
	"cmp"
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
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

const eventsGroup = "events.k8s.io"

// Kinds are the lines of the table. An event lives so long after its last write; 0 is kube-apiserver's default, DefaultTTL.
func Kinds(ttl time.Duration) []registry.Type {
	return []registry.Type{
		{Names: line.Names("", "v1", "Event", "ev"), New: line.New[corev1.Event], ValidName: rules.PathSegment,
			Strategy: registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, Uncached: true, Dependents: registry.NoDependents},
			Deletion: registry.Deletion[registry.Typed]{TTL: cmp.Or(ttl, DefaultTTL), Times: eventTimes}, Selection: registry.Selection{Fields: eventFields, Aliases: map[string]string{"source": "source.component|reportingComponent"}}, Columns: eventColumns, Validate: line.Rules(validateEvent)},
		{Names: line.Names(eventsGroup, "v1", "Event", "ev"), New: line.New[eventsv1.Event],
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, Uncached: true, Dependents: registry.NoDependents},
			Selection: registry.Selection{Fields: newEventFields, Aliases: newEventAliases}, Columns: newEventColumns, Validate: line.Rules(validateNewEvent),
			Stored: registry.Stored{To: eventToCore, From: eventFromCore}},
	}
}

// DefaultTTL is kube-apiserver's.
const DefaultTTL = time.Hour

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

// reporters are the members by their core names that only the core group has if they're empty.
var reporters = []string{"reportingComponent", "reportingInstance"}

// eventToCore makes an event of the core group of one of events.k8s.io, which has the members that its Go type writes.
func eventToCore(tree map[string]any) error {
	for _, names := range renamedInEvents {
		rename(tree, names[1], names[0])
	}
	for _, name := range reporters {
		if tree[name] == nil {
			tree[name] = ""
		}
	}
	return countSeries(tree, func(series map[string]any) {
		if series["count"] == int64(0) {
			delete(series, "count")
		}
	})
}

// eventFromCore is the way back.
func eventFromCore(tree map[string]any) error {
	for _, name := range reporters {
		if tree[name] == "" {
			delete(tree, name)
		}
	}
	for _, names := range renamedInEvents {
		rename(tree, names[0], names[1])
	}
	return countSeries(tree, func(series map[string]any) {
		if series["count"] == nil {
			series["count"] = int64(0)
		}
	})
}

// countSeries changes an event's series, which others may have, too.
func countSeries(tree map[string]any, change func(series map[string]any)) error {
	if series, ok := tree["series"].(map[string]any); ok {
		series = maps.Clone(series)
		change(series)
		tree["series"] = series
	}
	return nil
}

func rename(tree map[string]any, from, to string) {
	if v, ok := tree[from]; ok {
		delete(tree, from)
		tree[to] = v
	}
}

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
	c, at, of, dated := &rules.Check{}, field.NewPath("involvedObject", "namespace"), e.InvolvedObject.Namespace, !e.EventTime.IsZero()
	switch {
	case of == "" && e.Namespace != metav1.NamespaceDefault && (!dated || e.Namespace != metav1.NamespaceSystem), of != "" && of != e.Namespace && !dated:
		c.Add(field.Invalid(at, of, "does not match event.namespace"))
	}
	if !dated {
		return c.Errs
	}
	c.Required(field.NewPath(reporter), e.ReportingController)
	c.Qualified(field.NewPath(reporter), e.ReportingController)
	for _, f := range []struct{ name, value string }{{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason}} {
		if at := field.NewPath(f.name); c.Required(at, f.value) && len(f.value) > maxEventName {
			c.Add(field.Invalid(at, "", fmt.Sprintf("can have at most %d characters", maxEventName)))
		}
	}
	if len(e.Message) > maxEventMessage {
		c.Add(field.Invalid(field.NewPath("message"), "", fmt.Sprintf("can have at most %d characters", maxEventMessage)))
	}
	return c.Errs
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
	c := &rules.Check{Errs: reported(e, "reportingController")}
	if before == nil {
		meta := field.NewPath("metadata")
		c.Add(validation.ValidateObjectMeta(&e.ObjectMeta, true, validation.NameIsDNSSubdomain, meta)...)
		for i, f := range e.Finalizers {
			c.Add(registry.QualifiedFinalizer(f, meta.Child("finalizers").Index(i))...)
		}
		validateSeries(c, e.Series)
		c.Lack(e.EventTime.IsZero(), field.NewPath("eventTime"), "")
		if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
			c.Add(field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
		}
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"firstTimestamp", !e.FirstTimestamp.IsZero()}, {"lastTimestamp", !e.LastTimestamp.IsZero()}, {"count", e.Count != 0}, {"source", e.Source != corev1.EventSource{}},
		} {
			c.Refuse(f.set, field.NewPath(f.name), "", "needs to be unset")
		}
		return c.Errs
	}
	old := inCore(before)
	if !equality.Semantic.DeepEqual(e.Series, old.Series) {
		validateSeries(c, e.Series)
	}
	same := func(name string, now, before any) {
		if !equality.Semantic.DeepEqual(now, before) {
			if _, text := now.(string); !text {
				now = rules.Untagged(now)
			}
			c.Add(field.Invalid(field.NewPath(name), now, "field is immutable"))
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
	return c.Errs
}

func validateSeries(c *rules.Check, s *corev1.EventSeries) {
	if s == nil {
		return
	}
	c.Refuse(s.Count < 2, field.NewPath("series.count"), "", "should be at least 2")
	c.Lack(s.LastObservedTime.IsZero(), field.NewPath("series.lastObservedTime"), "")
}

// eventMembers are the names of members in one of the two groups.
type eventMembers struct{ object, message, controller, source, first, last, count string }

func eventColumns() []registry.Column {
	return columnsOfEvents(eventMembers{"involvedObject", "message", "reportingComponent", "source", "firstTimestamp", "lastTimestamp", "count"})
}

func newEventColumns() []registry.Column {
	return columnsOfEvents(eventMembers{"regarding", "note", "reportingController", "deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount"})
}

// columnsOfEvents are special in that the name comes last.
func columnsOfEvents(m eventMembers) []registry.Column {
	doc, objectDoc := corev1.Event{}.SwaggerDoc(), corev1.ObjectReference{}.SwaggerDoc()
	columns := []registry.Column{
		column.Cell("Last Seen", doc["lastTimestamp"], func(o any) any {
			return column.Elapsed(column.At(o, "series.lastObservedTime"), column.At(o, m.last), column.At(o, m.first), column.At(o, "eventTime"))
		}),
		column.Text("Type", "type", doc["type"]),
		column.Text("Reason", "reason", doc["reason"]),
		column.Cell("Object", doc["involvedObject"], func(o any) any {
			kind, name := strings.ToLower(column.Str(column.At(o, m.object+".kind"))), column.Str(column.At(o, m.object+".name"))
			if name == "" {
				return kind
			}
			return kind + "/" + name
		}),
	}
	columns = append(columns, column.Wide(
		column.Text("Subobject", m.object+".fieldPath", objectDoc["fieldPath"]),
		column.Cell("Source", doc["source"], func(o any) any {
			component, host := column.Or(column.Str(column.At(o, m.source+".component")), column.Str(column.At(o, m.controller))), column.Or(column.Str(column.At(o, m.source+".host")), column.Str(column.At(o, "reportingInstance")))
			if host == "" {
				return component
			}
			return component + ", " + host
		}),
	)...)
	columns = append(columns, column.Cell("Message", doc["message"], func(o any) any { return strings.TrimSpace(column.Str(column.At(o, m.message))) }))
	columns = append(columns, column.Wide(
		column.Cell("First Seen", doc["firstTimestamp"], func(o any) any { return column.Elapsed(column.At(o, m.first), column.At(o, "eventTime")) }),
		column.Cell("Count", doc["count"], func(o any) any {
			if n := column.Num(column.At(o, "series.count")); n > 0 {
				return n
			}
			return max(column.Num(column.At(o, m.count)), 1)
		}),
		column.NameColumn(),
	)...)
	return columns
}
