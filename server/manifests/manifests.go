// Package manifests has a server apply the files of a directory: at its start, and when they change. Kubernetes has nothing of that; k3s has.
//
// Options say which directory. Run looks at it on its caller's goroutine, once a second: at each file's size and time, as a tool for one
// machine can, also where the directory is mounted or full of links. What is new or has changed, and has been the same for a second, is read and applied, in the order of
// document.Rank, and what failed is tried again, later and later. Objects take the way of clients' writes (server-side apply, with force),
// with admission, as a user who may do everything. Of a file it keeps its identity and which objects it has, not their content. maxFiles and maxBytes bound a look.
package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/registry"
)

const (
	// interval is between two looks at the directory. It's also how long a file must have been the same: who writes one may be in the middle.
	interval = time.Second
	// firstPause and longestPause are before what failed is tried again: each pause is twice the one before.
	firstPause   = 2 * time.Second
	longestPause = time.Minute
	// maxFiles is how many files a directory may have.
	maxFiles = 10_000
	// maxBytes is how large a file may be: it's read as a whole, and its objects twice as many bytes.
	maxBytes = 64 << 20
)

// Options say which directory is applied. With the zero value none is.
type Options struct {
	// Dir is the directory, with all below it: files that end in .yaml, .yml or .json. It must be there at the start.
	Dir string
	// Prune deletes what was applied from the directory and isn't in it any more.
	Prune bool
}

// AddFlags adds the flags of the options.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&o.Dir, "manifests", "", "directory whose YAML and JSON files are applied, at the start and when they change")
	set.BoolVar(&o.Prune, "manifests-prune", false, "delete what was applied from --manifests and isn't there any more")
}

