package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"time"
)

// churn opens and drops watches. What a first round leaves, such as grown maps, isn't a leak, so the figures after it
// are printed too. An idle Go server collects garbage every two minutes and then returns memory little by little: it's
// given the time for that.
func churn(f *flag.FlagSet) measure {
	count := f.Int("watches", 10_000, "watches, or as many as file descriptors allow")
	rounds := f.Int("rounds", 10, "how often they're opened and dropped")
	wait := f.Duration("wait", 5*time.Minute, "how long goroutines and memory may take to be back within a tenth")
	return func(ctx context.Context, b *bench) error {
		from, err := b.primed()
		if err != nil {
			return err
		}
		n := min(*count, descriptors())
		before, err := b.goroutines()
		if err != nil {
			return err
		}
		start := b.settled()
		for _, rounds := range []int{1, *rounds - 1} {
			for range rounds {
				watches, err := b.watches(plain, n, from)
				if err != nil {
					return err
				}
				closeAll(watches)
			}
			begin := time.Now()
			goroutines, err := b.goroutines()
			for err == nil && (goroutines > before*1.1 || b.resident() > start*1.1) && time.Since(begin) < *wait {
				time.Sleep(min(time.Second, *wait))
				goroutines, err = b.goroutines()
			}
			if err != nil {
				return err
			}
			after := b.resident()
			b.report("watches", n, "rounds", rounds, "waited_s", time.Since(begin).Seconds(),
				"goroutines_before", before, "goroutines_after", goroutines, "goroutines_ratio", goroutines/before,
				"before_mb", start, "peak_mb", b.peak(), "after_mb", after, "mb_ratio", after/start)
		}
		return nil
	}
}

// goroutines asks on a connection of its own, so that those of idle connections don't count.
func (b *bench) goroutines() (float64, error) {
	b.http.CloseIdleConnections()
	return b.metric("go_goroutines")
}

// primed makes one object of plain and watches it once, so that what the first watch costs isn't counted. It returns the
// version to watch from.
func (b *bench) primed() (int64, error) {
	if _, err := b.objects(plain, 1); err != nil {
		return 0, err
	}
	from, err := b.newest(plain)
	if err != nil {
		return 0, err
	}
	w, err := b.watch(plain, from)
	w.close()
	return from, err
}

// idle restarts the server before each case, if it can, so that none profits from what the last one left.
func idle(f *flag.FlagSet) measure {
	counts := f.String("watches", "1000,5000", "numbers of watches")
	return func(ctx context.Context, b *bench) error {
		all, err := integers(*counts)
		if err != nil {
			return err
		}
		for i, n := range all {
			if i > 0 && b.restarts() {
				if _, err := b.restart(ctx); err != nil {
					return err
				}
			}
			from, err := b.primed()
			if err != nil {
				return err
			}
			before := b.settled()
			watches, err := b.watches(plain, n, from)
			if err != nil {
				return err
			}
			after := b.settled()
			closeAll(watches)
			b.report("watches", n, "before_mb", before, "after_mb", after, "kb_per_watch", (after-before)*1024/float64(n))
		}
		return nil
	}
}

// slow compares runs with and without watchers that never read. An event's lag is from sending the update until it's
// there, so that it's never negative.
func slow(f *flag.FlagSet) measure {
	readers := f.Int("readers", 100, "watchers that read")
	deaf := f.Int("deaf", 10, "watchers that never read, in every other run")
	updates := f.Int("updates", 20_000, "updates in each run")
	rate := f.Int("rate", 1000, "updates a second, 0 for as fast as it goes")
	runs := f.Int("runs", 5, "runs with, and as many without")
	return func(ctx context.Context, b *bench) error {
		objects, err := b.objects(plain, 1000)
		if err != nil {
			return err
		}
		var p50, p99 [2][]float64 // without, with
		for run := range *runs {
			for with := range 2 {
				r := slowRun{bench: b, readers: *readers, deaf: with * *deaf, updates: *updates}
				late, err := r.measure(objects, *rate)
				if err != nil {
					return err
				}
				p50[with], p99[with] = append(p50[with], percentile(late, 50)), append(p99[with], percentile(late, 99))
				b.report("run", run, "readers", r.readers, "deaf", r.deaf, "updates", r.updates, "lag_p50_ms", p50[with][run], "lag_p99_ms", p99[with][run],
					"closed_deaf", r.closed, "complete_deaf", r.complete, "before_mb", r.before, "after_mb", r.after)
			}
		}
		b.report("runs", *runs, "without_p50_ms", median(p50[0]), "with_p50_ms", median(p50[1]), "ratio_p50", median(p50[1])/median(p50[0]),
			"without_p99_ms", median(p99[0]), "with_p99_ms", median(p99[1]), "ratio_p99", median(p99[1])/median(p99[0]))
		return nil
	}
}

// slowRun is one run and its figures.
type slowRun struct {
	*bench
	readers, deaf, updates int
	closed, complete       int // of those that never read
	before, after          float64
}

// measure returns how late each event came at each reader. A reader that misses one is an error.
func (r *slowRun) measure(objects []*object, rate int) ([]time.Duration, error) {
	from, err := r.newest(plain)
	if err != nil {
		return nil, err
	}
	watches, err := r.watches(plain, r.readers+r.deaf, from)
	if err != nil {
		return nil, err
	}
	defer closeAll(watches)
	got, errs := make([][]arrival, r.readers), make([]error, r.readers)
	var reading sync.WaitGroup
	for i, w := range watches[:r.readers] {
		reading.Go(func() { got[i], errs[i] = w.collect(r.updates) })
	}
	r.before = r.resident()
	all, err := r.updateAll(plain, objects, r.updates, rate)
	if err != nil {
		closeAll(watches)
		reading.Wait()
		return nil, err
	}
	for _, w := range watches { // whoever hasn't got it all by then is stuck
		w.conn.SetReadDeadline(time.Now().Add(patience))
	}
	reading.Wait()
	r.after = r.resident()
	for _, w := range watches[r.readers:] {
		events, err := w.collect(r.updates)
		if err := missed(events, all[:len(events)]); err != nil {
			return nil, fmt.Errorf("a watcher that didn't read: %w", err)
		}
		if err == nil {
			r.complete++
		} else {
			r.closed++
		}
	}
	if err := first(errs); err != nil {
		return nil, err
	}
	return lateness(got, all)
}

func lateness(got [][]arrival, all []written) (late []time.Duration, err error) {
	for i, events := range got {
		if problem := missed(events, all); problem != nil {
			err = errors.Join(err, fmt.Errorf("reader %d: %w", i, problem))
			continue
		}
		for k, e := range events {
			late = append(late, e.at.Sub(all[k].sent))
		}
	}
	return late, err
}
