package watchstream_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// fake is what ours and apimachinery's have in common, for objects that are numbers.
type fake interface {
	do(what string, n int)
	next() (string, bool) // the next event, and whether there is one; it waits
}

type ourFake struct{ *watchstream.Fake[int] }

func (f ourFake) do(what string, n int) {
	switch what {
	case "add":
		f.Add(&n)
	case "modify":
		f.Modify(&n)
	case "delete":
		f.Delete(&n)
	case "action":
		f.Action(watchstream.Event[int]{Type: watchstream.Bookmark, Object: &n})
	case "stop":
		f.Stop()
	case "reset":
		f.Reset()
	}
}

func (f ourFake) next() (string, bool) {
	for event := range f.Events() {
		return fmt.Sprint(event.Type, " ", *event.Object), true
	}
	return "", false
}

type theirFake struct {
	watch.Interface
	w interface {
		Add(obj runtime.Object)
		Modify(obj runtime.Object)
		Delete(obj runtime.Object)
		Action(action watch.EventType, obj runtime.Object)
		Reset()
	}
}

func (f theirFake) do(what string, n int) {
	switch what {
	case "add":
		f.w.Add(number(n))
	case "modify":
		f.w.Modify(number(n))
	case "delete":
		f.w.Delete(number(n))
	case "action":
		f.w.Action(watch.Bookmark, number(n))
	case "stop":
		f.Stop()
	case "reset":
		f.w.Reset()
	}
}

func (f theirFake) next() (string, bool) {
	event, ok := <-f.ResultChan()
	if !ok {
		return "", false
	}
	return fmt.Sprint(event.Type, " ", event.Object.(interface{ GetName() string }).GetName()), true
}

// playFake does what a script says: in one goroutine; "next" reads in another, so that it may wait.
func playFake(f fake, script string) (transcript []string) {
	for line := range strings.SplitSeq(script, "; ") {
		outcome := make(chan string, 1)
		go func() {
			var what string
			var n int
			fmt.Sscan(line, &what, &n)
			if what != "next" {
				f.do(what, n)
				outcome <- "done"
			} else if event, ok := f.next(); ok {
				outcome <- event
			} else {
				outcome <- "closed"
			}
		}()
		synctest.Wait()
		select {
		case came := <-outcome:
			transcript = append(transcript, line+": "+came)
		default:
			transcript = append(transcript, line+": waits")
		}
	}
	return transcript
}

// TestFakes: ours do what apimachinery's do, where those neither panic nor race.
func TestFakes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		free   bool // the race-free one
		script string
		want   string
	}{
		{"one waits for its reader", false, "add 1; next; next; modify 2; stop; next", "add 1: waits"},
		{"all types", false, "add 1; next; modify 2; next; delete 3; next; action 4; next; stop", "next: BOOKMARK 4"},
		{"stop twice", false, "stop; stop; next", "next: closed"},
		{"anew", false, "stop; next; reset; add 1; next; stop; next", "next: ADDED 1"},
		{"one queues", true, "add 1; modify 2; delete 3; next; next; next; stop; next", "add 1: done"},
		{"what is queued is given after stop", true, "add 1; action 2; stop; next; next; next", "next: BOOKMARK 2"},
		{"nothing comes after stop", true, "stop; add 1; modify 2; delete 3; action 4; next", "next: closed"},
		{"anew, and queues", true, "add 1; stop; reset; add 2; next; stop; next", "next: ADDED 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got, want []string
			synctest.Test(t, func(t *testing.T) {
				f := watchstream.NewFake[int]()
				if tt.free {
					f = watchstream.NewRaceFreeFake[int]()
				}
				got = playFake(ourFake{f}, tt.script)
			})
			synctest.Test(t, func(t *testing.T) {
				if tt.free {
					f := watch.NewRaceFreeFake()
					want = playFake(theirFake{f, f}, tt.script)
				} else {
					f := watch.NewFake()
					want = playFake(theirFake{f, f}, tt.script)
				}
			})
			if !slices.Equal(got, want) || !slices.Contains(got, tt.want) {
				t.Errorf("ours:\n%s\ntheirs:\n%s\nwith %q", strings.Join(got, "\n"), strings.Join(want, "\n"), tt.want)
			}
		})
	}
}

