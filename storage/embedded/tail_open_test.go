package embedded

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// refusing is an etcd whose watch streams take no watch, as those of one that is stopping.
type refusing struct {
	mvcc.WatchStream
	closed int
}

func (r *refusing) NewWatchStream() mvcc.WatchStream { return r }

func (r *refusing) Chan() <-chan mvcc.WatchResponse { return nil }

func (r *refusing) Watch(context.Context, mvcc.WatchID, []byte, []byte, int64, ...mvcc.FilterFunc) (mvcc.WatchID, error) {
	return 0, errors.New("no watch")
}

func (r *refusing) Close() { r.closed++ }

// TestTailOpenFails: a tail that can't watch closes the stream that it opened, once.
func TestTailOpenFails(t *testing.T) {
	etcd, tail := &refusing{}, tail{}
	if err := tail.open(etcd, func() storage.Revision { return 1 }); err == nil {
		t.Fatal("the tail was opened")
	}
	if etcd.closed != 1 {
		t.Errorf("the stream was closed %d times, want once", etcd.closed)
	}
	if tail.close(); etcd.closed != 1 {
		t.Errorf("the stream was closed again")
	}
}
