package recording

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/backup/own"
	"github.com/apiserver-lite/apiserver-lite/client"
)

// put makes the object at the target as it was recorded: it creates or updates it, updates its status, and deletes it if it was being deleted.
func (w *write) put(ctx context.Context) error {
	if err := w.read(ctx); err != nil {
		return err
	}
	if w.at == nil && own.ServerMakes(w.o) {
		w.count(func(all *Result) { all.Own++ })
		return nil
	}
	before := w.at
	err := w.write(ctx)
	if errors.Is(err, errGone) {
		w.at.gone = true
		err = nil
	}
	if w.at != nil {
		w.at.line = w.line
		w.at.gone = w.at.gone && (before != nil || !w.deleting)
	}
	return err
}

// write is put of an object that the target doesn't make by itself. errGone says that the target has deleted it.
func (w *write) write(ctx context.Context) error {
	body, err := json.Marshal(w.o)
	if err != nil {
		return fmt.Errorf("%w: %w", errLeft, err)
	}
	main, wrote := sha256.Sum256(body), false
	switch {
	case w.at == nil:
		if err := w.create(ctx, body); err != nil {
			return err
		}
		wrote = true
	case w.at.gone:
		return errGone
	case w.at.main != main:
		if err := w.change(ctx); err != nil {
			return err
		}
		wrote = true
	}
	w.at.main, w.at.held = main, document.Map(w.o, "metadata")["finalizers"] != nil
	changed, err := w.putStatus(ctx)
	if err != nil {
		return err
	}
	if w.deleting && !w.at.deleting {
		if err := w.delete(ctx, w.deletion()...); err != nil {
			return err
		}
		w.at.deleting, changed = true, true
	}
	if !wrote && !changed {
		w.count(func(all *Result) { all.Unchanged++ })
	}
	return nil
}

// create creates the object. One that is there already becomes the replay's own, unless it's being deleted: then its end is waited for.
func (w *write) create(ctx context.Context, body []byte) error {
	object := client.Object(body)
	return w.until(ctx, "an object of its name is being deleted, and isn't gone", func() (bool, error) {
		made, err := w.of.Create(ctx, &object, client.FieldManager(fieldManager))
		if err == nil {
			w.begin(*made)
			w.wrote(&w.result.Created)
			return true, nil
		}
		if !errors.Is(err, client.ErrExists) {
			return false, err
		}
		there, err := w.of.Get(ctx, w.id.Name)
		if err != nil || there.Field("metadata", "deletionTimestamp") != nil {
			return false, ignoring(err, client.ErrNotFound)
		}
		w.begin(*there)
		return true, w.replace(ctx)
	})
}

// begin notes the object that is at the target from now on.
func (w *write) begin(o client.Object) {
	w.at = &object{recorded: w.recorded, uid: o.UID(), version: o.ResourceVersion(), bound: o.Field("spec", "nodeName") != nil}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects[w.id] = w.at
	if w.recorded != "" {
		w.uids[w.recorded] = w.at.uid
	}
}

// putStatus replaces the object's status if it has changed.
func (w *write) putStatus(ctx context.Context) (changed bool, err error) {
	text, err := json.Marshal(w.status)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errLeft, err)
	}
	status, none := sha256.Sum256(text), w.at.status == sum{} && w.status == nil
	if w.at.status == status || none {
		return false, nil
	}
	if w.status != nil {
		w.o["status"] = w.status
	}
	if w.id.kind == "CertificateSigningRequest.certificates.k8s.io" { // whose approval is no part of what an update of its status may change
		if err := w.replace(ctx, client.Subresource("approval")); err != nil {
			return false, err
		}
	}
	err = w.replace(ctx, client.Subresource("status"))
	w.at.status = status
	return true, err
}

