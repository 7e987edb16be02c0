package text

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/backup/own"
	"github.com/apiserver-lite/apiserver-lite/client"
)

// fieldManager is who imports, in managedFields.
const fieldManager = "apiserver-lite-import"

const (
	// definitionPatience is how long a definition that was just stored may take until its objects are served, and definitionPause is between
	// two looks.
	definitionPatience = 30 * time.Second
	definitionPause    = 50 * time.Millisecond
	// maxOwners is how many uids of owners are remembered. When there are more, they're asked for again.
	maxOwners = 100_000
)

// outcome is what became of an object.
type outcome int

const (
	created outcome = iota
	changed
	unchanged
	unchecked // by a dry run, because what it needs isn't stored
	missing   // its kind, its namespace or an owner isn't there
	refused
	outcomes // how many there are
)

// target is the server that gets the objects. Many goroutines use it.
type target struct {
	server *client.Client
	dryRun bool

	mu     sync.Mutex // guards the maps
	kinds  map[string]client.ResourceInfo
	owners map[owner]string // their uids
	// Of a dry run: what would be there by now.
	definedKinds, madeNamespaces map[string]bool
}

// owner is an object that others name as theirs.
type owner struct{ apiVersion, kind, namespace, name string }

func newTarget(server *client.Client, dryRun bool) *target {
	return &target{server: server, dryRun: dryRun, kinds: map[string]client.ResourceInfo{}, owners: map[owner]string{}, definedKinds: map[string]bool{}, madeNamespaces: map[string]bool{}}
}

// kind returns the resource of a kind.
func (t *target) kind(ctx context.Context, apiVersion, kind string) (client.ResourceInfo, error) {
	key := apiVersion + " " + kind
	t.mu.Lock()
	info, known := t.kinds[key]
	t.mu.Unlock()
	if known {
		return info, nil
	}
	info, err := t.server.FindKind(ctx, apiVersion, kind)
	if errors.Is(err, client.ErrNotFound) {
		return info, fmt.Errorf("%w: the server has no %s in %s", client.ErrNotFound, kind, apiVersion)
	}
	if err == nil {
		t.mu.Lock()
		t.kinds[key] = info
		t.mu.Unlock()
	}
	return info, err
}

// put creates an object, or applies it if it's there already and differs: what the file says of it becomes so, whoever set it, and the rest
// stays. It's created first because that is one request with less work where nothing is there, and takes objects that are too large to be
// applied.
func (t *target) put(ctx context.Context, o document.Object) (outcome, error) {
	apiVersion, kind := document.Text(o, "apiVersion"), document.Text(o, "kind")
	info, err := t.kind(ctx, apiVersion, kind)
	if err != nil {
		return t.lacking(err, t.wouldServe(apiVersion, kind))
	}
	document.ClearMetadata(o)
	namespace := document.NamespaceOf(o)
	if info.Namespaced && namespace == "" {
		namespace = t.server.Namespace()
		document.Map(o, "metadata")["namespace"] = namespace
	}
	if placeholder, err := t.adopt(ctx, o, namespace); err != nil || placeholder {
		return t.lacking(err, placeholder)
	}
	text, err := json.Marshal(o)
	if err != nil {
		return refused, err
	}
	object := client.Object(text)
	of := client.Resource[client.Object](t.server, apiVersion, info.Plural)
	if info.Namespaced {
		of = of.In(namespace)
	}
	what, err := t.write(ctx, of, object, !slices.Contains(info.Subresources, "status"))
	switch {
	case what == created:
		t.made(o)
	case errors.Is(err, client.ErrNotFound):
		return t.lacking(err, t.madeNamespace(namespace))
	}
	return what, err
}

// write is put of an object that is ready for it. withStatus is as of own.Strip. ErrNotFound says that its namespace isn't there.
func (t *target) write(ctx context.Context, of client.Collection[client.Object], object client.Object, withStatus bool) (outcome, error) {
	options := []client.Option{client.FieldManager(fieldManager)}
	if t.dryRun {
		options = append(options, client.DryRun())
	}
	_, err := of.Create(ctx, &object, options...)
	switch {
	case err == nil:
		return created, nil
	case !errors.Is(err, client.ErrExists) && !errors.Is(err, client.ErrInvalid): // a Service's port may be taken by itself
		return refused, err
	}
	before, missing := of.Get(ctx, object.Name())
	switch {
	case missing != nil:
		return refused, err
	case same(*before, object, withStatus):
		return unchanged, nil
	}
	after, err := of.Apply(ctx, fieldManager, &object, append(options, client.Force())...)
	switch {
	case err != nil:
		return refused, err
	case before.ResourceVersion() == after.ResourceVersion():
		return unchanged, nil
	}
	return changed, nil
}

