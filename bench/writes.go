package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// writes are measured on fresh objects (create) or on those that the same client wrote before (the others).
func writes(f *flag.FlagSet) measure {
	count := f.Int("n", 2000, "writes in each case")
	counts := f.String("clients", "1,16,64", "numbers of clients")
	return func(ctx context.Context, b *bench) error {
		clients, err := integers(*counts)
		if err != nil {
			return err
		}
		for _, k := range []kind{plain, thirty} {
			for _, c := range clients {
				for _, op := range []string{"create", "update", "patch", "apply"} {
					if err := b.writeCase(k, op, c, *count); err != nil {
						return fmt.Errorf("%s of %s: %w", op, k.plural, err)
					}
				}
			}
		}
		return nil
	}
}

// errUnsupported is an answer that says the server doesn't do this.
var errUnsupported = errors.New("not supported")

func (b *bench) writeCase(k kind, op string, clients, count int) error {
	objects, err := b.objects(k, 10*clients) // so that each has one client
	if err != nil {
		return err
	}
	id := time.Now().UnixNano()
	before, begin := b.cpu(), time.Now()
	took, err := parallel(clients, count, func(i int) error {
		if op == "create" {
			_, err := b.must("POST", k.path(), "application/json", k.body(fmt.Sprintf("c%x-%d", id, i), i, 0), 201)
			return err
		}
		return b.change(k, op, objects[i%len(objects)])
	})
	wall, cpu := time.Since(begin), b.cpu()-before
	if errors.Is(err, errUnsupported) {
		b.report("kind", k.plural, "op", op, "clients", clients, "unsupported", true)
		return nil
	}
	if err != nil {
		return err
	}
	b.report("kind", k.plural, "op", op, "clients", clients, "n", count, "ops_per_s", float64(count)/wall.Seconds(),
		"cpu_ms_per_op", milliseconds(cpu)/float64(count), "p50_ms", percentile(took, 50), "p99_ms", percentile(took, 99))
	return nil
}

// change writes an object in one of the ways to do that.
func (b *bench) change(k kind, op string, o *object) error {
	if op == "update" {
		return b.update(k, o)
	}
	o.n++
	path, contentType, body := k.path()+"/"+o.name, "application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"count":%d}}`, o.n)
	if op == "apply" {
		path += "?fieldManager=bench&force=true"
		contentType, body = "application/apply-patch+yaml", k.body(o.name, o.n, 0)
	}
	code, answer, err := b.do("PATCH", path, contentType, body)
	if err == nil && code == http.StatusUnsupportedMediaType {
		return errUnsupported
	}
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%d %.500s", code, answer)
	}
	o.version = versionIn(answer)
	return err
}

// listing compares writes alone with writes beside lists.
func listing(f *flag.FlagSet) measure {
	count := f.Int("objects", 10_000, "objects in each list")
	clients := f.Int("clients", 8, "clients that list all the time")
	length := f.Duration("for", 10*time.Second, "how long each case takes")
	return func(ctx context.Context, b *bench) error {
		objects, err := b.objects(plain, *count)
		if err != nil {
			return err
		}
		for _, n := range []int{0, *clients} {
			l := b.list(n, *count)
			begin, before := time.Now(), b.cpu()
			took, err := b.writeFor(*length, objects)
			wall, cpu := time.Since(begin), b.cpu()-before
			bytes := l.bytes.Load()
			if err := errors.Join(err, l.stop()); err != nil {
				return err
			}
			b.report("objects", *count, "listing", n, "writes", len(took), "writes_per_s", float64(len(took))/wall.Seconds(),
				"write_p50_ms", percentile(took, 50), "write_p99_ms", percentile(took, 99), "lists", l.lists.Load(),
				"mb_per_s", float64(bytes)/1e6/wall.Seconds(), "cpu_share", cpu.Seconds()/wall.Seconds())
		}
		return nil
	}
}

// writeFor updates objects with four clients and returns how long each update took.
func (b *bench) writeFor(length time.Duration, objects []*object) (took []time.Duration, err error) {
	end := time.Now().Add(length)
	for n := 0; err == nil && time.Now().Before(end); n += writers {
		// In short runs, so that none is much longer than asked for.
		var more []time.Duration
		more, err = parallel(writers, writers*10, func(i int) error { return b.update(plain, objects[(n+i)%len(objects)]) })
		took = append(took, more...)
	}
	return took, err
}

// lister is clients that list everything, again and again.
type lister struct {
	bytes, lists atomic.Int64
	done         chan struct{}
	clients      sync.WaitGroup
	mu           sync.Mutex // guards err
	err          error
}

// list starts so many clients. A list that is shorter than its objects is an error.
func (b *bench) list(clients, objects int) *lister {
	l := &lister{done: make(chan struct{})}
	for range clients {
		l.clients.Go(func() {
			for !l.over() {
				if err := b.listOnce(l, objects); err != nil {
					l.mu.Lock()
					l.err = errors.Join(l.err, err)
					l.mu.Unlock()
					return
				}
			}
		})
	}
	return l
}

func (l *lister) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *lister) stop() error {
	close(l.done)
	l.clients.Wait()
	return l.err
}

// Write counts what has come.
func (l *lister) Write(p []byte) (int, error) {
	l.bytes.Add(int64(len(p)))
	return len(p), nil
}

func (b *bench) listOnce(l *lister, objects int) error {
	r, err := http.NewRequest("GET", b.url+plain.path(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	res, err := b.http.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n, err := io.CopyBuffer(l, res.Body, make([]byte, 64<<10))
	if err == nil && (res.StatusCode != http.StatusOK || n < int64(objects)*size) {
		err = fmt.Errorf("a list of %d objects: %s, %d bytes", objects, res.Status, n)
	}
	l.lists.Add(1)
	return err
}

// memory resets the peak after the writes, so that the lists' own shows.
func memory(f *flag.FlagSet) measure {
	count := f.Int("objects", 200_000, "objects")
	clients := f.Int("clients", 4, "clients that each list everything once, at the same time")
	return func(ctx context.Context, b *bench) error {
		begin := time.Now()
		if _, err := b.objects(plain, *count); err != nil {
			return err
		}
		took, written, after := time.Since(begin), b.peak(), b.settled()
		b.resetPeak()
		l := &lister{}
		lists, err := parallel(*clients, *clients, func(int) error { return b.listOnce(l, *count) })
		if err != nil {
			return err
		}
		b.report("objects", *count, "clients", *clients, "writes_s", took.Seconds(), "writes_peak_mb", written, "after_mb", after,
			"lists_peak_mb", b.peak(), "list_mb", float64(l.bytes.Load())/1e6/float64(*clients), "list_max_ms", percentile(lists, 100))
		if !b.restarts() {
			return nil
		}
		started, err := b.restart(ctx)
		if err != nil {
			return err
		}
		b.report("objects", *count, "restarted", true, "start_ms", milliseconds(started), "after_mb", b.settled())
		return nil
	}
}
