package writes

import (
	"cmp"
	"context"
	"errors"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// draft is an object between the hooks that change it and the store.
type draft struct {
	*write
	next     *object.Object // what was sent, and then what is to be stored
	prev     *object.Object // in whose place it's put; nil for a new object
	obj, old registry.Typed // both as values of their Go type; nil if there is none, or if it has no functions for them
	errs     field.ErrorList
	raw      []byte // next, as it's stored
}

// finish completes, validates and encodes an object that the hooks have had. It becomes next, which is what raw says. prev is nil for a new object.
func (w *write) finish(ctx context.Context, in, prev *object.Object) (next *object.Object, raw []byte, err error) {
	d := &draft{write: w, next: in, prev: prev}
	for _, stage := range [...]func(*draft, context.Context) error{ // kube-apiserver's order
		(*draft).readTurn,
		(*draft).complete,
		(*draft).prepare,
		(*draft).check,
		(*draft).mayExpire,
		(*draft).claim,
		(*draft).raiseGeneration,
		(*draft).askValidators,
		(*draft).warn,
		(*draft).follow,
		(*draft).encode,
	} {
		if err := stage(d, ctx); err != nil {
			return nil, nil, err
		}
	}
	return d.next, d.raw, nil
}

// complete sets what the server decides, whatever the client and the hooks say, and leaves of the rest what the path is about.
func (d *draft) complete(context.Context) error {
	if d.prev == nil && d.left.bare {
		return apierrors.NewInternalError(errors.New("system metadata was not initialized"))
	}
	if err := placeIn(d.next, d.Namespace); err != nil {
		return err
	}
	if kind := cmp.Or(d.left.kind, d.otherKind); kind != nil {
		return d.refuseKind(*kind, d.next.Meta.Name)
	}
	d.warnings = append(d.warnings, d.next.DropRepeatedOwners(true)...) // of the hooks' owners, too
	if d.prev == nil {
		d.initMeta(&d.next.Meta)
		return d.dropStatus(d.next)
	}
	d.next = d.selectPart(d.next, d.prev)
	inheritMeta(d.next, d.prev)
	return nil
}

// prepare lets the object's Go type prepare and judge it, and judges its metadata.
func (d *draft) prepare(ctx context.Context) error {
	d.errs = d.validateMeta(d.next, d.prev)
	if len(d.left.unread) > 0 {
		d.errs = append(d.errs, d.unreadable())
	}
	t := d.Typed
	if t == nil {
		return nil
	}
	sent := d.next.Value != nil
	obj, old, errs, err := t.Prepared(warning.WithWarningRecorder(d.asksBy(ctx), d.write), d.next, d.prev, d.Subresource)
	if err == nil && sent {
		err = d.checkValue(d.next)
	}
	if err != nil {
		return err
	}
	if d.prev == nil && len(errs) > 0 && t.MetaRules&registry.MetaLast != 0 {
		d.errs = nil
	}
	d.obj, d.old, d.errs = obj, old, append(d.errs, errs...)
	return nil
}

// unreadable refuses metadata that hooks have left, in which something isn't what it should be.
func (d *draft) unreadable() *field.Error {
	path, shown := field.NewPath("metadata"), d.next.Clone()
	if d.prev != nil {
		d.Writer.raiseGeneration(shown, d.prev, d.Subresource)
	}
	tree, err := shown.Tree(d.APIVersion(), d.Kind)
	if err != nil {
		return field.InternalError(path, err)
	}
	metadata := object.Map(tree["metadata"])
	maps.Copy(metadata, d.left.unread)
	return field.Invalid(path, metadata, object.Unreadable(d.left.unread).Error())
}

// asksBy returns the context for a type's rules.
func (w *write) asksBy(ctx context.Context) context.Context {
	if w.unlabelled {
		ctx = registry.WithoutLabels(ctx)
	}
	switch {
	case w.Subresource == registry.Whole && w.targetKey == "": // a POST, whose path names no object
		return registry.WithVerb(ctx, "create")
	case w.Subresource == registry.Whole:
		return ctx
	case w.patches:
		return registry.WithVerb(ctx, "patch")
	}
	return registry.WithVerb(ctx, "update")
}

// check judges the object by its schema, and then by what other versions would lose of it. It refuses it for all that was found.
func (d *draft) check(ctx context.Context) error {
	errs := d.validate(ctx, d.next, d.prev, d.errs)
	if len(errs) == 0 {
		var err error
		if errs, err = d.Losses(ctx, d.next, d.prev); err != nil || len(errs) == 0 {
			return err
		}
	}
	about := d.Res.Storage.GroupKind() // Kubernetes refuses what is stored
	if d.Subresource == registry.AtScale && d.GoType() {
		about = schema.GroupKind{Group: autoscalingv1.GroupName, Kind: "Scale"}
	}
	return apierrors.NewInvalid(about, clip.Text(d.next.Meta.Name), registry.Answerable(errs, d.causesAgain()))
}

// askValidators asks the hooks that want to see an object as it would be stored.
func (d *draft) askValidators(ctx context.Context) error {
	return d.write.askValidators(ctx, d.next, d.prev)
}

// warn adds the warnings about a valid object.
func (d *draft) warn(ctx context.Context) error {
	t := d.Typed
	if t == nil { // Kubernetes' own kinds refuse such finalizers, or take them
		d.warnings = append(d.warnings, object.FinalizerWarnings(d.next, d.prev)...)
		return nil
	}
	if t.Warnings == nil {
		return nil
	}
	texts, err := t.WarningsOf(ctx, d.obj, d.old, d.Subresource)
	d.warnings = append(d.warnings, texts...)
	return err
}

// raiseGeneration counts the change. It comes after the managedFields are known to be about one.
func (d *draft) raiseGeneration(context.Context) error {
	if d.prev != nil {
		keepTimes(d.next, d.prev)
		d.Writer.raiseGeneration(d.next, d.prev, d.Subresource)
	}
	return nil
}

// follow lets the type write what follows from the write.
func (d *draft) follow(context.Context) error { return d.write.follow(d.obj, d.next) }

// follow lets the type write what follows from a write, under the server's own name. obj is next's value.
func (w *write) follow(obj registry.Typed, next *object.Object) error {
	t := w.Typed
	if t == nil || t.Follow == nil {
		return nil
	}
	before := next.Clone()
	if err := t.On(obj, "follow", func() { t.Follow(obj) }); err != nil {
		return err
	}
	if err := registry.ToStored(obj, next); err != nil {
		return err
	}
	next.Meta = before.Meta
	if object.SameContent(next, before, "") {
		return nil
	}
	return w.trackAs(registry.AtStatus, w.Res.Registry.Manager, next, next, before)
}

// encode makes the bytes that are stored.
func (d *draft) encode(ctx context.Context) (err error) {
	if d.left.unpruned {
		if err := registry.Misfit(d.Schema.Prune(d.next.Content)); err != nil {
			return err
		}
	}
	if !d.dryRun {
		//lint:ignore SA1019 it's deprecated, and hooks may set it
		d.next.Meta.SelfLink = ""
	}
	d.raw, err = d.Endpoint.Encode(ctx, d.next)
	if len(d.next.Managed) > 0 && !d.applies && apierrors.IsRequestEntityTooLargeError(err) {
		// Storing the object matters more than the record of who wrote it. Only an apply can't do without that record.
		d.next.Managed = nil
		d.raw, err = d.Endpoint.Encode(ctx, d.next)
	}
	if err == nil {
		d.note(d.obj, d.next, d.raw)
	}
	return err
}
