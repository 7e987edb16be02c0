package backups_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/server/backups"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// database is the content of a snapshot, of as many bytes as a sector has.
type database struct{ fails error }

func (d database) Size() int64 { return 512 }

func (d database) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(make([]byte, 512))
	return int64(n), errors.Join(err, d.fails)
}

// good opens one that can be read.
func good(context.Context) (*snapshot.Snapshot, error) {
	return snapshot.New(database{}, func() error { return nil }), nil
}

func options(t *testing.T, schedule, dir string, keep int) backups.Options {
	t.Helper()
	s, err := backups.ParseSchedule(schedule)
	if err != nil {
		t.Fatal(err)
	}
	o := backups.Options{Schedule: s, Dir: dir, Keep: keep}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	return o
}

// runFor takes snapshots for a while, and returns what the log has.
func runFor(t *testing.T, o backups.Options, open snapshot.Open, d time.Duration) (b *backups.Backups, log string) {
	t.Helper()
	var text bytes.Buffer
	b, err := backups.Open(o, open, slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	b.Run(ctx)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return b, text.String()
}

// files are the names of what a directory has, without the lock.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestWhen: snapshots come when the schedule says, and their names are the times, which begin at 2000-01-01 00:00 here.
func TestWhen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		schedule string
		runs     time.Duration
		want     string // the times
	}{
		"an interval, the first at once": {"6h", 13 * time.Hour, "20000101T000000Z 20000101T060000Z 20000101T120000Z"},
		"every":                          {"@every 5h", 6 * time.Hour, "20000101T000000Z 20000101T050000Z"},
		"cron":                           {"CRON_TZ=UTC 30 3 * * *", 28 * time.Hour, "20000101T033000Z 20000102T033000Z"},
		"a word of cron's":               {"CRON_TZ=UTC @daily", 25 * time.Hour, "20000102T000000Z"},
		"in a zone":                      {"CRON_TZ=Asia/Tokyo 0 12 * * *", 4 * time.Hour, "20000101T030000Z"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "snapshots")
				runFor(t, options(t, tc.schedule, dir, 9), good, tc.runs)
				got := strings.NewReplacer("snapshot-", "", ".db", "").Replace(strings.Join(files(t, dir), " "))
				if got != tc.want {
					t.Errorf("there is %s, want %s", got, tc.want)
				}
				if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
					t.Error(info.Mode(), err)
				}
			})
		})
	}
}

// TestRestarts: an interval goes on from the newest snapshot, what a killed process left goes, and the oldest go when there are too many;
// files of others stay.
func TestRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		others := []string{"a.part", "snapshot-19990101T000000Z.db.bak", "snapshot-1.db", "x.db.123.part", "snapshot-20000101T000000Z.db.part"}
		for _, name := range append(others, "snapshot-19990101T000000Z.db", "snapshot-19991231T210000Z.db", "snapshot-20000101T000000Z.db.123.part") {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b, _ := runFor(t, options(t, "6h", dir, 2), good, 2*time.Hour)
		if got := value(t, b, "apiserver_lite_scheduled_snapshot_timestamp_seconds"); got != float64(time.Now().Add(-5*time.Hour).Unix()) {
			t.Errorf("the newest one is said to be of %v", got)
		}
		runFor(t, options(t, "6h", dir, 2), good, 2*time.Hour) // in which the next one is due
		got := fmt.Sprint(files(t, dir))
		want := "[a.part snapshot-1.db snapshot-19990101T000000Z.db.bak snapshot-19991231T210000Z.db snapshot-20000101T000000Z.db.part snapshot-20000101T030000Z.db x.db.123.part]"
		if got != want {
			t.Errorf("there is %s, want %s", got, want)
		}
	})
}

