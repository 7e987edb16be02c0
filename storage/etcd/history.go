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
	// maxMarks is about how many marks divide the history, in time and in bytes: it is kept up to a
	// 64th longer and larger than asked.
	maxMarks = 64
	// shortHistory is what history never falls below silently.
	shortHistory = 5 * time.Minute
)

// history knows which revision was current when, and from that which revision may be compacted.
//
// Its clock is the time that servers ran on this directory. It only moves forward, so that no jump of
// the machine's clock ends history, and a server that was down for hours still lets its clients resume.
type history struct {
	keep     time.Duration
	maxBytes int64

	bytes int64  // of all changes that were ever counted
	marks []mark // by revision; the first is what has been compacted, or the oldest that is known
}

// mark says that every change after Revision happened after At, and that Bytes had been counted by then.
type mark struct {
	Revision int64         `json:"revision"`
	At       time.Duration `json:"at"`
	Bytes    int64         `json:"bytes"`
}

// due reports whether a mark is to be set now.
func (h *history) due(at time.Duration) bool {
	last := h.marks[len(h.marks)-1]
	return at-last.At >= h.keep/maxMarks || h.bytes-last.Bytes >= h.maxBytes/maxMarks
}

// set adds a mark; it reports whether that said anything new.
func (h *history) set(revision int64, at time.Duration) bool {
	if len(h.marks) > 0 && revision <= h.marks[len(h.marks)-1].Revision {
		return false
	}
	h.marks = append(h.marks, mark{revision, at, h.bytes})
	return true
}

// cut forgets what is too old or too much, and returns the revision up to which to compact; 0 if there's
// nothing to do.
func (h *history) cut(at time.Duration) int64 {
	first := 0
	for i, m := range h.marks {
		if at-m.At >= h.keep || i > 0 && h.bytes-h.marks[i-1].Bytes > h.maxBytes {
			first = i
		}
	}
	return h.forget(first)
}

// halve forgets the older half of the history's bytes.
func (h *history) halve() int64 {
	if len(h.marks) < 2 {
		return 0
	}
	goal := h.bytes - h.size()/2
	i := slices.IndexFunc(h.marks[1:], func(m mark) bool { return m.Bytes >= goal })
	if i < 0 {
		i = len(h.marks) - 2
	}
	return h.forget(i + 1)
}

func (h *history) forget(n int) int64 {
	if n == 0 {
		return 0
	}
	h.marks = slices.Delete(h.marks, 0, n)
	return h.marks[0].Revision
}

// size is the number of bytes of the changes that are kept.
func (h *history) size() int64 { return h.bytes - h.marks[0].Bytes }

// age is how far back history goes.
func (h *history) age(at time.Duration) time.Duration { return at - h.marks[0].At }

// historyFile is the content of the history's file.
type historyFile struct {
	Clock time.Duration `json:"clock"`
	Bytes int64         `json:"bytes"`
	Marks []mark        `json:"marks"`
}

// loadHistory reads the marks that an earlier server left, and returns the clock as it was then.
// Marks that can't be read, or that aren't of this store, are none: history then begins now.
func (d *dataDir) loadHistory(o Options, revision int64) (*history, time.Duration, error) {
	h := &history{keep: o.History, maxBytes: o.HistoryBytes}
	b, err := os.ReadFile(d.file(historyName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	var f historyFile
	if json.Unmarshal(b, &f) == nil && f.valid(revision) {
		h.marks, h.bytes = f.Marks, f.Bytes
		return h, f.Clock, nil
	}
	h.set(revision, 0)
	return h, 0, nil
}

func (f historyFile) valid(revision int64) bool {
	last := mark{Revision: -1}
	for _, m := range f.Marks {
		if m.Revision <= last.Revision || m.At < last.At || m.Bytes < last.Bytes {
			return false
		}
		last = m
	}
	return len(f.Marks) > 0 && last.Revision <= revision && last.At <= f.Clock && last.Bytes <= f.Bytes
}

func (d *dataDir) saveHistory(h *history, at time.Duration) error {
	b, err := json.Marshal(historyFile{Clock: at, Bytes: h.bytes, Marks: h.marks})
	if err != nil {
		return err
	}
	return d.writeFile(historyName, b)
}
