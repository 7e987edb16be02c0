package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// quiescentModel knows what must be left when the server has nothing to do any more: of its own namespaces, definitions
// and objects. Several models can share a server.
type quiescentModel struct {
	s       *servertest.Server
	t       *testing.T
	rng     *rand.Rand
	id      string
	spaces  map[string]place // by name; absent: there is none
	kinds   map[string]place // by plural
	objects map[string]modelObject
	touched map[string]bool // namespaces and kinds whose deletion began since the last barrier
	version string          // of the last write, if its answer has one
	log     []string
}

// place is the state of a namespace or a definition.
type place int

const (
	open place = iota
	terminating
)

// modelObject is one object, by "namespace/plural/name".
type modelObject struct {
	uid        string
	owner      string // its key; "" for none. It's in the same namespace
	finalizers []string
	deleting   bool
}

func newQuiescentModel(t *testing.T, s *servertest.Server, id string, seed uint64) *quiescentModel {
	return &quiescentModel{s: s, t: t, rng: rand.New(rand.NewPCG(seed, 0)), id: id,
		spaces: map[string]place{}, kinds: map[string]place{}, objects: map[string]modelObject{}, touched: map[string]bool{}}
}

// do sends a request that must be answered with a code, and returns the answer.
func (m *quiescentModel) do(want int, method, path, body, media string) string {
	m.t.Helper()
	m.log = append(m.log, fmt.Sprint(method, " ", path, " ", body))
	res, answer := m.s.Do(method, path, body, "Content-Type", media)
	if res.StatusCode != want {
		m.t.Fatalf("%s %s: %s, want %d\n%s\n%s", method, path, res.Status, want, answer, strings.Join(m.log, "\n"))
	}
	m.version = value(answer, "metadata.resourceVersion") // "" after a deletion, whose version nobody is told
	return answer
}

func (m *quiescentModel) space() string { return fmt.Sprintf("%s-ns%d", m.id, m.rng.IntN(3)) }
func (m *quiescentModel) kind() string  { return fmt.Sprintf("%skind%ds", m.id, m.rng.IntN(3)) }

func objectsPath(space, kind string) string {
	return "/apis/example.com/v1/namespaces/" + space + "/" + kind
}

// step makes one random change whose outcome doesn't depend on how far the controllers are.
func (m *quiescentModel) step() {
	space, kind := m.space(), m.kind()
	if m.touched[space] || m.touched[kind] {
		return
	}
	at, there := m.spaces[space]
	as, defined := m.kinds[kind]
	switch m.rng.IntN(12) {
	case 0:
		if there && at == open {
			m.do(200, http.MethodDelete, "/api/v1/namespaces/"+space, "", "")
			m.spaces[space], m.touched[space] = terminating, true
			m.deleteAll(func(s, _ string) bool { return s == space })
		}
	case 1:
		// An owner of a kind that isn't served any more isn't proven to be absent, so what becomes of its dependents depends
		// on who is faster.
		if defined && as == open && !m.owns(kind) {
			m.do(200, http.MethodDelete, definitionsPath+"/"+kind+".example.com", "", "")
			m.kinds[kind], m.touched[kind] = terminating, true
			m.deleteAll(func(_, k string) bool { return k == kind })
		}
	case 2, 3, 4, 5, 6:
		m.create(space, kind)
	default:
		m.change(space, kind)
	}
}

// create creates an object, and its namespace and definition if they're missing.
func (m *quiescentModel) create(space, kind string) {
	if _, there := m.spaces[space]; !there {
		m.do(201, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+space+`"}}`, "application/json")
		m.spaces[space] = open
	}
	if _, defined := m.kinds[kind]; !defined {
		m.do(201, http.MethodPost, definitionsPath, strings.NewReplacer("widgets", kind, "widget", strings.TrimSuffix(kind, "s"),
			"Widget", "X"+kind, "[wd]", "[]").Replace(widgets), "application/yaml")
		m.kinds[kind] = open
	}
	key := fmt.Sprintf("%s/%s/o%d", space, kind, m.rng.IntN(4))
	_, exists := m.objects[key]
	if exists || m.spaces[space] == terminating || m.kinds[kind] == terminating {
		return
	}
	var o modelObject
	for _, f := range []string{"example.com/x", "example.com/y"} {
		if m.rng.IntN(5) == 0 {
			o.finalizers = append(o.finalizers, f)
		}
	}
	list, _ := json.Marshal(o.finalizers)
	owners := ""
	if o.owner = m.someOwner(space); o.owner != "" {
		_, ownerKind, name := splitModelKey(o.owner)
		owners = fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"X%s","name":"%s","uid":"%s"}`, ownerKind, name, m.objects[o.owner].uid)
	}
	_, _, name := splitModelKey(key)
	answer := m.do(201, http.MethodPost, objectsPath(space, kind), fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"X%s","metadata":{"name":"%s","finalizers":%s,"ownerReferences":[%s]}}`,
		kind, name, list, owners), "application/json")
	o.uid = value(answer, "metadata.uid")
	m.objects[key] = o
}

// someOwner returns an object of a namespace that may own another, or "".
func (m *quiescentModel) someOwner(space string) string {
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		if in, kind, _ := splitModelKey(key); in == space && !m.objects[key].deleting && m.kinds[kind] == open && !m.touched[kind] && m.rng.IntN(3) == 0 {
			return key
		}
	}
	return ""
}

// owns tells whether objects of a kind own others.
func (m *quiescentModel) owns(kind string) bool {
	for _, o := range m.objects {
		if _, k, _ := splitModelKey(o.owner); k == kind {
			return true
		}
	}
	return false
}

