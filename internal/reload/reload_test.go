package reload

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatch: files are read when they have changed and stay so, again while that fails, and not otherwise. An error is told once.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(one, "a")
	write(two, "a")
	used, err := SumOf(one, two)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var failing atomic.Bool
		var reads, told atomic.Int32
		read := func(context.Context) error {
			reads.Add(1)
			if failing.Load() {
				return errors.New("deliberate")
			}
			return nil
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Files{Paths: []string{one, two}, Used: used, Read: read, Refused: func(error) { told.Add(1) }}.Watch(ctx)
		}()
		after := func(what string, looks int, wantReads, wantTold int32) {
			t.Helper()
			time.Sleep(time.Duration(looks) * Every)
			synctest.Wait()
			if r, n := reads.Load(), told.Load(); r != wantReads || n != wantTold {
				t.Errorf("%s: read %d times, told %d, want %d and %d", what, r, n, wantReads, wantTold)
			}
		}
		time.Sleep(Every / 2) // between two looks
		after("nothing has changed", 3, 0, 0)
		write(one, "b")
		after("at the first look it may be half of it", 1, 0, 0)
		after("it stays so", 2, 1, 0)
		failing.Store(true)
		write(two, "b")
		after("it's refused", 1+retryLooks, 2, 1)
		after("and once more", retryLooks, 3, 1)
		failing.Store(false)
		after("the reason is gone", retryLooks, 4, 1)
		if err := os.Remove(one); err != nil {
			t.Fatal(err)
		}
		after("a file is gone", 3, 4, 2)
		write(one, "b")
		after("it's back as it was", 3, 4, 2)
		cancel()
		<-done
	})
}
