package watchstream_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// broadcaster is ours or apimachinery's, for events that are numbers.
type broadcaster interface {
	send(int) error
	trySend(int) (bool, error)
	receive(first ...int) (receiver, error)
	shutdown()
}

type receiver interface {
	take() string // what there is without waiting: a number, "nothing" or "closed"
	stop()
}

type ours struct{ *watchstream.Broadcaster[int] }

func (b ours) send(n int) error            { return b.Send(n) }
func (b ours) trySend(n int) (bool, error) { return b.TrySend(n) }
func (b ours) shutdown()                   { b.Shutdown() }

func (b ours) receive(first ...int) (receiver, error) {
	r, err := b.Receive(first...)
	return ourReceiver{r}, err
}

type ourReceiver struct{ *watchstream.Receiver[int] }

func (r ourReceiver) stop() { r.Stop() }

func (r ourReceiver) take() string {
	select {
	case n, ok := <-r.C:
		return taken(strconv.Itoa(n), ok)
	default:
		return "nothing"
	}
}

func taken(what string, ok bool) string {
	if !ok {
		return "closed"
	}
	return what
}

type theirs struct{ *watch.Broadcaster }

func number(n int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(strconv.Itoa(n))
	return u
}

func (b theirs) send(n int) error            { return b.Action(watch.Added, number(n)) }
func (b theirs) trySend(n int) (bool, error) { return b.ActionOrDrop(watch.Added, number(n)) }
func (b theirs) shutdown()                   { b.Shutdown() }

func (b theirs) receive(first ...int) (receiver, error) {
	if len(first) == 0 {
		w, err := b.Watch()
		return theirReceiver{w}, err
	}
	var events []watch.Event
	for _, n := range first {
		events = append(events, watch.Event{Type: watch.Added, Object: number(n)})
	}
	w, err := b.WatchWithPrefix(events)
	return theirReceiver{w}, err
}

type theirReceiver struct{ watch.Interface }

func (r theirReceiver) stop() { r.Stop() }

func (r theirReceiver) take() string {
	select {
	case event, ok := <-r.ResultChan():
		if !ok {
			return "closed"
		}
		return event.Object.(*unstructured.Unstructured).GetName()
	default:
		return "nothing"
	}
}

