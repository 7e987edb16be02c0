package writes

import (
	"context"
	"errors"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// The engine of all writes. perform begins a client's write. The write decodes what the client sent (read). From that
// and from the stored object it makes the object that is to be stored. It lets the hooks change that object (admit), has it
// completed, validated and encoded (finish), and stores it if nobody else has written meanwhile.
//
// For an object that exists, the way is update, inBrackets, inQueue, compareAndSwap, storeOutcome. compareAndSwap asks
// the verb what to store, as often as others write first: for a PUT, that is nextFrom and outcomeOf. For a new object,
// the way is insertAndAnswer, inBrackets, storeNamed, storeCreate.
//
// Where a function takes an object and the one before it, the new one comes first, as in Kubernetes's own code.

// write is one write on its way, of a client's or of the server's own.
type write struct {
	Writer
	registry.Target // a create fills in Name when the object has its name
	writeOptions
	registry.Course
	targetKey  string                          // etcd's key of the target; "" for a new object
	message    *kubeproto.Envelope             // the body, if it came as protobuf
	mayCreate  func(ctx context.Context) error // see Request
	shown      *form.Shown                     // how the answer shows the object
	made       []byte                          // what is to be stored, as the message that the answer has; nil if there's none
	settle     registry.Settle                 // of what was claimed for the object; nil: nothing
	turn       storage.Condition               // in which storage is given the object; without a Key there are no turns
	warnings   []string                        // for the client, besides the answer
	patches    bool                            // it's a patch, of whatever type
	applies    bool                            // it's a server-side apply
	listed     bool                            // the object is deleted with its collection
	unlabelled bool                            // the client sends a new object that says no labels
	otherKind  *string                         // the kind that the body says it's of, if it isn't the resource's: validation refuses it
	left       left                            // by hooks
	told       answers                         // by storage
}

// answers is what a write has learnt from storage.
type answers struct {
	unknown    bool             // storage was given the object, and nobody knows whether it's stored
	definition storage.Revision // of the resource's definition, where that was found to be newer than Condition, and to say the same
	released   storage.Revision // the version of an object that this write has removed by taking its last finalizer; else 0
}

// perform runs a client's write. If the definition changes meanwhile, it runs again under the new one. options is the
// kind of the write's options, which errors name.
func (e Writer) perform(ctx context.Context, r *registry.Request, options string, run func(ctx context.Context, w *write) (registry.Result, error)) (registry.Result, error) {
	return registry.Judged(ctx, e.Endpoint, r, func(ctx context.Context, e *registry.Endpoint) (registry.Result, error) {
		w, err := Of(e).newWrite(r, options)
		if err != nil {
			return registry.Result{}, err
		}
		res, err := run(ctx, w)
		if err != nil {
			res = registry.Result{}
		}
		res.Warnings = w.warnings
		return res, err
	})
}

// newWrite reads everything of a client's create, update or patch except its body.
func (e Writer) newWrite(r *registry.Request, options string) (*write, error) {
	if r.Subresource != registry.Whole && !e.Has(r.Subresource) {
		return nil, registry.ErrNotServed
	}
	shown, err := e.Shown(r)
	if err != nil {
		return nil, err
	}
	w := &write{Writer: e, Target: r.Target, message: r.Message, mayCreate: r.MayCreate, shown: shown}
	if r.Name != "" {
		if w.targetKey, err = e.Key(r.Namespace, r.Name); err != nil {
			return nil, err
		}
	}
	w.writeOptions, err = parseWriteOptions(r, options)
	return w, err
}

// askCreate asks whether a write that isn't a create may create its target.
func (w *write) askCreate(ctx context.Context) error {
	if w.mayCreate == nil {
		return nil
	}
	return w.mayCreate(ctx)
}

// answer shows what was stored.
func (w *write) answer(ctx context.Context, stored *kube.Object) (registry.Result, error) {
	if w.told.released != 0 { // kube-apiserver answers with what was sent, which has the version before
		stored = kube.NewObject(stored.Key, stored.Raw(), w.told.released)
	}
	if w.shown.Encoding == form.Protobuf {
		// Mostly the object is in the cache by now. What is made of that one is kept for those who read it next.
		if o := w.Res.Cache.Get(stored.Key); o != nil && o.Revision == stored.Revision && string(o.Raw()) == string(stored.Raw()) {
			stored = o
		}
		if w.shown == w.Messages && w.made != nil {
			return w.answerMade(stored)
		}
		if w.shown == w.Messages && w.Res.Storage != w.Endpoint && w.Typed.Stored.From != nil {
			return w.answerConverted(stored)
		}
	}
	raw, err := w.Show(ctx, w.shown.Single, stored)
	return registry.Result{Object: raw}, err
}

// outcome is what a write does to one key.
type outcome struct {
	value  []byte // the new value; if it equals the old one, nothing is stored
	remove bool   // the key is deleted; the client is shown value, if there is one
}

// update changes the object that is the write's target. decide says what becomes of it; it's called again whenever
// somebody else has written first.
func (w *write) update(ctx context.Context, decide func(old *kube.Object) (outcome, error)) (*kube.Object, error) {
	given := len(w.warnings)
	return w.inBrackets(ctx, func() (*kube.Object, error) {
		return w.inQueue(ctx, func(old *kube.Object) (outcome, error) {
			w.warnings = w.warnings[:given] // without those of an earlier attempt
			return decide(old)
		})
	})
}

// loaded makes of what decides by an object as it's decoded what decides by one that is stored.
func (w *write) loaded(ctx context.Context, decide func(prev *object.Object) (outcome, error)) func(old *kube.Object) (outcome, error) {
	return func(old *kube.Object) (outcome, error) {
		prev, err := w.Load(ctx, old)
		if err != nil {
			return outcome{}, err
		}
		return decide(prev)
	}
}

// inBrackets runs store, which stores an object, between the resource's begin and written. Its errors are for clients.
func (w *write) inBrackets(ctx context.Context, store func() (*kube.Object, error)) (*kube.Object, error) {
	stored, err := w.bracketed(ctx, store)
	if err != nil {
		return nil, w.Fail(w.Name, err)
	}
	return stored, nil
}

// bracketed is inBrackets with errors as they come.
func (w *write) bracketed(ctx context.Context, store func() (*kube.Object, error)) (stored *kube.Object, err error) {
	if err := w.joins(ctx); err != nil {
		return nil, err
	}
	end, err := w.Res.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	defer w.ended()
	defer func() { w.settled(stored) }()
	stored, err = store()
	if err == nil && !w.dryRun {
		err = w.Res.Written(ctx, stored.Revision)
	}
	return stored, err
}

// ended calls what hooks have asked to be called at the end of the write, or of an attempt at it.
func (w *write) ended() {
	for _, end := range w.Ends {
		end()
	}
	w.Ends = nil
}

// inQueue waits until the earlier writes of the same object are done, and then changes the object as decide says. It
// returns the object as stored. A dry run doesn't wait.
func (w *write) inQueue(ctx context.Context, decide func(old *kube.Object) (outcome, error)) (stored *kube.Object, err error) {
	op := w.operation(ctx)
	if old, err := pending(op, w.targetKey); old != nil || err != nil {
		return w.compareAndSwap(ctx, old, decide)
	}
	if w.dryRun || op != nil { // operations of two transactions could wait for each other
		return w.compareAndSwap(ctx, w.Res.Cache.Get(w.targetKey), decide)
	}
	_, step := tracing.Begin(ctx, tracing.Turn, "wait for other writes")
	last, end, err := w.Res.Registry.Writers.Take(ctx, w.targetKey)
	step.End(err)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // stored would have been stored, and wasn't
			end(nil)
		} else {
			// A removed object may be passed on, too: etcd has nothing of its revision, so nobody can replace it.
			end(stored)
		}
	}()
	old := w.Res.Cache.Get(w.targetKey)
	if old == nil || last != nil && last.Revision > old.Revision {
		old = last
	}
	return w.compareAndSwap(ctx, old, decide)
}

