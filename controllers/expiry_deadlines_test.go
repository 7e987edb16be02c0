package controllers

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

const (
	pods   storage.Prefix = "/registry/core/pods/"
	events storage.Prefix = "/registry/core/events/"
)

// world is a set of objects that expire, and the clocks of its machine.
type world struct {
	t         *testing.T
	deadlines deadlines
	jump      time.Duration // by how much the machine's clock is off
	rev       storage.Revision
	objects   map[string]*kube.Object
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, objects: map[string]*kube.Object{}}
	w.deadlines = newDeadlines(w.wall, nil)
	w.state()
	return w
}

func (w *world) wall() time.Time { return time.Now().Add(w.jump) }

// state tells the deadlines what there is.
func (w *world) state() {
	w.deadlines.begin(true, map[storage.Prefix]registry.Lifetime{events: {TTL: time.Hour, Times: []string{"lastTimestamp"}}})
	for key, o := range w.objects {
		w.deadlines.observe(&cacher.Event{Prefix: prefixOf(key), Cur: o})
	}
	w.deadlines.complete()
}

func prefixOf(key string) storage.Prefix {
	p, _, _, _ := storage.SplitKey(key)
	return p
}

// put writes an object with members of metadata and others, as the server does; created is "" for now.
func (w *world) put(key, metadata, others, created string) {
	w.rev++
	prev := w.objects[key]
	if created == "" {
		created = w.wall().UTC().Format(time.RFC3339)
		if prev != nil {
			created = prev.Life().Created
		}
	}
	o := kube.NewObject(key, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"X","metadata":{%s"creationTimestamp":%q}%s}`, metadata, created, others), w.rev)
	if o.Err != nil {
		w.t.Fatal(o.Err)
	}
	w.objects[key] = o
	w.deadlines.observe(&cacher.Event{Prefix: prefixOf(key), Revision: w.rev, Prev: prev, Cur: o})
}

// remove deletes an object.
func (w *world) remove(key string) {
	w.rev++
	prev := w.objects[key]
	delete(w.objects, key)
	w.deadlines.observe(&cacher.Event{Prefix: prefixOf(key), Revision: w.rev, Prev: prev})
}

// takeDue is deadlines.takeDue, with the keys.
func (w *world) takeDue() (keys []string, next time.Duration, any bool) {
	next, any = w.deadlines.takeDue(func(key string) { keys = append(keys, key) })
	return keys, next, any
}

// expired takes what is due, and removes it.
func (w *world) expired() string {
	keys, _, _ := w.takeDue()
	slices.Sort(keys)
	for i, key := range keys {
		if rev, due := w.deadlines.due(key); !due || rev != w.objects[key].Revision {
			w.t.Errorf("%s is due %t at %d, want %d", key, due, rev, w.objects[key].Revision)
		}
		w.remove(key)
		keys[i] = key[len(pods):]
	}
	return strings.Join(keys, " ")
}

func ttl(d string) string { return fmt.Sprintf(`"annotations":{"apiserver-lite/ttl":%q},`, d) }

// TestMortals: when objects are due.
func TestMortals(t *testing.T) {
	type step struct {
		after   time.Duration
		do      func(w *world)
		expired string // what is due then, after do
	}
	const a, b = string(pods) + "a", string(pods) + "b"
	put := func(key, metadata string) func(*world) { return func(w *world) { w.put(key, metadata, "", "") } }
	jump := func(d time.Duration) func(*world) { return func(w *world) { w.jump += d } }
	restart := func(w *world) {
		w.deadlines = newDeadlines(w.wall, nil)
		w.state()
	}
	again := (*world).state
	old := func(key, metadata, others string, age time.Duration) func(*world) {
		return func(w *world) { // of a process before
			w.put(key, metadata, others, w.wall().Add(-age).UTC().Format(time.RFC3339))
			restart(w)
		}
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"to the moment", []step{{0, put(a, ttl("10s")), ""}, {10*time.Second - 1, nil, ""}, {1, nil, "a"}, {time.Hour, nil, ""}}},
		{"at once", []step{{0, put(a, ttl("0s")), "a"}}},
		{"in their order", []step{{0, put(a, ttl("20s")), ""}, {0, put(b, ttl("10s")), ""}, {10 * time.Second, nil, "b"}, {10 * time.Second, nil, "a"}}},
		{"never", []step{{0, put(a, ""), ""}, {100 * time.Hour, nil, ""}}},
		{"not readable", []step{{0, put(a, ttl("soon")), ""}, {100 * time.Hour, nil, ""}}},
		{"deleted before", []step{{0, put(a, ttl("10s")), ""}, {time.Second, func(w *world) { w.remove(a) }, ""}, {time.Hour, nil, ""}}},
		{"deleted and made again", []step{{0, put(a, ttl("10s")), ""}, {9 * time.Second, func(w *world) { w.remove(a); w.put(a, ttl("10s"), "", "") }, ""}, {5 * time.Second, nil, ""}, {5 * time.Second, nil, "a"}}},
		{"being deleted", []step{{0, put(a, ttl("10s")), ""}, {time.Second, put(a, ttl("10s")+`"deletionTimestamp":"2026-01-01T00:00:00Z",`), ""}, {time.Hour, nil, ""}}},
		{"written on", []step{{0, put(a, ttl("10s")), ""}, {6 * time.Second, put(a, ttl("10s")+`"labels":{"a":"b"},`), ""}, {4 * time.Second, nil, "a"}}},
		{"longer", []step{{0, put(a, ttl("10s")), ""}, {6 * time.Second, put(a, ttl("20s")), ""}, {14*time.Second - 1, nil, ""}, {1, nil, "a"}}},
		{"shorter", []step{{0, put(a, ttl("1h")), ""}, {6 * time.Second, put(a, ttl("5s")), "a"}}},
		{"taken away", []step{{0, put(a, ttl("10s")), ""}, {6 * time.Second, put(a, ""), ""}, {time.Hour, nil, ""}}},
		{"added later", []step{{0, put(a, ""), ""}, {6 * time.Second, put(a, ttl("10s")), ""}, {4 * time.Second, nil, ""}, {stampGrain, nil, "a"}}},
		{"added too late", []step{{0, put(a, ""), ""}, {time.Minute, put(a, ttl("10s")), "a"}}},

		{"a restart", []step{{0, old(a, ttl("1h"), "", 50*time.Minute), ""}, {10 * time.Minute, nil, ""}, {stampGrain, nil, "a"}}},
		{"a restart after its end", []step{{0, old(a, ttl("1h"), "", 50*time.Hour), "a"}}},
		{"a time ahead of ours", []step{{0, old(a, ttl("1h"), "", -50*time.Hour), ""}, {time.Hour, nil, "a"}}},
		{"the state again", []step{{0, put(a, ttl("10s")), ""}, {5 * time.Second, again, ""}, {5 * time.Second, nil, "a"}}},
		{"gone in the state", []step{{0, put(a, ttl("10s")), ""}, {5 * time.Second, func(w *world) { delete(w.objects, a); w.state() }, ""}, {time.Hour, nil, ""}}},

		{"the clock jumps ahead", []step{{0, put(a, ttl("1h")), ""}, {time.Minute, jump(24 * time.Hour), ""}, {59*time.Minute - 1, nil, ""}, {1, nil, "a"}}},
		{"the clock jumps back", []step{{0, put(a, ttl("1h")), ""}, {time.Minute, jump(-24 * time.Hour), ""}, {59*time.Minute - 1, nil, ""}, {1, nil, "a"}}},
		{"ahead, and the state again", []step{{0, put(a, ttl("1h")), ""}, {time.Minute, jump(24 * time.Hour), ""}, {0, put(a, ttl("1h")+`"labels":{},`), ""}, {0, again, ""}, {59*time.Minute - 1, nil, ""}, {1, nil, "a"}}},
		{"ahead, and an older one", []step{{0, put(a, ""), ""}, {time.Minute, jump(24 * time.Hour), ""}, {0, put(a, ttl("1h")), ""}, {59 * time.Minute, nil, ""}, {stampGrain, nil, "a"}}},
		{"ahead, and a newer one in a later state", []step{{0, jump(24 * time.Hour), ""}, {0, put(a, ttl("1h")), ""}, {time.Minute, func(w *world) { w.deadlines.known, w.deadlines.order = map[string]*deadline{}, nil; w.state() }, ""}, {time.Hour - 1, nil, ""}, {1, nil, "a"}}},
		{"back and ahead again, and one from between", []step{{0, jump(-2 * time.Hour), ""}, {time.Minute, put(b, ttl("1h")), ""}, {0, put(a, ""), ""}, {time.Minute, jump(2 * time.Hour), ""}, {0, put(a, ttl("1h")), ""}, {59*time.Minute - 1, nil, ""}, {1, nil, "b"}, {time.Hour, nil, "a"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for i, s := range tc.steps {
					time.Sleep(s.after)
					if s.do != nil {
						s.do(w)
					}
					if got := w.expired(); got != s.expired {
						t.Fatalf("step %d: %q is due, want %q", i, got, s.expired)
					}
				}
			})
		})
	}
}

// TestMortalTypes: an event lives an hour after its last write, also across a restart.
func TestMortalTypes(t *testing.T) {
	const e = string(events) + "e"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		expect := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			keys, _, _ := w.takeDue()
			if got := strings.Join(keys, " "); got != want {
				t.Fatalf("%q is due, want %q", got, want)
			}
			for _, key := range keys {
				w.remove(key)
			}
		}
		w.put(e, "", "", "")
		expect(50*time.Minute, "")
		w.put(e, "", `,"count":2`, "")
		expect(time.Hour-1, "")
		expect(1, e)

		w.put(e, ttl("10m"), "", "") // the earlier one counts
		expect(10*time.Minute, e)
		w.put(e, ttl("10h"), "", "")
		expect(time.Hour, e)

		w.put(e, "", "", "")
		time.Sleep(30 * time.Minute)
		last := w.wall().UTC().Format(time.RFC3339)
		w.put(e, "", fmt.Sprintf(`,"lastTimestamp":%q`, last), "")
		time.Sleep(20 * time.Minute)
		w.deadlines = newDeadlines(w.wall, nil)
		w.state()
		expect(40*time.Minute, "")
		expect(stampGrain, e)

		w.deadlines.begin(false, nil) // --controllers=none in a program without such types
		w.put(e, ttl("1s"), "", "")
		expect(time.Hour, "")
	})
}

// TestMortalsAgain: an object that was taken, and is still there in a new state, is due again.
func TestMortalsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(string(pods)+"a", ttl("1s"), "", "")
		time.Sleep(time.Second)
		for round := range 3 {
			first, _, _ := w.takeDue()
			again, _, _ := w.takeDue()
			if len(first) != 1 || len(again) != 0 {
				t.Errorf("round %d: it was taken %d times, and then %d", round, len(first), len(again))
			}
			w.state()
		}
	})
}

// TestMortalsModel: whatever is written and however the clock jumps, nothing is due before its time, and while the clock is
// right nothing is late.
func TestMortalsModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
			jumps := seed%2 == 1
			w := newWorld(t)
			born, lives := map[string]time.Time{}, map[string]time.Duration{}
			for range 2000 {
				time.Sleep(upTo(20 * time.Second))
				key := fmt.Sprintf("%s%02d", pods, random.IntN(30))
				switch n := random.IntN(20); {
				case n == 0:
					w.state()
				case n == 1 && jumps:
					w.jump = upTo(48*time.Hour) - 24*time.Hour
				case n < 6 && w.objects[key] != nil:
					w.remove(key)
					delete(born, key)
					delete(lives, key)
				default:
					if w.objects[key] == nil {
						born[key] = time.Now()
					}
					if delete(lives, key); random.IntN(3) == 0 {
						w.put(key, "", "", "")
					} else {
						lives[key] = upTo(5 * time.Minute).Round(time.Second)
						w.put(key, ttl(lives[key].String()), "", "")
					}
				}
				keys, _, _ := w.takeDue()
				for _, key := range keys {
					if life, ok := lives[key]; !ok || time.Since(born[key]) < life {
						t.Errorf("%s is due after %v, and lives %v", key, time.Since(born[key]), life)
					}
				}
				for key, life := range lives {
					if age := time.Since(born[key]); age < life && !jumps {
						continue
					}
					rev, due := w.deadlines.due(key)
					if due && rev != w.objects[key].Revision {
						t.Errorf("%s is due at %d, want %d", key, rev, w.objects[key].Revision)
					}
					if !due && !jumps && time.Since(born[key]) > life+stampGrain {
						t.Errorf("%s isn't due after %v, and lives %v", key, time.Since(born[key]), life)
					}
				}
				for key := range lives {
					if _, due := w.deadlines.due(key); due {
						w.remove(key)
						delete(born, key)
						delete(lives, key)
					}
				}
			}
			if len(w.deadlines.known) != len(lives) || len(w.deadlines.order) > len(lives) {
				t.Errorf("%d objects are known and %d in order, want %d", len(w.deadlines.known), len(w.deadlines.order), len(lives))
			}
		})
	}
}

// BenchmarkMortals is what an object costs that expires, and one that doesn't.
func BenchmarkMortals(b *testing.B) {
	object := func(i int, metadata string) *cacher.Event {
		key := fmt.Sprintf("%sns/object-%08d", pods, i)
		raw := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"X","metadata":{%s"creationTimestamp":"2026-01-01T00:00:00Z"}}`, metadata)
		return &cacher.Event{Prefix: pods, Revision: 1, Cur: kube.NewObject(key, raw, 1)}
	}
	b.Run("memory", func(b *testing.B) {
		const n = 100_000
		all := make([]*cacher.Event, n)
		for i := range all {
			all[i] = object(i, ttl("1h"))
		}
		for b.Loop() {
			m := newDeadlines(time.Now, nil)
			m.begin(true, nil)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for _, e := range all {
				m.observe(e)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/object")
			runtime.KeepAlive(&m)
		}
	})
	for name, metadata := range map[string]string{"expires": ttl("1h"), "doesn't": `"annotations":{"a":"b"},`} {
		b.Run(name, func(b *testing.B) {
			m := newDeadlines(time.Now, nil)
			m.begin(true, nil)
			e := object(1, metadata)
			b.ReportAllocs()
			for b.Loop() {
				e.Cur.Revision++
				m.observe(e)
			}
		})
	}
}

// TestMortalsDueTogether: however many objects are due at once, each is taken once, in bounded pieces.
func TestMortalsDueTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const objects = 3*dueAtOnce + 1
		for i := range objects {
			w.put(fmt.Sprintf("%s%03d", pods, i), ttl("1s"), "", "")
		}
		time.Sleep(time.Second)
		taken := map[string]bool{}
		for range 4 {
			keys, next, any := w.takeDue()
			for _, key := range keys {
				taken[key] = true
			}
			if last := len(taken) == objects; len(keys) > dueAtOnce || next != 0 || any == last {
				t.Fatalf("took %d, %d in all; the next in %v, %v", len(keys), len(taken), next, any)
			}
		}
		if len(taken) != objects {
			t.Errorf("took %d of %d", len(taken), objects)
		}
	})
}
