package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"golang.org/x/sync/semaphore"

	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// mountDisk mounts a file system of its own for a test, and fails the test where it may not mount one. full takes all of its
// space.
func mountDisk(t *testing.T, megabytes int) (dir string, full func()) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Fatalf("this test mounts a file system of its own, which this user may not (%v): run it as root, or leave it out with -skip '^TestRoomHolds$'", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func() {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, "filler"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for block := bytes.Repeat([]byte{1}, 4<<10); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// What room lets in needs no more space, whatever the sizes of the writes and wherever the WAL's file ends: a
// chunk of it is written on a disk that has none. Then nothing more is let in, and the store closes and opens.
func TestRoomHolds(t *testing.T) {
	tests := []struct {
		name   string
		before int // bytes written while there's space
		value  int
	}{
		{"small values", 0, 100},
		{"small values over the WAL file's end", segmentBytes - 1<<20, 100},
		{"pages", 0, 4 << 10},
		{"large values", 0, 500 << 10},
		{"large values over the WAL file's end", segmentBytes - 1<<20, 500 << 10},
		{"the largest value over the WAL file's end", segmentBytes - 1<<20, MaxValueBytes},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk, fill := mountDisk(t, 96)
			o := Options{DataDir: filepath.Join(disk, "data")}
			s := openTest(t, o)
			s.haltKeeper()
			for at := 0; at < tt.before; at += 256 << 10 {
				if _, err := s.Client.Put(t.Context(), "before", strings.Repeat("b", 256<<10)); err != nil {
					t.Fatal(err)
				}
			}
			s.keeper.local.Backend().ForceCommit()
			room := s.keeper.room
			found, err := room.look(t.Context(), room.chunk+1) // more than a chunk has: the next one begins
			if err != nil {
				t.Fatal(err)
			}
			if found.refused() {
				t.Fatal(found.refusal(kv.Puts))
			}
			fill()
			etcd := v3client.New(s.Local) // not by way of room
			defer etcd.Close()
			n, value := 0, strings.Repeat("v", tt.value)
			for left := room.chunk; left > 0; left -= room.cost(int64(tt.value)) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err := etcd.Put(ctx, fmt.Sprint("k", n), value)
				cancel()
				if err != nil {
					t.Fatalf("write %d: %v (%v)", n, err, s.Err())
				}
				n++
			}
			s.keeper.local.Backend().ForceCommit()
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
			if statDiskFree(t, disk) < minFree { // where the WAL's file ended, etcd has given some back
				if _, err := s.Client.Put(t.Context(), "k", value); !errors.Is(err, rpctypes.ErrNoSpace) {
					t.Errorf("a write on a full disk: %v", err)
				}
				if _, err := s.Client.Delete(t.Context(), "k0"); !errors.Is(err, rpctypes.ErrNoSpace) {
					t.Errorf("a deletion on a disk without any space: %v", err)
				}
			} else if tt.before == 0 {
				t.Error("the disk isn't full")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openTest(t, o)
			res, err := s.Client.Get(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || res.Count != int64(n) {
				t.Errorf("%d values were written, %d are there (%v)", n, res.Count, err)
			}
		})
	}
}

func statDiskFree(t *testing.T, dir string) int64 {
	t.Helper()
	disk, err := statDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	return disk.free
}

// Deletions are let in while the disk is low, as long as they are safe.
func TestRoomStates(t *testing.T) {
	const total = 8 << 30 // 256 MiB are kept
	tests := []struct {
		name         string
		free         int64
		put, deleted bool
	}{
		{"space", 1 << 30, true, true},
		{"a little above the reserve, from above", 260 << 20, true, true},
		{"below the reserve", 255 << 20, false, true},
		{"a little above the reserve, from below", 260 << 20, false, true},
		{"nearly nothing", minFree, false, true},
		{"nothing to speak of", minFree - 1, false, false},
		{"space again", 289 << 20, true, true},
	}
	s := openTest(t, Options{DataDir: t.TempDir()})
	s.haltKeeper()
	var free int64
	s.keeper.room.disk = func() (diskSpace, error) { return diskSpace{free: free, total: total}, nil }
	for _, tt := range tests {
		free = tt.free
		if _, err := s.keeper.guardDisk(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client.Put(t.Context(), "k", "v"); errors.Is(err, rpctypes.ErrNoSpace) == tt.put {
			t.Errorf("%s: a put: %v", tt.name, err)
		}
		if _, err := s.Client.Delete(t.Context(), "k"); errors.Is(err, rpctypes.ErrNoSpace) == tt.deleted {
			t.Errorf("%s: a deletion: %v", tt.name, err)
		}
		if healthy := s.Health() == nil; healthy != tt.put {
			t.Errorf("%s: health: %v", tt.name, s.Health())
		}
	}
}

// Writers that come at once are let in for what was allocated, and for no more than that.
func TestRoomLetsInWhatIsAllocated(t *testing.T) {
	const cost = 100
	r := &room{
		dir: &dataDir{ephemeral: true}, chunk: cost, every: time.Hour, began: time.Now(),
		lock: semaphore.NewWeighted(1), underWay: semaphore.NewWeighted(8 * cost),
		disk: func() (diskSpace, error) { return diskSpace{total: 1 << 40, free: 1 << 40}, nil },
	}
	r.state.Store(&roomState{})
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 20_000 {
				if err := r.enter(t.Context(), cost, kv.Puts); err != nil {
					t.Error(err)
					return
				}
				if left := r.left.Load(); left < 0 {
					t.Errorf("%d bytes more were let in than were allocated", -left)
				}
				r.leave(cost)
			}
		})
	}
	writers.Wait()
}

// What room adds to a write.
func BenchmarkRoom(b *testing.B) {
	for _, ephemeral := range []bool{false, true} {
		b.Run(fmt.Sprintf("ephemeral=%t", ephemeral), func(b *testing.B) {
			s, err := Open(b.Context(), Options{DataDir: b.TempDir(), Ephemeral: ephemeral, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			room := s.keeper.room
			cost := room.cost(1 << 10)
			b.ReportAllocs()
			for b.Loop() {
				if err := room.enter(b.Context(), cost, kv.Puts); err != nil {
					b.Fatal(err)
				}
				room.leave(cost)
			}
		})
	}
}

// TestRefusalNamesNoPath: clients are told why their writes are refused, and not where the server keeps its data. The errors are
// those of whatever may fail when space is looked for.
func TestRefusalNamesNoPath(t *testing.T) {
	d := &dataDir{path: filepath.Join(t.TempDir(), "secret")} // there's none
	r := &room{dir: d}
	_, noDisk := statDisk(d.path)
	readOnly, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	for name, cause := range map[string]error{
		"disk": noDisk, "database": r.allocateDatabase(), "log": r.allocateWAL(), "spare": d.makeSpare(), "allocation": allocate(readOnly, 0, 1<<20),
		"something else": fmt.Errorf("%s is odd", d.path), "nothing left": spaceLeft(12 << 10),
	} {
		if cause == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		err := (&roomState{shut: cause}).refusal(kv.Puts)
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), os.TempDir()) || !strings.Contains(err.Error(), "free some space") {
			t.Errorf("%s, %v: %v", name, cause, err)
		}
	}
	if err := (&roomState{shut: allocate(readOnly, 0, 1<<20)}).refusal(kv.Deletes); !strings.Contains(err.Error(), "bad file descriptor") {
		t.Errorf("what the system said is missing: %v", err)
	}
	if err := (&roomState{full: true}).refusal(kv.Puts); !strings.Contains(err.Error(), "free some space") {
		t.Error(err)
	}
}
