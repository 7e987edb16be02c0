// Package reload looks after files that a server has read, and has them read again when they have changed.
//
// It looks at their content, not at their times: files that are mounted in containers change by links. A file that's being written is read when
// it has been the same at two looks, so that a certificate and its key are read together.
//
// Goroutines: none of its own. Locks: none.
package reload

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Every is how often files are looked at. Replicas that share a store should have the same keys soon.
const Every = time.Second

// maxFile bounds what is read of a file, in bytes.
const maxFile = 16 << 20

// Files are those that belong together.
type Files struct {
	Paths []string
	// Read reads them and uses what they say. After an error it's called again, at each look: the reason may be outside of the files.
	Read func(ctx context.Context) error
	// Refused is told an error of Read's, or that a file can't be read: once, until there's another one.
	Refused func(err error)
}

// Watch has the files read when they have changed since the call, until ctx ends.
func (f Files) Watch(ctx context.Context) {
	used, _ := f.sum() // at the start they could be read
	seen, told := used, ""
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := f.sum()
		if err == nil {
			if now == used || now != seen {
				seen = now
				continue
			}
			err = f.Read(ctx)
		}
		switch {
		case err == nil:
			used, told = now, ""
		case ctx.Err() == nil && err.Error() != told:
			told = err.Error()
			f.Refused(err)
		}
	}
}

// sum is a hash of what the files hold.
func (f Files) sum() (all [sha256.Size]byte, err error) {
	h := sha256.New()
	for _, path := range f.Paths {
		one, err := sumOf(path)
		if err != nil {
			return all, err
		}
		h.Write(one)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

func sumOf(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h := sha256.New()
	n, err := io.CopyN(h, file, maxFile+1)
	switch {
	case err == nil:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return binary.LittleEndian.AppendUint64(h.Sum(nil), uint64(n)), nil
}
