//go:build soak

package embedded_test

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// TestAnswersDuringSnapshot: a member that lags gets another one's database of 300 MiB. While etcd takes that for its own, it
// holds the locks around its database. Health and figures are answered all the same, and a barrier ends with its context.
//
// It's run with go test -tags soak ./storage/embedded -run TestAnswersDuringSnapshot.
func TestAnswersDuringSnapshot(t *testing.T) {
	const ballast = 300 << 20
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	all := startMembers(t, 3)
	lead, cut := leaderAndOther(all)
	writer, reader := storeOf(t, lead), storeOf(t, cut)
	again(ctx, t, func() error {
		_, err := reader.Barrier(ctx)
		return err
	})
	for _, s := range all { // whoever leads in the end
		if s != cut {
			fill(s.Local.Backend(), ballast)
			s.Local.CutPeer(cut.Local.MemberID())
		}
	}
	last := writeMany(ctx, t, writer)
	for _, s := range all {
		if s != cut {
			s.Local.MendPeer(cut.Local.MemberID())
		}
	}
	answered, ended := 0, 0
	for taken := false; !taken; taken = cut.Stats().DatabaseBytes >= ballast && !applying() {
		if ctx.Err() != nil {
			t.Fatal("the member got no snapshot")
		}
		if !applying() {
			time.Sleep(time.Millisecond) // a poll
			continue
		}
		_ = cut.Health() // whatever it says
		cut.Stats()
		if applying() {
			answered++
		}
		short, end := context.WithTimeout(ctx, time.Millisecond)
		if _, err := reader.Barrier(short); errors.Is(err, context.DeadlineExceeded) && applying() {
			ended++
		}
		end()
	}
	t.Logf("%d times health and figures were answered, and %d barriers ended, while the snapshot was applied", answered, ended)
	if answered == 0 || ended == 0 {
		t.Error("something waited for the snapshot, or it was applied too soon for this test")
	}
	again(ctx, t, func() error {
		at, err := reader.Barrier(ctx)
		if err == nil && at < last {
			t.Fatalf("the barrier is at %d; %d was acknowledged", at, last)
		}
		return err
	})
}

// applying tells whether a member of this process is taking another one's database for its own.
func applying() bool {
	stacks := make([]byte, 4<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "etcdserver.(*EtcdServer).applySnapshot")
}

// fill puts so many bytes into a database, without its log.
func fill(be backend.Backend, bytes int) {
	const page = 8 << 10
	tx, value := be.BatchTx(), make([]byte, page-64) // with its key it fills pages
	for i := range uint64(bytes / page) {
		tx.LockOutsideApply()
		tx.UnsafeCreateBucket(schema.Test)
		tx.UnsafeSeqPut(schema.Test, binary.BigEndian.AppendUint64(nil, i), value)
		tx.Unlock()
	}
	be.ForceCommit()
}