// compareAndSwap lets decide say what becomes of an object, and stores that if nobody else wrote meanwhile. Otherwise it
// begins again with what etcd has.
//
// The first attempt starts from old, which is the cache's and may be older than etcd's. A success is safe in spite of
// that, because the transaction compares the revision. A verdict is an error of decide's, a missing object, "unchanged",
// or what a dry run would do. It's given only about what was read from etcd: a client that writes with the version that
// its last write returned must not be refused by a cache that hasn't seen that write yet.
//
// Of an object that the cache couldn't read, too, it begins with what etcd has: a key may have come since.
//
// It goes on until ctx ends: each conflict means that another writer succeeded. If the client insists on a version,
// decide refuses as soon as the object has another one.
func (w *write) compareAndSwap(ctx context.Context, old *kube.Object, decide func(old *kube.Object) (outcome, error)) (_ *kube.Object, err error) {
	fresh := old != nil && old.Err != nil
	if fresh {
		if old, err = w.latest(ctx, w.targetKey); err != nil {
			return nil, err
		}
	}
	for {
		if err := ctx.Err(); err != nil { // nobody waits for what decide would do
			return nil, err
		}
		c, err := outcome{}, error(storage.ErrNotFound)
		if old != nil {
			c, err = decide(old)
		}
		if errors.Is(err, registry.ErrJudged) {
			return nil, err
		}
		verdict := err != nil || w.dryRun || !c.remove && !old.Stale && string(c.value) == string(old.Raw())
		if verdict && fresh {
			if kept, again, err := w.keep(ctx, old, c, err); !again {
				return c.on(kept), err
			}
		}
		if !verdict {
			stored, err := w.storeOutcome(w.inItsTurn(ctx), old, c)
			w.told.unknown = errors.Is(err, storage.ErrUnknownOutcome)
			if !errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrOutOfTurn) {
				if c.remove && c.value != nil && old.Revision != transaction.NewRevision {
					w.told.released = old.Revision
				}
				return stored, err
			}
		}
		latest, readErr := w.latest(ctx, w.targetKey)
		if readErr != nil {
			return nil, readErr
		}
		if verdict && sameState(old, latest) && (err != nil || w.dryRun || !latest.Stale) {
			if kept, again, err := w.keep(ctx, old, c, err); !again {
				return c.on(kept), err
			}
		}
		old, fresh = latest, true
	}
}

