package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// spaceReturns is how long the server may take to write again once there is space.
const spaceReturns = 30 * time.Second

// smallDisk mounts a file system of its own for a test, of megabytes, and fails the test where it may not mount one.
func smallDisk(t *testing.T, megabytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Fatalf("this test mounts a file system of its own, which this user may not (%v): run it as root, or leave it out with -skip '^%s$'", err, t.Name())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes a file until the disk is full, as fast as it can.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10} {
		block := bytes.Repeat([]byte{1}, size)
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
}

// fullLoad is clients that go on while the disk is full: some write small objects, some large ones, one
// watches, one lists.
type fullLoad struct {
	c       *client
	stop    chan struct{}
	work    sync.WaitGroup
	written atomic.Int64
	refused atomic.Int64
	listed  atomic.Int64
	watch   *stream
	mu      sync.Mutex       // guards what follows
	acked   map[string]int64 // the resourceVersion of each widget, as last answered
	bad     []string         // answers that should not be
	seen    map[string]int64 // by the watch
	last    int64            // where the watch got to; 0 for its beginning
}

func newFullLoad(c *client, from string) *fullLoad {
	l := &fullLoad{c: c, stop: make(chan struct{}), acked: map[string]int64{}, seen: map[string]int64{}}
	l.watch = c.watch(widgets + "?watch=true&resourceVersion=" + from)
	for i := range 6 {
		l.work.Go(func() { l.write(fmt.Sprintf("small-%d", i), 100, time.Millisecond) })
	}
	for i := range 2 {
		l.work.Go(func() { l.write(fmt.Sprintf("large-%d", i), 1<<20, 200*time.Millisecond) })
	}
	l.work.Go(l.list)
	return l
}

func (l *fullLoad) running() bool {
	select {
	case <-l.stop:
		return false
	default:
		return true
	}
}

func (l *fullLoad) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.bad) < 10 {
		l.bad = append(l.bad, fmt.Sprintf(format, args...))
	}
}

