package main

import (
	"bytes"
	"compress/gzip"
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

// get reads single objects.
func get(f *flag.FlagSet) measure {
	count := f.Int("n", 8000, "gets in each case")
	counts := f.String("clients", "16", "numbers of clients")
	return func(ctx context.Context, b *bench) error {
		clients, err := integers(*counts)
		if err != nil {
			return err
		}
		k, objects, err := b.createObjects(plain, 1000)
		if err != nil {
			return err
		}
		for _, c := range clients {
			err := b.requests(pairs{"clients", c, "n", *count}, c, *count, func(i int) error {
				_, err := b.expect("GET", k.path()+"/"+objects[i%len(objects)].name, "", nil, 200)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// list reads everything there is, again and again.
func list(f *flag.FlagSet) measure {
	objects := f.Int("objects", 10_000, "objects in each list")
	count := f.Int("n", 20, "lists in each case")
	counts := f.String("clients", "1,8", "numbers of clients")
	limits := f.String("limits", "0,500", "objects of a page, 0 for all at once")
	zipped := f.Bool("gzip", false, "ask for gzip")
	table := f.Bool("table", false, "ask for tables, as kubectl get does")
	return func(ctx context.Context, b *bench) error {
		clients, err := integers(*counts)
		if err != nil {
			return err
		}
		pages, err := integers(*limits)
		if err != nil {
			return err
		}
		k, _, err := b.createObjects(plain, *objects)
		if err != nil {
			return err
		}
		for _, limit := range pages {
			for _, c := range clients {
				l := lister{bench: b, kind: k, objects: *objects, limit: limit, zipped: *zipped, accept: "application/json"}
				if *table {
					l.accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
				}
				if err := l.measure(c, *count); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// lister lists all objects of a kind.
type lister struct {
	*bench
	kind           kind
	objects, limit int
	zipped         bool
	accept         string
	bytes, lists   atomic.Int64 // that have come
}

// measure is one case.
func (l *lister) measure(clients, count int) error {
	buffers := make([]bytes.Buffer, clients)
	used := l.begin()
	took, err := parallel(clients, count, func(i int) error { return l.list(&buffers[i%clients]) })
	wall, cpu := used()
	if err != nil {
		return err
	}
	l.report(pairs{"objects", l.objects, "limit", l.limit, "gzip", l.zipped, "clients", clients, "n", count},
		pairs{"cpu_ms_per_list", cpu * 1000 / float64(count), "mb_per_s", float64(l.bytes.Load()) / 1e6 / wall,
			"mb_per_list", float64(l.bytes.Load()) / 1e6 / float64(count), "p50_ms", percentile(took, 50), "p99_ms", percentile(took, 99)})
	return nil
}

// list reads one list to its end. One that has another number of objects is an error.
func (l *lister) list(buffer *bytes.Buffer) error {
	items, token := 0, ""
	for {
		page, err := l.page(buffer, token)
		if err != nil {
			return err
		}
		items += bytes.Count(page, []byte(`"uid":"`))
		if token = tokenIn(page); token == "" {
			break
		}
	}
	if items != l.objects {
		return fmt.Errorf("a list has %d objects, want %d", items, l.objects)
	}
	l.lists.Add(1)
	return nil
}

// page reads one page into the buffer and returns it, unpacked.
func (l *lister) page(buffer *bytes.Buffer, token string) ([]byte, error) {
	path := l.kind.path()
	if l.limit > 0 {
		path += fmt.Sprintf("?limit=%d&continue=%s", l.limit, token)
	}
	r, err := http.NewRequest("GET", l.url+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", l.accept)
	if l.zipped {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	if l.token != "" {
		r.Header.Set("Authorization", "Bearer "+l.token)
	}
	res, err := l.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	buffer.Reset()
	n, err := buffer.ReadFrom(res.Body)
	l.bytes.Add(n)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("a list is answered with %s %.500s", res.Status, buffer)
	}
	if err != nil || res.Header.Get("Content-Encoding") != "gzip" {
		return buffer.Bytes(), err
	}
	unpacked, err := gzip.NewReader(buffer)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unpacked)
}

// tokenIn returns where a page says that the list goes on; "" on the last page.
func tokenIn(page []byte) string {
	_, rest, _ := bytes.Cut(page, []byte(`"continue":"`))
	token, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(token)
}

// mixed reads at leisure, one request at a time of each sort, while others write at a rate.
func mixed(f *flag.FlagSet) measure {
	rate := f.Int("rate", 500, "updates a second, by four clients")
	length := f.Duration("for", 10*time.Second, "how long to measure")
	return func(ctx context.Context, b *bench) error {
		k, objects, err := b.createObjects(plain, 100) // which is what a list has
		if err != nil {
			return err
		}
		var writeErr error
		var writing sync.WaitGroup
		writing.Go(func() { _, writeErr = b.updateAll(k, objects, int(length.Seconds()*float64(*rate)), *rate) })
		end := time.Now().Add(*length)
		gets, getErr := []time.Duration(nil), error(nil)
		writing.Go(func() {
			gets, getErr = until(end, func(i int) error {
				_, err := b.expect("GET", k.path()+"/"+objects[i%len(objects)].name, "", nil, 200)
				return err
			})
		})
		l := lister{bench: b, kind: k, objects: len(objects)}
		var buffer bytes.Buffer
		lists, listErr := until(end, func(int) error { return l.list(&buffer) })
		writing.Wait()
		if err := errors.Join(writeErr, getErr, listErr); err != nil {
			return err
		}
		b.report(pairs{"rate", *rate}, pairs{"gets", len(gets), "get_p50_ms", percentile(gets, 50), "get_p99_ms", percentile(gets, 99),
			"lists", len(lists), "list_p50_ms", percentile(lists, 50), "list_p99_ms", percentile(lists, 99)})
		return nil
	}
}

// until calls f again and again, with a short rest after each call, and returns how long each took.
func until(end time.Time, f func(i int) error) (took []time.Duration, err error) {
	const rest = 2 * time.Millisecond
	for i := 0; err == nil && time.Now().Before(end); i++ {
		begin := time.Now()
		err = f(i)
		took = append(took, time.Since(begin))
		time.Sleep(rest)
	}
	return took, err
}

// listing compares writes alone with writes while others list.
func listing(f *flag.FlagSet) measure {
	count := f.Int("objects", 10_000, "objects in each list")
	clients := f.Int("clients", 8, "clients that list all the time")
	length := f.Duration("for", 10*time.Second, "how long each case takes")
	return func(ctx context.Context, b *bench) error {
		k, objects, err := b.createObjects(plain, *count)
		if err != nil {
			return err
		}
		for _, n := range []int{0, *clients} {
			l := listers{lister: lister{bench: b, kind: k, objects: *count}, done: make(chan struct{})}
			l.start(n)
			begin, before := time.Now(), b.cpu()
			took, err := b.writeFor(*length, k, objects)
			wall, cpu := time.Since(begin).Seconds(), b.cpu()-before
			read, lists := l.bytes.Load(), l.lists.Load()
			if err := errors.Join(err, l.stop()); err != nil {
				return err
			}
			b.report(pairs{"objects", *count, "listing", n}, pairs{"writes_per_s", float64(len(took)) / wall,
				"write_p50_ms", percentile(took, 50), "write_p99_ms", percentile(took, 99), "lists", lists,
				"mb_per_s", float64(read) / 1e6 / wall, "cpu_share", cpu / wall})
		}
		return nil
	}
}

// writeFor updates objects with a few clients and returns how long each update took.
func (b *bench) writeFor(length time.Duration, k kind, objects []*object) (took []time.Duration, err error) {
	end := time.Now().Add(length)
	for n := 0; err == nil && time.Now().Before(end); n += writers * 10 {
		// In short runs, so that none is much longer than asked for.
		var more []time.Duration
		more, err = parallel(writers, writers*10, func(i int) error { return b.update(k, objects[(n+i)%len(objects)]) })
		took = append(took, more...)
	}
	return took, err
}

// listers is clients that list everything, again and again.
type listers struct {
	lister
	done    chan struct{} // closed by stop
	clients sync.WaitGroup
	mu      sync.Mutex // guards err
	err     error
}

func (l *listers) start(clients int) {
	for range clients {
		l.clients.Go(func() {
			var buffer bytes.Buffer
			for !l.over() {
				if err := l.list(&buffer); err != nil {
					l.mu.Lock()
					l.err = errors.Join(l.err, err)
					l.mu.Unlock()
					return
				}
			}
		})
	}
}

func (l *listers) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *listers) stop() error {
	close(l.done)
	l.clients.Wait()
	return l.err
}

// memory resets the peak after the writes, so that the lists' own shows.
func memory(f *flag.FlagSet) measure {
	count := f.Int("objects", 200_000, "objects")
	clients := f.Int("clients", 4, "clients that each list everything once, at the same time")
	return func(ctx context.Context, b *bench) error {
		begin := time.Now()
		k, _, err := b.createObjects(plain, *count)
		if err != nil {
			return err
		}
		took, written, after := time.Since(begin), b.peak(), b.settled()
		b.resetPeak()
		l := &lister{bench: b, kind: k, objects: *count}
		lists, err := parallel(*clients, *clients, func(int) error { return l.list(new(bytes.Buffer)) })
		if err != nil {
			return err
		}
		b.report(pairs{"objects", *count, "clients", *clients}, pairs{"writes_s", took.Seconds(), "writes_peak_mb", written, "after_mb", after,
			"lists_peak_mb", b.peak(), "mb_per_list", float64(l.bytes.Load()) / 1e6 / float64(*clients), "list_max_ms", percentile(lists, 100)})
		if !b.restarts() {
			return nil
		}
		started, err := b.restart(ctx)
		if err != nil {
			return err
		}
		b.report(pairs{"objects", *count, "restarted", true}, pairs{"start_ms", milliseconds(started), "after_mb", b.settled()})
		return nil
	}
}
