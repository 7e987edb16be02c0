package etcd

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// inside waits until a goroutine is in a function.
func inside(t *testing.T, function string) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	soon(t, "a goroutine in "+function, func() bool {
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function)
	})
}

// atOnce fails the test if f waits for what the test holds.
func atOnce(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Errorf("%s waits", what)
	}
}

// A disk that doesn't take the marks keeps nobody waiting but the one who writes them.
func TestStatsWhileMarksAreSaved(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir()})
	s.haltKeeper()
	fifo := s.dir.file(historyName + ".tmp") // a write to it waits for a reader
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	saved := make(chan error, 1)
	go func() { saved <- s.keeper.save() }()
	inside(t, "(*dataDir).writeFile")
	atOnce(t, "Stats", func() { s.Stats() })
	reader, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := <-saved; err == nil {
		t.Error("a FIFO was synced")
	}
}

// etcd holds its alarms' lock while it writes one to the database: who asks for the health doesn't wait for that.
func TestHealthWhileAlarmIsWritten(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir()})
	// etcd writes its version once, some time after its start. If that came now, it would keep the alarm waiting.
	soon(t, "etcd has written its version", func() bool { return s.Local.ClusterVersion() != nil })
	tx := s.Local.Backend().BatchTx()
	tx.LockOutsideApply() // as a commit does while it syncs
	unlock := sync.OnceFunc(tx.Unlock)
	defer unlock() // so that Close doesn't wait for a test that failed
	raised := make(chan error, 1)
	go func() { raised <- s.keeper.alarm(t.Context(), s.Local.MemberID(), pb.AlarmRequest_ACTIVATE) }()
	inside(t, "MustPutAlarm")
	atOnce(t, "Health", func() { _ = s.Health() })
	unlock()
	<-raised // on a slow machine etcd may have given up on its answer; the alarm is written all the same
	soon(t, "healthy", func() bool { return s.Health() == nil && len(s.Local.Alarms()) == 0 })
}

// A writer that waits for a disk, because another one looks at it, gives up when its context ends.
func TestWriterGivesUp(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir()})
	s.haltKeeper()
	room := s.keeper.room
	room.looked.Store(-int64(time.Hour)) // so that the next writer looks
	answer, looking := make(chan struct{}), make(chan struct{})
	look := sync.OnceFunc(func() { close(looking) })
	room.disk = func() (diskSpace, error) {
		look()
		<-answer
		return statDisk(s.Dir())
	}
	first := make(chan error, 1)
	go func() {
		_, err := s.Client.Put(context.Background(), "first", "v")
		first <- err
	}()
	<-looking
	atOnce(t, "a writer without time", func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Client.Put(ctx, "second", "v"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the writer got %v", err)
		}
	})
	close(answer)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := room.enter(t.Context(), room.chunk, kv.Puts); err != nil { // nothing is left under way
		t.Error(err)
	}
	room.leave(room.chunk)
}
