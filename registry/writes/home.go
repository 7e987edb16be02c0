package writes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// namespaceCondition reads from etcd the namespace of a create, and returns the condition under which the create may happen. A
// dry run makes no namespace.
func (w *write) namespaceCondition(ctx context.Context) (storage.Condition, error) {
	n, name := w.Res.Registry.Namespaces, w.Namespace
	key, err := n.Res.Prefix.Key("", name)
	if err != nil {
		return storage.Condition{}, w.Fail(name, err)
	}
	ns, err := n.Registry.Read(ctx, key)
	switch {
	case err != nil:
		return storage.Condition{}, err
	case ns == nil && n.AutoCreate && w.dryRun:
		return storage.Condition{Key: key}, nil
	case ns == nil && n.AutoCreate && registry.Presumes(ctx):
		return storage.Condition{}, registry.ErrJudged // the namespace is a rule
	case ns == nil && n.AutoCreate:
		rev, err := createNamespace(ctx, n.Res.Storage, name)
		if errors.Is(err, storage.ErrExists) { // by somebody else, just now
			return w.namespaceCondition(ctx)
		}
		return storage.Condition{Key: key, Revision: rev}, err
	case ns == nil:
		return storage.Condition{}, n.Res.Storage.Fail(name, storage.ErrNotFound)
	case ns.DeletionTimestamp != "":
		return storage.Condition{}, terminating(w, name)
	}
	return storage.Condition{Key: key, Revision: ns.Revision}, nil
}

// terminating refuses a create in a namespace that is being deleted; clients look for the cause.
func terminating(w *write, name string) error {
	err := apierrors.NewForbidden(w.GroupResource(), clip.Text(w.Name), errors.New("unable to create new content in namespace "+name+" because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    corev1.NamespaceTerminatingCause,
		Message: "namespace " + name + " is being terminated",
		Field:   "metadata.namespace",
	}}
	err.ErrStatus.Code = http.StatusForbidden
	return err
}

// createNamespace makes a namespace, without a client asking for just that.
func createNamespace(ctx context.Context, namespaces *registry.Endpoint, name string) (storage.Revision, error) {
	return Of(namespaces).Make(ctx, Made{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}})
}

// initialNamespaces are those that every cluster has, as in kube-apiserver.
var initialNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// InitialNamespaces has a registry's Run create the namespaces that every cluster has and that are missing, all at once, and wait
// until the cache has them.
func InitialNamespaces(r *registry.Registry) {
	r.AtStart(func(ctx context.Context) error { return createInitial(ctx, r) })
}

func createInitial(ctx context.Context, r *registry.Registry) error {
	work, working := errgroup.WithContext(ctx)
	revisions := make([]storage.Revision, len(initialNamespaces))
	for i, name := range initialNamespaces {
		if r.Namespaces.Cached(name) != nil {
			continue
		}
		work.Go(func() (err error) {
			revisions[i], err = createNamespace(working, r.Namespaces.Res.Storage, name)
			if errors.Is(err, storage.ErrExists) {
				return nil
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return fmt.Errorf("create the initial namespaces: %w", err)
	}
	return r.WaitFor(ctx, slices.Max(revisions))
}

// AmendNamespace changes a namespace on the server's own account, and returns the revision of the namespace afterwards.
// change may be called several times, because it's called again when somebody else writes first. What it leaves as it was
// isn't written. A namespace that is being deleted and that nothing holds any more is removed. The error is
// storage.ErrNotFound if there is no such namespace of that uid.
func AmendNamespace(ctx context.Context, d registry.Door, name string, uid types.UID, change func(ns *corev1.Namespace)) (storage.Revision, error) {
	return AmendAs(ctx, d.Namespaces(), "", name, uid, change)
}
