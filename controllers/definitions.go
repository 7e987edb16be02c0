package controllers

import (
	"context"
	"errors"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// definitions deletes the objects of definitions that are being deleted, and gives definitions the names that they didn't
// get and that have become free. Its containers are the definitions. In Kubernetes that is kube-apiserver's own work, so
// it's never off.
type definitions struct {
	containers
	unnamed map[string]bool // guarded by containers.mu: those that wait for names
}

var definitionsPrefix = storage.PrefixOf(apiextensionsv1.GroupName, "customresourcedefinitions")

func newDefinitions(c *Controllers) *definitions {
	d := &definitions{unnamed: map[string]bool{}}
	d.queued = newQueued(c, "definitions", func(name string) Object {
		return Object{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition", Name: name}
	}, d.work)
	return d
}

func (d *definitions) forget() {
	d.containers.forget()
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.unnamed)
}

func (d *definitions) observe(e *cacher.Event) {
	if e.Prefix != definitionsPrefix {
		d.observeContent(e)
		return
	}
	name := e.Object().Name()
	if beingDeleted(e.Cur) {
		d.changed(name)
	} else {
		d.gone(name)
		d.queue.add(name) // what is served is to follow, also after its end
	}
	if e.Revision > 0 {
		d.mu.Lock()
		defer d.mu.Unlock()
		for other := range d.unnamed {
			d.queue.add(other)
		}
	}
}

// observeContent queues the definition of an object, if it's being deleted.
func (d *definitions) observeContent(e *cacher.Event) {
	if !d.none() {
		group, plural, _ := strings.Cut(strings.Trim(strings.TrimPrefix(string(e.Prefix), storage.Root), "/"), "/")
		d.contentChanged(plural+"."+group, e)
	}
}

// work does what is left to do about a definition.
func (d *definitions) work(ctx context.Context, _ *registry.Catalog, name string) error {
	def := d.controllers.registry.StoredDefinition(name)
	d.mu.Lock()
	if delete(d.unnamed, name); def != nil && !def.Named() && !def.Terminating() {
		d.unnamed[name] = true
	}
	d.mu.Unlock()
	if def == nil {
		return nil
	}
	var err error
	switch {
	case def.Terminating():
		err = d.finish(ctx, def)
	case !def.Named():
		_, err = d.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) { return writes.RenameDefinition(ctx, def) })
	}
	return unlessGone(err)
}

// finish deletes the objects of a definition that is being deleted and then lets it go. It begins anew after a restart.
//
// Creates compare the definition's revision in their transaction (see registry). So the objects that are in the caches,
// which have applied the change that began the deletion, are all there ever will be.
func (d *definitions) finish(ctx context.Context, def *registry.StoredDefinition) error {
	var parts []part
	if e := def.Objects(); e != nil {
		parts = []part{{e, string(e.Prefix())}}
	}
	left, err := d.pass(def.Name(), func() (*remains, error) { return d.controllers.empty(ctx, parts, "") })
	if err != nil {
		return err
	}
	end := writes.ReleaseDefinition
	if !left.whole() {
		end = writes.HoldDefinition
	}
	_, err = d.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) { return end(ctx, def) })
	return errors.Join(err, left.err())
}
