package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestOwners gives a server random objects that own each other, over kinds and namespaces, deletes some of them with each
// policy, lets finalizers come and go, and stops and kills the server meanwhile. In the end exactly what Kubernetes' rules
// leave is left (see owned), and the history of all objects shows that nothing was deleted that still had an owner.
func TestOwners(t *testing.T) {
	t.Parallel()
	const worlds, rounds = 2, 12
	for world := range worlds {
		seed := time.Now().UnixNano() + int64(world)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := newOwnersWorld(t, seed)
			for round := range rounds {
				w.round(round)
			}
			w.releaseAll()
			w.p.stop()
		})
	}
}

// place is where objects of one kind are.
type place struct{ path, kind, namespace string }

var places = []place{
	{"/apis/model.example.com/v1/namespaces/default/things", "Thing", "default"},
	{"/apis/model.example.com/v1/namespaces/other/things", "Thing", "other"},
	{"/apis/model.example.com/v1/namespaces/default/parts", "Part", "default"},
	{"/api/v1/namespaces/default/configmaps", "ConfigMap", "default"},
	{"/apis/model.example.com/v1/roots", "Root", ""},
}

// versionOf is the apiVersion of a kind.
func versionOf(kind string) string {
	if kind == "ConfigMap" {
		return "v1"
	}
	return "model.example.com/v1"
}

// ownersWorld is a server, and what the test knows of it.
type ownersWorld struct {
	t     *testing.T
	p     *process
	args  []string
	rng   *rand.Rand
	model owned
	made  []madeObject // by their number in the model
	steps []step       // of this round
}

// madeObject is an object that the test has created.
type madeObject struct {
	place
	name, uid string
	deleted   bool // by the test
}

