package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// backupWriters is how many clients write beside a snapshot, each as fast as it's answered.
const backupWriters = 64

// backupCalm is how long they write without one, for comparison.
const backupCalm = 5 * time.Second

// BenchmarkBackup saves snapshots of a durable server, over HTTP into a file that is synced: alone, and beside 64 clients that write. It says
// how fast that is, how fast a file of the size is copied, and how long writes take without and with a snapshot. For a database of 1 GiB:
//
//	go test ./server -run '^$' -bench 'Backup$' -benchtime 2x -database-mb 1024
func BenchmarkBackup(b *testing.B) {
	l := &backupLoad{Server: newWidgets(b, func(s *server.Server) { s.Data.Ephemeral = false }), dir: b.TempDir()}
	(&diskLoad{Server: l.Server}).grow(b)
	for b.Loop() {
		if err := errors.Join(l.alone(), l.beside()); err != nil {
			b.Fatal(err)
		}
	}
	for what, d := range map[string]time.Duration{"copy-s": l.copied, "alone-s": l.saved, "beside-s": l.savedBeside} {
		b.ReportMetric(d.Seconds()/float64(b.N), what)
	}
	for what, took := range map[string][]time.Duration{"without": l.without, "with": l.with} {
		slices.Sort(took)
		for _, p := range []int{50, 99} {
			b.ReportMetric(float64(took[(len(took)-1)*p/100].Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", what, p))
		}
		b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, what+"-max-ms")
	}
}

// backupLoad is a server, and what is measured of it.
type backupLoad struct {
	*servertest.Server
	dir                        string
	copied, saved, savedBeside time.Duration
	with, without              []time.Duration // that writes took
}

// alone saves a snapshot while nobody writes, and copies the file.
func (l *backupLoad) alone() (err error) {
	if l.saved, err = l.save(l.saved); err != nil {
		return err
	}
	from, err := os.Open(filepath.Join(l.dir, "saved"))
	if err != nil {
		return err
	}
	defer from.Close()
	began := time.Now()
	to, err := os.Create(filepath.Join(l.dir, "copied"))
	if err != nil {
		return err
	}
	_, err = io.Copy(to, struct{ io.Reader }{from}) // through the process, as the snapshot comes
	err = errors.Join(err, to.Sync(), to.Close())
	l.copied += time.Since(began)
	return err
}

// beside saves a snapshot while others write.
func (l *backupLoad) beside() (err error) {
	if l.without, err = l.writes(l.without, func() error { time.Sleep(backupCalm); return nil }); err != nil {
		return err
	}
	l.with, err = l.writes(l.with, func() (err error) {
		l.savedBeside, err = l.save(l.savedBeside)
		return err
	})
	return err
}

// save saves a snapshot, and returns how long that took more.
func (l *backupLoad) save(took time.Duration) (time.Duration, error) {
	began := time.Now()
	res, err := l.Client.Get(l.URL + backupPath)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, errors.New(res.Status)
	}
	begun := time.Since(began)
	return l.write("saved", res.Body, took+begun)
}

// write writes a file as the command does, and returns how long that took more.
func (l *backupLoad) write(name string, from io.Reader, took time.Duration) (time.Duration, error) {
	began := time.Now()
	err := snapshot.Save(filepath.Join(l.dir, name), func(to io.Writer) error {
		_, err := io.Copy(to, from)
		return err
	}, func(string) error { return nil })
	return took + time.Since(began), err
}

// writes has clients write until while returns, and adds how long each write took.
func (l *backupLoad) writes(took []time.Duration, while func() error) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var (
		clients sync.WaitGroup
		each    [backupWriters][]time.Duration
		errs    [backupWriters]error
	)
	for w := range backupWriters {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil && errs[w] == nil; n++ {
				began := time.Now()
				errs[w] = l.apply(w, n)
				each[w] = append(each[w], time.Since(began))
			}
		})
	}
	err := while()
	cancel()
	clients.Wait()
	return slices.Concat(took, slices.Concat(each[:]...)), errors.Join(append(errs[:], err)...)
}

// apply writes a widget of a writer's own.
func (l *backupLoad) apply(writer, n int) error {
	w := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b%d"},"spec":{"size":%d}}`, writer, 1+n%1000)
	r, err := http.NewRequest("PATCH", fmt.Sprintf("%s%s/b%d?fieldManager=test&force=true", l.URL, widgetsPath, writer), strings.NewReader(w))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/apply-patch+yaml")
	res, err := l.Client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return errors.New(res.Status)
	}
	return nil
}