// on returns what an outcome makes of an object that keeps its revision.
func (c outcome) on(old *kube.Object) *kube.Object {
	switch {
	case old == nil:
		return nil
	case old.Revision == transaction.NewRevision: // a dry run's
		old = kube.NewObject(old.Key, old.Raw(), 0)
	}
	if c.value == nil || string(c.value) == string(old.Raw()) {
		return old
	}
	return kube.NewObject(old.Key, c.value, old.Revision)
}

func sameState(a, b *kube.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Revision == b.Revision
}

// storeOutcome stores an outcome in a key that must still be as old is.
func (w *write) storeOutcome(ctx context.Context, old *kube.Object, c outcome) (*kube.Object, error) {
	if !c.remove {
		rev, err := w.storeUpdate(ctx, old, c.value)
		return kube.NewObject(old.Key, c.value, rev), err
	}
	if c.value == nil {
		c.value = old.Raw()
		// The client is shown the object with the deletion's revision, by which it would count as being in the
		// definition's newest form. So it's brought into that form here. If a webhook fails at that, the object is
		// deleted all the same.
		if shown, err := w.View.Shown(ctx, old); err == nil {
			c.value = shown.Raw()
		}
	}
	if op := w.operation(ctx); op != nil && w.Typed != nil && w.Typed.ReturnDeleted {
		if err := op.Answers(len(c.value)); err != nil {
			return nil, err
		}
	}
	rev, err := w.store(ctx).Delete(w.Res.Noting(ctx), old.Key, old.Revision)
	w.Res.Noted(rev)
	return kube.NewObject(old.Key, c.value, rev), err
}

// storeUpdate stores a new value in a key that must still be as old is. The definition must still be the one by which
// the value was made.
func (w *write) storeUpdate(ctx context.Context, old *kube.Object, raw []byte) (storage.Revision, error) {
	store := w.store(ctx)
	if w.Res.Condition.Key == "" || registry.Presumes(ctx) { // the definition is a rule
		rev, err := store.Update(w.Res.Noting(ctx), old.Key, raw, old.Revision)
		w.Res.Noted(rev)
		return rev, err
	}
	for cond := w.Res.Condition; ; {
		cond.Revision = max(cond.Revision, w.told.definition)
		rev, err := store.Update(ctx, old.Key, raw, old.Revision, cond)
		if !errors.Is(err, storage.ErrConditionFailed) {
			return rev, err
		}
		def, err := w.readDefinition(ctx)
		if err != nil {
			return 0, err
		}
		if w.told.definition = def.Revision; errors.Is(err, storage.ErrConflict) {
			return 0, storage.ErrConflict
		}
	}
}

// The kinds of a write's options, as errors name them.
const (
	createOptions = "CreateOptions"
	updateOptions = "UpdateOptions"
	patchOptions  = "PatchOptions"
)
