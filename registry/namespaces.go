package registry

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// The namespaces that every cluster has, and those of them that can't be deleted, as in kube-apiserver.
var (
	initialNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}
	undeletable       = []string{"default", "kube-system", "kube-public"}
)

// namespaces is the Namespace resource. Creates ask it for the namespace's condition. Package controllers empties deleted
// namespaces.
type namespaces struct {
	registry   *Registry
	res        *resource
	autoCreate bool
}

func newNamespaces(r *Registry, autoCreate bool) *namespaces {
	n := &namespaces{registry: r, autoCreate: autoCreate}
	Register(r, Definition[corev1.Namespace]{
		Version: "v1", Kind: "Namespace", ShortNames: []string{"ns"}, ClusterScoped: true, Status: true,
		Fields: []string{"status.phase", nameAlias},
		Columns: []form.Column{
			{Name: "Status", Type: "string", Description: "The status of the namespace", JSONPath: ".status.phase"},
			{Name: "Age", Type: "string", Description: form.Age().Description, JSONPath: ".metadata.creationTimestamp", Cell: form.Elapsed},
		},
		Strategy:     Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, MetaRules: QualifiedFinalizers | MetaAsNew, StatusResets: []string{"spec"}},
		ValidName:    validation.ValidateNamespaceName,
		Default:      defaultNamespace,
		Prepare:      prepareNamespace,
		Validate:     validateNamespace,
		Deleting:     func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating },
		Held:         func(ns *corev1.Namespace) bool { return len(ns.Spec.Finalizers) > 0 },
		policy:       namespacePolicy,
		undeletable:  func(name string) bool { return slices.Contains(undeletable, name) },
		awaited:      true, // policies and webhooks go by labels of namespaces
		subresources: []Subresource{{Name: finalize, Verbs: []string{"update"}, Select: selectFinalizers, Metadata: true, Reset: []string{status}}},
	})
	n.res = r.builtins[len(r.builtins)-1]
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
		if subresource != finalize {
			ns.Spec.Finalizers = old.Spec.Finalizers
		}
		if subresource != status { // what is reported there is judged
			ns.Status.Phase = phaseOf(old)
		}
	}
	labelNamespace(ns)
}

func defaultNamespace(ns *corev1.Namespace) {
	labelNamespace(ns)
	if ns.Status.Phase == "" {
		ns.Status.Phase = corev1.NamespaceActive
	}
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
	return policyOf(o)
}

func validateNamespace(_ context.Context, ns, _ *corev1.Namespace, subresource string) (errs field.ErrorList) {
	if subresource == status {
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
		if subresource == finalize {
			path = path.Index(i)
		}
		errs = append(errs, validation.ValidateFinalizerName(string(f), path)...)
		errs = append(errs, QualifiedFinalizer(string(f), path)...)
	}
	return errs
}

// cached returns a namespace as the cache has it. It's nil if there is none, or can't be one of that name.
func (n *namespaces) cached(name string) *kube.Object {
	key, err := n.res.prefix.Key("", name)
	if err != nil {
		return nil
	}
	return n.res.cache.Get(key)
}

// require reads from etcd the namespace of a create, and returns the condition under which the create may happen. A
// dry run makes no namespace.
func (n *namespaces) require(ctx context.Context, w *write) (storage.Condition, error) {
	name := w.Namespace
	key, err := n.res.prefix.Key("", name)
	if err != nil {
		return storage.Condition{}, w.fail(name, err)
	}
	ns, err := n.registry.read(ctx, key)
	switch {
	case err != nil:
		return storage.Condition{}, err
	case ns == nil && n.autoCreate && w.dryRun:
		return storage.Condition{Key: key}, nil
	case ns == nil && n.autoCreate && Presumes(ctx):
		return storage.Condition{}, errJudged // the namespace is a rule
	case ns == nil && n.autoCreate:
		rev, err := n.create(ctx, name)
		if errors.Is(err, storage.ErrExists) { // by somebody else, just now
			return n.require(ctx, w)
		}
		return storage.Condition{Key: key, Revision: rev}, err
	case ns == nil:
		return storage.Condition{}, n.res.storage.fail(name, storage.ErrNotFound)
	case ns.DeletionTimestamp != "":
		return storage.Condition{}, terminating(w.Endpoint, name)
	}
	return storage.Condition{Key: key, Revision: ns.Revision}, nil
}

// terminating refuses a create in a namespace that is being deleted; clients look for the cause.
func terminating(e *Endpoint, name string) error {
	err := apierrors.NewForbidden(e.resource(), "", errors.New("unable to create new content in namespace "+name+" because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    corev1.NamespaceTerminatingCause,
		Message: "namespace " + name + " is being terminated",
		Field:   "metadata.namespace",
	}}
	err.ErrStatus.Code = http.StatusForbidden
	return err
}

// create makes a namespace, without a client asking for just that.
func (n *namespaces) create(ctx context.Context, name string) (storage.Revision, error) {
	return n.res.storage.Make(ctx, Made{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}})
}

// createInitial creates the initial namespaces that are missing, all at once, and waits until the cache has them.
func (n *namespaces) createInitial(ctx context.Context) error {
	work, working := errgroup.WithContext(ctx)
	revisions := make([]storage.Revision, len(initialNamespaces))
	for i, name := range initialNamespaces {
		if n.cached(name) != nil {
			continue
		}
		work.Go(func() (err error) {
			revisions[i], err = n.create(working, name)
			if errors.Is(err, storage.ErrExists) {
				return nil
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	return n.registry.cacher.WaitFor(ctx, slices.Max(revisions))
}

// AmendNamespace changes a namespace on the server's own account, and returns the revision of the namespace afterwards.
// change may be called several times, because it's called again when somebody else writes first. What it leaves as it was
// isn't written. A namespace that is being deleted and that nothing holds any more is removed. The error is
// storage.ErrNotFound if there is no such namespace of that uid.
func (d Door) AmendNamespace(ctx context.Context, name string, uid types.UID, change func(ns *corev1.Namespace)) (storage.Revision, error) {
	return AmendAs(ctx, d.registry.namespaces.res.storage, "", name, uid, change)
}
