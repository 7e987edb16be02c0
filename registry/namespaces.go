package registry

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// undeletable are the namespaces that can't be deleted, as in kube-apiserver.
var undeletable = []string{"default", "kube-system", "kube-public"}

// NameAlias is the old label of metadata.name, which Namespace has among its fields.
const NameAlias = "name"

// namespaces is the Namespace resource. Creates ask it for the namespace's condition. Package controllers empties deleted
// namespaces.
type namespaces struct {
	Registry   *Registry
	Res        *Resource
	AutoCreate bool
}

func newNamespaces(r *Registry, autoCreate bool) *namespaces {
	n := &namespaces{Registry: r, AutoCreate: autoCreate}
	t := typeOf(r, Definition[corev1.Namespace]{
		Version: "v1", Kind: "Namespace", ShortNames: []string{"ns"}, ClusterScoped: true, Status: true,
		Fields: []string{"status.phase", NameAlias},
		Columns: []form.Column{
			{Name: "Status", Type: "string", Description: "The status of the namespace", JSONPath: ".status.phase"},
			{Name: "Age", Type: "string", Description: form.Age().Description, JSONPath: ".metadata.creationTimestamp", Cell: form.Elapsed},
		},
		Strategy:  Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, MetaRules: QualifiedFinalizers | MetaAsNew, StatusResets: []string{"spec"}, Awaited: true}, // policies and webhooks go by labels of namespaces
		ValidName: validation.ValidateNamespaceName,
		Default:   defaultNamespace,
		Prepare:   prepareNamespace,
		Validate:  validateNamespace,
		Deletion: Deletion[*corev1.Namespace]{
			Deleting:    func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating },
			Held:        func(ns *corev1.Namespace) bool { return len(ns.Spec.Finalizers) > 0 },
			Policy:      namespacePolicy,
			Undeletable: func(name string) bool { return slices.Contains(undeletable, name) },
		},
	})
	t.Parts.Own = []Subresource{{Name: AtFinalize, Verbs: []string{"update"}, Select: selectFinalizers, Metadata: true, Reset: []string{AtStatus}}}
	r.Add(t)
	n.Res = r.builtins[len(r.builtins)-1]
	return n
}

// selectFinalizers takes a namespace's own finalizers from what was sent to finalize.
func selectFinalizers(next, in map[string]any) {
	spec := maps.Clone(object.Map(next["spec"]))
	if spec == nil {
		spec = map[string]any{}
	}
	delete(spec, "finalizers")
	if f, ok := object.Map(in["spec"])["finalizers"]; ok {
		spec["finalizers"] = f
	}
	next["spec"] = spec
}

// prepareNamespace sets what only the server and its controller decide: the finalizer that holds a namespace until its
// content is deleted, the phase, and the label by which namespaces can be selected.
func prepareNamespace(ns, old *corev1.Namespace, subresource string) {
	if old == nil {
		ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
		if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
			ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
		}
	} else {
		if subresource != AtFinalize {
			ns.Spec.Finalizers = old.Spec.Finalizers
		}
		if subresource != AtStatus { // what is reported there is judged
			ns.Status.Phase = phaseOf(old)
		}
	}
	labelNamespace(ns)
}

func defaultNamespace(ns *corev1.Namespace) {
	labelNamespace(ns)
	ns.Status.Phase = cmp.Or(ns.Status.Phase, corev1.NamespaceActive)
}

// labelNamespace sets the label by which a namespace can be selected by its name, if that is known yet.
func labelNamespace(ns *corev1.Namespace) {
	if ns.Name == "" {
		return
	}
	labels := make(map[string]string, len(ns.Labels)+1)
	maps.Copy(labels, ns.Labels)
	labels[corev1.LabelMetadataName] = ns.Name
	ns.Labels = labels
}

// phaseOf returns the phase that a namespace must have.
func phaseOf(ns *corev1.Namespace) corev1.NamespacePhase {
	if ns.DeletionTimestamp != nil {
		return corev1.NamespaceTerminating
	}
	return corev1.NamespaceActive
}

// namespacePolicy has kube-apiserver's peculiarity of namespaces: not to orphan the dependents is to wait for them.
func namespacePolicy(o *metav1.DeleteOptions) metav1.DeletionPropagation {
	//lint:ignore SA1019 it's deprecated, and still sent
	if orphan := o.OrphanDependents; orphan != nil && !*orphan {
		return metav1.DeletePropagationForeground
	}
	return PolicyOf(o)
}

func validateNamespace(_ context.Context, ns, _ *corev1.Namespace, subresource string) (errs field.ErrorList) {
	if subresource == AtStatus {
		if phase, must := ns.Status.Phase, phaseOf(ns); phase != must {
			state := "empty"
			if must == corev1.NamespaceTerminating {
				state = "not empty"
			}
			errs = append(errs, field.Invalid(field.NewPath("status", "Phase"), phase, "may only be '"+string(must)+"' if `deletionTimestamp` is "+state))
		}
		return errs
	}
	path := field.NewPath("spec", "finalizers")
	for i, f := range ns.Spec.Finalizers {
		path := path
		if subresource == AtFinalize {
			path = path.Index(i)
		}
		errs = append(errs, validation.ValidateFinalizerName(string(f), path)...)
		errs = append(errs, QualifiedFinalizer(string(f), path)...)
	}
	return errs
}

// Cached returns a namespace as the cache has it. It's nil if there is none, or can't be one of that name.
func (n *namespaces) Cached(name string) *kube.Object {
	key, err := n.Res.Prefix.Key("", name)
	if err != nil {
		return nil
	}
	return n.Res.Cache.Get(key)
}