// TestFailures: a snapshot that fails is counted, and one line of the log; it leaves nothing, costs no older one, and the next is tried as
// scheduled.
func TestFailures(t *testing.T) {
	t.Parallel()
	part := func(dir string) string {
		found, _ := filepath.Glob(filepath.Join(dir, "*.part"))
		return strings.Join(found, " ")
	}
	for name, tc := range map[string]struct {
		open func(dir string) snapshot.Open
		says string
	}{
		"it can't be begun": {func(string) snapshot.Open {
			return func(context.Context) (*snapshot.Snapshot, error) { return nil, errors.New("no store") }
		}, "no store"},
		"it is cut": {func(string) snapshot.Open {
			return func(context.Context) (*snapshot.Snapshot, error) {
				return snapshot.New(database{errors.New("cut off")}, func() error { return nil }), nil
			}
		}, "cut off"},
		"it's damaged on disk": {func(dir string) snapshot.Open {
			return func(context.Context) (*snapshot.Snapshot, error) {
				return snapshot.New(database{}, func() error { return os.WriteFile(part(dir), make([]byte, 512+32), 0o600) }), nil
			}
		}, "SHA-256"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				o := options(t, "1h", dir, 1)
				runFor(t, o, good, time.Minute)
				before := fmt.Sprint(files(t, dir))
				b, log := runFor(t, o, tc.open(dir), 150*time.Minute)
				if n := strings.Count(log, "\n"); n != 2 || strings.Count(log, tc.says) != 2 || strings.Count(log, "the scheduled snapshot failed") != 2 {
					t.Errorf("two fail, and the log has %d lines: %s", n, log)
				}
				if got := value(t, b, "apiserver_lite_scheduled_snapshots_total failure"); got != 2 {
					t.Errorf("%v are counted", got)
				}
				if got := fmt.Sprint(files(t, dir)); got != before {
					t.Errorf("there is %s, want %s", got, before)
				}
				if b, _ := runFor(t, o, good, time.Minute); value(t, b, "apiserver_lite_scheduled_snapshots_total success") != 1 || value(t, b, "apiserver_lite_scheduled_snapshot_bytes") != 512+32 {
					t.Error("the next one isn't counted")
				}
			})
		})
	}
}

// TestRewritten: a snapshot waits a while for a database that is written anew.
func TestRewritten(t *testing.T) {
	t.Parallel()
	for tries, want := range map[int]int{10: 1, 100: 0} {
		synctest.Test(t, func(t *testing.T) {
			dir, left := t.TempDir(), tries
			runFor(t, options(t, "1h", dir, 1), func(ctx context.Context) (*snapshot.Snapshot, error) {
				if left--; left > 0 {
					return nil, snapshot.ErrRewriting
				}
				return good(ctx)
			}, 5*time.Minute)
			if got := files(t, dir); len(got) != want {
				t.Errorf("after %d tries there is %v", tries, got)
			}
		})
	}
}

// value returns a metric's value by its name and, if it has one, the value of its label.
func value(t *testing.T, b *backups.Backups, name string) float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(b.Collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			is := f.GetName()
			for _, l := range m.Label {
				is += " " + l.GetValue()
			}
			if is == name {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// TestScheduleRefused: what is no schedule is refused with what is wrong.
func TestScheduleRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"soon":               "neither an interval such as 6h nor a cron expression",
		"0 25 * * *":         "above maximum",
		"0 3 * *":            "expected exactly 5 fields",
		"0 0 30 2 *":         "never comes",
		"10ms":               "must be 1s or more",
		"-1h":                "must be 1s or more",
		"CRON_TZ=Nowhere":    "a time zone, and nothing after it",
		"TZ=No/where @daily": "bad location",
		"@sometimes":         "unrecognized descriptor",
	} {
		if s, err := backups.ParseSchedule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v, %v", text, s, err)
		}
	}
}

// TestOptionsRefused: options that can't work are refused by the name of their flag, and leave nothing.
func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	hourly, err := backups.ParseSchedule("@hourly")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, open, taken := filepath.Join(dir, "file"), filepath.Join(dir, "open"), filepath.Join(dir, "taken")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	b, err := backups.Open(backups.Options{Schedule: hourly, Dir: taken, Keep: 1}, good, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for name, tc := range map[string]struct {
		o    backups.Options
		want string
	}{
		"no directory":           {backups.Options{Schedule: hourly, Keep: 1}, "needs --snapshot-dir"},
		"no schedule":            {backups.Options{Dir: dir, Keep: 1}, "needs --snapshot-schedule"},
		"none to keep":           {backups.Options{Schedule: hourly, Dir: dir}, "--snapshot-keep must be at least 1"},
		"a file":                 {backups.Options{Schedule: hourly, Dir: file, Keep: 1}, "is a file"},
		"nothing above it":       {backups.Options{Schedule: hourly, Dir: dir + "/x/y", Keep: 1}, "can't be made"},
		"open to others":         {backups.Options{Schedule: hourly, Dir: open, Keep: 1}, "chmod 700"},
		"of another server":      {backups.Options{Schedule: hourly, Dir: taken, Keep: 1}, "another server's"},
		"a new one, but no more": {backups.Options{Schedule: hourly, Dir: dir + "/new", Keep: 1}, ""},
	} {
		err := tc.o.Validate()
		if tc.want == "another server's" && err == nil {
			_, err = backups.Open(tc.o, good, slog.New(slog.DiscardHandler))
		}
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := fmt.Sprint(files(t, dir)); got != "[file open taken]" {
		t.Errorf("there is %s", got)
	}
}