// TestFakeAfterStop: what apimachinery's first fake panics at has no effect on ours, and frees those who wait.
func TestFakeAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := watchstream.NewFake[int]()
		n, waited := 1, false
		go func() {
			f.Add(&n)
			waited = true
		}()
		synctest.Wait()
		f.Stop()
		synctest.Wait()
		f.Add(&n)
		f.Error(errors.New("x"))
		for event := range f.Events() {
			t.Errorf("after stop comes %v", event)
		}
		if !waited || !f.Stopped() {
			t.Errorf("Add returned: %v; stopped: %v", waited, f.Stopped())
		}
	})
	many := watchstream.NewRaceFreeFake[int]()
	for i := range 1000 { // apimachinery's panics at 101
		many.Add(&i)
	}
	wrong := errors.New("wrong")
	many.Error(wrong)
	many.Add(new(int))
	count, ended := 0, error(nil)
	for _, err := range many.Events() {
		if ended = err; err == nil {
			count++
		}
	}
	if count != 1000 || ended != wrong {
		t.Errorf("%d events, then %v", count, ended)
	}
}

// TestFilterAndRecorder: like apimachinery's, for the same events.
func TestFilterAndRecorder(t *testing.T) {
	ours, theirs := watchstream.NewRaceFreeFake[int](), watch.NewRaceFreeFake()
	for n := range 6 {
		ours.Add(&n)
		theirs.Add(number(n))
	}
	ours.Stop()
	theirs.Stop()
	var got, want []string
	var recorder watchstream.Recorder[int]
	even := watchstream.Filter(ours.Events(), func(e watchstream.Event[int]) (watchstream.Event[int], bool) {
		e.Type = watchstream.Modified
		return e, *e.Object%2 == 0
	})
	for event := range recorder.Record(even) {
		got = append(got, fmt.Sprint(event.Type, " ", *event.Object))
	}
	w := watch.NewRecorder(watch.Filter(theirs, func(e watch.Event) (watch.Event, bool) {
		e.Type = watch.Modified
		n := e.Object.(interface{ GetName() string }).GetName()
		return e, n == "0" || n == "2" || n == "4"
	}))
	for event := range w.ResultChan() {
		want = append(want, fmt.Sprint(event.Type, " ", event.Object.(interface{ GetName() string }).GetName()))
	}
	if !slices.Equal(got, want) || len(recorder.Events()) != len(w.Events()) {
		t.Errorf("ours gave %q and kept %d, theirs gave %q and kept %d", got, len(recorder.Events()), want, len(w.Events()))
	}
	if recorder.Count(watchstream.Modified) != 3 || recorder.Count(watchstream.Added) != 0 || recorder.Count(watchstream.Error) != 0 {
		t.Error("the counts are wrong")
	}
	wrong := errors.New("wrong")
	failing := func(yield func(watchstream.Event[int], error) bool) { yield(watchstream.Event[int]{}, wrong) }
	for _, err := range recorder.Record(watchstream.Filter(failing, nil)) {
		if err != wrong {
			t.Errorf("the error comes as %v", err)
		}
	}
	if recorder.Count(watchstream.Error) != 1 {
		t.Error("the error isn't counted")
	}
}

// TestZeroFake: the zero Fake queues what is given before anybody reads, and ends.
func TestZeroFake(t *testing.T) {
	var f watchstream.Fake[int]
	n := 1
	f.Add(&n)
	f.Stop()
	var got []string
	for event, err := range f.Events() {
		got = append(got, fmt.Sprint(event.Type, " ", *event.Object, " ", err))
	}
	if want := []string{"ADDED 1 <nil>"}; !slices.Equal(got, want) || !f.Stopped() {
		t.Errorf("got %q, want %q", got, want)
	}
}
