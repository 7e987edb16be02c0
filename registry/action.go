package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Action is a POST to a subresource that isn't a part of an object but something that is asked of it.
type Action struct {
	Target
	// Sent is what the client has sent: what the Subresource's New has made.
	Sent   any
	DryRun bool

	write *write
}

// act answers a POST to a subresource.
func (e *Endpoint) act(ctx context.Context, r *Request) (Result, error) {
	part := e.part(r.Subresource)
	if part == nil || part.Act == nil {
		return Result{}, e.methodNotAllowed("create")
	}
	return e.perform(ctx, r, createOptions, func(ctx context.Context, w *write) (Result, error) {
		sent, err := w.readSent(part, r.Body)
		if err != nil {
			return Result{}, err
		}
		return w.actOn(ctx, part, sent)
	})
}

// forward posts an object to the subresource that its kind stands for, of the object that has its name.
func (e *Endpoint) forward(ctx context.Context, r *Request) (Result, error) {
	f := e.typed.Forward
	to := e.res.registry.Catalog().Kind(f.APIVersion, f.Kind)
	if to == nil { // the program has a type of its own in its place
		return Result{}, errNotServed()
	}
	on, part := *r, to.part(f.Subresource)
	on.Subresource = f.Subresource
	return to.perform(ctx, &on, createOptions, func(ctx context.Context, w *write) (Result, error) {
		sent, err := w.readSent(part, r.Body)
		if err != nil {
			return Result{}, err
		}
		w.Name = metaOf(sent).Name
		if len(content.IsPathSegmentName(w.Name)) == 0 && w.Name != "" { // else badName says so when the object is looked for
			if w.targetKey, err = w.key(w.Namespace, w.Name); err != nil {
				return Result{}, err
			}
		}
		return w.actOn(ctx, part, sent)
	})
}

// badName refuses a name that no object can have, in the words of Kubernetes' storage; nil if the action has an object.
func (a *Action) badName() error {
	switch {
	case a.write.targetKey != "":
		return nil
	case a.Name == "":
		return badRequest("Name parameter required.")
	}
	return badRequest("Name parameter invalid: %q: %s", clip.Text(a.Name), strings.Join(content.IsPathSegmentName(a.Name), ";"))
}

// actOn answers what was sent to a subresource.
func (w *write) actOn(ctx context.Context, part *Subresource, sent Typed) (Result, error) {
	o := &object.Object{Meta: *metaOf(sent)}
	if err := placeIn(o, w.Namespace); err != nil {
		return Result{}, err
	}
	if part.AnswersSent {
		if err := w.trackSent(part, sent, o); err != nil {
			return Result{}, err
		}
	}
	w.warnings = append(w.warnings, o.DropRepeatedOwners(false)...)
	*metaOf(sent) = o.Meta
	a := &Action{Target: w.Target, Sent: sent, DryRun: w.dryRun, write: w}
	if err := w.admitSent(ctx, part, a); err != nil {
		return Result{}, err
	}
	var answer any
	err := a.run(ctx, part, func(ctx context.Context, a *Action) (err error) { answer, err = part.Act(ctx, a); return err })
	if err != nil {
		return Result{}, err
	}
	raw, err := w.encodeAnswer(answer)
	return Result{Object: raw, Created: true}, err
}

// run calls a function of a subresource. The error is for clients.
func (a *Action) run(ctx context.Context, part *Subresource, of func(ctx context.Context, a *Action) error) error {
	var refusal error
	if err := a.write.res.registry.call(part.Name+" of "+a.write.Plural, func() { refusal = of(ctx, a) }); err != nil || refusal == nil {
		return err
	}
	return a.write.fail(a.Name, refusal)
}

// trackSent notes in the managedFields of what was sent who has sent it. o has its metadata.
func (w *write) trackSent(part *Subresource, sent Typed, o *object.Object) error {
	if !w.res.registry.trackAlways {
		return nil
	}
	tree, err := jsontree.OfValue(sent)
	if err != nil {
		return badBody(object.Undecodable(err))
	}
	tree["apiVersion"], tree["kind"] = part.Kind.GroupVersion().String(), part.Kind.Kind
	tracked := w.managers.of(part.Name).Update(nil, tree, w.manager, true)
	list, err := json.Marshal(object.Map(tracked["metadata"])["managedFields"])
	if err != nil {
		return err
	}
	return json.Unmarshal(list, &o.Meta.ManagedFields)
}

