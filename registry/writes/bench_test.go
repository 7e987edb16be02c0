package writes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// kilobyte is a widget of about a kilobyte.
func kilobyte(name, more string) []byte {
	var spec []string
	for i := range 20 {
		spec = append(spec, fmt.Sprintf(`"field%02d":{"name":"value-%02d","n":%d}`, i, i, i))
	}
	return []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","labels":{"app":"a","tier":"b"}` + more + `},"spec":{` + strings.Join(spec, ",") + `}}`)
}

// What a create costs before etcd: one decode, the rules, one encode.
func BenchmarkAdmitCreate(b *testing.B) {
	e := fuzzEndpoint()
	body := kilobyte("a", "")
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		w := fuzzWrite(e, metav1.FieldValidationWarn)
		o, err := w.read(body)
		if err != nil {
			b.Fatal(err)
		}
		if err := placeIn(o, "default"); err != nil {
			b.Fatal(err)
		}
		if _, _, err := w.finish(context.Background(), o, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// What an update costs before etcd: both objects are decoded.
func BenchmarkAdmitUpdate(b *testing.B) {
	e := fuzzEndpoint()
	w := fuzzWrite(e, metav1.FieldValidationWarn)
	o, err := w.read(kilobyte("a", `,"uid":"u","namespace":"default"`))
	if err != nil {
		b.Fatal(err)
	}
	raw, err := e.Encode(context.Background(), o)
	if err != nil {
		b.Fatal(err)
	}
	old := kube.NewObject(fuzzKey, raw, 7)
	body := kilobyte("a", `,"uid":"u","namespace":"default","resourceVersion":"7","annotations":{"x":"y"}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		in, err := w.read(body)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := nextOf(context.Background(), w, old, in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	s := start(b, "", registry.Options{})
	w := s.widgets()
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := w.Create(ctx, "default", nil, kilobyte(fmt.Sprintf("w%d", i), "")); err != nil {
			b.Fatal(err)
		}
	}
}

// Objects are created and deleted: by a client, by the server itself under the preconditions of a collector, and
// by a client in the foreground, after which the finalizer is taken away.
func BenchmarkCreateAndDelete(b *testing.B) {
	for _, c := range []struct {
		name   string
		delete func(ctx context.Context, w *client, name string) error
	}{
		{"client", func(ctx context.Context, w *client, name string) error {
			_, err := w.Delete(ctx, "default", name, nil, nil)
			return err
		}},
		{"own", func(ctx context.Context, w *client, name string) error {
			m, err := w.Current(ctx, "default", name)
			if err != nil {
				return err
			}
			_, _, err = w.Remove(ctx, Removal{Namespace: "default", Name: name, UID: m.UID, Propagation: metav1.DeletePropagationBackground})
			return err
		}},
		{"foreground", func(ctx context.Context, w *client, name string) error {
			if _, err := w.Delete(ctx, "default", name, params("propagationPolicy=Foreground"), nil); err != nil {
				return err
			}
			m, err := w.Current(ctx, "default", name)
			if err != nil {
				return err
			}
			_, err = w.Amend(ctx, "default", name, m.UID, func(m *metav1.ObjectMeta) error { m.Finalizers = nil; return nil })
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := start(b, "", registry.Options{})
			w := s.widgets()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				name := fmt.Sprintf("w%d", i)
				if _, err := w.Create(s.ctx, "default", nil, kilobyte(name, "")); err != nil {
					b.Fatal(err)
				}
				if err := c.delete(s.ctx, w, name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Many clients that change one object: together they should be as fast as one.
func BenchmarkPatchOneObject(b *testing.B) {
	for _, clients := range []int{1, 48} {
		b.Run(fmt.Sprint(clients, " clients"), func(b *testing.B) {
			s := start(b, "", registry.Options{})
			w := s.widgets()
			s.ok(w.Create(s.ctx, "default", nil, kilobyte("a", "")))
			var n atomic.Int64
			b.SetParallelism(max(1, clients/runtime.GOMAXPROCS(0)))
			b.ResetTimer()
			patch := func() {
				body := fmt.Appendf(nil, `{"spec":{"n":%d}}`, n.Add(1))
				if _, err := w.Patch(s.ctx, "default", "a", "", mergePatch, nil, body); err != nil {
					b.Error(err)
				}
			}
			if clients == 1 {
				for b.Loop() {
					patch()
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					patch()
				}
			})
		})
	}
}

// BenchmarkDefinition is a definition's create until it's served, beside so many others.
func BenchmarkDefinition(b *testing.B) {
	for _, others := range []int{0, many(2000)} {
		b.Run(fmt.Sprint(others, " others"), func(b *testing.B) {
			s := start(b, "", registry.Options{})
			crds := s.crds()
			create := func(plural string) {
				if _, err := crds.Create(b.Context(), "", nil, crdOf(b, plural, strings.ToUpper(plural[:1])+plural[1:])); err != nil {
					b.Fatal(err)
				}
			}
			for i := range others {
				create(fmt.Sprintf("others%d", i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				create(fmt.Sprintf("things%d", i))
			}
		})
	}
}

// many is how many objects a benchmark makes: a hundredth with -short, which only shows that it runs.
func many(n int) int {
	if testing.Short() {
		return n / 100
	}
	return n
}

// What kubectl get makes the server do for 5,000 objects of a kilobyte.
func BenchmarkTable(b *testing.B) {
	s := start(b, "", registry.Options{})
	w := s.gadgets(`
		{"name": "Name", "type": "string", "jsonPath": ".spec.field01.name"},
		{"name": "N", "type": "integer", "jsonPath": ".spec.field02.n"},
		{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
		{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}`)
	objects := many(5000)
	var work errgroup.Group
	work.SetLimit(64)
	for i := range objects {
		work.Go(func() error {
			body := strings.Replace(string(kilobyte(fmt.Sprintf("w%04d", i), "")), "Widget", "Gadget", 1)
			_, err := w.Create(s.ctx, "default", nil, []byte(body))
			return err
		})
	}
	if err := work.Wait(); err != nil {
		b.Fatal(err)
	}
	for _, f := range []form.Form{{}, {Kind: form.MetadataOnly, Version: "v1"}, {Kind: form.Table, Version: "v1"}} {
		b.Run(string(f.Kind), func(b *testing.B) {
			in := w.In(f)
			loopCPU(b, func() {
				list, err := in.List(context.Background(), "default", nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := list.Write(context.Background(), io.Discard); err != nil {
					b.Fatal(err)
				}
			})
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(objects), "us/object")
		})
	}
}

// BenchmarkList10k writes 10,000 objects of a kilobyte: what it allocates must not depend on how many they are.
func BenchmarkList10k(b *testing.B) {
	for _, n := range []int{100, many(10_000)} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := start(b, "", registry.Options{})
			w := s.widgets()
			s.fill(n, 1000, func(int) string { return "red" })
			benchmarkList(b, w, "", n)
		})
	}
}

// BenchmarkPages is a page of 500 objects, on the way through 20,000 and through 100,000: it must not depend on how many follow.
func BenchmarkPages(b *testing.B) {
	for _, n := range []int{many(20_000), many(100_000)} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := start(b, "", registry.Options{})
			w := s.widgets()
			s.fill(n, 300, func(int) string { return "red" })
			for token := ""; b.Loop(); {
				l, err := w.List(context.Background(), "", params("limit=500&continue="+token))
				if err != nil {
					b.Fatal(err)
				}
				var page bytes.Buffer
				if err := l.Write(context.Background(), &page); err != nil {
					b.Fatal(err)
				}
				_, after, _ := bytes.Cut(page.Bytes(), []byte(`"continue":"`))
				next, _, _ := bytes.Cut(after, []byte(`"`))
				token = string(next)
			}
		})
	}
}

