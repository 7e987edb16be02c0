package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// lockName is the file of the directory whose lock the server has.
const lockName = "lock"

// timeLayout is the time in a snapshot's name, in UTC: names sort as times do.
const timeLayout = "20060102T150405Z"

// Names of ours: that of a snapshot, and that of one that isn't finished.
var (
	ours       = regexp.MustCompile(`^snapshot-(\d{8}T\d{6}Z)\.db$`)
	unfinished = regexp.MustCompile(`^snapshot-\d{8}T\d{6}Z\.db\.\d+\.part$`)
)

// patience is how long a snapshot waits to begin while the database is being written anew, and pause is between two tries.
const (
	patience = time.Minute
	pause    = time.Second
)

// longest is how long Run waits before it looks at the clock again, which may have been set, or have stood still with the machine.
const longest = time.Minute

// Backups takes a server's snapshots. Its methods work for nil, which is a server without a schedule.
type Backups struct {
	Options
	open snapshot.Open
	log  *slog.Logger
	lock *os.File
	last time.Time // when the last one was tried: Run's own
	metrics
}

// Open takes the directory, and removes what a killed process left unfinished there. open opens a snapshot of the server's store. Without a
// schedule it returns nil. The error names the flag.
func Open(o Options, open snapshot.Open, log *slog.Logger) (*Backups, error) {
	if !o.Schedule.On() {
		return nil, nil
	}
	if _, err := o.makeDir(); err != nil {
		return nil, err
	}
	b := &Backups{Options: o, open: open, log: log, metrics: newMetrics()}
	if err := b.take(); err != nil {
		return nil, fmt.Errorf("--snapshot-dir %s %w", o.Dir, err)
	}
	return b, nil
}

// take locks the directory, and looks at what is there.
func (b *Backups) take() (err error) {
	if b.lock, err = os.OpenFile(filepath.Join(b.Dir, lockName), os.O_RDWR|os.O_CREATE|disk.NoFollow, 0o600); err != nil {
		return fmt.Errorf("can't be written: %w", err)
	}
	defer func() {
		if err != nil {
			b.lock.Close()
		}
	}()
	err = disk.Lock(b.lock, false)
	switch {
	case errors.Is(err, disk.ErrLocked):
		return errors.New("is another server's: each has a directory of its own")
	case err != nil:
		return fmt.Errorf("can't be locked: %w", err)
	}
	parts, err := b.named(unfinished)
	if err != nil {
		return err
	}
	for _, name := range parts {
		if err := os.Remove(filepath.Join(b.Dir, name)); err != nil {
			return fmt.Errorf("has the rest of a snapshot that can't be removed: %w", err)
		}
	}
	return b.lookBack()
}

// lookBack takes the newest snapshot for the last success.
func (b *Backups) lookBack() error {
	all, err := b.named(ours)
	if err != nil || len(all) == 0 {
		return err
	}
	newest := all[len(all)-1]
	at, err := time.Parse(timeLayout, ours.FindStringSubmatch(newest)[1])
	if err != nil {
		return nil // a date that there isn't, which no server of ours wrote
	}
	info, err := os.Stat(filepath.Join(b.Dir, newest))
	if err != nil {
		return err
	}
	b.last = at
	b.succeeded(at, info.Size())
	return nil
}

