package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// restarted stops the server in both ways, in turn. What a start can't be faster than is to read the data once: that's measured after each.
func restarted(f *flag.FlagSet) measure {
	count := f.Int("objects", 100_000, "objects")
	n := f.Int("n", 5, "stops of each kind, of which the median counts")
	return func(ctx context.Context, b *bench) error {
		if b.binary == "" {
			return errRestart
		}
		if _, _, err := b.createObjects(plain, *count); err != nil {
			return err
		}
		var stopped, killed, reads []time.Duration
		for range *n {
			took, err := b.restart(ctx)
			if err != nil {
				return err
			}
			stopped = append(stopped, took)
			if took, err = b.restartKilled(ctx); err != nil {
				return err
			}
			killed = append(killed, took)
			if took, err = readAll(b.dir); err != nil {
				return err
			}
			reads = append(reads, took)
		}
		b.report(pairs{"objects", *count, "n", *n}, pairs{"stopped_ready_ms", percentile(stopped, 50), "killed_ready_ms", percentile(killed, 50),
			"read_ms", percentile(reads, 50)})
		return nil
	}
}

// readAll reads the files of a directory once, and returns how long that took.
func readAll(dir string) (time.Duration, error) {
	begin := time.Now()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(io.Discard, f)
		return err
	})
	return time.Since(begin), err
}

// resume measures from sending the request on, so that what the server does before its answer counts.
func resume(f *flag.FlagSet) measure {
	events := f.Int("events", 10_000, "updates after the watch's resourceVersion")
	return func(ctx context.Context, b *bench) error {
		k, objects, err := b.createObjects(plain, 1000)
		if err != nil {
			return err
		}
		from, err := b.listVersion(k)
		if err != nil {
			return err
		}
		all, err := b.updateAll(k, objects, *events, 0)
		if err != nil {
			return err
		}
		started, err := b.restart(ctx)
		if err != nil {
			return err
		}
		begin := time.Now()
		w, busy, err := b.watchPatiently(k, from)
		var got []arrival
		if err == nil {
			defer w.close()
			w.conn.SetReadDeadline(time.Now().Add(patience))
			got, err = w.collect(*events)
		}
		var answer refused
		if errors.As(err, &answer) && answer.code == http.StatusGone {
			b.report(pairs{"events", *events, "gone_410", true}, pairs{"start_ms", milliseconds(started), "refused_429", busy})
			return nil
		}
		if err := errors.Join(err, missed(got, all)); err != nil {
			return err
		}
		b.report(pairs{"events", *events}, pairs{"start_ms", milliseconds(started), "refused_429", busy,
			"first_ms", milliseconds(got[0].at.Sub(begin)), "all_ms", milliseconds(got[len(got)-1].at.Sub(begin))})
		return nil
	}
}

// storm's clock starts when the server is ready again, since all its clients come at that moment.
func storm(f *flag.FlagSet) measure {
	clients := f.Int("clients", 10_000, "watches, or as many as file descriptors allow")
	missing := f.Int("missing", 5, "updates that each has missed and must get")
	rate := f.Int("rate", 100, "updates a second meanwhile, of another kind: none of them is an event for all the clients")
	return func(ctx context.Context, b *bench) error {
		k, objects, err := b.createObjects(plain, 100)
		if err != nil {
			return err
		}
		other, others, err := b.createObjects(thirty, 100)
		if err != nil {
			return err
		}
		from, err := b.listVersion(k)
		if err != nil {
			return err
		}
		before, err := b.watches(k, min(*clients, descriptors()), from)
		if err != nil {
			return err
		}
		all, err := b.updateAll(k, objects, *missing, 0)
		if err != nil {
			closeAll(before)
			return err
		}
		steady := b.settled()
		started, err := b.restart(ctx)
		closeAll(before)
		if err != nil {
			return err
		}
		s := &stormed{bench: b, kind: k, other: other, from: from, all: all}
		took, wrote, err := s.run(ctx, len(before), others, *rate)
		if err != nil {
			return err
		}
		peak := b.peak()
		b.report(pairs{"clients", len(before)}, pairs{"start_ms", milliseconds(started), "served_ms", milliseconds(took),
			"refused_429", s.busy.Load(), "gone_410", s.gone.Load(), "failed_5xx", s.failed.Load(), "broken", s.broken.Load(),
			"steady_mb", steady, "peak_mb", peak, "ratio", peak / steady,
			"writes", len(wrote), "write_p50_ms", percentile(wrote, 50), "write_p99_ms", percentile(wrote, 99), "write_max_ms", percentile(wrote, 100)})
		return nil
	}
}