// write replaces a few widgets again and again, with a pause, as all of it is kept as history on the small disk.
func (l *fullLoad) write(id string, size int, pause time.Duration) {
	filler := strings.Repeat("x", size)
	for n := 0; l.running(); n++ {
		name := fmt.Sprintf("%s-%d", id, n%4)
		body := fmt.Sprintf(`{"spec":{"color":%q,"size":%d}}`, filler, n)
		method, path, kind := "PATCH", widgets+"/"+name, "application/merge-patch+json"
		if l.rv(name) == 0 {
			method, path, kind = "POST", widgets, "application/json"
			body = fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"color":%q,"size":%d}}`, name, filler, n)
		}
		a, err := l.c.try(method, path, body, "Content-Type", kind)
		l.note(name, a, err)
		time.Sleep(pause)
	}
}

func (l *fullLoad) rv(name string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked[name]
}

func (l *fullLoad) note(name string, a answer, err error) {
	switch {
	case err != nil:
		l.complain("a write wasn't answered: %v", err)
	case a.code == http.StatusInsufficientStorage:
		l.refused.Add(1)
		if a.object.Kind != "Status" || !strings.Contains(a.object.Message, "free space") {
			l.complain("507 without saying why: %s", a.body)
		}
		time.Sleep(5 * time.Millisecond) // a client waits before it tries again
	case a.code == http.StatusOK || a.code == http.StatusCreated:
		rv, err := strconv.ParseInt(a.object.Metadata.ResourceVersion, 10, 64)
		if err != nil {
			l.complain("%v", err)
		}
		l.mu.Lock()
		l.acked[name] = rv
		l.mu.Unlock()
		l.written.Add(1)
	default:
		l.complain("a write answered %d: %.300s", a.code, a.body)
	}
}

func (l *fullLoad) list() {
	for l.running() {
		a, err := l.c.try("GET", widgets+"?limit=5", "")
		if err != nil || a.code != http.StatusOK {
			l.complain("a list answered %d, %v", a.code, err)
		}
		l.listed.Add(1)
		time.Sleep(5 * time.Millisecond)
	}
}

// check compares what the server has with what was acknowledged, and what the watch saw.
func (l *fullLoad) check(t *testing.T) {
	t.Helper()
	there := map[string]int64{}
	list := l.c.do(http.StatusOK, "GET", widgets, "").object
	for _, o := range list.Items {
		there[o.Metadata.Name] = o.rv(t)
	}
	for name, rv := range l.acked {
		if there[name] != rv {
			t.Errorf("%s was acknowledged at %d and is there at %d", name, rv, there[name])
		}
	}
	l.follow(t)
}

// follow reads the watch until it has what has been acknowledged by now, and opens it anew where it got to.
func (l *fullLoad) follow(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	acked := maps.Clone(l.acked)
	l.mu.Unlock()
	began := time.Now()
	for name, rv := range acked {
		for l.seen[name] < rv {
			e, err := l.watch.next()
			if err != nil && time.Since(began) > patience {
				t.Fatalf("the watch, before it had %s at %d: %v", name, rv, err)
			}
			if err != nil { // it was open for longer than its reads may take
				l.reopen()
				continue
			}
			l.last = e.Object.rv(t)
			l.seen[e.Object.Metadata.Name] = l.last
		}
	}
	l.reopen()
}

// reopen opens the watch anew where it got to.
func (l *fullLoad) reopen() {
	l.watch.body.Close()
	l.watch = l.c.watch(fmt.Sprintf("%s?watch=true&resourceVersion=%d", widgets, l.last))
}

// end stops the clients and fails the test if one of them was treated badly.
func (l *fullLoad) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.work.Wait()
	for _, b := range l.bad {
		t.Error(b)
	}
}

// readyz returns the code and the text.
func (c *client) readyz() (int, string) {
	a, err := c.try("GET", "/readyz", "")
	if err != nil {
		return 0, err.Error()
	}
	return a.code, a.body
}

// fillAndEmpty fills the disk, sees that reads and the watch go on and writes are refused, empties it, and
// waits until writes go on.
func (l *fullLoad) fillAndEmpty(t *testing.T, disk string, fill func(*testing.T, string)) {
	t.Helper()
	before := l.written.Load()
	eventually(t, "writes are answered", func() bool { return l.written.Load() > before+20 })
	fill(t, disk)
	refused := l.refused.Load()
	eventually(t, "writes are refused", func() bool { return l.refused.Load() > refused+20 })
	if code, text := l.c.readyz(); code != http.StatusInternalServerError || !strings.Contains(text, "writes are refused: the server's disk") {
		t.Errorf("readyz answers %d while the disk is full:\n%s", code, text)
	}
	listed := l.listed.Load()
	eventually(t, "lists are answered", func() bool { return l.listed.Load() > listed+5 })
	empty(t, disk)
	emptied := time.Now()
	before = l.written.Load()
	for l.written.Load() < before+20 {
		if time.Since(emptied) > spaceReturns {
			code, text := l.c.readyz()
			t.Fatalf("no writes %v after there was space; readyz answers %d:\n%s", spaceReturns, code, text)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestDiskFills fills a disk while clients write, watch and list, and empties it: reads and watches go on,
// writes get 507 and then go on, nothing that was acknowledged is lost, also over a restart on the full
// disk, and the server ends as told. Its directory has a name that would match the one beside it if it were a pattern, and
// nothing is done to that one, whose files have the names of its own.
func TestDiskFills(t *testing.T) {
	disk := smallDisk(t, 128)
	dir, beside := filepath.Join(disk, "x[1]"), filepath.Join(disk, "x1")
	args := []string{"--data-dir", dir}
	p := start(t, args...)
	theirs := namesakes(t, dir, beside)
	p.define()
	l := newFullLoad(p.client, p.do(http.StatusOK, "GET", widgets, "").object.Metadata.ResourceVersion)
	for range 3 {
		l.fillAndEmpty(t, disk, fill)
	}
	fill(t, disk)
	refused := l.refused.Load()
	eventually(t, "writes are refused", func() bool { return l.refused.Load() > refused+20 })
	l.end(t)
	l.check(t)
	p.stop()

	p = start(t, args...) // on the full disk
	l.c, l.watch = p.client, p.watch(widgets+"?watch=true&resourceVersion=0")
	clear(l.seen)
	l.check(t)
	tries := 0 // the stop may have left some room
	eventually(t, "a write is refused after a start on a full disk", func() bool {
		tries++
		a, err := p.try("POST", widgets, widget(fmt.Sprint("refused-", tries), 1))
		if err != nil || a.code != http.StatusCreated && a.code != http.StatusInsufficientStorage {
			t.Fatalf("a write after a start on a full disk: %d, %v", a.code, err)
		}
		return a.code == http.StatusInsufficientStorage
	})
	empty(t, disk)
	eventually(t, "a write is answered", func() bool {
		a, err := p.try("POST", widgets, widget("again", 1))
		return err == nil && a.code == http.StatusCreated
	})
	p.stop()
	for _, file := range theirs {
		if text, err := os.ReadFile(file); err != nil || string(text) != file {
			t.Errorf("a file of the directory beside is %.100q, %v", text, err)
		}
	}
}

// namesakes makes a directory with files of the names of another one's, and as many logs as the server would remove for a full
// disk. Each file holds its own path.
func namesakes(t *testing.T, dir, beside string) (files []string) {
	t.Helper()
	write := func(file string) {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		other := filepath.Join(beside, strings.TrimPrefix(path, dir))
		write(other)
		if filepath.Ext(other) == ".wal" {
			for i := range 10 {
				write(filepath.Join(filepath.Dir(other), fmt.Sprintf("%016x-%016x.wal", 100+i, 100+i)))
			}
		}
		return nil
	})
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files
}

// failTime is how long a server may take to end after its store has failed.
const failTime = 5 * time.Second

// TestDiskFails makes every file's growth fail, as a failing disk does: the server ends by itself, soon, with
// code 1 and one line that says why, whatever waits for its store; and the next start has all that was
// acknowledged. A sync that fails, on which etcd ends in the same way, would need a device of its own.
func TestDiskFails(t *testing.T) {
	const fileLimit = 16<<20 + 256<<10 // the database's file grows to a little less at its first commit
	dir := t.TempDir()
	p := start(t, "--data-dir", dir)
	p.define()
	first := p.do(http.StatusCreated, "POST", widgets, widget("first", 1))
	p.stop()

	p = launch(t, run{args: []string{"--data-dir", dir}, fileBlocks: fileLimit / 512}).ready()
	s := p.watch(widgets + "?watch=true&resourceVersion=0")
	defer s.body.Close()
	var readers sync.WaitGroup
	defer readers.Wait()
	for range 4 { // they read etcd's history, and hang there when it has failed
		readers.Go(func() {
			for err := error(nil); err == nil; {
				_, err = p.try("GET", fmt.Sprintf("%s?resourceVersion=%s&resourceVersionMatch=Exact", widgets, first.object.Metadata.ResourceVersion), "")
			}
		})
	}
	acked := map[string]int64{}
	filler := strings.Repeat("x", 900<<10)
	for n := 0; ; n++ {
		name := fmt.Sprintf("w-%d", n)
		a, err := p.try("POST", widgets, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"color":%q}}`, name, filler))
		if err != nil || a.code != http.StatusCreated {
			break
		}
		acked[name] = a.object.rv(t)
	}
	if code := p.wait(failTime); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	last := lastLine(p.stderr.String())
	if !strings.HasPrefix(last, "apiserver-lite: ") || !strings.Contains(last, "file too large") {
		t.Errorf("the last line doesn't say why: %s", last)
	}

	p = start(t, "--data-dir", dir)
	for name, rv := range acked {
		if got := p.do(http.StatusOK, "GET", widgets+"/"+name, "").object.rv(t); got != rv {
			t.Errorf("%s was acknowledged at %d and is there at %d", name, rv, got)
		}
	}
	p.stop()
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
