// Package reload looks after files that a server has read, and has them read again when they have changed.
//
// It looks at their content, not at their times: files that are mounted in containers change by links. A file that's being written is read when
// it has been the same at two looks, so that a certificate and its key are read together. What is no regular file, as a pipe, isn't looked after.
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
	"slices"
	"time"
)

const (
	// Every is how often files are looked at. Replicas that share a store should have the same keys soon.
	Every = time.Second
	// retryLooks is after how many looks files that were refused are read again: the reason may be outside of them.
	retryLooks = 10
	// maxFile bounds what is read of a file, in bytes.
	maxFile = 16 << 20
)

// Sum is a hash of what files hold.
type Sum [sha256.Size]byte

// Files are those that belong together.
type Files struct {
	Paths []string
	// Used is what they held when they were read, or before that: what SumOf said.
	Used Sum
	// Read reads them and uses what they say.
	Read func(ctx context.Context) error
	// Refused is told an error of Read's, or that a file can't be read: once for what the files hold.
	Refused func(err error)
}

// Watch has the files read when they hold something else than Used, until ctx ends.
func (f Files) Watch(ctx context.Context) {
	used, seen, told := f.Used, f.Used, f.Used
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for wait := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := SumOf(f.Paths...)
		if now != seen || now == used {
			if seen = now; now == used {
				told = used
			}
			wait = 0
			continue
		}
		if wait > 0 {
			wait--
			continue
		}
		if err == nil {
			err = f.Read(ctx)
		}
		if err == nil {
			used, told = now, now
			continue
		}
		wait = retryLooks - 1
		if ctx.Err() == nil && now != told {
			told = now
			f.Refused(err)
		}
	}
}

// SumOf returns the hash of files. Of what can't be read the hash is that of the error.
func SumOf(paths ...string) (all Sum, err error) {
	h := sha256.New()
	for _, path := range paths {
		one, failed := sumOf(path)
		if failed != nil {
			one, err = []byte(failed.Error()), failed
		}
		h.Write(one)
	}
	return Sum(h.Sum(nil)), err
}

func sumOf(path string) ([]byte, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // a pipe may say nothing for ever
		return nil, fmt.Errorf("%s is no regular file", path)
	}
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

// Named are files of which each reading tells which they are, as a kubeconfig that names certificates.
type Named struct {
	// Read reads them, uses what they say, and returns their paths. A reading may come twice.
	Read func() (paths []string, err error)
	// Refused is told an error of Read's when the files have changed, once for what they hold.
	Refused func(err error)

	paths []string
	used  Sum // of paths, before they were read
}

// Open reads the files for the first time.
func (n *Named) Open() error {
	for {
		sum, _ := SumOf(n.paths...)
		paths, err := n.Read()
		if err != nil {
			return err
		}
		if slices.Equal(paths, n.paths) {
			n.used = sum
			return nil
		}
		n.paths = paths
	}
}

// Watch reads the files again when they change, until ctx ends. Open must have returned.
func (n *Named) Watch(ctx context.Context) {
	for ctx.Err() == nil && len(n.paths) > 0 {
		until, done := context.WithCancel(ctx)
		Files{
			Paths: n.paths, Used: n.used, Refused: n.Refused,
			Read: func(context.Context) error {
				err := n.Open()
				if err == nil {
					done() // other files may be named now
				}
				return err
			},
		}.Watch(until)
		done()
	}
}