// stormed counts what clients got that came back.
type stormed struct {
	*bench
	kind, other                kind // what is watched, and what is written meanwhile
	from                       int64
	all                        []written
	busy, gone, failed, broken atomic.Int64
}

// run lets the clients come at once, beside a few writes. It returns how long it took until all were served, and how
// long the writes took. These have their connections before: how long it takes to be accepted is no matter of writes.
func (s *stormed) run(ctx context.Context, clients int, objects []*object, rate int) (took time.Duration, wrote []time.Duration, err error) {
	if err := s.turn(objects, 0, new([]time.Duration)); err != nil {
		return 0, nil, err
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var coming sync.WaitGroup
	watches, errs := make([]*watch, clients), make([]error, clients)
	for i := range clients {
		coming.Go(func() { watches[i], errs[i] = s.come(ctx) })
	}
	served := make(chan struct{})
	go func() {
		coming.Wait()
		took = time.Since(begin)
		close(served)
	}()
	wrote, err = s.write(objects, rate, served)
	<-served
	closeAll(watches)
	return took, wrote, errors.Join(err, first(errs))
}

// first returns one error of many, all of which say the same in all likelihood.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// come opens a watch that goes on where it was, as often as it takes, and returns when it has got what it missed. One
// whose history is gone can't get it: it's counted, and goes on from now.
func (s *stormed) come(ctx context.Context) (*watch, error) {
	from, all := s.from, s.all
	for {
		w, err := s.watch(s.kind, from)
		if err == nil {
			var got []arrival
			w.conn.SetReadDeadline(time.Now().Add(patience))
			if got, err = w.collect(len(all)); err == nil {
				return w, missed(got, all)
			}
			w.close()
		}
		var wait time.Duration
		if wait, err = s.count(err); err != nil {
			return nil, err
		}
		if wait == 0 { // gone
			if from, err = s.listVersion(s.kind); err != nil {
				return nil, err
			}
			all = nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("a client wasn't served within %v", patience)
		case <-time.After(wait):
		}
	}
}

// count counts why a watch wasn't opened, or has ended with an ERROR event, and returns how long to wait, 0 if its history is gone.
func (s *stormed) count(err error) (time.Duration, error) {
	var answer refused
	switch {
	case !errors.As(err, &answer):
		s.broken.Add(1)
		return 100 * time.Millisecond, nil
	case answer.code == http.StatusGone:
		s.gone.Add(1)
		return 0, nil
	case answer.code == http.StatusTooManyRequests:
		s.busy.Add(1)
	case answer.code >= 500:
		s.failed.Add(1)
	default:
		return 0, err
	}
	return max(answer.after, 100*time.Millisecond), nil
}

// write updates objects at a rate until all is done, and returns how long each update took.
func (s *stormed) write(objects []*object, rate int, done <-chan struct{}) (took []time.Duration, err error) {
	begin := time.Now()
	for i := 0; err == nil; i += writers {
		err = s.turn(objects, i, &took)
		select {
		case <-done:
			return took, err
		case <-time.After(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate)))):
		}
	}
	return took, err
}

// turn updates some objects at once.
func (s *stormed) turn(objects []*object, from int, took *[]time.Duration) error {
	more, err := parallel(writers, writers, func(i int) error { return s.update(s.other, objects[(from+i)%len(objects)]) })
	*took = append(*took, more...)
	return err
}
