package cacher

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// encoder counts how often an object's message is made. The message is metadata with the name.
type encoder struct {
	made atomic.Int64
	fail error
}

func (e *encoder) view() *kube.View {
	v := &kube.View{APIVersion: "example.com/v1", Kind: "Widget"}
	return v.Protobuf(&kube.Encoding{Encode: func(o *kube.Object) ([]byte, error) {
		e.made.Add(1)
		if e.fail != nil {
			return nil, e.fail
		}
		partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.Name(), Annotations: map[string]string{"text": strings.Repeat("x", 1000)}}}
		return partial.Marshal()
	}})
}

// message reads what a view shows of an object.
func message(t *testing.T, v *kube.View, o *kube.Object) {
	t.Helper()
	m, err := v.Message(o)
	if err != nil {
		t.Fatal(err)
	}
	var got metav1.PartialObjectMetadata
	if err := got.Unmarshal(m.Append(nil, int64(o.Revision))); err != nil || got.Name != o.Name() || got.ResourceVersion != o.Revision.String() {
		t.Fatalf("the message is of %s at %s, %v; want %s at %d", got.Name, got.ResourceVersion, err, o.Name(), o.Revision)
	}
}

// TestMessagesAreKept: a message is made once for as long as its object is in the tree, and counted as long.
func TestMessagesAreKept(t *testing.T) {
	b, e := newBench(defaultBounds), &encoder{}
	v, other := e.view(), e.view()
	kept := func() int64 { return b.cacher.Usage().MessageBytes }
	show := func(name string, want int64, views ...*kube.View) *kube.Object {
		t.Helper()
		o := b.Get(string(widgets) + "ns1/" + name)
		for range 3 {
			for _, v := range views {
				message(t, v, o)
			}
		}
		if n := e.made.Swap(0); n != want {
			t.Errorf("%d messages were made of %s, want %d", n, name, want)
		}
		return o
	}
	b.put(widgetNamed("a", "front"))
	old := show("a", 2, v, other)
	both := kept()
	if both < 2000 || both > 3000 {
		t.Errorf("two messages count %d bytes", both)
	}
	b.put(widgetNamed("a", "back"))
	if n := kept(); n != 0 {
		t.Errorf("%d bytes count after the object was replaced", n)
	}
	message(t, v, old)
	message(t, v, old)
	if n := e.made.Swap(0); n != 2 || kept() != 0 {
		t.Errorf("%d messages were made of a replaced object, and %d bytes count; want 2 and none", n, kept())
	}
	show("a", 2, v, other)
	b.SetFields([]string{"spec.color"}) // other objects take the place of those that there are
	if kept() != 0 {
		t.Errorf("%d bytes count after the objects carry other fields", kept())
	}
	show("a", 2, v, other)
	if kept() != both {
		t.Errorf("%d bytes count, want %d", kept(), both)
	}
	b.install(b.prepare([]listed{{kube.NewObject(string(widgets)+"ns1/b", widget("b", ""), b.rev), false}}), b.rev, nil)
	if kept() != 0 {
		t.Errorf("%d bytes count after the feed listed anew", kept())
	}
	show("b", 1, v)
	b.remove(string(widgets) + "ns1/b")
	if kept() != 0 {
		t.Errorf("%d bytes count after the deletion", kept())
	}
}

// TestMessagesBeyondTheBound: what has no room is made for each reader.
func TestMessagesBeyondTheBound(t *testing.T) {
	bounds := defaultBounds
	bounds.messageBytes = 3000
	b, e := newBench(bounds), &encoder{}
	v := e.view()
	for i := range 5 {
		b.put(widgetNamed(fmt.Sprint("w", i), "front"))
	}
	for range 2 {
		for o := range b.Snapshot().In(storage.Range{Prefix: string(widgets)}) {
			message(t, v, o)
		}
	}
	if n, kept := e.made.Load(), b.cacher.Usage().MessageBytes; n != 2+3*2 || kept > bounds.messageBytes {
		t.Errorf("%d messages were made and %d bytes are kept, want 8 and at most %d", n, kept, bounds.messageBytes)
	}
}

