package controllers

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// serviceAccounts gives each namespace its ServiceAccount "default", also after somebody has deleted it.
type serviceAccounts struct {
	queued[string] // of the names of namespaces
}

var serviceAccountsPrefix = storage.PrefixOf("", "serviceaccounts")

// defaultAccount is the ServiceAccount that every namespace has.
const defaultAccount = "default"

func newServiceAccounts(c *Controllers) *serviceAccounts {
	s := &serviceAccounts{}
	s.queued = newQueued(c, ServiceAccount, func(namespace string) Object {
		return Object{APIVersion: "v1", Kind: "ServiceAccount", Namespace: namespace, Name: defaultAccount}
	}, s.work)
	return s
}

func (s *serviceAccounts) observe(e *cacher.Event) {
	switch o := e.Object(); {
	case e.Prefix == namespacesPrefix && e.Prev == nil && e.Cur != nil && !beingDeleted(e.Cur):
		s.queue.add(o.Name())
	case e.Prefix == serviceAccountsPrefix && e.Cur == nil && o.Name() == defaultAccount:
		s.queue.add(o.Namespace())
	}
}

// work makes a namespace's account if it's missing. A namespace that is being deleted or gone needs none.
func (s *serviceAccounts) work(ctx context.Context, served *registry.Catalog, namespace string) error {
	accounts := served.Prefix(serviceAccountsPrefix)
	if accounts == nil { // ServiceAccount isn't served
		return nil
	}
	ns := served.Object(namespacesPrefix, "", namespace)
	if ns == nil || beingDeleted(ns) || served.Object(serviceAccountsPrefix, namespace, defaultAccount) != nil {
		return nil
	}
	_, err := s.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		return writes.Of(accounts).Make(ctx, writes.Made{Namespace: namespace, Name: defaultAccount})
	})
	if errors.Is(err, storage.ErrExists) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
