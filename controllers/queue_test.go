package controllers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// newQueue returns a queue that runs until the test's end.
func newQueue(t *testing.T, work func(ctx context.Context, k string) error) *queue[string] {
	q := &queue[string]{log: slog.New(slog.DiscardHandler), bell: &bell{}, work: work}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return q
}

// TestQueueRetries: a key that fails is tried again, later each time, and holds up no other; what is added while it waits
// or while it's worked on isn't forgotten.
func TestQueueRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var tries []time.Duration
		var others []string
		begin, broken := time.Now(), true
		q := newQueue(t, func(_ context.Context, k string) error {
			mu.Lock()
			defer mu.Unlock()
			if k != "bad" {
				others = append(others, k)
				return nil
			}
			if tries = append(tries, time.Since(begin)); broken {
				return errors.New("it can't be deleted")
			}
			return nil
		})
		q.add("bad")
		q.add("good")
		synctest.Wait()
		mu.Lock()
		if len(tries) != 1 || !slices.Equal(others, []string{"good"}) {
			t.Errorf("%d tries, and %v", len(tries), others)
		}
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for i := 2; i < len(tries); i++ {
			pause, before := tries[i]-tries[i-1], tries[i-1]-tries[i-2]
			if pause < before && before < lastRetry || pause > lastRetry*3/2 || pause < firstRetry {
				t.Errorf("pause %d is %v after %v", i, pause, before)
			}
		}
		if n := len(tries); n < 20 || n > 40 {
			t.Errorf("%d tries in ten minutes", n)
		}
		if q.idle() {
			t.Error("a queue whose key fails says that nothing is left")
		}
		for k, cause := range keys(q) {
			if k != "bad" || cause != "it can't be deleted" {
				t.Errorf("%s is left because of %s", k, cause)
			}
		}
		broken = false
		before := len(tries)
		mu.Unlock()
		q.add("bad") // something has changed: at once
		synctest.Wait()
		mu.Lock()
		if len(tries) != before+1 || !q.idle() {
			t.Errorf("%d tries after %d; idle: %t", len(tries), before, q.idle())
		}
	})
}

func keys(q *queue[string]) map[string]string {
	all := map[string]string{}
	q.each(func(k string, cause error) bool {
		all[k] = ""
		if cause != nil {
			all[k] = cause.Error()
		}
		return true
	})
	return all
}

// TestQueueAgain: a key that is added while it's worked on is worked on once more, and never by two workers at once.
func TestQueueAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		working, works := map[string]bool{}, map[string]int{}
		most := 0
		q := newQueue(t, func(ctx context.Context, k string) error {
			mu.Lock()
			if working[k] {
				t.Errorf("two work on %s", k)
			}
			working[k] = true
			works[k]++
			most = max(most, len(working))
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			delete(working, k)
			return nil
		})
		var all []string
		for i := range 3 * workersAtOnce {
			all = append(all, string(rune('A'+i)))
		}
		for _, k := range all {
			q.add(k)
		}
		synctest.Wait()
		for range 3 {
			q.add("A")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, k := range all {
			want := 1
			if k == "A" {
				want = 2
			}
			if works[k] != want {
				t.Errorf("%s was worked on %d times, want %d", k, works[k], want)
			}
		}
		if most != workersAtOnce || !q.idle() || q.workers != 0 {
			t.Errorf("%d workers at once, want %d; idle: %t, left: %d", most, workersAtOnce, q.idle(), q.workers)
		}
	})
}

// TestQueueAgainAfterFailure: a key that was added while it was worked on doesn't wait for its next try.
func TestQueueAgainAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		works := 0
		q := newQueue(t, func(context.Context, string) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if works++; works < 12 {
				return errors.New("not yet")
			}
			return nil
		})
		q.add("k")
		for works := range 12 { // with the waits that so many failures make, it would take minutes
			time.Sleep(time.Second / 2)
			if works < 11 {
				q.add("k")
			}
			time.Sleep(time.Second / 2)
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if works != 12 || !q.idle() {
			t.Errorf("%d tries, want 12", works)
		}
	})
}

// TestQueueAfter: a key waits for its time, the earliest one that was asked for, and can be dropped.
func TestQueueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		at := map[string]time.Duration{}
		q := newQueue(t, func(_ context.Context, k string) error {
			mu.Lock()
			defer mu.Unlock()
			at[k] = time.Since(begin)
			return nil
		})
		q.addAfter("later", 20*time.Second)
		q.addAfter("later", 30*time.Second)
		q.addAfter("sooner", 20*time.Second)
		q.addAfter("sooner", 10*time.Second)
		q.addAfter("dropped", time.Second)
		q.drop("dropped")
		q.addAfter("now", 0)
		if q.idle() {
			t.Error("a key that waits for its time isn't left")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := map[string]time.Duration{"later": 20 * time.Second, "sooner": 10 * time.Second, "now": 0}
		for k, d := range want {
			if at[k] != d {
				t.Errorf("%s was worked on after %v, want %v", k, at[k], d)
			}
		}
		if len(at) != len(want) || !q.idle() {
			t.Errorf("worked on %v; idle: %t", at, q.idle())
		}
	})
}

// TestQueueEnds: a queue that ends waits for its workers and leaves no timer that works.
func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var ended, late bool
		q := &queue[string]{log: slog.New(slog.DiscardHandler), bell: &bell{}}
		q.work = func(ctx context.Context, k string) error {
			if k == "late" {
				late = true
				return nil
			}
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return ctx.Err()
		}
		q.add("before") // run comes later
		q.addAfter("late", time.Minute)
		done := make(chan struct{})
		go func() { defer close(done); q.run(ctx) }()
		synctest.Wait()
		cancel()
		<-done
		if !ended {
			t.Error("run returned before its worker")
		}
		time.Sleep(time.Hour)
		if late {
			t.Error("a timer worked after the end")
		}
	})
}

func TestParseSet(t *testing.T) {
	for list, want := range map[string][]string{
		"":                   Names,
		"all":                Names,
		"none":               {},
		"namespace":          {Namespace},
		"expiry, namespace":  {Namespace, Expiry},
		"garbage-collector,": nil,
		"all,namespace":      nil,
		"Namespace":          nil,
		"job":                nil,
	} {
		on, err := ParseSet(list)
		if want == nil {
			if err == nil {
				t.Errorf("%q is taken: %v", list, on)
			}
			continue
		}
		if err != nil || len(on) != len(want) {
			t.Errorf("%q: %v, %v", list, on, err)
		}
		for _, name := range want {
			if !on[name] {
				t.Errorf("%q lacks %s", list, name)
			}
		}
	}
}
