package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
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
		k, from, err := b.primed()
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
				watches, err := b.watches(k, n, from)
				if err != nil {
					return err
				}
				closeAll(watches)
			}
			if err := b.left(pairs{"watches", n, "rounds", rounds}, before, start, *wait); err != nil {
				return err
			}
		}
		return nil
	}
}

// left waits until the server has as many goroutines and as much memory as before, and reports what it has.
func (b *bench) left(what pairs, before, start float64, wait time.Duration) error {
	begin := time.Now()
	goroutines, err := b.goroutines()
	for err == nil && (goroutines > before*1.1 || b.resident() > start*1.1) && time.Since(begin) < wait {
		time.Sleep(min(time.Second, wait))
		goroutines, err = b.goroutines()
	}
	if err != nil {
		return err
	}
	after := b.resident()
	b.report(what, pairs{"waited_s", time.Since(begin).Seconds(),
		"goroutines_before", before, "goroutines_after", goroutines, "goroutines_ratio", goroutines / before,
		"before_mb", start, "peak_mb", b.peak(), "after_mb", after, "mb_ratio", after / start})
	return nil
}

// resets resets connections that ask for a watch, before the head of the answer can have come. What the first of them leave,
// such as grown maps and stacks, isn't a leak. A watch that stays open after that is an error.
func resets(f *flag.FlagSet) measure {
	count := f.Int("n", 100_000, "connections")
	wait := f.Duration("wait", 5*time.Minute, "how long goroutines and memory may take to be back within a tenth")
	return func(ctx context.Context, b *bench) error {
		k, from, err := b.primed()
		if err != nil {
			return err
		}
		const first = 10 // of all, one of so many
		if err := b.resetWatches(ctx, k, from, *count/first); err != nil {
			return err
		}
		start := b.settled()
		before, err := b.goroutines()
		if err != nil {
			return err
		}
		if err := b.resetWatches(ctx, k, from, *count); err != nil {
			return err
		}
		return b.left(pairs{"connections", *count, "open_watches", 0}, before, start, *wait)
	}
}

// resetWatches resets so many connections, and waits until no watch is open.
func (b *bench) resetWatches(ctx context.Context, k kind, from int64, count int) error {
	_, err := parallel(writers, count, func(int) error {
		conn, host, err := b.dial()
		if err != nil {
			return err
		}
		fmt.Fprintf(conn, "GET %s?watch=true&resourceVersion=%d HTTP/1.1\r\nHost: %s\r\n\r\n", k.path(), from, host)
		if tcp, ok := conn.(*net.TCPConn); ok {
			const reset = 0 // seconds to linger
			tcp.SetLinger(reset)
		}
		return conn.Close()
	})
	if err != nil {
		return err
	}
	open := 0.0
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if open, err = b.metric("apiserver_longrunning_requests"); err != nil || open == 0 {
			return err
		}
	}
	return fmt.Errorf("%v watches are open %v after their connections were reset", open, patience)
}

// goroutines asks on a connection of its own, so that those of idle connections don't count.
func (b *bench) goroutines() (float64, error) {
	b.http.CloseIdleConnections()
	return b.metric("go_goroutines")
}

// primed makes one object and watches it once, so that what the first watch costs isn't counted. It returns the version
// to watch from.
func (b *bench) primed() (kind, int64, error) {
	k, _, err := b.createObjects(plain, 1)
	if err != nil {
		return k, 0, err
	}
	from, err := b.listVersion(k)
	if err != nil {
		return k, 0, err
	}
	w, err := b.watch(k, from)
	w.close()
	return k, from, err
}

// idle has watches that have nothing to tell.
func idle(f *flag.FlagSet) measure {
	counts := f.String("watches", "1000,5000", "numbers of watches")
	merged := f.Bool("merged", false, "each watch is of three kinds on one stream")
	return func(ctx context.Context, b *bench) error {
		return b.eachAnew(ctx, *counts, func(n int) error {
			k, from, err := b.primed()
			if err != nil {
				return err
			}
			open := b.watch
			if *merged {
				open = b.watchMerged
			}
			before := b.settled()
			watches, err := openAll(n, func() (*watch, error) { return open(k, from) })
			if err != nil {
				return err
			}
			after := b.settled()
			closeAll(watches)
			b.report(pairs{"watches", n}, pairs{"before_mb", before, "after_mb", after, "kb_per_watch", (after - before) * 1024 / float64(n)})
			return nil
		})
	}
}

// eachAnew measures a case for each of some numbers. The server is restarted between two, if it can be, so that none profits from what the last one left.
func (b *bench) eachAnew(ctx context.Context, counts string, measure func(n int) error) error {
	all, err := integers(counts)
	if err != nil {
		return err
	}
	for i, n := range all {
		if i > 0 && b.restarts() {
			if _, err := b.restart(ctx); err != nil {
				return err
			}
		}
		if err := measure(n); err != nil {
			return fmt.Errorf("%d: %w", n, err)
		}
	}
	return nil
}

