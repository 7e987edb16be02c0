package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"time"
)

// fanout has every watcher see every update. A watcher that misses one, or gets them in another order, is an error.
func fanout(f *flag.FlagSet) measure {
	counts := f.String("watches", "100,1000,5000", "numbers of watchers")
	updates := f.Int("updates", 1000, "updates in each case")
	rate := f.Int("rate", 0, "updates a second, 0 for as fast as it goes")
	return func(ctx context.Context, b *bench) error {
		all, err := integers(*counts)
		if err != nil {
			return err
		}
		objects, err := b.objects(plain, 1000)
		if err != nil {
			return err
		}
		for _, n := range all {
			r := slowRun{bench: b, readers: n, updates: *updates}
			before, begin := b.cpu(), time.Now()
			late, err := r.measure(objects, *rate)
			if err != nil {
				return err
			}
			took, used := time.Since(begin), b.cpu()-before
			b.report("watches", n, "updates", *updates, "rate", *rate, "updates_per_s", float64(*updates)/took.Seconds(),
				"cpu_s_per_million", used.Seconds()/float64(n**updates)*1e6, "lag_p50_ms", percentile(late, 50), "lag_p99_ms", percentile(late, 99))
		}
		return nil
	}
}

// selective has each watcher ask for an object of its own, of which there are as many; updates go to ten of them.
func selective(f *flag.FlagSet) measure {
	counts := f.String("watches", "10,5000", "numbers of watchers")
	updates := f.Int("updates", 2000, "updates in each case")
	return func(ctx context.Context, b *bench) error {
		all, err := integers(*counts)
		if err != nil {
			return err
		}
		for _, n := range all {
			objects, err := b.objects(plain, max(n, 10*writers))
			if err != nil {
				return err
			}
			from, err := b.newest(plain)
			if err != nil {
				return err
			}
			watches := make([]*watch, n)
			_, err = parallel(64, n, func(i int) (err error) {
				watches[i], err = b.watchWith(plain, fmt.Sprintf("resourceVersion=%d&fieldSelector=metadata.name%%3D%s", from, objects[i].name))
				return err
			})
			if err != nil {
				closeAll(watches)
				return err
			}
			before, begin := b.cpu(), time.Now()
			_, err = b.updateAll(plain, objects[:10*writers], *updates, 0)
			took, used := time.Since(begin), b.cpu()-before
			closeAll(watches)
			if err != nil {
				return err
			}
			b.report("watches", n, "updates", *updates, "updates_per_s", float64(*updates)/took.Seconds(),
				"cpu_ms_per_update", milliseconds(used)/float64(*updates))
		}
		return nil
	}
}

// initial has many clients ask for the state at once, as informers do (sendInitialEvents).
func initial(f *flag.FlagSet) measure {
	count := f.Int("objects", 10_000, "objects")
	clients := f.Int("clients", 50, "clients that ask at once")
	return func(ctx context.Context, b *bench) error {
		if _, err := b.objects(plain, *count); err != nil {
			return err
		}
		errs := make([]error, *clients)
		var asking sync.WaitGroup
		before, begin := b.cpu(), time.Now()
		for i := range *clients {
			asking.Go(func() { errs[i] = b.readState(*count) })
		}
		asking.Wait()
		took, used := time.Since(begin), b.cpu()-before
		b.report("objects", *count, "clients", *clients, "took_ms", milliseconds(took),
			"cpu_s_per_million", used.Seconds()/float64(*count**clients)*1e6)
		return errors.Join(errs...)
	}
}

// readState reads an initial state to its end, which must have so many objects.
func (b *bench) readState(objects int) error {
	w, err := b.watchWith(plain, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	if err != nil {
		return err
	}
	defer w.close()
	w.conn.SetReadDeadline(time.Now().Add(patience))
	for n := 0; ; n++ {
		line, err := w.lines.ReadBytes('\n')
		switch {
		case err != nil:
			return fmt.Errorf("after %d events of the state: %w", n, err)
		case !bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)):
		case n != objects:
			return fmt.Errorf("the state had %d objects, want %d", n, objects)
		default:
			return nil
		}
	}
}