// encodeAnswer encodes what an Act has answered.
func (w *write) encodeAnswer(answer any) ([]byte, error) {
	m, ok := answer.(interface {
		runtime.Object
		message
	})
	if !ok {
		return json.Marshal(answer)
	}
	apiVersion, kind := m.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return encodeApart(w.shown, metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, m)
}

// readSent decodes what was sent to a subresource.
func (w *write) readSent(part *Subresource, body []byte) (Typed, error) {
	into := part.New()
	doc, of, err := w.res.registry.parseKind(body, part.Kind, part.New())
	if err != nil {
		return nil, err
	}
	complaints, err := decodeTyped(&doc, into)
	if u := (*undecoded)(nil); errors.As(err, &u) {
		return nil, unhandledAs(part.Kind.Kind, of, u.cause)
	}
	if err != nil {
		return nil, err
	}
	if err := w.complain(complaints); err != nil {
		return nil, unhandledAs(part.Kind.Kind, of, err.Error())
	}
	if part.Default != nil {
		part.Default(into)
	}
	return into, nil
}

// admitSent asks the hooks for all resources about what was sent to a subresource, which becomes what they make of it and Prepare then. To them
// it's the creation of an object of the subresource's kind.
func (w *write) admitSent(ctx context.Context, part *Subresource, a *Action) error {
	about := w.attributes(ctx, Create, Target{Namespace: w.Namespace, Name: w.Name})
	about.Kind = part.Kind
	var hooks []Admission[unstructured.Unstructured]
	if w.asked {
		hooks = w.concerned(about)
	}
	about.Options = w.optionsOf(Create)
	defer func() { w.warnings = append(w.warnings, about.Warnings...) }()
	if len(hooks) > 0 {
		if err := w.changeSent(ctx, part, a, about, hooks); err != nil {
			return err
		}
	}
	if part.Prepare != nil {
		if err := a.run(ctx, part, part.Prepare); err != nil {
			return err
		}
	}
	if hooks = validators(hooks); len(hooks) == 0 {
		return nil
	}
	call, err := w.sentCall(part, a, about)
	if err != nil {
		return err
	}
	return w.callValidators(ctx, call, hooks)
}

// changeSent lets hooks change what was sent.
func (w *write) changeSent(ctx context.Context, part *Subresource, a *Action, about *Attributes, hooks []Admission[unstructured.Unstructured]) error {
	if sent := a.Sent.(Typed); !part.AnswersSent { // else it's known who has sent it
		o := &object.Object{Meta: *metaOf(sent)}
		if err := w.trackSent(part, sent, o); err != nil {
			return err
		}
		*metaOf(sent) = o.Meta
	}
	call, err := w.sentCall(part, a, about)
	if err != nil {
		return err
	}
	obj, err := call.to(ctx, hooks)
	if err != nil {
		return err
	}
	changed := part.New()
	if err := jsontree.Into(obj.Object, changed); err != nil {
		return fmt.Errorf("admission left a %s that can't be decoded: %w", part.Kind.Kind, err)
	}
	if part.Default != nil {
		part.Default(changed)
	}
	a.Sent = changed
	return nil
}

// sentCall prepares a call of hooks about what was sent.
func (w *write) sentCall(part *Subresource, a *Action, about *Attributes) (call hookCall[unstructured.Unstructured], err error) {
	tree, err := jsontree.OfValue(a.Sent)
	if err != nil {
		return call, err
	}
	obj := &unstructured.Unstructured{Object: tree}
	obj.SetGroupVersionKind(part.Kind)
	return hookCall[unstructured.Unstructured]{endpoint: w.Endpoint, about: about, obj: obj, meta: func(u *unstructured.Unstructured) metav1.Object { return u }}, nil
}

