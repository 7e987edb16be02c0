package reads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// maxVersions is how many versions of an object a request gets at most: what follows is asked for from where it ended.
const maxVersions = 1000

const (
	// maxPatchPaths is how many bytes the paths of a patch may have: where they'd have more, whole members are replaced, of which there are no
	// more than the object has.
	maxPatchPaths = 64 << 10
	// maxHistoryPage is after how many bytes of patches an answer ends, as after maxVersions.
	maxHistoryPage = 4 << 20
)

// What ends a walk through versions: errEnough where others follow, errNoMore where history has none.
var (
	errEnough = errors.New("enough")
	errNoMore = errors.New("no more")
)

// history is what a get with history=true is answered with.
type history struct {
	Kind       string    `json:"kind"`
	APIVersion string    `json:"apiVersion"`
	Metadata   place     `json:"metadata"`
	Items      []version `json:"items"`
}

type place struct {
	ResourceVersion string `json:"resourceVersion"`    // of the state that was looked at
	Begins          string `json:"begins"`             // the version with which history begins, of any object
	Continue        string `json:"continue,omitempty"` // where to go on, as from; nothing if there are no more
}

// version is a write of an object.
type version struct {
	ResourceVersion string          `json:"resourceVersion"`
	Time            *time.Time      `json:"time,omitempty"`   // by when it was written; nothing where nobody knows
	Within          string          `json:"within,omitempty"` // and how long before that at most
	Change          string          `json:"change"`           // created, changed or deleted
	UID             string          `json:"uid,omitempty"`    // of the object: another one of the same name has another one
	Manager         string          `json:"manager,omitempty"`
	User            string          `json:"user,omitempty"`
	Patch           json.RawMessage `json:"patch,omitempty"`      // what makes it of the version before; nothing for the first of an object
	Unreadable      string          `json:"unreadable,omitempty"` // why it can't be shown
}

// asksHistory tells whether a get asks for the versions of an object.
func asksHistory(r *registry.Request) bool { return Flag(r.Query, "history") }

// history returns the versions of an object that there are, newest first. Of the query it reads limit, and from or at: the version with
// which it begins.
func (e Reader) history(ctx context.Context, r *registry.Request, key string) (registry.Result, error) {
	q := Query{Values: r.Query}
	limit := q.Count("limit")
	if q.Err != nil {
		return registry.Result{}, q.Err
	}
	switch {
	case e.unstored():
		return registry.Result{}, registry.BadRequest("%s aren't stored, and so have no history", e.GroupResource())
	case r.Subresource != registry.Whole:
		return registry.Result{}, registry.BadRequest("history is of whole objects: leave out the subresource %s", r.Subresource)
	case r.Form.Kind != form.Whole || r.Form.Encoding == form.Protobuf:
		return registry.Result{}, registry.BadRequest("history is JSON: ask with Accept: application/json")
	case r.Query.Get("resourceVersion") != "":
		return registry.Result{}, registry.BadRequest("history begins with a version by from=%s, and resourceVersion means nothing: leave it out", clip.Text(r.Query.Get("resourceVersion")))
	case limit < 0:
		return registry.Result{}, registry.BadRequest("limit must be at least 1, and is %d", limit)
	case limit == 0 || limit > maxVersions:
		limit = maxVersions
	}
	from, err := e.historyFrom(ctx, r)
	if err != nil {
		return registry.Result{}, err
	}
	oldest, at := max(e.Res.Registry.Cacher.Oldest(), 1), from
	w := walk{Reader: e, key: key, limit: int(limit), now: e.Res.Registry.Clock.Now(), oldest: oldest, answer: history{Items: []version{}}}
	if at == 0 {
		at = e.Res.Registry.Cacher.Position()
	}
	if at < oldest {
		return registry.Result{}, tooOld(at, oldest)
	}
	err = e.Res.Registry.Store.Versions(ctx, key, from, func(v storage.Version) error { return w.add(ctx, v) })
	if err == nil || errors.Is(err, errNoMore) {
		err = w.finish(ctx, nil)
	}
	switch {
	case errors.Is(err, errNoMore):
	case errors.Is(err, errEnough):
		w.answer.Metadata.Continue = (w.next).String()
	case err != nil:
		return registry.Result{}, e.Fail(r.Name, err)
	}
	if len(w.answer.Items) == 0 && from == 0 {
		return registry.Result{}, e.Fail(r.Name, storage.ErrNotFound)
	}
	w.answer.Kind, w.answer.APIVersion = "History", "apiserver-lite/v1"
	w.answer.Metadata.ResourceVersion, w.answer.Metadata.Begins = at.String(), oldest.String()
	text, err := json.Marshal(w.answer)
	return registry.Result{Object: text}, err
}

