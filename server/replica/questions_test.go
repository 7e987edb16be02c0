package replica

import (
	"context"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// opened returns a store, and a context for what a test does with it.
func opened(t *testing.T) (context.Context, *etcd.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	store, err := etcd.Open(ctx, etcd.Options{Ephemeral: true, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return ctx, store
}

// TestQuestionsAfterReconnect: whoever looks for questions again begins with those that have no answer yet, and goes on with
// those that come; one that is being answered isn't begun again.
func TestQuestionsAfterReconnect(t *testing.T) {
	ctx, store := opened(t)
	put := func(key string) {
		t.Helper()
		if _, err := store.Client.Put(ctx, key, "{}"); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{askPrefix + "1", answerPrefix + "1", askPrefix + "2"} {
		put(key)
	}
	r := &Replica{options: Options{Client: store.Client}}
	var answering underWay
	for _, want := range [][]string{{"2", "3"}, {"3", "4"}} { // 2 is being answered, and 3 was given up
		var got []string
		looking, stop := context.WithCancel(ctx)
		last := want[len(want)-1]
		err := r.eachAsked(looking, func(q storedQuestion) {
			if !answering.begin(q.id) {
				return
			}
			got = append(got, q.id)
			if len(got) == 1 {
				put(askPrefix + last)
			}
			if q.id == last {
				answering.end(q.id)
				stop()
			}
		})
		stop()
		if err == nil || !slices.Equal(got, want) {
			t.Errorf("began with %q, want %q, %v", got, want, err)
		}
	}
}

// lateWatcher puts a key before it watches, and then has no watch.
type lateWatcher struct {
	clientv3.Watcher
	put func(watched string)
}

func (w lateWatcher) Watch(_ context.Context, key string, _ ...clientv3.OpOption) clientv3.WatchChan {
	w.put(key)
	refused := make(chan clientv3.WatchResponse, 1)
	refused <- clientv3.WatchResponse{Canceled: true, CompactRevision: 1}
	close(refused)
	return refused
}

// TestAnswerWithoutWatch: who asks looks for the answer where the watch for it can't be had.
func TestAnswerWithoutWatch(t *testing.T) {
	ctx, store := opened(t)
	client := clientv3.NewCtxClient(ctx)
	client.KV, client.Lease = store.Client.KV, store.Client.Lease
	client.Watcher = lateWatcher{store.Client.Watcher, func(watched string) {
		if _, err := store.Client.Put(ctx, watched, `{"Overdue":true}`); err != nil {
			t.Error(err)
		}
	}}
	r := &Replica{options: Options{Client: client}}
	if a, err := r.ask(ctx, 1); err != nil || !a.Overdue {
		t.Errorf("the answer is %+v, %v", a, err)
	}
}
