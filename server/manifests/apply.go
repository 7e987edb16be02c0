package manifests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

const (
	// manager is who applies, in managedFields.
	manager = "apiserver-lite-manifests"
	// label is on what was applied while pruning was on. By itself it says nothing: controllers copy labels.
	label = "apiserver-lite/manifests"
	// patience bounds an apply, as it does a client's.
	patience = 34 * time.Second
)

// self is who applies, for admission: whoever can write the server's files may do everything.
var self = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}

// key names an object, in whichever version.
type key struct{ group, kind, namespace, name string }

// keyOf returns the key of an object in a file.
func keyOf(o document.Object) key {
	return key{document.Group(document.Text(o, "apiVersion")), document.Text(o, "kind"), document.NamespaceOf(o), document.NameOf(o)}
}

// String returns the key for the log.
func (k key) String() string {
	if k.group != "" {
		return fmt.Sprintf("%s.%s %s/%s", k.kind, k.group, k.namespace, k.name)
	}
	return fmt.Sprintf("%s %s/%s", k.kind, k.namespace, k.name)
}

// applier writes to a registry.
type applier struct {
	registry *registry.Registry
	marks    bool // what it applies gets the label
}

// errNotServed is the lack of a kind.
var errNotServed = errors.New("nothing of this kind is served here")

// endpoint returns where a kind is served, as far as definitions have come by now.
func (a applier) endpoint(ctx context.Context, apiVersion, kind string) (*registry.Endpoint, error) {
	if e := a.registry.Catalog().Kind(apiVersion, kind); e != nil {
		return e, nil
	}
	if _, err := a.registry.Cacher.Barrier(ctx); err != nil {
		return nil, err
	}
	if e := a.registry.Door().Served().Kind(apiVersion, kind); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("%w: %s", errNotServed, apiVersion)
}

// apply applies an object, as whoever else wrote it.
func (a applier) apply(ctx context.Context, o document.Object) error {
	ctx, cancel := context.WithTimeout(registry.WithUser(ctx, self), patience)
	defer cancel()
	e, err := a.endpoint(ctx, document.Text(o, "apiVersion"), document.Text(o, "kind"))
	if err != nil {
		return err
	}
	document.ClearMetadata(o)
	meta := document.Map(o, "metadata")
	if e.Namespaced && document.NamespaceOf(o) == "" {
		meta["namespace"] = metav1.NamespaceDefault
	}
	if a.marks {
		labels := maps.Clone(document.Map(o, "metadata", "labels"))
		if labels == nil {
			labels = map[string]any{}
		}
		labels[label] = "true"
		meta["labels"] = labels
	}
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = writes.Of(e).Patch(ctx, &registry.Request{
		Target: registry.Target{Namespace: document.NamespaceOf(o), Name: document.NameOf(o)}, Body: body,
		PatchType: "application/apply-patch+yaml", Query: url.Values{"fieldManager": {manager}, "force": {"true"}},
	})
	return err
}

// marked is what prune looks at in an object.
type marked struct {
	Metadata struct {
		Labels            map[string]string
		DeletionTimestamp *metav1.Time
		ManagedFields     []struct{ Manager, Operation string }
	}
}

// ours tells whether the directory applied an object: it has the label, and the manager's fields, which nobody copies.
func (m *marked) ours() bool {
	return m.Metadata.Labels[label] == "true" && m.Metadata.DeletionTimestamp == nil &&
		slices.ContainsFunc(m.Metadata.ManagedFields, func(f struct{ Manager, Operation string }) bool {
			return f.Manager == manager && f.Operation == string(metav1.ManagedFieldsOperationApply)
		})
}

// prune deletes what the directory applied and isn't named, and returns that: kinds that others need last.
func (a applier) prune(ctx context.Context, named map[key]bool) (deleted []key, err error) {
	if _, err := a.registry.Cacher.Barrier(ctx); err != nil {
		return nil, err
	}
	stored := slices.Collect(a.registry.Door().Served().Stored())
	slices.SortStableFunc(stored, func(x, y *registry.Endpoint) int { return rankOf(y) - rankOf(x) })
	for _, e := range stored {
		for o := range e.Cache().Snapshot().Labelled(label, []string{"true"}, storage.Range{Prefix: string(e.Prefix())}) {
			k := key{e.Group, e.Kind, o.Namespace(), o.Name()}
			bare := k
			if k.namespace == metav1.NamespaceDefault {
				bare.namespace = ""
			}
			var is marked
			if named[k] || named[bare] || json.Unmarshal(o.Raw(), &is) != nil || !is.ours() {
				continue
			}
			_, _, failed := writes.Of(e).Remove(ctx, writes.Removal{Namespace: k.namespace, Name: k.name, Revision: o.Revision, Propagation: metav1.DeletePropagationBackground})
			if errors.Is(failed, storage.ErrNotFound) {
				continue
			}
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", k, failed))
				continue
			}
			deleted = append(deleted, k)
		}
	}
	return deleted, err
}

func rankOf(e *registry.Endpoint) int {
	version := e.Version
	if e.Group != "" {
		version = e.Group + "/" + e.Version
	}
	return document.Rank(version, e.Kind)
}