// historyFrom returns the revision with which a history is to begin; 0 for the present. The caches have it.
func (e Reader) historyFrom(ctx context.Context, r *registry.Request) (storage.Revision, error) {
	from := r.Query.Get("from")
	switch at := r.Query.Get("at"); {
	case from != "" && at != "":
		return 0, registry.BadRequest("from and at both say where the history begins: leave one out")
	case at != "":
		rev, _, err := e.revisionAt(at)
		return rev, err
	case from == "":
		return 0, e.Freshen(ctx)
	}
	rev, err := ParseRevision(from)
	if err != nil || rev == 0 {
		return 0, registry.BadRequest("from=%s isn't a resourceVersion", clip.Text(from))
	}
	return rev, e.WaitFor(ctx, rev)
}

// tooOld is the Status 410 for a version before all that there are.
func tooOld(rev, oldest storage.Revision) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is too old: history reaches back to %d", rev, oldest))
}

// walk is a history that is being read, newest first.
type walk struct {
	Reader
	key    string
	limit  int
	now    time.Time
	oldest storage.Revision // with which history begins
	answer history
	size   int // of the patches in the answer

	last *step            // the version that was read last, and isn't in the answer yet
	next storage.Revision // where a walk that has enough goes on
}

// step is a version with what is needed of it besides.
type step struct {
	storage.Version
	tree     map[string]any // as clients see it, without what isn't compared; nil of a deletion, and of what can't be read
	managers jsontree.Raw   // its managedFields
	err      error          // why it can't be read
}

// add takes the next older version.
func (w *walk) add(ctx context.Context, v storage.Version) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if v.Deleted && v.Revision <= w.oldest { // a store that was reset still has what was before
		return errNoMore
	}
	s, err := w.read(ctx, v)
	if err != nil {
		return err
	}
	if err := w.finish(ctx, s); err != nil {
		return err
	}
	if w.last = s; v.Revision <= w.oldest {
		return errNoMore // it's the state with which history begins
	}
	if v.Created { // what was before has nothing to do with it
		return w.finish(ctx, nil)
	}
	return nil
}

// finish puts the last version into the answer, with what it has changed of the one before; nil for none that's known. errEnough ends the walk.
func (w *walk) finish(ctx context.Context, before *step) error {
	s := w.last
	if s == nil {
		return nil
	}
	w.last = nil
	v := version{ResourceVersion: s.Revision.String(), Change: "changed"}
	w.date(&v, s)
	v.User = w.author(ctx, s.Revision)
	of := s.tree
	switch {
	case s.Deleted:
		v.Change = "deleted"
		if before != nil {
			of = before.tree
		}
	case s.err != nil:
		if v.Unreadable = s.err.Error(); s.Created {
			v.Change = "created"
		}
	case s.Created:
		v.Change, v.Manager = "created", changer("", s.managers)
	case before != nil && before.tree != nil:
		v.Manager = changer(before.managers, s.managers)
		ops := jsontree.Difference(before.tree, s.tree, maxPatchPaths)
		if len(ops) == 0 {
			break
		}
		var err error
		if v.Patch, err = json.Marshal(ops); err != nil {
			return err
		}
	}
	if metadata, ok := of["metadata"].(map[string]any); ok {
		v.UID, _ = metadata["uid"].(string)
	}
	w.answer.Items = append(w.answer.Items, v)
	if w.size += len(v.Patch); len(w.answer.Items) < w.limit && w.size < maxHistoryPage {
		return nil
	}
	if w.next = s.Revision - 1; w.next < w.oldest {
		return errNoMore
	}
	return errEnough
}

