package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// migrations does what StorageVersionMigrations ask for: the objects of a resource that would be stored in another way now, in another
// version or under another key, are written anew. The conditions are those of kube-controller-manager. After a restart one begins again:
// what is as it should be isn't written.
type migrations struct{ queued[string] }

var migrationsPrefix = storage.PrefixOf(storagemigrationv1.GroupName, "storageversionmigrations")

// The reasons of conditions.
const (
	migrationRunning   = "MigrationRunning"
	migrationSucceeded = "StorageVersionMigrationSucceeded"
	migrationFailed    = "StorageVersionMigrationFailed"
)

func newMigrations(c *Controllers) *migrations {
	m := &migrations{}
	m.queued = newQueued(c, StorageMigrator, c.keyed, m.work)
	return m
}

func (m *migrations) observe(e *cacher.Event) {
	if e.Prefix == migrationsPrefix && e.Cur != nil && e.Cur.Err == nil {
		m.queue.add(e.Cur.Key)
	}
}

// work does one migration.
func (m *migrations) work(ctx context.Context, served *registry.Catalog, key string) error {
	_, _, name, _ := storage.SplitKey(key)
	o, e := served.Object(migrationsPrefix, "", name), served.Prefix(migrationsPrefix)
	if o == nil || o.Err != nil || e == nil {
		return nil
	}
	asked := &storagemigrationv1.StorageVersionMigration{}
	if err := json.Unmarshal(o.Raw(), asked); err != nil {
		return fmt.Errorf("storageversionmigration %s: %w", name, err)
	}
	ended := func(kind storagemigrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(asked.Status.Conditions, string(kind))
	}
	if asked.DeletionTimestamp != nil || ended(storagemigrationv1.MigrationSucceeded) || ended(storagemigrationv1.MigrationFailed) {
		return nil
	}
	of := served.Preferred(schema.GroupResource{Group: asked.Spec.Resource.Group, Resource: asked.Spec.Resource.Resource})
	if of == nil {
		return m.say(ctx, e, asked, "", metav1.Condition{
			Type: string(storagemigrationv1.MigrationFailed), Reason: migrationFailed, Message: "migration encountered unhandled error: unable to obtain GVR from discovery",
		})
	}
	objects := of.Cache().Snapshot()
	version := objects.Revision.String()
	if err := m.say(ctx, e, asked, version, metav1.Condition{Type: string(storagemigrationv1.MigrationRunning), Reason: migrationRunning, Message: "The migration is running"}); err != nil {
		return err
	}
	done := 0
	for o := range objects.All(string(of.Cache().Prefix())) {
		if err := m.rewrite(ctx, of, o); err != nil {
			if ctx.Err() != nil || passes(err) {
				return err // and once more
			}
			return m.say(ctx, e, asked, version, metav1.Condition{
				Type: string(storagemigrationv1.MigrationFailed), Reason: migrationFailed,
				Message: fmt.Sprintf("%d/%d not yet migrated. migration encountered unhandled error: %s", objects.Len()-done, objects.Len(), err),
			})
		}
		done++
	}
	running := "The migration is running"
	if done > 0 {
		running += fmt.Sprintf(", %d objects verified migrated", done)
	}
	return m.say(ctx, e, asked, version,
		metav1.Condition{Type: string(storagemigrationv1.MigrationRunning), Reason: migrationRunning, Message: running},
		metav1.Condition{Type: string(storagemigrationv1.MigrationSucceeded), Reason: migrationSucceeded, Message: "Migration completed"})
}

// passes tells whether an error may be gone the next time. Those of kube-apiserver's are those that its migrator tries again after.
func passes(err error) bool {
	for _, target := range []error{storage.ErrReplaced, storage.ErrUnavailable, storage.ErrUnknownOutcome, storage.ErrNoSpace, storage.ErrNotTransformed} {
		if errors.Is(err, target) {
			return true
		}
	}
	return apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// rewrite writes an object as it is, which does nothing if it would be stored as it's stored.
func (m *migrations) rewrite(ctx context.Context, of *registry.Endpoint, o *kube.Object) error {
	if o.Err != nil {
		now, err := of.Res.Read(ctx, o.Key)
		switch {
		case err != nil || now == nil:
			return err
		case now.Err != nil:
			return of.Unreadable(o.Name(), now.Err)
		}
		o = now
	}
	_, err := m.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		return writes.Of(of).Amend(ctx, o.Namespace(), o.Name(), types.UID(o.Lineage().UID), func(*metav1.ObjectMeta) error { return nil })
	})
	return unlessGone(err)
}

// say sets conditions of a migration, and which version of the resource it looks at, unless version is "".
func (m *migrations) say(ctx context.Context, e *registry.Endpoint, of *storagemigrationv1.StorageVersionMigration, version string, conditions ...metav1.Condition) error {
	_, err := m.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		managed := writes.Managed{Name: of.Name, UID: of.UID, Subresource: registry.AtStatus}
		return writes.AmendManaged(ctx, e, managed, func(now *storagemigrationv1.StorageVersionMigration) {
			if version != "" {
				now.Status.ResourceVersion = version
			}
			for _, c := range conditions {
				c.Status, c.LastTransitionTime = metav1.ConditionTrue, metav1.NewTime(m.controllers.clock.Now())
				meta.SetStatusCondition(&now.Status.Conditions, c)
			}
		})
	})
	return unlessGone(err)
}