// play does what the lines of a script say, and returns what each came to: what isn't done when everybody waits is "waits".
func play(t *testing.T, b broadcaster, script string) (transcript []string) {
	var receivers []receiver
	for line := range strings.SplitSeq(script, "; ") {
		words := strings.Fields(line)
		var numbers []int
		for _, word := range words[1:] {
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, n)
		}
		outcome := make(chan string, 1)
		go func() {
			switch words[0] {
			case "send":
				outcome <- said(b.send(numbers[0]))
			case "sends": // so many at once
				err := error(nil)
				for n := range numbers[0] {
					err = errors.Join(err, b.send(n))
				}
				outcome <- said(err)
			case "try":
				sent, err := b.trySend(numbers[0])
				outcome <- fmt.Sprint(sent, " ", said(err))
			case "receive":
				r, err := b.receive(numbers...)
				if err == nil {
					receivers = append(receivers, r)
				}
				outcome <- said(err)
			case "take":
				outcome <- receivers[numbers[0]].take()
			case "stop":
				receivers[numbers[0]].stop()
				outcome <- "done"
			case "shutdown":
				b.shutdown()
				outcome <- "done"
			default:
				outcome <- "what is " + words[0]
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
	for progress := true; progress; synctest.Wait() { // lets all that waits go on
		progress = false
		for _, r := range receivers {
			for came := r.take(); came != "nothing" && came != "closed"; came = r.take() {
				progress = true
			}
		}
	}
	b.shutdown()
	return transcript
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}

// TestBroadcaster: ours does what apimachinery's does.
func TestBroadcaster(t *testing.T) {
	for _, tt := range []struct {
		name   string
		queue  int
		full   watchstream.Full
		script string
		want   string // what some step must come to, so that the comparison isn't of nothing
	}{
		{"to all, in order", 3, watchstream.WaitIfFull, "receive; receive; send 1; send 2; take 0; take 0; take 0; take 1; take 1; take 1", "take 1: 2"},
		{"not what was sent before", 3, watchstream.WaitIfFull, "send 1; receive; send 2; take 0; take 0", "take 0: 2"},
		{"nobody", 1, watchstream.WaitIfFull, "send 1; send 2; send 3; try 4; shutdown", "try 4: true done"},
		{"what comes first", 1, watchstream.WaitIfFull, "receive 7 8 9; send 1; take 0; take 0; take 0; take 0; take 0", "take 0: 1"},
		{"full, and waits", 1, watchstream.WaitIfFull, "receive; receive; sends 30; take 0; take 1; take 0; take 1; take 0; take 1", "sends 30: waits"},
		{"full, and drops", 1, watchstream.DropIfFull, "receive; sends 30; take 0; take 0; send 77; take 0", "take 0: 77"},
		{"no queue, and drops", 0, watchstream.DropIfFull, "receive; send 1; take 0", "take 0: nothing"},
		{"try when full", 1, watchstream.WaitIfFull, "receive; sends 27; try 99; take 0; try 100; try 101", "try 99: false done"},
		{"stop frees the broadcaster", 1, watchstream.WaitIfFull, "receive; sends 3; stop 0; take 0; take 0; receive; send 9; take 1; take 1", "take 1: 9"},
		{"stop twice", 1, watchstream.WaitIfFull, "receive; stop 0; stop 0; take 0; send 1", "take 0: closed"},
		{"shutdown keeps what is queued", 3, watchstream.WaitIfFull, "receive; send 1; send 2; shutdown; take 0; take 0; take 0; stop 0", "take 0: closed"},
		{"shutdown waits for a full one", 1, watchstream.WaitIfFull, "receive; sends 3; shutdown; take 0; take 0; take 0; take 0", "shutdown: waits"},
		{"after shutdown", 1, watchstream.WaitIfFull, "shutdown; send 1; try 1; receive; receive 1", "try 1: false broadcaster already stopped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got, want []string
			synctest.Test(t, func(t *testing.T) {
				got = play(t, ours{watchstream.NewBroadcaster[int](tt.queue, tt.full)}, tt.script)
			})
			synctest.Test(t, func(t *testing.T) {
				full := watch.WaitIfChannelFull
				if tt.full == watchstream.DropIfFull {
					full = watch.DropIfChannelFull
				}
				want = play(t, theirs{watch.NewBroadcaster(tt.queue, full)}, tt.script)
			})
			if !slices.Equal(got, want) || !slices.Contains(got, tt.want) {
				t.Errorf("ours:\n%s\ntheirs:\n%s\nwith %q", strings.Join(got, "\n"), strings.Join(want, "\n"), tt.want)
			}
		})
	}
}

// TestBroadcasterWaits: a Send that waits for a full receiver keeps nobody else waiting, and Shutdown ends its wait.
func TestBroadcasterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watchstream.NewBroadcaster[int](1, watchstream.WaitIfFull)
		r, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		const room = 27 // in the receiver's queue, in the distributor's hand, and in the incoming queue
		for n := range room {
			if err := b.Send(n); err != nil {
				t.Fatal(err)
			}
		}
		late := make(chan error, 1)
		go func() { late <- b.Send(room) }()
		synctest.Wait()
		tried := make(chan string, 1)
		go func() {
			sent, err := b.TrySend(99)
			tried <- fmt.Sprint(sent, " ", err)
		}()
		synctest.Wait()
		select {
		case got := <-tried:
			if got != "false <nil>" {
				t.Errorf("TrySend while a Send waits: %s", got)
			}
		default:
			t.Error("TrySend waits while a Send waits")
		}
		down := make(chan struct{})
		go func() {
			defer close(down)
			b.Shutdown()
		}()
		synctest.Wait()
		select {
		case err := <-late:
			if !errors.Is(err, watchstream.ErrStopped) {
				t.Errorf("a Send that waited at Shutdown: %v", err)
			}
		default:
			t.Error("a Send waits after Shutdown")
		}
		for want := range room { // what was sent before is given all the same
			if n := <-r.C; n != want {
				t.Errorf("%d came, want %d", n, want)
			}
		}
		if n, open := <-r.C; open {
			t.Errorf("%d came after Shutdown", n)
		}
		<-down
	})
}