// date says when a version was written.
func (w *walk) date(v *version, s *step) {
	if times := w.Res.Registry.Times; times != nil {
		if from, to, ok := times.Of(s.Revision, w.now); ok {
			to = to.UTC().Truncate(time.Millisecond)
			v.Time, v.Within = &to, to.Sub(from).Round(time.Millisecond).String()
			return
		}
	}
	if metadata, ok := s.tree["metadata"].(map[string]any); ok && s.Created { // which says it to the second
		text, _ := metadata["creationTimestamp"].(string)
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			at = at.Add(time.Second)
			v.Time, v.Within = &at, time.Second.String()
		}
	}
}

// author returns who has asked for the write at a revision, if that was noted.
func (w *walk) author(ctx context.Context, rev storage.Revision) string {
	for _, key := range []string{storage.AuthorKey(w.key), storage.TransactionKey} {
		if noted, err := w.Res.Registry.Store.GetAt(ctx, key, rev); err == nil && noted.Revision == rev {
			return string(noted.Value)
		}
	}
	return ""
}

// read decodes a version, as clients see it. An error is about the reading and not about the version.
func (w *walk) read(ctx context.Context, v storage.Version) (*step, error) {
	s := &step{Version: v}
	if v.Deleted {
		return s, nil
	}
	o := kube.Changed(v.Change)
	if s.err = o.Err; s.err != nil {
		return s, nil
	}
	raw, err := w.Show(ctx, w.Whole.Single, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		s.err = err
		return s, nil
	}
	tree, _, err := jsontree.DecodeKeeping(raw, "metadata", "managedFields")
	if err != nil {
		s.err = err
		return s, nil
	}
	s.tree, _ = tree.(map[string]any)
	if metadata, ok := s.tree["metadata"].(map[string]any); ok {
		s.managers, _ = metadata["managedFields"].(jsontree.Raw)
		delete(metadata, "managedFields") // each write changes it
		delete(metadata, "resourceVersion")
	}
	return s, nil
}

// managedEntry is an entry of managedFields.
type managedEntry struct {
	Manager, Operation, Subresource, Time string
	FieldsV1                              json.RawMessage
}

// changer returns the manager of a write, by the entries of managedFields that it has changed: the one that has a new time, since who has
// only lost fields keeps the old one. It returns "" where that isn't clear, as of several writes within a second.
func changer(before, after jsontree.Raw) string {
	if before == after || after == "" {
		return ""
	}
	var was, is []managedEntry
	if json.Unmarshal([]byte(after), &is) != nil || before != "" && json.Unmarshal([]byte(before), &was) != nil {
		return ""
	}
	var dated, changed []string // managers of entries with a new time, and of all that differ
	for _, entry := range is {
		i := slices.IndexFunc(was, entry.sameManager)
		switch {
		case i < 0 || entry.Time != was[i].Time:
			dated = append(dated, entry.Manager)
		case string(entry.FieldsV1) != string(was[i].FieldsV1):
			changed = append(changed, entry.Manager)
		}
	}
	if len(dated) == 0 {
		dated = changed
	}
	if len(dated) != 1 {
		return ""
	}
	return dated[0]
}

func (m managedEntry) sameManager(other managedEntry) bool {
	return m.Manager == other.Manager && m.Operation == other.Operation && m.Subresource == other.Subresource
}
