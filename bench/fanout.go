package main

import (
	"bytes"
	"context"
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
		for _, n := range all {
			k, objects, err := b.createObjects(plain, 1000)
			if err != nil {
				return err
			}
			d := delivery{bench: b, kind: k, readers: n, updates: *updates, rate: *rate}
			if err := d.measure(objects); err != nil {
				return err
			}
			b.report(pairs{"watches", n, "updates", *updates, "rate", *rate}, pairs{"updates_per_s", float64(*updates) / d.took,
				"cpu_s_per_million", d.used / float64(n**updates) * 1e6, "lag_p50_ms", percentile(d.late, 50), "lag_p99_ms", percentile(d.late, 99)})
		}
		return nil
	}
}

// selective has each watcher ask for an object of its own, of which there are as many. Updates go to some of them, and
// each is an event for one watcher.
func selective(f *flag.FlagSet) measure {
	counts := f.String("watches", "10,5000", "numbers of watchers")
	updates := f.Int("updates", 2000, "updates in each case")
	by := f.String("by", "label", "what the watchers select by: label or name")
	return func(ctx context.Context, b *bench) error {
		all, err := integers(*counts)
		if err != nil {
			return err
		}
		selector, ok := map[string]string{"label": "labelSelector=own%%3D%s", "name": "fieldSelector=metadata.name%%3D%s"}[*by]
		if !ok {
			return fmt.Errorf("--by is label or name, not %q", *by)
		}
		for _, n := range all {
			s := selected{bench: b, selector: selector, by: *by, watchers: n, updates: *updates}
			if err := s.measure(); err != nil {
				return err
			}
		}
		return nil
	}
}

// selected is one case.
type selected struct {
	*bench
	selector, by      string
	watchers, updates int
}

func (s *selected) measure() error {
	const updated = 10 * writers // objects
	k, objects, err := s.createObjects(plain, max(s.watchers, updated))
	if err != nil {
		return err
	}
	from, err := s.listVersion(k)
	if err != nil {
		return err
	}
	watches := make([]*watch, s.watchers)
	defer func() { closeAll(watches) }()
	_, err = parallel(64, s.watchers, func(i int) (err error) {
		watches[i], err = s.watchWith(k, fmt.Sprintf("resourceVersion=%d&"+s.selector, from, objects[i].name))
		return err
	})
	if err != nil {
		return err
	}
	used := s.begin()
	all, err := s.updateAll(k, objects[:updated], s.updates, 0)
	wall, cpu := used()
	if err != nil {
		return err
	}
	for i, w := range watches[:min(updated, s.watchers)] {
		if err := w.gets(objects[i], all); err != nil {
			return fmt.Errorf("the watcher of %s: %w", objects[i].name, err)
		}
	}
	s.report(pairs{"by", s.by, "watches", s.watchers, "updates", s.updates},
		pairs{"updates_per_s", float64(s.updates) / wall, "cpu_ms_per_update", cpu * 1000 / float64(s.updates)})
	return nil
}

// gets reads the updates of one object.
func (w *watch) gets(o *object, all []written) error {
	var its []written
	for _, update := range all {
		if update.object == o {
			its = append(its, update)
		}
	}
	w.conn.SetReadDeadline(time.Now().Add(patience))
	got, err := w.collect(len(its))
	if err != nil {
		return err
	}
	return missed(got, its)
}

// initial has many clients ask for the state at once, as informers do (sendInitialEvents).
func initial(f *flag.FlagSet) measure {
	count := f.Int("objects", 10_000, "objects")
	clients := f.Int("clients", 50, "clients that ask at once")
	return func(ctx context.Context, b *bench) error {
		k, _, err := b.createObjects(plain, *count)
		if err != nil {
			return err
		}
		errs := make([]error, *clients)
		var asking sync.WaitGroup
		used := b.begin()
		for i := range *clients {
			asking.Go(func() { errs[i] = b.readState(k, *count) })
		}
		asking.Wait()
		wall, cpu := used()
		if err := first(errs); err != nil {
			return err
		}
		b.report(pairs{"objects", *count, "clients", *clients},
			pairs{"took_ms", wall * 1000, "cpu_s_per_million", cpu / float64(*count**clients) * 1e6})
		return nil
	}
}

// readState reads an initial state to its end, which must have so many objects.
func (b *bench) readState(k kind, objects int) error {
	w, err := b.watchWith(k, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
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
