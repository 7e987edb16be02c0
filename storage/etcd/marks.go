package etcd

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"
)

const (
	historyName = "history.json"
	// maxMarks is about how many marks divide the history by time, and as many by bytes. So history is kept up to
	// a 64th longer and larger than asked.
	maxMarks = 64
	// shortHistory is the age below which a cut of history is logged: clients that were away for some minutes
	// expect to resume.
	shortHistory = 5 * time.Minute
)

// marks divide the history: they say which revision was current when, and so which revision may be compacted.
//
// Their clock is the time that servers ran on this directory. It only moves forward. So a jump of the machine's
// clock doesn't end history, and the clients of a server that was down for hours can still resume.
type marks struct {
	keep     time.Duration // Options.History; never changed
	maxBytes int64         // Options.HistoryBytes; never changed

	bytes int64  // keys and values of all changes that were ever counted
	list  []mark // never empty, by revision; the first is what has been compacted, or the oldest that is known
	short bool   // history is shorter than asked and than shortHistory, because of the bounds
}

// mark says that every change after Revision happened after At, and that Bytes had been counted by then.
type mark struct {
	Revision int64         `json:"revision"`
	At       time.Duration `json:"at"`
	Bytes    int64         `json:"bytes"`
}

// due reports whether a mark is to be set now.
func (m *marks) due(at time.Duration) bool {
	last := m.list[len(m.list)-1]
	return at-last.At >= m.keep/maxMarks || m.bytes-last.Bytes >= m.maxBytes/maxMarks
}

// set adds a mark, unless nothing was written since the last one, and reports whether it did.
func (m *marks) set(revision int64, at time.Duration) bool {
	if len(m.list) > 0 && revision <= m.list[len(m.list)-1].Revision {
		return false
	}
	m.list = append(m.list, mark{revision, at, m.bytes})
	return true
}

// cut forgets the marks of changes that are too old or too many. It returns the revision up to which to compact, or
// 0 if there's nothing to compact.
func (m *marks) cut(at time.Duration) int64 {
	first := 0
	for i, each := range m.list {
		if at-each.At >= m.keep || i > 0 && m.bytes-m.list[i-1].Bytes > m.maxBytes {
			first = i
		}
	}
	return m.forget(first)
}

// halve forgets the older half of the history's bytes, and returns what cut returns.
func (m *marks) halve() int64 {
	if len(m.list) < 2 {
		return 0
	}
	goal := m.bytes - m.size()/2
	i := slices.IndexFunc(m.list[1:], func(each mark) bool { return each.Bytes >= goal })
	if i < 0 {
		i = len(m.list) - 2
	}
	return m.forget(i + 1)
}

// forget drops the first n marks, and returns what cut returns.
func (m *marks) forget(n int) int64 {
	if n == 0 {
		return 0
	}
	m.list = slices.Delete(m.list, 0, n)
	return m.list[0].Revision
}

// size is the number of bytes of the changes that are kept.
func (m *marks) size() int64 { return m.bytes - m.list[0].Bytes }

// age is how far back history goes.
func (m *marks) age(at time.Duration) time.Duration { return at - m.list[0].At }

// enough is the age at which history doesn't count as short.
func (m *marks) enough() time.Duration { return min(shortHistory, m.keep) }

// file is what is saved of the marks: a copy, so that it can be written without their lock.
func (m *marks) file(at time.Duration) marksFile {
	return marksFile{Clock: at, Bytes: m.bytes, Marks: slices.Clone(m.list)}
}

// marksFile is the content of the marks' file.
type marksFile struct {
	Clock time.Duration `json:"clock"`
	Bytes int64         `json:"bytes"`
	Marks []mark        `json:"marks"`
}

// loadMarks reads the marks that an earlier server left, and returns the clock as it was then. If they can't be
// parsed, or aren't of this store, history begins now.
func (d *dataDir) loadMarks(o Options, revision int64) (*marks, time.Duration, error) {
	m := &marks{keep: o.History, maxBytes: o.HistoryBytes}
	b, err := os.ReadFile(d.file(historyName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	var f marksFile
	if json.Unmarshal(b, &f) == nil && f.valid(revision) {
		m.list, m.bytes = f.Marks, f.Bytes
		return m, f.Clock, nil
	}
	m.set(revision, 0)
	return m, 0, nil
}

// valid reports whether the marks rise, and end no later than the store's current revision and the file's own totals. If
// they don't, they are damaged or another store's.
func (f marksFile) valid(revision int64) bool {
	last := mark{Revision: -1}
	for _, m := range f.Marks {
		if m.Revision <= last.Revision || m.At < last.At || m.Bytes < last.Bytes {
			return false
		}
		last = m
	}
	return len(f.Marks) > 0 && last.Revision <= revision && last.At <= f.Clock && last.Bytes <= f.Bytes
}

func (d *dataDir) saveMarks(f marksFile) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return d.writeFile(historyName, b)
}
