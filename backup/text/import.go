package text

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
)

const (
	// workers is how many objects of a kind are sent at once: so many share a sync of the server's disk.
	workers = 8
	// batchDocuments and batchBytes bound what is read at once.
	batchDocuments = 400
	batchBytes     = 16 << 20
	// maxWaiting bounds what is kept of objects that need something that isn't there yet, as text in bytes. What is beyond it has failed.
	maxWaiting = 128 << 20
	// maxListed is how many failures are listed at the end. The others are counted.
	maxListed = 1000
)

// importCommand is what the arguments of an import say.
type importCommand struct {
	from   []string
	dryRun bool
}

func (c *importCommand) addFlags(set *pflag.FlagSet) {
	set.BoolVar(&c.dryRun, "dry-run", false, "have the server do everything but store the result")
}

func (c *importCommand) parse(args []string) error {
	if c.from = args; len(args) == 0 {
		return errors.New("what to import? apiserver-lite import backup.yaml, a directory, or - for the standard input")
	}
	return nil
}

func (c *importCommand) run(ctx context.Context, server *client.Client, p cli.Process) error {
	i := &importing{to: newTarget(server, c.dryRun), told: newProgress(p.Err)}
	files, err := c.files(ctx)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err = i.file(ctx, file, p.In); err != nil {
			break
		}
	}
	if err == nil {
		err = i.finish(ctx)
	}
	fmt.Fprintln(p.Out, i.summary(c.dryRun))
	for _, f := range i.failures {
		fmt.Fprintf(p.Err, "%s: %v\n", f.at, f.err)
	}
	if err == nil && i.failed > 0 {
		err = fmt.Errorf("%s failed", count(i.failed, "object"))
	}
	return err
}

// files returns the files that are named: those of a directory in the order in which their first objects are applied.
func (c *importCommand) files(ctx context.Context) (all []string, err error) {
	for _, from := range c.from {
		info, err := os.Stat(from)
		switch {
		case from == "-":
		case err != nil:
			return nil, err
		case info.IsDir():
			files, err := filesIn(ctx, from)
			if err != nil {
				return nil, err
			}
			all = append(all, files...)
			continue
		}
		all = append(all, from)
	}
	return all, nil
}

// filesIn returns the YAML and JSON files below a directory, in the order of the ranks of their first objects, and of their paths.
func filesIn(ctx context.Context, root string) (all []string, err error) {
	ranks := map[int][]string{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return fs.SkipDir
		case entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			return nil
		}
		rank, err := rankOf(path)
		ranks[rank] = append(ranks[rank], path)
		return err
	})
	if err != nil {
		return nil, err
	}
	for rank := range document.Last() {
		all = append(all, ranks[rank]...)
	}
	return all, nil
}

// rankOf returns the rank of the first object in a file. One that can't be parsed comes at the end, where it's reported.
func rankOf(path string) (rank int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	rank = document.Last() - 1
	err = document.Split(f, func(_ int, text []byte) error {
		if all, err := document.Parse(text); err == nil && len(all) > 0 {
			rank = document.Rank(document.Text(all[0], "apiVersion"), document.Text(all[0], "kind"))
		}
		return io.EOF
	})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return rank, err
}

// read is a document that was read.
type read struct {
	at   string // file:line
	text []byte
}

// item is an object to import.
type item struct {
	at     string // file:line, kind and name
	object document.Object
	size   int // of its text
	what   outcome
	err    error
}

// failure is an object that couldn't be imported.
type failure struct {
	at  string
	err error
}

// importing is one import.
type importing struct {
	to       *target
	told     *progress
	batch    []read
	bytes    int
	waiting  []*item
	kept     int // bytes of waiting
	counts   [outcomes]int
	failed   int
	failures []failure // the first maxListed
}

