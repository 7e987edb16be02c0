package writes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/warning"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// acted is the object of a write.
type acted struct{ *write }

// act answers a POST to a subresource.
func (e Writer) act(ctx context.Context, r *registry.Request) (registry.Result, error) {
	part := e.Part(r.Subresource)
	if part == nil || part.Act == nil {
		return registry.Result{}, e.MethodNotAllowed("create")
	}
	return e.perform(ctx, r, createOptions, func(ctx context.Context, w *write) (registry.Result, error) {
		sent, err := w.readSent(part, r.Body)
		if err != nil {
			return registry.Result{}, err
		}
		return w.actOn(ctx, part, sent)
	})
}

// forward posts an object to the subresource that its kind stands for, of the object that has its name.
func (e Writer) forward(ctx context.Context, r *registry.Request) (registry.Result, error) {
	f := e.Typed.Unstored.Forward
	to := e.Res.Registry.Catalog().Kind(f.APIVersion, f.Kind)
	if to == nil { // the program has a type of its own in its place
		return registry.Result{}, registry.ErrNotServed
	}
	on, part := *r, to.Part(f.Subresource)
	on.Subresource = f.Subresource
	return Of(to).perform(ctx, &on, createOptions, func(ctx context.Context, w *write) (registry.Result, error) {
		sent, err := w.readSent(part, r.Body)
		if err != nil {
			return registry.Result{}, err
		}
		withoutSystemMeta(registry.MetaOf(sent)) // no uid is asked for here
		w.Name = registry.MetaOf(sent).Name
		if len(content.IsPathSegmentName(w.Name)) == 0 && w.Name != "" { // else badName says so when the object is looked for
			if w.targetKey, err = w.Key(w.Namespace, w.Name); err != nil {
				return registry.Result{}, err
			}
		}
		return w.actOn(ctx, part, sent)
	})
}

// badName refuses a name that no object can have; nil if the action has an object.
func (a acted) badName() error {
	if a.targetKey != "" {
		return nil
	}
	return registry.CheckName(a.Name)
}

// actOn answers what was sent to a subresource.
func (w *write) actOn(ctx context.Context, part *registry.Subresource, sent registry.Typed) (registry.Result, error) {
	if err := w.joins(ctx); err != nil { // before anybody is asked
		return registry.Result{}, err
	}
	o := &object.Object{Meta: *registry.MetaOf(sent)}
	if err := placeIn(o, w.Namespace); err != nil {
		return registry.Result{}, err
	}
	if part.AnswersSent {
		if err := w.trackSent(part, sent, o); err != nil {
			return registry.Result{}, err
		}
	}
	w.warnings = append(w.warnings, o.DropRepeatedOwners(false)...)
	*registry.MetaOf(sent) = o.Meta
	a := &registry.Action{Target: w.Target, Sent: sent, Now: w.Res.Registry.Now(), DryRun: w.dryRun, Acted: acted{w}}
	if err := w.admitSent(ctx, part, a); err != nil {
		return registry.Result{}, err
	}
	var answer any
	err := w.runAct(ctx, part, a, func(ctx context.Context, a *registry.Action) (err error) { answer, err = part.Act(ctx, a); return err })
	if err != nil {
		return registry.Result{}, err
	}
	raw, err := w.encodeAnswer(answer)
	return registry.Result{Object: raw, Created: true}, err
}

// runAct calls a function of a subresource. The error is for clients.
func (w *write) runAct(ctx context.Context, part *registry.Subresource, a *registry.Action, of func(ctx context.Context, a *registry.Action) error) error {
	var refusal error
	if err := w.Res.Registry.Call(part.Name+" of "+w.Plural, func() { refusal = of(warning.WithWarningRecorder(ctx, w), a) }); err != nil || refusal == nil {
		return err
	}
	return w.Fail(a.Name, refusal)
}

// trackSent notes in the managedFields of what was sent who has sent it. o has its metadata.
func (w *write) trackSent(part *registry.Subresource, sent registry.Typed, o *object.Object) error {
	if !w.Res.Registry.ManagedFieldsAlways {
		return nil
	}
	tree, err := jsontree.OfValue(sent)
	if err != nil {
		return registry.BadBody(object.Undecodable(err))
	}
	tree["apiVersion"], tree["kind"] = part.Kind.GroupVersion().String(), part.Kind.Kind
	tracked := w.Managers.Of(part.Name).Update(nil, tree, w.manager, true)
	list, _ := object.Map(tracked["metadata"])["managedFields"].([]any)
	o.Meta.ManagedFields, _ = managed.Entries(list) // what Update makes can be read
	return nil
}

// encodeAnswer encodes what an Act has answered.
func (w *write) encodeAnswer(answer any) ([]byte, error) {
	m, ok := answer.(interface {
		runtime.Object
		registry.Message
	})
	if !ok {
		return json.Marshal(answer)
	}
	apiVersion, kind := m.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return registry.EncodeApart(w.shown, metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, m)
}

// readSent decodes what was sent to a subresource.
func (w *write) readSent(part *registry.Subresource, body []byte) (registry.Typed, error) {
	into := part.New()
	doc, of, err := parseKind(w.Res.Registry, body, part.New(), part.Kind, part.Also...)
	if err != nil {
		return nil, err
	}
	complaints, err := registry.DecodeTyped(&doc, into)
	if u := (*registry.Undecoded)(nil); errors.As(err, &u) {
		return nil, registry.UnhandledAs(part.Kind.Kind, of, u.Cause)
	}
	if err != nil {
		return nil, err
	}
	if err := w.complain(complaints); err != nil {
		return nil, registry.UnhandledAs(part.Kind.Kind, of, err.Error())
	}
	if part.Default != nil {
		part.Default(into)
	}
	return into, nil
}