// named returns the names of the directory's files that are of a pattern, the oldest first.
func (b *Backups) named(pattern *regexp.Regexp) (names []string, err error) {
	entries, err := os.ReadDir(b.Dir) // sorted
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && pattern.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Close gives the directory back, after Run has returned.
func (b *Backups) Close() error {
	if b == nil {
		return nil
	}
	return b.lock.Close()
}

// Run takes snapshots when they're due, until ctx ends.
func (b *Backups) Run(ctx context.Context) {
	if b == nil {
		return
	}
	due := b.Schedule.next(b.last, wall())
	for {
		wait := time.NewTimer(min(longest, due.Sub(wall())))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		if now := wall(); !now.Before(due) {
			b.snapshot(ctx, now)
			b.last = now
			due = b.Schedule.next(now, wall())
		}
	}
}

// wall is the time by the clock on the wall, which goes on while the machine sleeps.
func wall() time.Time { return time.Now().Round(0) }

// snapshot takes one, and says what has become of it.
func (b *Backups) snapshot(ctx context.Context, now time.Time) {
	path := b.free(now)
	size, err := b.write(ctx, path)
	switch {
	case ctx.Err() != nil: // the server stops
		return
	case err != nil:
		b.failures.Inc()
		b.log.Error("the scheduled snapshot failed; the next one is tried as scheduled", "dir", b.Dir, "error", err)
		return
	}
	b.successes.Inc()
	b.succeeded(now, size)
	b.log.Info("the scheduled snapshot was taken", "file", path, "bytes", size, "took", time.Since(now).Round(time.Millisecond))
	if err := b.removeOld(); err != nil {
		b.log.Warn("old snapshots can't be removed", "dir", b.Dir, "error", err)
	}
}

// free returns the path for a snapshot of a time. One that is there, as after the clock was set back, isn't replaced.
func (b *Backups) free(at time.Time) (path string) {
	for ; ; at = at.Add(time.Second) {
		path = filepath.Join(b.Dir, "snapshot-"+at.UTC().Format(timeLayout)+".db")
		if _, err := os.Lstat(path); err != nil {
			return path
		}
	}
}

// write writes a snapshot, and returns its size.
func (b *Backups) write(ctx context.Context, path string) (size int64, err error) {
	content, err := b.begin(ctx)
	if err != nil {
		return 0, err
	}
	closing := content.Close
	defer func() { err = errors.Join(err, closing()) }()
	if err := snapshot.Room(b.Dir, content.Size); err != nil {
		return 0, err
	}
	within, cancel := context.WithTimeout(ctx, content.Time())
	defer cancel()
	err = snapshot.Save(path, func(to io.Writer) error {
		_, err := content.WriteTo(snapshot.Until(within, to))
		return err
	}, func(part string) error {
		closed := closing() // of the database nothing more is read
		closing = func() error { return nil }
		_, err := snapshot.Sum(ctx, part)
		return errors.Join(closed, err)
	})
	return content.Size, err
}

// begin opens a snapshot. It waits for a database that is being written anew.
func (b *Backups) begin(ctx context.Context) (*snapshot.Snapshot, error) {
	for since := time.Now(); ; {
		content, err := b.open(ctx)
		if !errors.Is(err, snapshot.ErrRewriting) || time.Since(since) > patience {
			return content, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// removeOld removes the oldest snapshots, so that Keep stay.
func (b *Backups) removeOld() error {
	all, err := b.named(ours)
	if err != nil {
		return err
	}
	for _, name := range slices.Clone(all[:max(0, len(all)-b.Keep)]) {
		err = errors.Join(err, os.Remove(filepath.Join(b.Dir, name)))
	}
	return err
}

// metrics are what is counted. Without a schedule they stay 0.
type metrics struct {
	successes, failures prometheus.Counter
	at, bytes           prometheus.Gauge // of the last success
}

func newMetrics() metrics {
	tried := func(result string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_lite_scheduled_snapshots_total", Help: "Snapshots of itself that the server has tried, by result.",
			ConstLabels: prometheus.Labels{"result": result},
		})
	}
	return metrics{
		tried("success"), tried("failure"),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "apiserver_lite_scheduled_snapshot_timestamp_seconds", Help: "When the newest scheduled snapshot was begun, in seconds since 1970; 0: there's none."}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "apiserver_lite_scheduled_snapshot_bytes", Help: "The size of the newest scheduled snapshot."}),
	}
}

func (m metrics) succeeded(at time.Time, size int64) {
	m.at.Set(float64(at.Unix()))
	m.bytes.Set(float64(size))
}

// Collectors returns what Prometheus reads.
func (b *Backups) Collectors() []prometheus.Collector {
	m := newMetrics()
	if b != nil {
		m = b.metrics
	}
	return []prometheus.Collector{m.successes, m.failures, m.at, m.bytes}
}