// change replaces the object. A Pod gets its node in the way that there is for that.
func (w *write) change(ctx context.Context) error {
	if node := document.Text(w.o, "spec", "nodeName"); w.id.kind == "Pod" && node != "" && !w.at.bound {
		binding := client.Object(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q},"target":{"kind":"Node","name":%q}}`, w.id.Name, node))
		_, err := w.of.Create(ctx, &binding, client.Subresource("binding"))
		switch {
		case errors.Is(err, client.ErrNotFound):
			return errGone
		case err != nil && !errors.Is(err, client.ErrConflict): // the target's own scheduler was first
			return err
		}
		w.at.bound, w.at.version = true, ""
	}
	return w.replace(ctx)
}

// fit fits the object to what the target has: what it makes by itself there stays.
func (w *write) fit(now client.Object) {
	if w.deleting { // no finalizer may be added, and those of the target's controllers are theirs
		var there []string
		_ = now.Decode(&there, "metadata", "finalizers")
		w.setFinalizers(slices.DeleteFunc(there, func(f string) bool { return !slices.Contains(ownFinalizers, f) && !slices.Contains(w.finalizers, f) }))
	}
	if there, err := document.Decode(now); err == nil {
		own.Keep(w.o, there)
	}
}

// replace sends an update of the version that the target has. What is there is read before that if it isn't known, or if the object has to fit it.
func (w *write) replace(ctx context.Context, options ...client.Option) error {
	for range maxConflicts {
		if w.deleting || w.at.version == "" || own.Keeps(w.o) {
			now, err := w.of.Get(ctx, w.id.Name)
			if errors.Is(err, client.ErrNotFound) || err == nil && now.UID() != w.at.uid {
				return errGone
			}
			if err != nil {
				return err
			}
			w.at.version = now.ResourceVersion()
			w.fit(*now)
		}
		metadata := document.Map(w.o, "metadata")
		metadata["resourceVersion"], metadata["uid"] = w.at.version, w.at.uid
		body, err := json.Marshal(w.o)
		delete(metadata, "resourceVersion")
		delete(metadata, "uid")
		if err != nil {
			return fmt.Errorf("%w: %w", errLeft, err)
		}
		object := client.Object(body)
		now, err := w.of.Update(ctx, &object, append(options[:len(options):len(options)], client.FieldManager(fieldManager))...)
		switch {
		case errors.Is(err, client.ErrNotFound):
			return errGone
		case errors.Is(err, client.ErrConflict): // somebody else has written it
			w.at.version = ""
			continue
		case err != nil:
			return err
		case now.ResourceVersion() != w.at.version:
			w.at.version = now.ResourceVersion()
			w.wrote(&w.result.Updated)
		}
		return nil
	}
	return fmt.Errorf("%w: others have written the object each of %d times", errLeft, maxConflicts)
}

// deletion returns the options of the deletion that an object had that was being deleted.
func (w *write) deletion() (options []client.Option) {
	switch {
	case slices.Contains(w.finalizers, "foregroundDeletion"):
		options = append(options, client.Propagate(client.Foreground))
	case slices.Contains(w.finalizers, "orphan"):
		options = append(options, client.Propagate(client.Orphan))
	}
	if seconds, err := strconv.Atoi(w.grace); err == nil {
		options = append(options, client.GracePeriod(time.Duration(seconds)*time.Second))
	}
	return options
}

// delete deletes the object. One that isn't there any more is deleted.
func (w *write) delete(ctx context.Context, options ...client.Option) error {
	if w.at != nil {
		options = append(options, client.IfUID(w.at.uid))
		w.at.version = "" // it's another one now
	}
	err := w.of.Delete(ctx, w.id.Name, options...)
	switch {
	case err == nil:
		w.wrote(&w.result.Deleted)
	case errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrConflict) && w.at != nil:
		w.count(func(all *Result) { all.Unchanged++ })
		return nil
	}
	return err
}

// remove deletes the object, and waits until it's gone: finalizers that were recorded are removed, those of the target's controllers are waited for.
func (w *write) remove(ctx context.Context) error {
	if w.at == nil {
		own.Strip(w.o, true)
		if own.ServerMakes(w.o) {
			w.count(func(all *Result) { all.Own++ })
			return nil
		}
	}
	held := w.at == nil || w.at.held || w.at.deleting || slices.Contains(emptied, w.id.kind)
	if err := w.delete(ctx, client.Propagate(client.Background), client.GracePeriod(0)); err != nil {
		return err
	}
	if held {
		if err := w.until(ctx, "it's being deleted, and isn't gone", func() (bool, error) { return w.release(ctx) }); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.objects, w.id)
	w.at = nil
	return nil
}

// release tells whether the object is gone, and if it isn't removes its finalizers, but for those of the target's own controllers.
func (w *write) release(ctx context.Context) (gone bool, err error) {
	now, err := w.of.Get(ctx, w.id.Name)
	if errors.Is(err, client.ErrNotFound) || err == nil && w.at != nil && now.UID() != w.at.uid {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	var finalizers []string
	if now.Field("metadata", "finalizers") != nil {
		if err := now.Decode(&finalizers, "metadata", "finalizers"); err != nil {
			return false, fmt.Errorf("%w: %w", errLeft, err)
		}
	}
	left := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return !slices.Contains(ownFinalizers, f) })
	if len(left) == len(finalizers) {
		return false, nil
	}
	_, err = w.of.Patch(ctx, w.id.Name, client.Merge(map[string]any{"metadata": map[string]any{"finalizers": left, "resourceVersion": now.ResourceVersion()}}), client.FieldManager(fieldManager))
	return false, ignoring(ignoring(err, client.ErrConflict), client.ErrNotFound)
}