// same tells whether two objects differ in nothing but what the server sets.
func same(a, b client.Object, withStatus bool) bool {
	var texts [2][]byte
	for i, object := range []client.Object{a, b} {
		o, err := document.Decode(object)
		if err != nil {
			return false
		}
		own.Strip(o, withStatus)
		texts[i] = document.Append(nil, o)
	}
	return bytes.Equal(texts[0], texts[1])
}

// lacking is what becomes of an object that needs something that isn't there.
func (t *target) lacking(err error, wouldBeThere bool) (outcome, error) {
	switch {
	case wouldBeThere:
		return unchecked, nil
	case errors.Is(err, client.ErrNotFound):
		return missing, err
	}
	return refused, err
}

// adopt gives the object's owner references the uids of those that are there. placeholder is true where a dry run has to do without.
func (t *target) adopt(ctx context.Context, o document.Object, namespace string) (placeholder bool, err error) {
	for _, ref := range document.Owners(o) {
		of := owner{document.Text(ref, "apiVersion"), document.Text(ref, "kind"), namespace, document.Text(ref, "name")}
		uid, err := t.uid(ctx, of)
		if err != nil {
			if t.dryRun && errors.Is(err, client.ErrNotFound) {
				return true, nil
			}
			return false, fmt.Errorf("its owner, the %s %s: %w", of.kind, of.name, err)
		}
		ref["uid"] = uid
	}
	return false, nil
}

// uid returns the uid of an owner.
func (t *target) uid(ctx context.Context, of owner) (string, error) {
	info, err := t.kind(ctx, of.apiVersion, of.kind)
	if err != nil {
		return "", err
	}
	collection := client.Resource[client.Object](t.server, info.APIVersion, info.Plural)
	if info.Namespaced {
		collection = collection.In(of.namespace)
	} else {
		of.namespace = ""
	}
	t.mu.Lock()
	uid, known := t.owners[of]
	t.mu.Unlock()
	if known {
		return uid, nil
	}
	object, err := collection.Get(ctx, of.name)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.owners) >= maxOwners {
		clear(t.owners)
	}
	t.owners[of] = object.UID()
	return object.UID(), nil
}

// made notes what others need of an object that was created.
func (t *target) made(o document.Object) {
	if !t.dryRun {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch own.KindOf(o) {
	case "Namespace":
		t.madeNamespaces[document.NameOf(o)] = true
	case definition:
		for _, apiVersion := range definedVersions(o) {
			t.definedKinds[apiVersion+" "+document.Text(o, "spec", "names", "kind")] = true
		}
	}
}

func (t *target) wouldServe(apiVersion, kind string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.definedKinds[apiVersion+" "+kind]
}

func (t *target) madeNamespace(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.madeNamespaces[namespace]
}

const definition = "CustomResourceDefinition.apiextensions.k8s.io"

// definedVersions returns the apiVersions that a definition has objects served in.
func definedVersions(o document.Object) (all []string) {
	versions, _ := document.Map(o, "spec")["versions"].([]any)
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["served"] == true {
			all = append(all, document.Text(o, "spec", "group")+"/"+document.Text(v, "name"))
		}
	}
	return all
}

// settle waits until the definitions among objects that were given to the server are established, and their kinds served. Those that aren't
// in time are found missing by their objects.
func (t *target) settle(ctx context.Context, items []*item) {
	if t.dryRun || len(items) == 0 || items[0].object == nil || own.KindOf(items[0].object) != definition {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, definitionPatience)
	defer cancel()
	for _, i := range items {
		for _, apiVersion := range definedVersions(i.object) {
			for i.err == nil && !t.serves(ctx, i.object, apiVersion) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(definitionPause):
				}
			}
		}
	}
}

// serves tells whether a definition is established, and its kind among those of the server.
func (t *target) serves(ctx context.Context, o document.Object, apiVersion string) bool {
	stored, err := client.Resource[client.Object](t.server, document.Text(o, "apiVersion"), "customresourcedefinitions").Get(ctx, document.NameOf(o))
	if err != nil {
		return false
	}
	var conditions []struct{ Type, Status string }
	if stored.Decode(&conditions, "status", "conditions") != nil {
		return false
	}
	for _, c := range conditions {
		if c.Type == "Established" && c.Status == "True" {
			_, err := t.kind(ctx, apiVersion, document.Text(o, "spec", "names", "kind"))
			return err == nil
		}
	}
	return false
}