// slow compares runs with and without watchers that never read.
func slow(f *flag.FlagSet) measure {
	readers := f.Int("readers", 100, "watchers that read")
	deaf := f.Int("deaf", 10, "watchers that never read, in every other part")
	updates := f.Int("updates", 20_000, "updates in each part")
	rate := f.Int("rate", 1000, "updates a second, 0 for as fast as it goes")
	pairsOf := f.Int("pairs", 5, "parts with, and as many without")
	return func(ctx context.Context, b *bench) error {
		k, objects, err := b.createObjects(plain, 1000)
		if err != nil {
			return err
		}
		var p50, p99 [2][]float64 // without, with
		for range *pairsOf {
			for with := range 2 {
				d := delivery{bench: b, kind: k, readers: *readers, deaf: with * *deaf, updates: *updates, rate: *rate}
				if err := d.measure(objects); err != nil {
					return err
				}
				half, most := percentile(d.late, 50), percentile(d.late, 99)
				p50[with], p99[with] = append(p50[with], half), append(p99[with], most)
				b.report(pairs{"readers", d.readers, "deaf", d.deaf, "updates", d.updates, "rate", d.rate}, pairs{"lag_p50_ms", half, "lag_p99_ms", most,
					"closed_deaf", d.closed, "complete_deaf", d.complete, "before_mb", d.before, "after_mb", d.after})
			}
		}
		b.report(pairs{"pairs", *pairsOf}, pairs{"without_p50_ms", median(p50[0]), "with_p50_ms", median(p50[1]), "ratio_p50", median(p50[1]) / median(p50[0]),
			"without_p99_ms", median(p99[0]), "with_p99_ms", median(p99[1]), "ratio_p99", median(p99[1]) / median(p99[0])})
		return nil
	}
}

// delivery is updates that go to watchers, and its figures. An event's lag is from the moment when its update was due
// until the event is there, so that it's never negative and a server that holds up writers doesn't look quick.
type delivery struct {
	*bench
	kind             kind
	readers, deaf    int // watchers: the deaf never read
	updates, rate    int
	late             []time.Duration // of each event at each reader
	took             float64         // seconds from the first update to the last event
	used             float64         // CPU time, in seconds
	closed, complete int             // of those that never read
	before, after    float64         // resident memory
}

// measure opens the watches and then updates the objects. A reader that misses an event is an error.
func (d *delivery) measure(objects []*object) error {
	from, err := d.listVersion(d.kind)
	if err != nil {
		return err
	}
	watches, err := d.watches(d.kind, d.readers+d.deaf, from)
	if err != nil {
		return err
	}
	defer closeAll(watches)
	got, all, err := d.deliver(watches, objects)
	if err != nil {
		return err
	}
	if err := d.hear(watches[d.readers:], all); err != nil {
		return err
	}
	d.late, err = lateness(got, all)
	return err
}

// deliver updates the objects and returns what came at each reader, and the updates.
func (d *delivery) deliver(watches []*watch, objects []*object) ([][]arrival, []written, error) {
	got, errs := make([][]arrival, d.readers), make([]error, d.readers)
	d.before = d.resident()
	used := d.begin()
	var reading sync.WaitGroup
	for i, w := range watches[:d.readers] {
		reading.Go(func() { got[i], errs[i] = w.collect(d.updates) })
	}
	all, err := d.updateAll(d.kind, objects, d.updates, d.rate)
	if err != nil {
		closeAll(watches)
		reading.Wait()
		return nil, nil, err
	}
	for _, w := range watches { // whoever hasn't got it all by then is stuck
		w.conn.SetReadDeadline(time.Now().Add(patience))
	}
	reading.Wait()
	d.took, d.used = used()
	d.after = d.resident()
	return got, all, first(errs)
}

// hear reads what there is for the watchers that never read.
func (d *delivery) hear(deaf []*watch, all []written) error {
	for _, w := range deaf {
		events, err := w.collect(d.updates)
		if err := missed(events, all[:len(events)]); err != nil {
			return fmt.Errorf("a watcher that didn't read: %w", err)
		}
		if err == nil {
			d.complete++
		} else {
			d.closed++
		}
	}
	return nil
}

func lateness(got [][]arrival, all []written) (late []time.Duration, err error) {
	for i, events := range got {
		if problem := missed(events, all); problem != nil {
			err = errors.Join(err, fmt.Errorf("reader %d: %w", i, problem))
			continue
		}
		for k, e := range events {
			late = append(late, e.at.Sub(all[k].due))
		}
	}
	return late, err
}
