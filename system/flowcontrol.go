package system

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Who makes FlowSchemas and PriorityLevelConfigurations, and who says of a FlowSchema whether its level is there.
const (
	flowProducer = "api-priority-and-fairness-config-producer-v1"
	flowConsumer = "api-priority-and-fairness-config-consumer-v1"
)

var (
	schemasPrefix = storage.PrefixOf(flowcontrolv1.GroupName, "flowschemas")
	levelsPrefix  = storage.PrefixOf(flowcontrolv1.GroupName, "prioritylevelconfigurations")
)

// What begins the keys of the two kinds, and the key for those that aren't wanted any more.
const (
	schemaKey = "flowschema/"
	levelKey  = "level/"
	danglers  = ""
)

// flowSchemas and levels are those of Kubernetes, the mandatory ones first.
var (
	flowSchemas = slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas)
	levels      = slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations)
)

func flowKeys() []string {
	keys := []string{danglers}
	for _, s := range flowSchemas {
		keys = append(keys, schemaKey+s.Name)
	}
	for _, l := range levels {
		keys = append(keys, levelKey+l.Name)
	}
	return keys
}

// flow makes or mends one of Kubernetes' own FlowSchemas or PriorityLevelConfigurations.
func (m *maker) flow(ctx context.Context, served *registry.Catalog, key string) (storage.Revision, error) {
	schemas, configurations := schemaEndpoint(served), levelEndpoint(served)
	if schemas == nil || configurations == nil {
		return 0, nil
	}
	if key == danglers {
		some, err := removeDanglers(ctx, schemas, schemaKey)
		others, more := removeDanglers(ctx, configurations, levelKey)
		return max(some, others), errors.Join(err, more)
	}
	for i, s := range flowSchemas {
		if key == schemaKey+s.Name {
			return ensure(ctx, schemas, s, i < len(bootstrap.MandatoryFlowSchemas),
				func(want, have *flowcontrolv1.FlowSchema) bool {
					return equality.Semantic.DeepEqual(want.Spec, have.Spec)
				},
				func(o *flowcontrolv1.FlowSchema) { o.Spec = *s.Spec.DeepCopy() })
		}
	}
	for i, l := range levels {
		if key == levelKey+l.Name {
			return ensure(ctx, configurations, l, i < len(bootstrap.MandatoryPriorityLevelConfigurations), sameLevel,
				func(o *flowcontrolv1.PriorityLevelConfiguration) { o.Spec = *l.Spec.DeepCopy() })
		}
	}
	return 0, nil
}

func schemaEndpoint(served *registry.Catalog) *registry.Endpoint {
	return served.Kind("flowcontrol.apiserver.k8s.io/v1", "FlowSchema")
}

func levelEndpoint(served *registry.Catalog) *registry.Endpoint {
	return served.Kind("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration")
}

// sameLevel tells whether a level is as it should be. How much the level "exempt" lends, and takes part, is the user's.
func sameLevel(want, have *flowcontrolv1.PriorityLevelConfiguration) bool {
	if want.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		if have.Spec.Exempt == nil {
			return false
		}
		want.Spec.Exempt = have.Spec.Exempt
	}
	return equality.Semantic.DeepEqual(want.Spec, have.Spec)
}

// ensure makes an object, or gives it back its spec: a mandatory one always, another one as its annotation says and, without one,
// if nobody has changed its spec. The annotation then says which it is.
func ensure[T any, P interface {
	registry.Pointer[T]
	metav1.Object
	DeepCopy() P
}](ctx context.Context, e *registry.Endpoint, bootstrap P, mandatory bool, same func(want, have P) bool, replace func(o *T)) (storage.Revision, error) {
	have := P(cached[T](e, "", bootstrap.GetName()))
	if have == nil {
		return create(ctx, e, bootstrap.DeepCopy(), flowProducer)
	}
	want := bootstrap.DeepCopy()
	if err := writes.Of(e).Default(want); err != nil {
		return 0, err
	}
	said, says := autoUpdates(have)
	updates := mandatory || says && said || !says && have.GetGeneration() == 1
	annotated, differs := says && said == updates, updates && !same(want, have)
	if annotated && !differs {
		return 0, nil
	}
	return amend(ctx, e, have, flowProducer, func(o *T) {
		if differs {
			replace(o)
		}
		annotations := P(o).GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(updates)
		P(o).SetAnnotations(annotations)
	})
}

// autoUpdates tells what an object's annotation says about its being mended, and whether it says something.
func autoUpdates(o metav1.Object) (on, says bool) {
	on, err := strconv.ParseBool(o.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	return on, err == nil
}

// removeDanglers removes what an earlier version of Kubernetes has made, by its annotation. prefix is that of the keys of those
// that are wanted.
func removeDanglers(ctx context.Context, e *registry.Endpoint, prefix string) (rev storage.Revision, err error) {
	keys := flowKeys()
	for o := range e.Cache().Snapshot().All(string(e.Prefix())) {
		object := decoded[metav1.PartialObjectMetadata](o)
		if object == nil || slices.Contains(keys, prefix+object.Name) {
			continue
		}
		if on, _ := autoUpdates(object); on {
			removed, failed := remove(ctx, e, object)
			rev, err = max(rev, removed), errors.Join(err, failed)
		}
	}
	return rev, err
}

// flowChanges has the status of all FlowSchemas looked at after a change of one or of a level.
func flowChanges(e *cacher.Event) []string {
	if e.Prefix == schemasPrefix || e.Prefix == levelsPrefix {
		return []string{""}
	}
	return nil
}

// flowStatus says of each FlowSchema whether its level is there.
func (m *maker) flowStatus(ctx context.Context, served *registry.Catalog, _ string) (rev storage.Revision, err error) {
	schemas, configurations := schemaEndpoint(served), levelEndpoint(served)
	if schemas == nil || configurations == nil {
		return 0, nil
	}
	for o := range schemas.Cache().Snapshot().All(string(schemas.Prefix())) {
		s := decoded[flowcontrolv1.FlowSchema](o)
		if s == nil {
			continue
		}
		want := danglingOf(configurations, s.Spec.PriorityLevelConfiguration.Name)
		if slices.ContainsFunc(s.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool {
			c.LastTransitionTime = metav1.Time{}
			return c == want
		}) {
			continue
		}
		condition := map[string]any{
			"type": string(want.Type), "status": string(want.Status), "reason": want.Reason, "message": want.Message,
			"lastTransitionTime": m.Registry.Now().ToUnstructured(),
		}
		wrote, failed := writes.Of(schemas).Report(ctx, "", s.Name, s.UID, flowConsumer, map[string]any{"conditions": []any{condition}})
		if errors.Is(failed, storage.ErrNotFound) {
			continue
		}
		rev, err = max(rev, wrote), errors.Join(err, failed)
	}
	return rev, err
}

// danglingOf returns the condition of a FlowSchema with a level of that name. The mandatory levels are in effect also where
// somebody has deleted them.
func danglingOf(configurations *registry.Endpoint, level string) flowcontrolv1.FlowSchemaCondition {
	mandatory := slices.ContainsFunc(bootstrap.MandatoryPriorityLevelConfigurations, func(l *flowcontrolv1.PriorityLevelConfiguration) bool { return l.Name == level })
	if mandatory || cached[flowcontrolv1.PriorityLevelConfiguration](configurations, "", level) != nil {
		return flowcontrolv1.FlowSchemaCondition{
			Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found",
			Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level),
		}
	}
	return flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionTrue, Reason: "NotFound",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level),
	}
}
