package clock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
)

// TestStands: the clock says the same until it's moved, and tells who waits.
func TestStands(t *testing.T) {
	t.Parallel()
	c := clock.StandAt(time.Date(2026, 5, 1, 12, 0, 0, 999, time.FixedZone("east", 3600)))
	begin := time.Date(2026, 5, 1, 11, 0, 0, 0, time.UTC)
	if now := c.Now(); now != begin || !c.Stands() {
		t.Fatalf("it stands at %v, want %v", now, begin)
	}
	moved := c.Moved()
	select {
	case <-moved:
		t.Fatal("it moved by itself")
	default:
	}
	if now := c.Advance(time.Hour + time.Millisecond); now != begin.Add(time.Hour+time.Millisecond) || c.Now() != now {
		t.Errorf("it's %v after an hour, and says %v", now, c.Now())
	}
	<-moved
	if since := c.Since(begin); since != time.Hour+time.Millisecond {
		t.Errorf("the begin is %v ago", since)
	}
}

// TestAdvances: moves at once add up.
func TestAdvances(t *testing.T) {
	t.Parallel()
	c := clock.StandAt(time.Unix(0, 0))
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { c.Advance(time.Second) })
	}
	all.Wait()
	if now := c.Now(); now.Unix() != 100 {
		t.Errorf("after a hundred seconds it's %v", now)
	}
}

// TestMachine: without a clock it's package time's, fake or not.
func TestMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c *clock.Clock
		begin := c.Now()
		<-time.After(time.Hour)
		if c.Since(begin) != time.Hour || c.Stands() || c.Moved() != nil {
			t.Errorf("%v have passed, want an hour", c.Since(begin))
		}
	})
}