func newOwnersWorld(t *testing.T, seed int64) *ownersWorld {
	w := &ownersWorld{t: t, args: []string{"--data-dir", t.TempDir()}, rng: rand.New(rand.NewPCG(uint64(seed), 0))}
	w.p = start(t, w.args...)
	for _, kind := range []string{"Thing", "Part", "Root"} {
		scope := "Namespaced"
		if kind == "Root" {
			scope = "Cluster"
		}
		w.p.do(http.StatusCreated, "POST", definitions, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
			"metadata":{"name":"%[1]ss.model.example.com"},"spec":{"group":"model.example.com","scope":%[2]q,"names":{"kind":%[3]q,"plural":"%[1]ss"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, strings.ToLower(kind), scope, kind))
	}
	w.p.do(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	return w
}

// round does some steps, stops or kills the server after one of them, or not, and compares what is left.
func (w *ownersWorld) round(round int) {
	w.t.Helper()
	before := w.model.clone()
	from := w.mark(round, "begin")
	w.steps = nil
	n := 3 + w.rng.IntN(8)
	crash := w.rng.IntN(2 * n)
	for i := range n {
		w.step()
		if i == crash {
			w.restart()
		}
	}
	if w.rng.IntN(4) == 0 {
		w.restart()
	}
	w.quiesce()
	w.compare(before)
	w.checkHistory(from, w.mark(round, "end"))
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// restart ends the server, most often by kill -9, and starts it again.
func (w *ownersWorld) restart() {
	if w.rng.IntN(4) == 0 {
		w.p.stop()
	} else {
		w.p.kill()
	}
	w.p = start(w.t, w.args...)
}

// quiesce waits until the server's controllers have nothing left to do.
func (w *ownersWorld) quiesce() {
	w.t.Helper()
	w.p.do(http.StatusOK, "GET", "/debug/quiescent?timeout=60s", "")
}

// releaseAll takes others' finalizers away, one after the other, and compares what is left each time.
func (w *ownersWorld) releaseAll() {
	for i := range w.model {
		if w.model[i].there && w.model[i].held {
			before := w.model.clone()
			w.steps = nil
			w.release(i)
			w.quiesce()
			w.compare(before)
		}
	}
	for i, o := range w.model {
		if o.there && o.deleting && !w.model.waitsForUnsure(i) {
			w.t.Errorf("%s is still being deleted, and nothing holds it", w.made[i].name)
		}
	}
}

// step does something random.
func (w *ownersWorld) step() {
	var present []int
	for i, o := range w.model {
		if o.there {
			present = append(present, i)
		}
	}
	// Enough objects for graphs with many ways, and few enough for the model to try all orders.
	if n := w.rng.IntN(10); len(present) < 6 || n < 4 && len(present) < 16 {
		w.create()
		return
	}
	i := present[w.rng.IntN(len(present))]
	switch n := w.rng.IntN(10); {
	case n < 5:
		w.delete(i)
	case n < 6:
		w.hold(i)
	case n < 8:
		w.release(i)
	case n < 9:
		w.own(i, w.references(w.made[i].place, i))
	default:
		w.circle()
	}
}

// circle makes objects own each other in a circle.
func (w *ownersWorld) circle() {
	var members []int
	for i, o := range w.model {
		if o.there && w.made[i].namespace == "default" {
			members = append(members, i)
		}
	}
	w.rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	members = members[:min(len(members), 1+w.rng.IntN(3))]
	for n, i := range members {
		owner := w.made[members[(n+1)%len(members)]]
		w.own(i, []ownerRef{w.understand(w.made[i].place, fmt.Sprintf("%s %s %s", owner.kind, owner.name, owner.uid), w.rng.IntN(4) > 0)})
	}
}

func (w *ownersWorld) create() {
	m := madeObject{place: places[w.rng.IntN(len(places))], name: fmt.Sprint("o", len(w.made))}
	o := ownedObject{there: true, held: w.rng.IntN(5) == 0, refs: w.references(m.place, -1)}
	finalizers := []string{}
	if o.held {
		finalizers = append(finalizers, finalizer)
	}
	body := w.encode(map[string]any{"apiVersion": versionOf(m.kind), "kind": m.kind,
		"metadata": map[string]any{"name": m.name, "finalizers": finalizers, "ownerReferences": w.referencesOf(o.refs)}})
	m.uid = w.p.do(http.StatusCreated, "POST", m.path, body).object.Metadata.UID
	w.steps = append(w.steps, step{what: "create", object: len(w.made), made: o})
	w.model = append(w.model, o)
	w.made = append(w.made, m)
}

const finalizer = "model.example.com/held"

func (w *ownersWorld) delete(i int) {
	s := step{what: "delete", object: i, policy: []string{"Background", "Background", "Foreground", "Foreground", "Orphan"}[w.rng.IntN(5)]}
	m := &w.made[i]
	m.deleted = true
	a, err := w.p.try("DELETE", m.path+"/"+m.name+"?propagationPolicy="+s.policy, "")
	if err != nil || a.code != http.StatusOK && a.code != http.StatusNotFound {
		w.t.Fatalf("delete %s: %d %v\n%s", m.name, a.code, err, a.body)
	}
	w.steps = append(w.steps, s)
}

func (w *ownersWorld) hold(i int) {
	w.change(i, func(metadata map[string]any) bool {
		if metadata["deletionTimestamp"] != nil {
			return false
		}
		list, _ := metadata["finalizers"].([]any)
		if !slices.Contains(list, any(finalizer)) {
			metadata["finalizers"] = append(list, finalizer)
		}
		return true
	})
	w.steps = append(w.steps, step{what: "hold", object: i})
}

func (w *ownersWorld) release(i int) {
	w.change(i, func(metadata map[string]any) bool {
		list, _ := metadata["finalizers"].([]any)
		metadata["finalizers"] = slices.DeleteFunc(list, func(f any) bool { return f == finalizer })
		return true
	})
	w.steps = append(w.steps, step{what: "release", object: i})
}

// own gives an object other owners.
func (w *ownersWorld) own(i int, refs []ownerRef) {
	w.change(i, func(metadata map[string]any) bool {
		metadata["ownerReferences"] = w.referencesOf(refs)
		return true
	})
	w.steps = append(w.steps, step{what: "own", object: i, refs: refs})
}

// change writes an object's metadata, if there is the object.
func (w *ownersWorld) change(i int, change func(metadata map[string]any) bool) {
	m := w.made[i]
	for {
		a, err := w.p.try("GET", m.path+"/"+m.name, "")
		if err == nil && a.code == http.StatusNotFound {
			return
		}
		var o map[string]any
		if err != nil || json.Unmarshal([]byte(a.body), &o) != nil || a.code != http.StatusOK {
			w.t.Fatalf("get %s: %d %v\n%s", m.name, a.code, err, a.body)
		}
		if !change(o["metadata"].(map[string]any)) {
			return
		}
		a, err = w.p.try("PUT", m.path+"/"+m.name, w.encode(o))
		switch {
		case err != nil:
			w.t.Fatal(err)
		case a.code == http.StatusOK || a.code == http.StatusNotFound:
			return
		case a.code != http.StatusConflict:
			w.t.Fatalf("put %s: %d\n%s", m.name, a.code, a.body)
		}
	}
}

// references returns random owners for an object at a place, which isn't self.
func (w *ownersWorld) references(at place, self int) (refs []ownerRef) {
	seen := map[string]bool{}
	for range w.rng.IntN(4) {
		r := w.reference(at)
		// An object may own itself, but not often: it could go only when it's deleted.
		if uid := strings.Fields(r.text)[2]; seen[uid] || r.is == good && r.to == self && w.rng.IntN(4) > 0 {
			continue
		} else {
			seen[uid] = true
		}
		refs = append(refs, r)
	}
	return refs
}

func (w *ownersWorld) reference(at place) ownerRef {
	blocks := w.rng.IntN(2) == 0
	strange := fmt.Sprintf("00000000-0000-4000-8000-%012d", w.rng.IntN(1e6))
	switch n := w.rng.IntN(40); {
	case n == 0:
		return w.understand(at, "Nobody none "+strange, blocks)
	case n < 3 || len(w.made) == 0:
		return w.understand(at, "Root none "+strange, blocks)
	}
	// Most objects of a long test are gone; one of the latest is more likely to be there.
	m := w.made[len(w.made)-1-w.rng.IntN(min(len(w.made), 20))]
	name, uid := m.name, m.uid
	switch w.rng.IntN(20) {
	case 0:
		uid = strange
	case 1:
		name = "not-" + m.name
	}
	r := w.understand(at, fmt.Sprintf("%s %s %s", m.kind, name, uid), blocks)
	if r.is == unknown && w.rng.IntN(5) > 0 { // such a reference keeps its dependent forever
		return w.reference(at)
	}
	return r
}

// understand says what a reference means in an object at a place.
func (w *ownersWorld) understand(at place, text string, blocks bool) ownerRef {
	r := ownerRef{is: missing, blocks: blocks, text: text}
	f := strings.Fields(text) // kind, name, uid
	r.to = slices.IndexFunc(w.made, func(o madeObject) bool { return o.uid == f[2] })
	switch {
	case f[0] == "Nobody", f[0] != "Root" && at.namespace == "":
		r.is = unknown
		return r
	case r.to < 0:
		return r
	}
	if o := w.made[r.to]; o.name == f[1] && o.kind == f[0] && (o.namespace == "" || o.namespace == at.namespace) {
		r.is = good
	}
	return r
}

// referencesOf returns ownerReferences as they are sent.
func (w *ownersWorld) referencesOf(refs []ownerRef) []map[string]any {
	sent := []map[string]any{}
	for _, r := range refs {
		f := strings.Fields(r.text)
		sent = append(sent, map[string]any{"apiVersion": versionOf(f[0]), "kind": f[0], "name": f[1], "uid": f[2], "blockOwnerDeletion": r.blocks})
	}
	return sent
}

func (w *ownersWorld) encode(o any) string {
	b, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// ownedMeta is an object's metadata as the server shows it.
type ownedMeta struct {
	Name, UID, ResourceVersion, DeletionTimestamp string
	Labels                                        map[string]string
	Finalizers                                    []string
	OwnerReferences                               []struct {
		Kind, Name, UID    string
		BlockOwnerDeletion bool
	}
}

// compare reads what is there and asks the model whether it may be.
func (w *ownersWorld) compare(before owned) {
	w.t.Helper()
	after := make(owned, len(w.made))
	for path := range pathsOf(places) {
		var list struct {
			Items []struct{ Metadata ownedMeta }
		}
		if err := json.Unmarshal([]byte(w.p.do(http.StatusOK, "GET", path, "").body), &list); err != nil {
			w.t.Fatal(err)
		}
		for _, item := range list.Items {
			m := item.Metadata
			i := slices.IndexFunc(w.made, func(o madeObject) bool { return o.uid == m.UID })
			if i < 0 {
				continue // a mark
			}
			after[i] = ownedObject{there: true, deleting: m.DeletionTimestamp != "", held: slices.Contains(m.Finalizers, finalizer),
				foreground: slices.Contains(m.Finalizers, "foregroundDeletion"), orphan: slices.Contains(m.Finalizers, "orphan")}
			for _, r := range m.OwnerReferences {
				after[i].refs = append(after[i].refs, w.understand(w.made[i].place, fmt.Sprintf("%s %s %s", r.Kind, r.Name, r.UID), r.BlockOwnerDeletion))
			}
		}
	}
	if !before.possible(w.rng, w.steps, after.String()) {
		var steps strings.Builder
		for _, s := range w.steps {
			fmt.Fprintf(&steps, "%+v\n", s)
		}
		end := before.clone()
		end.play(w.rng, w.steps)
		w.t.Errorf("no order of what the garbage collector does leaves what is left.\nBefore:\n%s\nSteps:\n%s\nLeft:\n%s\nOne that is possible:\n%s", before, &steps, after, end)
	}
	w.model = after
}

// pathsOf yields the collections over all namespaces.
func pathsOf(all []place) map[string]bool {
	paths := map[string]bool{}
	for _, p := range all {
		paths[strings.Replace(p.path, "/namespaces/"+p.namespace, "", 1)] = true
	}
	return paths
}

// mark writes an object that nobody owns into each collection, and returns the version before them.
func (w *ownersWorld) mark(round int, what string) (version int64) {
	version = w.p.do(http.StatusOK, "GET", places[0].path, "").object.rv(w.t)
	for _, p := range places {
		if p.namespace != "other" {
			w.p.do(http.StatusCreated, "POST", p.path, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"mark-%d-%s"}}`, versionOf(p.kind), p.kind, round, what))
		}
	}
	if what == "end" {
		return int64(round)
	}
	return version
}

// ownersEvent is an event of a watch.
type ownersEvent struct {
	Type   string
	Object struct{ Metadata ownedMeta }
	rv     int64
}

// checkHistory reads the events of a round in all collections, and checks each deletion that the test didn't ask for: the
// object had only owners that were gone, or that waited until their dependents are deleted.
func (w *ownersWorld) checkHistory(from, round int64) {
	w.t.Helper()
	var mu sync.Mutex // guards all
	var all []ownersEvent
	var reading sync.WaitGroup
	for path := range pathsOf(places) {
		reading.Go(func() {
			events := w.history(path, from, fmt.Sprintf("mark-%d-end", round))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, events...)
		})
	}
	reading.Wait()
	slices.SortFunc(all, func(a, b ownersEvent) int { return int(a.rv - b.rv) })
	replay := ownersReplay{w: w, now: map[string]ownedMeta{}, waited: map[string]bool{}}
	for _, e := range all {
		replay.event(e)
	}
}

// history reads a collection's state at a version, as ADDED events, and then its events, up to the mark.
func (w *ownersWorld) history(path string, from int64, mark string) (events []ownersEvent) {
	var list struct {
		Items []struct{ Metadata ownedMeta }
	}
	body := w.p.do(http.StatusOK, "GET", fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", path, from), "").body
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		w.t.Error(err)
		return nil
	}
	for _, item := range list.Items {
		events = append(events, ownersEvent{Type: "ADDED", Object: item})
	}
	s, err := w.p.open(fmt.Sprintf("%s?watch=true&resourceVersion=%d", path, from))
	if err != nil {
		w.t.Error(err)
		return nil
	}
	defer s.body.Close()
	for {
		line, err := s.lines.ReadString('\n')
		var e ownersEvent
		if err == nil {
			err = json.Unmarshal([]byte(line), &e)
		}
		if err == nil {
			e.rv, err = strconv.ParseInt(e.Object.Metadata.ResourceVersion, 10, 64)
		}
		if err != nil {
			w.t.Errorf("the history of %s, at %q: %v", path, line, err)
			return nil
		}
		if events = append(events, e); e.Object.Metadata.Name == mark {
			return events
		}
	}
}

// ownersReplay goes through the history of all collections.
type ownersReplay struct {
	w      *ownersWorld
	now    map[string]ownedMeta // by uid
	waited map[string]bool      // by uid: its deletion has waited for its dependents
}

func (r *ownersReplay) event(e ownersEvent) {
	m := e.Object.Metadata
	before, was := r.now[m.UID]
	i := slices.IndexFunc(r.w.made, func(o madeObject) bool { return o.uid == m.UID })
	ends := e.Type == "DELETED" || m.DeletionTimestamp != ""
	if i >= 0 && was && ends && before.DeletionTimestamp == "" && !r.w.made[i].deleted {
		r.deletion(i, before)
	}
	if r.now[m.UID] = m; e.Type == "DELETED" {
		delete(r.now, m.UID)
	}
	if m.DeletionTimestamp != "" && slices.Contains(m.Finalizers, "foregroundDeletion") {
		r.waited[m.UID] = true
	}
}

// deletion checks that the garbage collector was right to delete an object.
func (r *ownersReplay) deletion(i int, before ownedMeta) {
	dependent := r.w.made[i]
	if len(before.OwnerReferences) == 0 {
		r.w.t.Errorf("%s was deleted, and had no owner", dependent.name)
	}
	for _, ref := range before.OwnerReferences {
		j := slices.IndexFunc(r.w.made, func(o madeObject) bool { return o.uid == ref.UID })
		_, there := r.now[ref.UID]
		names := j >= 0 && r.w.made[j].name == ref.Name && r.w.made[j].kind == ref.Kind
		switch {
		case ref.Kind == "Nobody", j >= 0 && names && dependent.namespace == "" && r.w.made[j].namespace != "":
			r.w.t.Errorf("%s was deleted, though nobody can say whether its owner %s %s is there", dependent.name, ref.Kind, ref.Name)
		case there && names && (r.w.made[j].namespace == "" || r.w.made[j].namespace == dependent.namespace) && !r.waited[ref.UID]:
			r.w.t.Errorf("%s was deleted, though its owner %s %s was there", dependent.name, ref.Kind, ref.Name)
		}
	}
}
