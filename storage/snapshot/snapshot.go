// Package snapshot has the form of a backup, which is that of etcd's own snapshots: a database of bbolt, and its SHA-256 after it. A Snapshot
// is written by whoever has a store, Read says what a file holds. It has no goroutines, and keeps nothing.
package snapshot

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"time"
)

// ErrRewriting means that there can be no snapshot now, because the database is written anew or replaced by another member's, or
// the store is being closed.
var ErrRewriting = errors.New("the database is being written anew, or another member's takes its place: try again")

// piece is how much of a snapshot is handed on at once, in bytes: many times what bbolt reads at once.
const piece = 256 << 10

// Content is the database of a Snapshot.
type Content interface {
	Size() int64 // in bytes
	WriteTo(w io.Writer) (int64, error)
}

// Snapshot is a store's whole content at one revision. Writes go on beside it.
type Snapshot struct {
	Size int64 // how many bytes WriteTo writes

	content Content
	close   func() error
}

// Open opens a snapshot of a store, which must be closed. The error may be ErrRewriting.
type Open = func(ctx context.Context) (*Snapshot, error)

// New returns a Snapshot of a database that close gives back.
func New(content Content, close func() error) *Snapshot {
	return &Snapshot{content.Size() + sha256.Size, content, close}
}

// WriteTo writes the snapshot, once.
func (s *Snapshot) WriteTo(to io.Writer) (int64, error) {
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(to, sum), piece)
	n, err := s.content.WriteTo(out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return n, err
	}
	m, err := to.Write(sum.Sum(nil))
	return n + int64(m), err
}

// Close ends the reading. It must be called.
func (s *Snapshot) Close() error { return s.close() }

// What somebody has to take a snapshot: readTime, and a second more for each readRate bytes. As long as it's read, what is replaced in the
// database stays there.
const (
	readTime = time.Minute
	readRate = 1 << 20
)

// Time is how long somebody may take to read it.
func (s *Snapshot) Time() time.Duration { return readTime + time.Duration(s.Size/readRate)*time.Second }

// Until returns a writer to w that fails with ctx's error once ctx has ended.
func Until(ctx context.Context, w io.Writer) io.Writer { return until{ctx.Err, w} }

type until struct {
	ended func() error
	to    io.Writer
}

func (u until) Write(p []byte) (int, error) {
	if err := u.ended(); err != nil {
		return 0, err
	}
	return u.to.Write(p)
}
