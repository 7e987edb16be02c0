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
	controllers *Controllers
	queue       queue[string] // of the names of namespaces
	namespaces  *cacher.Resource
	accounts    *cacher.Resource
}

var serviceAccountsPrefix = storage.PrefixOf("", "serviceaccounts")

// defaultAccount is the ServiceAccount that every namespace has.
const defaultAccount = "default"

func newServiceAccounts(c *Controllers) *serviceAccounts {
	s := &serviceAccounts{
		controllers: c, namespaces: c.cacher.Resource(namespacesPrefix), accounts: c.cacher.Resource(serviceAccountsPrefix),
	}
	s.queue.log, s.queue.bell, s.queue.work = c.log, &c.reader.bell, pinned(c, s.work)
	return s
}

func (s *serviceAccounts) begin() {}

func (s *serviceAccounts) complete() {}

func (s *serviceAccounts) forget() {}

func (s *serviceAccounts) run(ctx context.Context) { s.queue.run(ctx) }

func (s *serviceAccounts) idle() bool { return s.queue.idle() }

func (s *serviceAccounts) observe(e *cacher.Event) {
	switch o := e.Object(); {
	case e.Prefix == namespacesPrefix && e.Prev == nil && e.Cur != nil && !beingDeleted(e.Cur):
		s.queue.add(o.Name())
	case e.Prefix == serviceAccountsPrefix && e.Cur == nil && o.Name() == defaultAccount:
		s.queue.add(o.Namespace())
	}
}

func (s *serviceAccounts) pending(most int) []Pending {
	return pendingKeys(&s.queue, most, func(namespace string) Object {
		return Object{APIVersion: "v1", Kind: "ServiceAccount", Namespace: namespace, Name: defaultAccount}
	})
}

// work makes a namespace's account if it's missing. A namespace that is being deleted or gone needs none.
func (s *serviceAccounts) work(ctx context.Context, served *registry.Catalog, namespace string) error {
	accounts := served.Prefix(serviceAccountsPrefix)
	if accounts == nil { // ServiceAccount isn't served
		return nil
	}
	key, err := serviceAccountsPrefix.Key(namespace, defaultAccount)
	if err != nil {
		return err
	}
	owner, err := namespacesPrefix.Key("", namespace)
	if err != nil {
		return err
	}
	if ns := s.namespaces.Get(owner); ns == nil || beingDeleted(ns) || s.accounts.Get(key) != nil {
		return nil
	}
	_, err = s.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		return writes.Of(accounts).Make(ctx, writes.Made{Namespace: namespace, Name: defaultAccount})
	})
	if errors.Is(err, storage.ErrExists) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
