package plugins

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// RuntimeClass gives each new pod that names a RuntimeClass what that class says of its overhead and of the nodes that it may run on,
// and refuses one whose class is missing, or whose overhead isn't that of a class.
type RuntimeClass struct {
	classes *registry.Derived[[]*nodev1.RuntimeClass]
}

// NewRuntimeClass returns the plug-in. unreadable is told about classes that can't be decoded.
func NewRuntimeClass(r *registry.Registry, unreadable func(*kube.Object, error)) *RuntimeClass {
	return &RuntimeClass{derive[nodev1.RuntimeClass](r, storage.PrefixOf(nodev1.GroupName, "runtimeclasses"), unreadable)}
}

// Concerns is about new pods.
func (*RuntimeClass) Concerns(a *registry.Attributes) bool { return writesPods(a, registry.Create) }

var errOverhead = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")

// Complete gives a pod what its class says.
func (c *RuntimeClass) Complete(_ context.Context, r *request) error {
	class, err := c.of(r)
	if err != nil || class == nil || class.Overhead == nil && class.Scheduling == nil {
		return err
	}
	pod, err := decode[corev1.Pod](r.Object)
	if err != nil {
		return err
	}
	if class.Overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return errOverhead
		}
		pod.Spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling != nil {
		if err := setScheduling(&pod.Spec, class.Scheduling); err != nil {
			return err
		}
	}
	return setSpec(r.Object, &pod.Spec)
}

// setScheduling adds to a pod's spec on which nodes its class runs.
func setScheduling(spec *corev1.PodSpec, s *nodev1.Scheduling) error {
	for key, value := range s.NodeSelector {
		if own, has := spec.NodeSelector[key]; has && own != value {
			return fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, own)
		}
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		spec.NodeSelector[key] = value
	}
	spec.Tolerations = mergeTolerations(append(spec.Tolerations, s.Tolerations...))
	return nil
}

// mergeTolerations returns a list without the tolerations that others in it imply. Of equal ones the first stays.
func mergeTolerations(all []corev1.Toleration) (merged []corev1.Toleration) {
next:
	for i := range all {
		for k := range merged {
			if implies(&merged[k], &all[i]) {
				continue next
			}
		}
		for k := i + 1; k < len(all); k++ {
			if !equality.Semantic.DeepEqual(&all[i], &all[k]) && implies(&all[k], &all[i]) {
				continue next
			}
		}
		merged = append(merged, all[i])
	}
	return merged
}

// implies tells whether whatever is tolerated by t is tolerated by wide, too.
func implies(wide, t *corev1.Toleration) bool {
	everything := wide.Key == "" && wide.Operator == corev1.TolerationOpExists
	switch {
	case equality.Semantic.DeepEqual(wide, t):
		return true
	case t.Key != wide.Key && !everything, t.Effect != wide.Effect && wide.Effect != "":
		return false
	case wide.Effect == corev1.TaintEffectNoExecute && wide.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *wide.TolerationSeconds):
		return false
	case wide.Operator == corev1.TolerationOpExists:
		return true
	}
	return (wide.Operator == corev1.TolerationOpEqual || wide.Operator == "") && t.Operator == corev1.TolerationOpEqual && t.Value == wide.Value
}

// Check compares the overhead with that of the class once more, as the other plug-ins have left it.
func (c *RuntimeClass) Check(_ context.Context, r *request) error {
	class, err := c.of(r)
	_, has := specOf(r.Object)["overhead"]
	switch {
	case err != nil:
		return err
	case class == nil || class.Overhead == nil:
		if has {
			return errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
		}
		return nil
	}
	pod, err := decode[corev1.Pod](r.Object)
	if err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
		return errOverhead
	}
	return nil
}

// errNoClass is what kube-apiserver's client says of a class without a name.
var errNoClass = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "resource name may not be empty"}}

// of returns the class of a pod, nil if it names none.
func (c *RuntimeClass) of(r *request) (*nodev1.RuntimeClass, error) {
	named, ok := specOf(r.Object)["runtimeClassName"]
	if !ok {
		return nil, nil
	}
	for _, class := range c.classes.Get() {
		if class.Name == named {
			return class, nil
		}
	}
	if named == "" {
		return nil, errNoClass
	}
	return nil, fmt.Errorf("pod rejected: RuntimeClass %q not found", named)
}
