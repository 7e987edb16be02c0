package migrate

import (
	"context"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// raiseKey is written again and again to raise a cluster's revision, as each transaction raises it by one.
const raiseKey = storage.MigrationKey + "-raise"

// raiseWriters is how many such writes are under way at once: etcd then syncs some of them together.
const raiseWriters = 64

// raiseByWrites returns what raises a cluster's revision. An interrupted one goes on from the revision that is reached.
func raiseByWrites(target store, out io.Writer) func(ctx context.Context, from, to storage.Revision) error {
	return func(ctx context.Context, from, to storage.Revision) error {
		fmt.Fprintf(out, "raising the revision from %d to %d\n", from, to)
		work, ctx := errgroup.WithContext(ctx)
		work.SetLimit(raiseWriters)
		reported := time.Now()
		for n := from; n < to && ctx.Err() == nil; n++ {
			work.Go(func() error {
				ctx, cancel := context.WithTimeout(ctx, requestTimeout)
				defer cancel()
				_, err := target.client.Do(ctx, clientv3.OpPut(raiseKey, ""))
				return err
			})
			if time.Since(reported) > reportInterval {
				reported = time.Now()
				fmt.Fprintf(out, "revision %d of %d\n", n, to)
			}
		}
		return work.Wait()
	}
}
