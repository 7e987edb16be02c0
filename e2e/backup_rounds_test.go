package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// backupRounds is how many rounds TestBackupRounds makes: the environment's BACKUP_ROUNDS, or 3.
func backupRounds(t *testing.T) int {
	t.Helper()
	if os.Getenv("BACKUP_ROUNDS") == "" {
		return 3
	}
	n, err := strconv.Atoi(os.Getenv("BACKUP_ROUNDS"))
	if err != nil || n < 1 {
		t.Fatalf("BACKUP_ROUNDS must be a number above 0, not %q", os.Getenv("BACKUP_ROUNDS"))
	}
	return n
}

// backedUp is what a server has acknowledged.
type backedUp struct {
	mu   sync.Mutex // guards the following
	all  map[string]bool
	last string // the newest version that a writer has seen
}

// write creates objects until the server is gone.
func (l *backedUp) write(p *process, writer string) {
	for n := 0; ; n++ {
		name := fmt.Sprint(writer, "-", n)
		a, err := p.try("POST", widgets, widget(name, n))
		if err != nil {
			return
		}
		if a.code == http.StatusCreated {
			l.mu.Lock()
			l.all[name], l.last = true, a.object.Metadata.ResourceVersion
			l.mu.Unlock()
		}
	}
}

// seen returns what is acknowledged now, and the newest version.
func (l *backedUp) seen() (all []string, last string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.all {
		all = append(all, name)
	}
	return all, l.last
}

// TestBackupRounds has writers write, saves a snapshot meanwhile, kills the server and restores it, again and again, each time from the last
// one's directory. What was acknowledged before a snapshot is there, and nobody goes on from a version of before.
func TestBackupRounds(t *testing.T) {
	t.Parallel()
	const writers, enough = 4, 20 // objects before the snapshot, and after it
	dir := filepath.Join(t.TempDir(), "data")
	for round := range backupRounds(t) {
		p := start(t, "--data-dir", dir)
		if round == 0 {
			p.define()
		}
		l := &backedUp{all: map[string]bool{}}
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() { l.write(p, fmt.Sprint("r", round, "-", w)) })
		}
		atLeast := func(n int) {
			eventually(t, "enough is written", func() bool { names, _ := l.seen(); return len(names) >= n })
		}
		atLeast(enough)
		before, earlier := l.seen()
		saved := filepath.Join(t.TempDir(), "saved.db")
		command(t, "snapshot", "save", saved, "--server", p.url)
		names, _ := l.seen()
		atLeast(len(names) + enough)
		p.kill()
		all.Wait()
		_, later := l.seen()

		old := dir
		dir = filepath.Join(t.TempDir(), "restored")
		command(t, "snapshot", "restore", saved, "--data-dir", dir)
		if err := os.RemoveAll(old); err != nil {
			t.Fatal(err)
		}
		p = start(t, "--data-dir", dir)
		there := map[string]bool{}
		for _, o := range p.do(http.StatusOK, "GET", widgets, "").object.Items {
			there[o.Metadata.Name] = true
		}
		for _, name := range before {
			if !there[name] {
				t.Errorf("round %d: %s was acknowledged before the snapshot, and is lost", round, name)
			}
		}
		for _, version := range []string{earlier, later} {
			if a := p.do(http.StatusOK, "GET", widgets+"?watch=true&timeoutSeconds=5&resourceVersion="+version, ""); !strings.Contains(a.body, `"code":410`) {
				t.Errorf("round %d: a watch goes on from %s: %s", round, version, a.body)
			}
			p.do(http.StatusGone, "GET", widgets+"?resourceVersionMatch=Exact&resourceVersion="+version, "")
		}
		p.stop()
		if t.Failed() {
			return
		}
	}
}
