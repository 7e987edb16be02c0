package server_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// databaseMB is the size of the database that is defragmented.
var databaseMB = flag.Int("database-mb", 64, "the size of the database in BenchmarkReadsBesideDisk")

// BenchmarkReadsBesideDisk reads at leisure, gets and lists of 100 objects, while others write 500 a second: to memory, to
// disk, and to disk while the database is defragmented. The bound is 1.5 times and 1 ms more than the first. It
// defragments by the call that the keeper makes, who needs a full disk for it. For a database of 1 GiB:
//
//	go test ./server -run '^$' -bench BesideDisk -benchtime 1x -database-mb 1024
func BenchmarkReadsBesideDisk(b *testing.B) {
	for _, c := range []struct {
		name       string
		ephemeral  bool
		defragment bool
	}{{"ephemeral", true, false}, {"durable", false, false}, {"defragmenting", false, true}} {
		b.Run(c.name, func(b *testing.B) {
			l := &diskLoad{Server: newWidgets(b, func(s *server.Server) { s.Data.Ephemeral = c.ephemeral })}
			l.fill(b)
			while := func() error { time.Sleep(5 * time.Second); return nil } // long enough for some thousand reads
			if c.defragment {
				l.grow(b)
				while = func() error { return server.Defragment(l.Server.Server) }
			}
			for b.Loop() {
				if err := l.measure(while); err != nil {
					b.Fatal(err)
				}
			}
			for name, took := range map[string][]time.Duration{"get": l.gets, "list": l.lists} {
				slices.Sort(took)
				for _, p := range []int{50, 99} {
					b.ReportMetric(float64(took[(len(took)-1)*p/100].Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", name, p))
				}
			}
			b.ReportMetric(float64(len(l.gets)), "gets")
		})
	}
}

// diskLoad is a server with 100 widgets, and those who write and read them.
type diskLoad struct {
	*servertest.Server
	gets, lists []time.Duration
}

const (
	diskWidgets = 100
	diskWriters = 4
	diskWrites  = 500 // a second, by all of them
	diskRest    = 2 * time.Millisecond
)

func (l *diskLoad) fill(b *testing.B) {
	for i := range diskWidgets - 1 { // one is there
		if res, body := l.Do("POST", widgetsPath, widget(fmt.Sprint("w", i))); res.StatusCode != http.StatusCreated {
			b.Fatalf("%s: %s", res.Status, body)
		}
	}
}

// grow makes the database as large as the flag says, by keys that no cache holds.
func (l *diskLoad) grow(b *testing.B) {
	value := strings.Repeat("x", 1<<20)
	for i := range *databaseMB {
		if _, err := server.Etcd(l.Server.Server).Put(b.Context(), fmt.Sprint("/elsewhere/", i), value); err != nil {
			b.Fatal(err)
		}
	}
}

// measure notes how long reads take until while returns. Writes go on all the time.
func (l *diskLoad) measure(while func() error) error {
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	var errs [diskWriters + 2]error
	for w := range diskWriters {
		clients.Go(func() { errs[w] = l.write(ctx, w) })
	}
	clients.Go(func() { errs[diskWriters] = l.read(ctx, widgetsPath+"/a", &l.gets) })
	clients.Go(func() { errs[diskWriters+1] = l.read(ctx, widgetsPath, &l.lists) })
	err := while()
	cancel()
	clients.Wait()
	return errors.Join(append(errs[:], err)...)
}

// write updates widgets of its own, in turn, at its share of the rate.
func (l *diskLoad) write(ctx context.Context, writer int) error {
	turn := time.NewTicker(time.Second * diskWriters / diskWrites)
	defer turn.Stop()
	const own = (diskWidgets - 1) / diskWriters
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-turn.C:
		}
		path := fmt.Sprintf("%s/w%d", widgetsPath, writer*own+n%own)
		if err := l.request("PATCH", path, fmt.Sprintf(`{"spec":{"size":%d}}`, 1+n%1000)); err != nil {
			return err
		}
	}
}

// read gets a path again and again, with a rest after each answer.
func (l *diskLoad) read(ctx context.Context, path string, took *[]time.Duration) error {
	for ctx.Err() == nil {
		begin := time.Now()
		if err := l.request("GET", path, ""); err != nil {
			return err
		}
		*took = append(*took, time.Since(begin))
		time.Sleep(diskRest)
	}
	return nil
}

func (l *diskLoad) request(method, path, body string) error {
	r, err := http.NewRequest(method, l.URL+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/merge-patch+json")
	res, err := l.Client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if answer, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s, %w", method, path, res.Status, answer, err)
	}
	return nil
}
