package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
)

const (
	historyName = "history.json"
	// shortHistory is the age below which a cut of history is logged: clients that were away for some minutes
	// expect to resume.
	shortHistory = 5 * time.Minute
	// maxClockStep is what the clock counts at most between two reads: many times diskInterval, since the keeper reads it that
	// often unless a disk hangs. A pause of the machine that no clock of the process noticed is no longer than that.
	maxClockStep = time.Minute
)

// marks are the history of the directory.
//
// Their clock is the time that servers ran on it. It only moves forward. So a jump of the machine's clock doesn't end history,
// and the clients of a server that was down for hours can still resume.
type marks struct {
	keep  history.Bounds // never changed, as the two below
	own   *clock.Clock   // by which history gets older if it stands still
	began time.Time      // what it said at the start
	times history.Times  // the clock on the wall, for those who ask when something was

	mu    sync.Mutex // guards the rest; nothing waits while it's held
	at    time.Duration
	last  time.Time     // when the clock was at that
	bytes int64         // keys and values of all changes that were ever counted
	list  history.Marks // never empty; written by the keeper's goroutine alone
	short bool          // history is shorter than asked and than shortHistory, because of the bounds
}

// clock reads the clock. Jumps of the machine's clock don't change it (see history.Step).
func (m *marks) clock() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read(time.Now())
}

// read moves the clock on, and reads it; mu must be held, as for what follows.
func (m *marks) read(now time.Time) time.Duration {
	m.at, m.last = m.at+history.Step(m.last, now, maxClockStep), now
	return m.at
}

// aged is by what history gets older: the clock, or one of tests.
func (m *marks) aged() time.Duration {
	if m.own.Stands() {
		return m.own.Since(m.began)
	}
	return m.read(time.Now())
}

// now is where the store is.
func (m *marks) now(revision int64) history.Mark {
	return history.Mark{Revision: storage.Revision(revision), At: m.aged(), Bytes: m.bytes}
}

// size is the number of bytes of the changes that are kept.
func (m *marks) size() int64 { return m.bytes - m.list[0].Bytes }

// age is how far back history goes.
func (m *marks) age() time.Duration { return m.aged() - m.list[0].At }

// enough is the age at which history doesn't count as short.
func (m *marks) enough() time.Duration { return min(shortHistory, m.keep.Age) }

// marksFile is the content of the marks' file.
type marksFile struct {
	Clock time.Duration  `json:"clock"`
	Bytes int64          `json:"bytes"`
	Marks history.Marks  `json:"marks"`
	Times *history.Times `json:"times,omitempty"`
}

// loadMarks reads the marks that an earlier server left, with the clock as it was then. If they can't be parsed, or aren't of this
// store, history begins now.
func (d *dataDir) loadMarks(o Options, revision int64) (*marks, error) {
	m := &marks{keep: history.Bounds{Age: o.History, Bytes: o.HistoryBytes}, own: o.Clock, began: o.Clock.Now(), last: time.Now()}
	b, err := os.ReadFile(d.file(historyName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data directory %s: %w", d.path, err)
	}
	f := marksFile{Times: &m.times}
	if json.Unmarshal(b, &f) == nil && f.Marks.Valid(history.Mark{Revision: storage.Revision(revision), At: f.Clock, Bytes: f.Bytes}) {
		m.list, m.bytes, m.at = f.Marks, f.Bytes, f.Clock
	} else {
		m.list, m.times = history.Marks{m.now(revision)}, history.Times{}
	}
	m.times.Look(storage.Revision(revision), m.began, m.began)
	return m, nil
}

// save writes the marks to their file.
func (d *dataDir) save(m *marks) error {
	m.mu.Lock()
	b, err := json.Marshal(marksFile{m.read(time.Now()), m.bytes, m.list, &m.times})
	m.mu.Unlock()
	if err == nil {
		err = d.writeFile(historyName, b)
	}
	if err != nil {
		return fmt.Errorf("save the history's marks: %w", err)
	}
	return nil
}