// admitSent asks the hooks for all resources about what was sent to a subresource, which becomes what they make of it and Prepare then. To them
// it's the creation of an object of the subresource's kind.
func (w *write) admitSent(ctx context.Context, part *registry.Subresource, a *registry.Action) error {
	about := w.attributes(ctx, registry.Create, registry.Target{Namespace: w.Namespace, Name: w.Name})
	about.Kind = part.Kind
	var hooks []registry.Admission[unstructured.Unstructured]
	if w.asked {
		hooks = w.concerned(about)
	}
	about.Options = w.optionsOf(registry.Create)
	defer func() { w.warnings = append(w.warnings, about.Warnings...) }()
	if len(hooks) > 0 {
		if err := w.changeSent(ctx, part, a, about, hooks); err != nil {
			return err
		}
	}
	if part.Prepare != nil {
		if err := w.runAct(ctx, part, a, part.Prepare); err != nil {
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
func (w *write) changeSent(ctx context.Context, part *registry.Subresource, a *registry.Action, about *registry.Attributes, hooks []registry.Admission[unstructured.Unstructured]) error {
	if sent := a.Sent.(registry.Typed); !part.AnswersSent { // else it's known who has sent it
		o := &object.Object{Meta: *registry.MetaOf(sent)}
		if err := w.trackSent(part, sent, o); err != nil {
			return err
		}
		*registry.MetaOf(sent) = o.Meta
	}
	call, err := w.sentCall(part, a, about)
	if err != nil {
		return err
	}
	obj, err := call.To(ctx, hooks)
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
func (w *write) sentCall(part *registry.Subresource, a *registry.Action, about *registry.Attributes) (call registry.HookCall[unstructured.Unstructured], err error) {
	tree, err := jsontree.OfValue(a.Sent)
	if err != nil {
		return call, err
	}
	obj := &unstructured.Unstructured{Object: tree}
	obj.SetGroupVersionKind(part.Kind)
	return registry.HookCall[unstructured.Unstructured]{Endpoint: w.Endpoint, About: about, Obj: obj, Meta: func(u *unstructured.Unstructured) metav1.Object { return u }}, nil
}

func (a acted) Get(ctx context.Context) (registry.Typed, error) {
	if err := a.badName(); err != nil {
		return nil, err
	}
	stored, err := a.Res.Read(ctx, a.targetKey)
	if err != nil {
		return nil, err
	}
	if stored == nil {
		return nil, storage.ErrNotFound
	}
	o, err := a.Load(ctx, stored)
	if err != nil {
		return nil, err
	}
	return a.Typed.FromObject(o)
}

func (a acted) Change(ctx context.Context, change func(obj registry.Typed) error) (resourceVersion string, err error) {
	if err := a.badName(); err != nil {
		return "", err
	}
	w := *a.write
	stored, err := w.update(ctx, w.loaded(ctx, func(prev *object.Object) (outcome, error) {
		obj, err := w.Typed.FromObject(prev)
		if err != nil {
			return outcome{}, err
		}
		if err := change(obj); err != nil {
			return outcome{}, err
		}
		next := prev.Clone()
		if err := registry.ToObject(obj, next); err != nil {
			return outcome{}, err
		}
		registry.KeepTTL(&next.Meta, &prev.Meta) // nobody is asked whether the user may delete the object
		raw, err := w.Encode(ctx, next)
		if err == nil {
			w.note(obj, next, raw)
		}
		return outcome{value: raw}, err
	}))
	if err != nil {
		return "", err
	}
	return stored.Revision.String(), nil
}

func (a acted) Delete(ctx context.Context, options *metav1.DeleteOptions) error {
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	r := &registry.Request{Target: registry.Target{Namespace: a.Namespace, Name: a.Name}, Body: body, UserAgent: a.userAgent}
	_, err = a.Writer.deleteOne(ctx, r, func(d *deletion) { d.asked = false })
	return err
}

func (a acted) Meets(obj registry.Typed, uid types.UID, resourceVersion string) error {
	m := registry.MetaOf(obj)
	switch {
	case uid != "" && uid != m.UID:
		return a.differs("UID", string(uid), string(m.UID))
	case resourceVersion != "" && resourceVersion != m.ResourceVersion:
		return a.differs("ResourceVersion", resourceVersion, m.ResourceVersion)
	}
	return nil
}

func (a acted) Cached(ctx context.Context, apiVersion, kind string) (*registry.Endpoint, []registry.Typed, error) {
	e := a.Res.Registry.Catalog().Kind(apiVersion, kind)
	if e == nil || e.Typed == nil {
		return nil, nil, nil
	}
	if err := e.Freshen(ctx); err != nil {
		return nil, nil, err
	}
	prefix, err := e.Res.Prefix.Namespace(a.Namespace)
	if err != nil {
		return nil, nil, err
	}
	var all []registry.Typed
	for o := range e.Res.Cache.Snapshot().All(prefix) {
		decoded, err := object.DecodeStored(o.Raw())
		if err != nil {
			continue // nobody can read it
		}
		decoded.Meta.ResourceVersion = o.Revision.String()
		obj, err := e.Typed.FromObject(decoded)
		if err != nil {
			continue
		}
		all = append(all, obj)
	}
	return e, all, nil
}