// Done is the answer to an Action that has nothing else to say.
func Done() *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated}
}

// Get returns the action's object as etcd has it, which is the caller's. The error is storage.ErrNotFound if there is none,
// another one of storage's, or a Status if the object can't be decoded; the verb makes a Status of each.
func (a *Action) Get(ctx context.Context) (Typed, error) {
	if err := a.badName(); err != nil {
		return nil, err
	}
	stored, err := a.write.res.read(ctx, a.write.targetKey)
	if err != nil {
		return nil, err
	}
	if stored == nil {
		return nil, storage.ErrNotFound
	}
	o, err := a.write.load(ctx, stored)
	if err != nil {
		return nil, err
	}
	o.Meta.ResourceVersion = stored.Revision.String()
	return a.write.typed.fromObject(o)
}

// Change changes the action's object, and returns the version that it has then. Its managedFields stay as they are: what an action sets is
// nobody's. change is called again if somebody else writes the object first. An error of its own ends the write and is returned as it is.
// Other errors are those of Get and of the write.
func (a *Action) Change(ctx context.Context, change func(obj Typed) error) (resourceVersion string, err error) {
	if err := a.badName(); err != nil {
		return "", err
	}
	w := *a.write
	stored, err := w.update(ctx, func(old *kube.Object) (outcome, error) {
		prev, err := w.load(ctx, old)
		if err != nil {
			return outcome{}, err
		}
		prev.Meta.ResourceVersion = old.Revision.String()
		obj, err := w.typed.fromObject(prev)
		if err != nil {
			return outcome{}, err
		}
		if err := change(obj); err != nil {
			return outcome{}, err
		}
		next := prev.Clone()
		if err := toObject(obj, next); err != nil {
			return outcome{}, err
		}
		keepTTL(&next.Meta, &prev.Meta) // nobody is asked whether the user may delete the object
		raw, err := w.encode(ctx, next)
		if err == nil {
			w.note(obj, next, raw)
		}
		return outcome{value: raw}, err
	})
	if err != nil {
		return "", err
	}
	return stored.Revision.String(), nil
}

// Delete deletes the action's object, with a client's options. Admission was asked about the action, and isn't asked about
// the deletion. Errors are those of Endpoint.Delete.
func (a *Action) Delete(ctx context.Context, options *metav1.DeleteOptions) error {
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	r := &Request{Target: Target{Namespace: a.Namespace, Name: a.Name}, Body: body, UserAgent: a.write.userAgent}
	_, err = a.write.Endpoint.deleteOne(ctx, r, func(d *deletion) { d.asked = false })
	return err
}

// Conflict is the error of an action that the object's state doesn't allow, a Status 409. why is shown to the client.
func (a *Action) Conflict(why string) error {
	return apierrors.NewConflict(a.write.resource(), a.Name, fmt.Errorf("%s", why))
}

// Await waits until the caches have everything that was written before the call. The error is a Status: 503 if the store
// doesn't answer, 504 if the caches need longer than freshnessWait.
func (e *Endpoint) Await(ctx context.Context) error { return e.freshen(ctx) }

// Cached returns the objects of another kind, as new as the call, in the action's namespace, each decoded by its own type. A
// kind that isn't served has none. Errors are those of Await.
func (a *Action) Cached(ctx context.Context, apiVersion, kind string) (*Endpoint, []Typed, error) {
	e := a.write.res.registry.Catalog().Kind(apiVersion, kind)
	if e == nil || e.typed == nil {
		return nil, nil, nil
	}
	if err := e.Await(ctx); err != nil {
		return nil, nil, err
	}
	prefix, err := e.res.prefix.Namespace(a.Namespace)
	if err != nil {
		return nil, nil, err
	}
	var all []Typed
	for o := range e.res.cache.Snapshot().All(prefix) {
		decoded, err := object.DecodeStored(o.Raw())
		if err != nil {
			continue // nobody can read it
		}
		decoded.Meta.ResourceVersion = o.Revision.String()
		obj, err := e.typed.fromObject(decoded)
		if err != nil {
			continue
		}
		all = append(all, obj)
	}
	return e, all, nil
}