// Validate tells the first option that can't work, by the name of its flag.
func (o *Options) Validate() error {
	if o.Dir == "" {
		if o.Prune {
			return errors.New("--manifests-prune needs --manifests, which says from where")
		}
		return nil
	}
	if info, err := os.Stat(o.Dir); err != nil {
		return fmt.Errorf("--manifests: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("--manifests %s is no directory", o.Dir)
	}
	return nil
}

// Manifests applies a directory. Its methods work for nil, which is a server without one.
type Manifests struct {
	Options
	to      applier
	log     *slog.Logger
	metrics metrics

	files map[string]*file // by path: Run's own, as what follows
	looks int
	stale bool              // something may have to be pruned
	said  map[string]string // the last failures to look and to prune
}

// file is one of the directory's.
type file struct {
	size     int64
	modified time.Time
	since    int // the look that saw this first
	done     bool
	tries    int
	due      time.Time // when it's tried again
	objects  []key     // all that it names
	unread   bool      // it may name others, because a part of it can't be read
	failures map[string]string
}

// New returns what applies a directory to a registry, or nil if there is none.
func New(o Options, to *registry.Registry, log *slog.Logger) *Manifests {
	if o.Dir == "" {
		return nil
	}
	return &Manifests{Options: o, to: applier{to, o.Prune}, log: log, metrics: newMetrics(), files: map[string]*file{}, stale: true, said: map[string]string{}}
}

// Run applies the directory until ctx ends. It begins when the registry is ready.
func (m *Manifests) Run(ctx context.Context) {
	if m == nil {
		return
	}
	select {
	case <-m.to.registry.Ready():
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		m.look(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look looks at the directory once, and does what is to be done.
func (m *Manifests) look(ctx context.Context, now time.Time) {
	m.looks++
	err := m.compare(ctx)
	if m.complain(ctx, "the directory can't be looked at", err); err != nil {
		m.metrics.failing.Set(1)
		return
	}
	var todo []string
	for path, f := range m.files {
		if settled := f.since == 1 || f.since < m.looks; settled && (!f.done || len(f.failures) > 0 && !now.Before(f.due)) {
			todo = append(todo, path)
		}
	}
	slices.Sort(todo)
	m.apply(ctx, todo)
	failing := 0
	for _, path := range todo {
		f := m.files[path]
		f.tries++
		f.due = now.Add(min(longestPause, firstPause<<min(f.tries-1, 10)))
	}
	for _, f := range m.files {
		failing += len(f.failures)
	}
	m.metrics.failing.Set(float64(failing))
	m.prune(ctx)
}

// complain logs a failure, unless it's the last one of its kind again.
func (m *Manifests) complain(ctx context.Context, what string, err error) {
	switch {
	case err == nil:
		delete(m.said, what)
	case m.said[what] != err.Error() && ctx.Err() == nil:
		m.said[what] = err.Error()
		m.log.Error("manifests: "+what+"; it's tried again", "dir", m.Dir, "error", err)
	}
}

// compare notes which files are new, have changed or are gone.
func (m *Manifests) compare(ctx context.Context) error {
	seen := map[string]bool{}
	err := filepath.WalkDir(m.Dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case strings.HasPrefix(entry.Name(), ".") && path != m.Dir:
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			return nil
		}
		info, err := os.Stat(path) // of what a link leads to
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		if seen[path] = true; len(seen) > maxFiles {
			return fmt.Errorf("it has more than %d files", maxFiles)
		}
		if f := m.files[path]; f == nil || f.size != info.Size() || !f.modified.Equal(info.ModTime()) {
			next := &file{size: info.Size(), modified: info.ModTime(), since: m.looks}
			if f != nil { // of which it's still known what was applied, until the new one is
				next.objects, next.unread = f.objects, f.unread
			}
			m.files[path] = next
		}
		return nil
	})
	if err != nil {
		return err
	}
	for path := range m.files {
		if !seen[path] {
			delete(m.files, path)
			m.stale = true
		}
	}
	return nil
}

// object is one that is to be applied.
type object struct {
	document.Object
	from *file
	at   string // file:line
}

// apply reads files, and applies what is in them.
func (m *Manifests) apply(ctx context.Context, paths []string) {
	var all []object
	var before []map[string]string // the failures of each file, which aren't logged again
	for _, path := range paths {
		f := m.files[path]
		before = append(before, f.failures)
		all = append(all, f.read(path)...)
		m.stale = true
	}
	slices.SortStableFunc(all, func(a, b object) int { return a.rank() - b.rank() })
	for _, o := range all {
		err := m.to.apply(ctx, o.Object)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			o.from.fail(o.at, fmt.Errorf("%s %s: %w", document.Text(o.Object, "kind"), document.NameOf(o.Object), err))
			m.metrics.failures.Inc()
		} else {
			m.metrics.successes.Inc()
		}
	}
	for i, path := range paths {
		f := m.files[path]
		f.done = true
		for at, failure := range f.failures {
			if before[i][at] != failure {
				m.log.Error("manifests: not applied; it's tried again", "at", at, "error", failure)
			}
		}
	}
}

func (o object) rank() int {
	return document.Rank(document.Text(o.Object, "apiVersion"), document.Text(o.Object, "kind"))
}

// read returns the objects in the file, and notes what they are and what can't be read.
func (f *file) read(path string) (all []object) {
	f.objects, f.unread, f.failures = nil, false, nil
	err := f.split(path, func(line int, text []byte) error {
		at := fmt.Sprintf("%s:%d", path, line)
		objects, err := document.Parse(text)
		if err != nil {
			f.unread = true
			f.fail(at, err)
			return nil
		}
		for i, o := range objects {
			if len(objects) > 1 {
				at = fmt.Sprintf("%s:%d[%d]", path, line, i)
			}
			f.objects = append(f.objects, keyOf(o))
			all = append(all, object{o, f, at})
		}
		return nil
	})
	if err != nil {
		f.unread = true
		f.fail(path, err)
	}
	return all
}

// split calls fn with each document in the file.
func (f *file) split(path string, fn func(line int, text []byte) error) error {
	if f.size > maxBytes {
		return fmt.Errorf("it has more than %d bytes", maxBytes)
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	return document.Split(in, fn)
}

func (f *file) fail(at string, err error) {
	if f.failures == nil {
		f.failures = map[string]string{}
	}
	f.failures[at] = err.Error()
}

// prune deletes what was applied once and is in no file now, if something has changed since it was done. As long as a file can't be read,
// or is about to be, nothing is deleted: it may have anything in it.
func (m *Manifests) prune(ctx context.Context) {
	if !m.Prune || !m.stale {
		return
	}
	named := map[key]bool{}
	for _, f := range m.files {
		if f.unread || !f.done {
			return
		}
		for _, k := range f.objects {
			named[k] = true
		}
	}
	deleted, err := m.to.prune(ctx, named)
	for _, k := range deleted {
		m.log.Info("manifests: deleted, because no file has it any more", "object", k.String())
	}
	if m.complain(ctx, "what no file has any more can't be deleted", err); err != nil {
		m.metrics.failing.Inc()
		return
	}
	m.stale = false
}

// metrics are what is counted. Without a directory they stay 0.
type metrics struct {
	successes, failures prometheus.Counter
	failing             prometheus.Gauge
}

func newMetrics() metrics {
	applied := func(result string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_lite_manifests_applied_total", Help: "Objects of --manifests that were applied, by result.", ConstLabels: prometheus.Labels{"result": result},
		})
	}
	return metrics{applied("success"), applied("failure"), prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "apiserver_lite_manifests_failing", Help: "Objects and files of --manifests that can't be applied as they are now.",
	})}
}

// Collectors are the metrics.
func (m *Manifests) Collectors() []prometheus.Collector {
	of := newMetrics()
	if m != nil {
		of = m.metrics
	}
	return []prometheus.Collector{of.successes, of.failures, of.failing}
}