func splitModelKey(key string) (space, kind, name string) {
	parts := append(strings.Split(key, "/"), "", "", "")
	return parts[0], parts[1], parts[2]
}

// change deletes an object, or takes its finalizers away.
func (m *quiescentModel) change(space, kind string) {
	prefix := space + "/" + kind + "/"
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		if !strings.HasPrefix(key, prefix) || m.rng.IntN(2) == 0 {
			continue
		}
		path, o := objectsPath(space, kind)+"/"+key[len(prefix):], m.objects[key]
		switch {
		case !o.deleting && m.rng.IntN(2) == 0:
			m.do(200, http.MethodDelete, path, "", "")
			m.delete(key)
		case len(o.finalizers) > 0:
			m.do(200, http.MethodPatch, path, `{"metadata":{"finalizers":null}}`, "application/merge-patch+json")
			o.finalizers = nil
			if m.objects[key] = o; o.deleting {
				m.version = "" // the answer has the version before: it's a deletion
				m.delete(key)
				m.touched[space], m.touched[kind] = true, true // they may go now
			}
		}
		return
	}
}

// delete is what follows from the deletion of an object.
func (m *quiescentModel) delete(key string) {
	o := m.objects[key]
	if o.deleting = true; len(o.finalizers) > 0 {
		m.objects[key] = o
		return
	}
	delete(m.objects, key)
	for dependent, d := range m.objects {
		if d.owner == key {
			space, _, _ := splitModelKey(dependent)
			m.touched[space] = true
			m.delete(dependent)
		}
	}
}

func (m *quiescentModel) deleteAll(of func(space, kind string) bool) {
	for key := range m.objects {
		if space, kind, _ := splitModelKey(key); of(space, kind) {
			m.delete(key)
		}
	}
}

// barrier waits until nothing is left to do, and compares what there is with what must be.
func (m *quiescentModel) barrier() {
	m.t.Helper()
	for _, places := range []map[string]place{m.spaces, m.kinds} {
		for name, p := range places {
			if p == terminating && !m.holds(name) {
				delete(places, name)
			}
		}
	}
	query := "?timeout=1m"
	if m.rng.IntN(2) == 0 && m.version != "" {
		query += "&resourceVersion=" + m.version
	}
	var page struct{ Held []servertest.Held }
	if err := json.Unmarshal([]byte(m.s.Get("/debug/quiescent"+query)), &page); err != nil {
		m.t.Fatal(err)
	}
	m.log = append(m.log, "barrier"+query)
	var got, want []string
	for _, h := range page.Held {
		if strings.HasPrefix(h.Namespace, m.id) {
			got = append(got, fmt.Sprintf("held %s/%s/%s %v", h.Namespace, strings.TrimPrefix(h.Kind, "X"), h.Name, h.Finalizers))
		}
	}
	got = append(got, m.present()...)
	for name := range m.spaces {
		want = append(want, "namespace "+name)
	}
	for kind := range m.kinds {
		want = append(want, "kind "+kind)
	}
	for key, o := range m.objects {
		want = append(want, fmt.Sprintf("object %s deleting=%t", key, o.deleting))
		if o.deleting {
			want = append(want, fmt.Sprintf("held %s %v", key, o.finalizers))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		m.t.Fatalf("after the barrier there is\n%s\nwant\n%s\nafter\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), strings.Join(m.log, "\n"))
	}
	clear(m.touched)
}

// holds tells whether objects are left that keep a namespace or a definition.
func (m *quiescentModel) holds(name string) bool {
	for key := range m.objects {
		if space, kind, _ := splitModelKey(key); space == name || kind == name {
			return true
		}
	}
	return false
}

// present lists what the server has of the model's.
func (m *quiescentModel) present() (all []string) {
	type list struct {
		Items []struct {
			Metadata struct{ Name, Namespace, DeletionTimestamp string }
		}
	}
	read := func(path string) (l list) {
		if err := json.Unmarshal([]byte(m.s.Get(path)), &l); err != nil {
			m.t.Fatal(err)
		}
		return l
	}
	for _, o := range read("/api/v1/namespaces").Items {
		if strings.HasPrefix(o.Metadata.Name, m.id) {
			all = append(all, "namespace "+o.Metadata.Name)
		}
	}
	for _, o := range read(definitionsPath).Items {
		kind, _, _ := strings.Cut(o.Metadata.Name, ".")
		if !strings.HasPrefix(kind, m.id) {
			continue
		}
		all = append(all, "kind "+kind)
		for _, o := range read("/apis/example.com/v1/" + kind).Items {
			all = append(all, fmt.Sprintf("object %s/%s/%s deleting=%t", o.Metadata.Namespace, kind, o.Metadata.Name, o.Metadata.DeletionTimestamp != ""))
		}
	}
	return all
}

// TestQuiescentModel: random changes of namespaces, definitions and objects with owners and finalizers, by several writers
// that share a server. After each barrier exactly that is left which a model expects, at once and without waiting. What the
// others do meanwhile keeps no barrier from ending.
func TestQuiescentModel(t *testing.T) {
	t.Parallel()
	const writers, rounds, changes = 3, 25, 12
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := servertest.New(t)
			for i := range writers {
				t.Run(fmt.Sprint("writer ", i), func(t *testing.T) {
					t.Parallel()
					m := newQuiescentModel(t, s, string(rune('a'+i))+"x", seed*writers+uint64(i))
					for range rounds {
						for range changes {
							m.step()
						}
						m.barrier()
					}
				})
			}
		})
	}
}
