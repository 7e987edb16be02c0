package plugins

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Priority gives each new pod the priority that its PriorityClass says, and lets one class at most be the default.
type Priority struct {
	classes *registry.Derived[[]*schedulingv1.PriorityClass]
}

// NewPriority returns the plug-in. unreadable is told about classes that can't be decoded.
func NewPriority(r *registry.Registry, unreadable func(*kube.Object, error)) *Priority {
	return &Priority{derive[schedulingv1.PriorityClass](r, storage.PrefixOf(schedulingv1.GroupName, "priorityclasses"), unreadable)}
}

// The classes that each cluster has. kube-apiserver makes objects of them; here they're known by name.
var systemClasses = map[string]int32{
	"system-node-critical":    2_000_001_000,
	"system-cluster-critical": 2_000_000_000,
}

// Concerns is about pods, and about classes.
func (*Priority) Concerns(a *registry.Attributes) bool {
	return writesPods(a, registry.Create, registry.Update) || changes(a, schedulingv1.GroupName, "priorityclasses", registry.Create, registry.Update)
}

// Complete gives a pod its priority. An update that leaves it out keeps it.
func (p *Priority) Complete(_ context.Context, r *request) error {
	if r.Resource.Resource != "pods" {
		return nil
	}
	spec := specOf(r.Object)
	if r.Operation == registry.Update {
		was := specOf(r.Old)
		for _, name := range []string{"priority", "preemptionPolicy"} {
			if v, had := was[name]; had && spec[name] == nil {
				spec[name] = v
			}
		}
		return nil
	}
	class, err := p.class(textOf(spec, "priorityClassName"))
	if err != nil {
		return err
	}
	if given, has := spec["priority"].(int64); has && given != int64(class.Value) {
		return fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", given, class.Value)
	}
	policy := corev1.PreemptLowerPriority
	if class.PreemptionPolicy != nil {
		policy = *class.PreemptionPolicy
	}
	if given, has := spec["preemptionPolicy"].(string); has && given != string(policy) {
		return fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", given, policy)
	}
	spec["priority"], spec["preemptionPolicy"] = int64(class.Value), string(policy)
	if class.Name != "" {
		spec["priorityClassName"] = class.Name
	}
	return nil
}

// class returns the PriorityClass of a name, or the default one for "". Without a default it has no name, and the priority 0.
func (p *Priority) class(name string) (*schedulingv1.PriorityClass, error) {
	classes := p.classes.Get()
	if name == "" {
		if c := defaultClass(classes); c != nil {
			return c, nil
		}
		return &schedulingv1.PriorityClass{}, nil
	}
	for _, c := range classes {
		if c.Name == name {
			return c, nil
		}
	}
	if value, ok := systemClasses[name]; ok {
		c := &schedulingv1.PriorityClass{Value: value}
		c.Name = name
		return c, nil
	}
	return nil, fmt.Errorf("no PriorityClass with name %v was found", name)
}

// defaultClass returns the default class, nil if there is none. Of several, which only a race leaves, it's the lowest.
func defaultClass(classes []*schedulingv1.PriorityClass) (found *schedulingv1.PriorityClass) {
	for _, c := range classes {
		if c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found
}

// Check refuses a second default class.
func (p *Priority) Check(_ context.Context, r *request) error {
	if r.Resource.Resource != "priorityclasses" {
		return nil
	}
	isDefault, _, err := unstructured.NestedBool(r.Object.Object, "globalDefault")
	if err != nil {
		return errors.New("globalDefault is no boolean")
	}
	if !isDefault {
		return nil
	}
	if other := defaultClass(p.classes.Get()); other != nil && other.Name != r.Name {
		return fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", other.Name)
	}
	return nil
}