// 10 of 100,000 objects.
func BenchmarkListBySelectableField(b *testing.B) {
	benchmarkSelected(b, "fieldSelector=spec.color=rare")
}

func BenchmarkListByLabel(b *testing.B) { benchmarkSelected(b, "labelSelector=color=rare") }

// BenchmarkListByAnyField is what a list costs whose field has an index because it was asked for often.
func BenchmarkListByAnyField(b *testing.B) {
	benchmarkSelected(b, "lite=true&fieldSelector=spec.color=rare")
}

// BenchmarkSortedList is the first page of 100,000 objects in the order of a field: of one that has an index because it was asked for often, and of
// a list that a selector keeps from it.
func BenchmarkSortedList(b *testing.B) {
	s := start(b, "", registry.Options{})
	w := s.widgets()
	s.fill(many(100_000), 1000, func(i int) string { return fmt.Sprint(i * 7919 % 100_003) })
	for _, limit := range []int{10, 500} {
		page := fmt.Sprintf("lite=true&limit=%d", limit)
		b.Run(fmt.Sprintf("indexed/limit=%d", limit), func(b *testing.B) { benchmarkList(b, w, page+"&sortBy=-spec.color", limit) })
		b.Run(fmt.Sprintf("scanned/limit=%d", limit), func(b *testing.B) {
			benchmarkList(b, w, page+"&sortBy=-spec.color&fieldSelector=metadata.uid=u", limit)
		})
	}
}

// BenchmarkListByOtherField is what a field selector costs that no index can answer.
func BenchmarkListByOtherField(b *testing.B) {
	benchmarkSelected(b, "fieldSelector=spec.color!=common")
}

func benchmarkSelected(b *testing.B, query string) {
	objects, every := many(100_000), many(10_000)
	s := start(b, "", registry.Options{})
	w := s.widgets()
	s.fill(objects, 1000, func(i int) string {
		if i%every == 0 {
			return "rare"
		}
		return "common"
	})
	for _, limit := range []string{"", "&limit=500"} {
		b.Run("objects=100000"+limit, func(b *testing.B) { benchmarkList(b, w, query+limit, objects/every) })
	}
}

func benchmarkList(b *testing.B, e *client, query string, want int) {
	q := params(query)
	var all strings.Builder
	l, err := e.List(context.Background(), "", q)
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Write(context.Background(), &all); err != nil {
		b.Fatal(err)
	}
	if got := strings.Count(all.String(), `"kind":"Widget"`); got != want {
		b.Fatalf("%d objects, want %d", got, want)
	}
	if _, err := e.List(context.Background(), "", q); err != nil { // the second in a minute may build an index
		b.Fatal(err)
	}
	b.SetBytes(int64(all.Len()))
	b.ReportAllocs()
	for b.Loop() {
		l, err := e.List(context.Background(), "", q)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Write(context.Background(), io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

// loopCPU calls op in the benchmark's loop. It reports the processor time of one, besides the time that passes, which
// means little on a machine that does other things.
func loopCPU(b *testing.B, op func()) {
	b.Helper()
	b.ReportAllocs()
	began := cpuTime(b)
	for b.Loop() {
		op()
	}
	b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(b.N), "cpu-us/op")
}

// cpuTime is the processor time that the process has taken.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