// TestMessagesComeAndGo: readers and the feed at once lose no byte of the count.
func TestMessagesComeAndGo(t *testing.T) {
	b, e := newBench(defaultBounds), &encoder{}
	views := []*kube.View{e.view(), e.view()}
	var readers sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for o := range b.Snapshot().In(storage.Range{Prefix: string(widgets)}) {
					if _, err := views[i%2].Message(o); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range 2000 {
		b.put(widgetNamed(fmt.Sprint("w", i%10), "front"))
	}
	for i := range 10 {
		b.remove(string(widgets) + fmt.Sprint("ns1/w", i))
	}
	close(done)
	readers.Wait()
	if kept := b.cacher.Usage().MessageBytes; kept != 0 {
		t.Errorf("%d bytes count when all objects are gone", kept)
	}
}

// TestProtobufFrames: an event is encoded once for all its watchers, and a deletion has its own version.
func TestProtobufFrames(t *testing.T) {
	b, e := newBench(defaultBounds), &encoder{}
	v := e.view()
	var cursors []*Cursor
	for range 3 {
		b.mu.Lock()
		cursors = append(cursors, b.openLocked(WatchOptions{View: v, Start: StartNow}, (&WatchOptions{View: v}).groupKey(), nil))
		b.mu.Unlock()
	}
	b.put(widgetNamed("a", "front"))
	deleted := b.remove(string(widgets) + "ns1/a")
	for _, c := range cursors {
		defer c.Close()
		out, _, err := c.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for frame := range kubeproto.Frames(out) {
			var event metav1.WatchEvent
			if err := event.Unmarshal(frame); err != nil {
				t.Fatal(err)
			}
			envelope, err := kubeproto.Open(event.Object.Raw)
			if err != nil {
				t.Fatal(err)
			}
			var o metav1.PartialObjectMetadata
			if err := o.Unmarshal(envelope.Message); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %s %s at %s", event.Type, envelope.Kind, o.Name, o.ResourceVersion))
		}
		if want := fmt.Sprintf("ADDED Widget a at %d, DELETED Widget a at %d", deleted-1, deleted); strings.Join(got, ", ") != want {
			t.Errorf("got %q, want %s", got, want)
		}
	}
	if n := e.made.Load(); n != 2 {
		t.Errorf("%d messages were made of two events", n)
	}
}

// TestEncodingFails: what has no message ends a watch with an error that names the object, in its state and in its events.
func TestEncodingFails(t *testing.T) {
	broken := errors.New("no message")
	e := &encoder{fail: broken}
	v := e.view()
	for name, start := range map[string]Start{"event": StartNow, "state": StartState} {
		t.Run(name, func(t *testing.T) {
			b := newBench(defaultBounds)
			if start == StartState {
				b.put(widgetNamed("a", "front"))
			}
			b.mu.Lock()
			o := WatchOptions{View: v, Start: start}
			c := b.openLocked(o, o.groupKey(), nil)
			b.mu.Unlock()
			defer c.Close()
			b.put(widgetNamed("a", "back"))
			out, _, err := c.Next(t.Context(), []byte("before"))
			if !errors.Is(err, broken) || !strings.Contains(err.Error(), "ns1/a") || string(out) != "before" {
				t.Errorf("%q, %v", out, err)
			}
			var event metav1.WatchEvent
			if err := event.Unmarshal(c.AppendError(nil, err)[4:]); err != nil || event.Type != "ERROR" {
				t.Errorf("the client is told %s, %v", event.Type, err)
			}
		})
	}
}

// TestFirstAfterAnError: an event that couldn't be encoded wasn't given, so the view of the first event is still to come.
func TestFirstAfterAnError(t *testing.T) {
	b, broken := newBench(defaultBounds), errors.New("no message")
	fail := broken
	encode := func(o *kube.Object) ([]byte, error) {
		if o.Name() == "b" && fail != nil {
			return nil, fail
		}
		return (&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.Name()}}).Marshal()
	}
	next := func(c *Cursor) (kinds string) {
		t.Helper()
		out, _, err := c.Next(t.Context(), nil)
		if err != nil {
			return err.Error()
		}
		for frame := range kubeproto.Frames(out) {
			var event metav1.WatchEvent
			if err := event.Unmarshal(frame); err != nil {
				t.Fatal(err)
			}
			envelope, err := kubeproto.Open(event.Object.Raw)
			if err != nil {
				t.Fatal(err)
			}
			kinds += " " + envelope.Kind
		}
		return kinds
	}
	open := func(start Start) *Cursor {
		e := &kube.Encoding{Encode: encode} // one of its own, so that it makes each message itself
		v := (&kube.View{APIVersion: "example.com/v1", Kind: "Later"}).Protobuf(e)
		v.First = (&kube.View{APIVersion: "example.com/v1", Kind: "First"}).Protobuf(e)
		b.mu.Lock()
		defer b.mu.Unlock()
		o := WatchOptions{View: v, Start: start}
		return b.openLocked(o, o.groupKey(), nil)
	}
	live := open(StartNow)
	defer live.Close()
	b.put(widgetNamed("a", "front"), widgetNamed("b", "front"))
	state := open(StartState)
	defer state.Close()
	for name, c := range map[string]*Cursor{"live": live, "state": state} {
		fail = broken
		if got := next(c); !strings.Contains(got, broken.Error()) {
			t.Errorf("%s: Next gave %q, want an error", name, got)
		}
		fail = nil
		if got := next(c); got != " First Later" {
			t.Errorf("%s: after the error the views are%s, want First Later", name, got)
		}
	}
}
