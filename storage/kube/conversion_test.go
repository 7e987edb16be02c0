package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestPrepareApart: different objects are converted at the same time, and one object once: whoever asks for it meanwhile waits
// for the one call, and gets what came of it.
func TestPrepareApart(t *testing.T) {
	const readers = 8
	object := func(i int) *Object {
		name := fmt.Sprint("w", i)
		return NewObject("/registry/example.com/widgets/ns1/"+name, widget(name, ""), storage.Revision(i+1))
	}
	var calls atomic.Int64
	entered, release := make(chan struct{}), make(chan struct{})
	refused := errors.New("the webhook is broken")
	c := &Conversion{
		Needed: func(*Object) bool { return true },
		Convert: func(_ context.Context, objects []*Object) ([][]byte, error) {
			calls.Add(1)
			select {
			case entered <- struct{}{}:
				<-release
			case <-release:
			}
			if objects[0].Revision == 1 {
				return nil, refused
			}
			return [][]byte{[]byte(`{"converted":true}`)}, nil
		},
	}
	view := &View{Conversion: c}
	var group sync.WaitGroup
	for i := range readers {
		o := object(i)
		for range 3 {
			group.Go(func() {
				shown, err := view.Shown(t.Context(), o)
				if o.Revision == 1 && err != refused || o.Revision > 1 && (err != nil || string(shown.Raw()) != `{"converted":true}`) {
					t.Errorf("object %d is shown as %v, %v", o.Revision, shown, err)
				}
			})
		}
	}
	for range readers { // all are under way at once
		<-entered
	}

	close(release)
	group.Wait()
	if n := calls.Load(); n < readers || n > readers+2 { // a late reader of the broken one asks again
		t.Errorf("the webhook was called %d times for %d objects", n, readers)
	}
}

// TestConvertedAreCounted: what conversions made counts once for all readers, and until nobody has it any more.
func TestConvertedAreCounted(t *testing.T) {
	var c Conversions
	view := &View{APIVersion: "example.com/v2", Kind: "Widget"}
	view.Conversion = c.New(1, func(*Object) bool { return true }, func(_ context.Context, objects []*Object) ([][]byte, error) {
		return [][]byte{bytes.Clone(objects[0].Raw())}, nil
	})
	o := NewObject("/registry/example.com/widgets/a", []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`), 1)
	for range 2 {
		if _, err := view.Shown(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if n, size := c.Made(); n != 1 || size != convertedOverhead+int64(len(o.Raw())) {
		t.Errorf("%d objects of %d bytes count", n, size)
	}
	runtime.KeepAlive(o)
	for end := time.Now().Add(time.Minute); c.objects.Load() != 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("a result still counts that nobody has")
		}
	}
	if size := c.bytes.Load(); size != 0 {
		t.Errorf("%d bytes count of no object", size)
	}
}

// TestConvertedAreForgotten: beyond the bound what nobody has asked for since is forgotten first, and made again for who asks.
func TestConvertedAreForgotten(t *testing.T) {
	const objects, fit = 20, 10
	made := map[string]int{}
	object := func(i int) *Object {
		name := fmt.Sprintf("w%02d", i)
		return NewObject("/registry/example.com/widgets/ns1/"+name, widget(name, ""), storage.Revision(i+1))
	}
	var all []*Object
	for i := range objects {
		all = append(all, object(i))
	}
	cs := Conversions{Most: fit * (convertedOverhead + int64(len(all[0].raw)))}
	v := &View{Conversion: cs.New(1, func(*Object) bool { return true }, func(_ context.Context, objects []*Object) ([][]byte, error) {
		made[objects[0].Name()]++
		return [][]byte{bytes.Clone(objects[0].Raw())}, nil
	})}
	for _, o := range all {
		for _, asked := range []*Object{o, all[0]} { // the first one all the time
			if _, err := v.Shown(t.Context(), asked); err != nil {
				t.Fatal(err)
			}
		}
		if cs.held > cs.Most || len(cs.remembered) > fit {
			t.Fatalf("%d objects of %d bytes are remembered, of at most %d", len(cs.remembered), cs.held, cs.Most)
		}
	}
	remembered := 0
	for _, o := range all {
		if v.Found(o) != nil {
			remembered++
		}
	}
	if remembered != fit || made["w00"] != 1 {
		t.Errorf("%d are remembered, and what was asked for was made %d times", remembered, made["w00"])
	}
	if _, err := v.Shown(t.Context(), all[1]); err != nil || made["w01"] != 2 {
		t.Errorf("what was forgotten was made %d times: %v", made["w01"], err)
	}
}

// TestNoConversionIsKept: what conversions remember keeps none of them alive, nor the definition that it's made from.
func TestNoConversionIsKept(t *testing.T) {
	var cs Conversions
	gone := make(chan struct{})
	func() {
		c := cs.New(1, func(*Object) bool { return true }, func(context.Context, []*Object) ([][]byte, error) {
			return [][]byte{[]byte(`{"converted":true}`)}, nil
		})
		runtime.AddCleanup(c, func(gone chan struct{}) { close(gone) }, gone)
		o := NewObject("/registry/example.com/widgets/ns1/w", widget("w", ""), 1)
		if _, err := (&View{Conversion: c}).Shown(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}()
	for end := time.Now().Add(10 * time.Second); ; runtime.GC() {
		select {
		case <-gone:
			runtime.KeepAlive(&cs)
			return
		default:
		}
		if time.Now().After(end) {
			t.Fatal("a conversion is still in memory, of an object that is gone")
		}
	}
}