// file imports the objects in a file, or of the standard input for "-".
func (i *importing) file(ctx context.Context, file string, in io.Reader) error {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	// A terminal and a pipe may say nothing for ever, and no read of them can be interrupted: when ctx ends, the goroutine that reads is left
	// behind for the end of the process.
	documents, failed := make(chan read), make(chan error, 1)
	go func() {
		failed <- document.Split(in, func(line int, text []byte) error {
			select {
			case documents <- read{fmt.Sprintf("%s:%d", file, line), text}:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		close(documents)
	}()
	for {
		select {
		case d, more := <-documents:
			if !more {
				if err := <-failed; err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				return nil
			}
			if err := i.take(ctx, d); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take adds a document to the batch, and imports that when it's full.
func (i *importing) take(ctx context.Context, d read) error {
	i.batch = append(i.batch, d)
	if i.bytes += len(d.text); len(i.batch) < batchDocuments && i.bytes < batchBytes {
		return nil
	}
	return i.flush(ctx)
}

// flush imports the batch: its objects in their order, but those of one kind at once.
func (i *importing) flush(ctx context.Context) error {
	parsed := make([][]*item, len(i.batch))
	each(len(i.batch), func(n int) { parsed[n] = parse(i.batch[n]) })
	i.batch, i.bytes = nil, 0
	return i.give(ctx, slices.Concat(parsed...))
}

// parse returns the objects in a document. What can't be parsed is one without an object, and with an error.
func parse(d read) (all []*item) {
	objects, err := document.Parse(d.text)
	if err != nil {
		return []*item{{at: d.at, err: err, what: refused}}
	}
	for _, o := range objects {
		name := document.NameOf(o)
		if namespace := document.NamespaceOf(o); namespace != "" {
			name = namespace + "/" + name
		}
		all = append(all, &item{at: fmt.Sprintf("%s: %s %s", d.at, document.Text(o, "kind"), name), object: o, size: len(d.text)})
	}
	return all
}

// give gives objects to the server, one kind after the other, and notes what became of them.
func (i *importing) give(ctx context.Context, items []*item) error {
	for len(items) > 0 {
		n := 1
		for n < len(items) && sameKind(items[0], items[n]) {
			n++
		}
		now := items[:n]
		items = items[n:]
		each(n, func(n int) {
			if o := now[n]; o.err == nil {
				o.what, o.err = i.to.put(ctx, o.object)
			}
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, o := range now {
			if refusal := (*client.StatusError)(nil); o.object != nil && o.err != nil && !errors.As(o.err, &refusal) && !errors.Is(o.err, client.ErrNotFound) {
				return fmt.Errorf("%s: %w", o.at, o.err) // the server can't be reached, and wouldn't be for the next one
			}
			i.note(o)
		}
		i.to.settle(ctx, now)
		i.told.say("%s; %d wait", i.summary(false), len(i.waiting))
	}
	return nil
}

func sameKind(a, b *item) bool {
	return a.object["kind"] == b.object["kind"] && a.object["apiVersion"] == b.object["apiVersion"]
}

// each calls fn with 0 to n-1, by workers, and waits for them.
func each(n int, fn func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(workers, n) {
		all.Go(func() {
			for at := int(next.Add(1)) - 1; at < n; at = int(next.Add(1)) - 1 {
				fn(at)
			}
		})
	}
	all.Wait()
}

// note notes what became of an object. One that needs what isn't there waits, as far as there's room.
func (i *importing) note(o *item) {
	if o.what == missing && i.kept+o.size <= maxWaiting {
		i.waiting = append(i.waiting, o)
		i.kept += o.size
		return
	}
	i.count(o)
}

func (i *importing) count(o *item) {
	if o.err == nil {
		i.counts[o.what]++
		return
	}
	if i.failed++; len(i.failures) < maxListed {
		i.failures = append(i.failures, failure{o.at, o.err})
	}
}

// finish imports the last batch, and what waits: again and again, as long as some of it can be.
func (i *importing) finish(ctx context.Context) error {
	if err := i.flush(ctx); err != nil {
		return err
	}
	for len(i.waiting) > 0 {
		again := i.waiting
		i.waiting, i.kept = nil, 0
		for _, o := range again {
			o.what, o.err = 0, nil
		}
		if err := i.give(ctx, again); err != nil {
			return err
		}
		if len(i.waiting) == len(again) {
			break
		}
	}
	for _, o := range i.waiting {
		i.count(o)
	}
	return nil
}

// summary says how many objects became what.
func (i *importing) summary(dryRun bool) string {
	all := i.counts[created] + i.counts[changed] + i.counts[unchanged]
	said := fmt.Sprintf("imported %s: %d created, %d changed, %d unchanged", count(all, "object"), i.counts[created], i.counts[changed], i.counts[unchanged])
	if dryRun {
		said += " (dry run: nothing is stored)"
	}
	if n := i.counts[unchecked]; n > 0 {
		said += fmt.Sprintf("; %d couldn't be checked, because what they need isn't stored", n)
	}
	if i.failed > 0 {
		said += fmt.Sprintf("; %d failed", i.failed)
		if n := i.failed - len(i.failures); n > 0 {
			said += fmt.Sprintf(", %d of which aren't listed", n)
		}
	}
	return said
}
