package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// writeTimeout bounds a transaction, as a member's requests are bounded: whoever was caught by the death of etcd's leader is told
// within three seconds. etcd itself leaves a transaction that was forwarded to that leader hanging for seven, and a member that
// is stopped never answers. With etcd's own settings a new leader is there after one to two seconds, and a transaction that
// waited for it is answered at once; one that takes longer was lost, or has a cluster whose disks are too slow for it.
const writeTimeout = 2500 * time.Millisecond

// bounded has transactions end after writeTimeout, with storage.ErrUnavailable: what was asked for may have happened.
func bounded(ctx context.Context, c kv.Call) error {
	if !c.Txn {
		return c.Send(ctx)
	}
	within, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := c.Send(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return fmt.Errorf("%w: etcd didn't answer a write within %v", storage.ErrUnavailable, writeTimeout)
	}
	return err
}

// unlessGone doesn't send transactions while etcd is known not to answer.
func (s *Store) unlessGone(ctx context.Context, c kv.Call) error {
	if c.Txn {
		if err := s.known.silent(); err != nil {
			return err
		}
	}
	return c.Send(ctx)
}
