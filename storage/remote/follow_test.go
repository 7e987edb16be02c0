package remote

import (
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestOwedAnswers: a watch begins again when it has owed an answer for too long, and not because it was idle.
func TestOwedAnswers(t *testing.T) {
	began := 0
	f := &follower{store: &Store{}, upTo: 5, news: make(chan struct{}, 1), again: func() { began++ }}
	opened := time.Now()
	idle := opened.Add(time.Hour)
	is := func(what string, at time.Time, want step, wantBegan int) {
		t.Helper()
		if _, got := f.next(6, at); got != want || began != wantBegan {
			t.Errorf("%s: step %d after %d new watches, want %d after %d", what, got, began, want, wantBegan)
		}
	}
	if _, got := f.next(5, idle); got != isThere {
		t.Errorf("the watch is where it's wanted: step %d", got)
	}
	is("no watch is open", idle, waitMore, 0)
	f.watcher = clientv3.NewWatchFromWatchClient(nil, nil)
	is("it was idle", idle, askProgress, 0)
	is("it owes an answer", idle.Add(silence), askProgress, 0)
	is("it owes one for too long", idle.Add(silence+1), waitMore, 1)
	answer := func(rev int64) {
		t.Helper()
		if err := f.receive(clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: rev}}); err != nil {
			t.Fatal(err)
		}
	}
	answer(5)
	is("it has answered as a member does that lags", idle.Add(2*silence), waitMore, 2)
	answer(6)
	later := idle.Add(time.Hour)
	if _, got := f.next(7, later); got != askProgress || began != 2 {
		t.Errorf("it came further, and was idle: step %d after %d new watches", got, began)
	}
}

// TestMemberThatLags: a member whose disk hangs answers each request for progress with the revision that it had. The watch begins
// again elsewhere.
func TestMemberThatLags(t *testing.T) {
	began := 0
	f := &follower{store: &Store{}, upTo: 10, taken: 10, news: make(chan struct{}, 1), again: func() { began++ }}
	f.watcher = clientv3.NewWatchFromWatchClient(nil, nil)
	now := time.Now()
	for asked := time.Duration(0); began == 0; asked += progressInterval {
		if asked > 2*silence {
			t.Fatalf("%v of answers at revision 10, and 20 wanted: the watch didn't begin again", asked)
		}
		f.next(20, now.Add(asked))
		if err := f.receive(clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: 10}}); err != nil {
			t.Fatal(err)
		}
	}
	f.owed = time.Time{} // as a new watch begins
	for i, rev := 0, int64(10); i < 100; i++ {
		f.next(1000, now.Add(time.Duration(i)*silence/2))
		rev++
		if err := f.receive(clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: rev}}); err != nil {
			t.Fatal(err)
		}
	}
	if began != 1 {
		t.Errorf("a watch that comes further began again %d times", began-1)
	}
}

// TestFollowerBounds: beyond either of its bounds the follower ends with ErrCompacted and keeps nothing, so that the feed lists
// anew.
func TestFollowerBounds(t *testing.T) {
	f := &follower{store: &Store{}, ctx: t.Context(), upTo: 5, taken: 5, news: make(chan struct{}, 1)}
	if err := f.lag(5 + maxLag); err != nil {
		t.Errorf("at maxLag: %v", err)
	}
	due := &look{done: make(chan struct{}), revision: 6 + maxLag}
	close(due.done)
	f.store.looks.next, f.store.looks.busy = due, true // nobody sends it
	if err := f.check(); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("beyond maxLag: %v", err)
	}
	fresh := &follower{store: &Store{}, upTo: 5, taken: 5, news: make(chan struct{}, 1)}
	fresh.store.known.revision = 10 * maxLag
	for range 2 {
		if err := fresh.lag(10 * maxLag); err != nil {
			t.Errorf("it was never there, since the list before it took that long: %v", err)
		}
		if err := fresh.receive(clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: 6}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := fresh.receive(clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: 10 * int64(maxLag)}}); err != nil {
		t.Fatal(err)
	}
	if err := fresh.lag(11*maxLag + 1); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("it was there, and fell behind: %v", err)
	}
	put := func(rev int64, bytes int) error {
		kv := &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, bytes), ModRevision: rev}
		return f.receive(clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: rev}, Events: []*clientv3.Event{{Kv: kv}}})
	}
	if err := put(6, maxTailBytes-1-int(changeBytes)); err != nil || f.waiting() != maxTailBytes {
		t.Errorf("at maxTailBytes: %d bytes wait, %v", f.waiting(), err)
	}
	if err := put(7, 0); !errors.Is(err, storage.ErrCompacted) || f.waiting() != 0 || f.upTo != f.taken {
		t.Errorf("beyond maxTailBytes: %d bytes wait, up to %d of %d, %v", f.waiting(), f.upTo, f.taken, err)
	}
}

// TestHeaderAheadOfEvents: a response's header may be of a later revision than its events are. The follower is where the events
// are, so that what comes between is still taken. A notification of progress moves it to the header.
func TestHeaderAheadOfEvents(t *testing.T) {
	f := &follower{store: &Store{}, upTo: 5, taken: 5, news: make(chan struct{}, 1)}
	receive := func(header int64, revisions ...int64) {
		t.Helper()
		res := clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: header}}
		for _, rev := range revisions {
			res.Events = append(res.Events, &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: rev}})
		}
		if err := f.receive(res); err != nil {
			t.Fatal(err)
		}
	}
	takes := func(upTo storage.Revision, revisions ...storage.Revision) {
		t.Helper()
		changes, got, err := f.take()
		if err != nil || got != upTo || len(changes) != len(revisions) {
			t.Fatalf("took %+v up to %d, want %d up to %d, %v", changes, got, revisions, upTo, err)
		}
		for i, c := range changes {
			if c.Revision != revisions[i] {
				t.Errorf("change %d has revision %d, want %d", i, c.Revision, revisions[i])
			}
		}
	}
	receive(10, 6)
	takes(6, 6)
	receive(10, 7, 9)
	takes(9, 7, 9)
	receive(12)
	takes(12)
}
