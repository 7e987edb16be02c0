// Package packed remembers the compressed items of large lists, so that a list that many ask for is compressed once.
//
// A list is a head, which names the newest revision of all resources, and items, which are the same until the list's own resource changes. A gzip
// stream (RFC 1952) is made of both: the head as it is, in blocks that aren't compressed, then the items as they were compressed, and the checksum of
// both, which is computed from those of the two.
//
// The first request for a list of a version is only noted. The second one packs its items, and those that come meanwhile wait for it. So a list that
// one client asks for, or that changes between any two requests, costs what it costs without this package.
//
// Goroutines: none. Locks: Lists.mu is a leaf. Bounds: maxForms, maxBytes, maxItems, maxRequest, unused.
package packed

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/flate"
)

const (
	// maxForms is how many lists are known, with their items or only as asked for once. Those go that nobody has asked for the longest.
	maxForms = 256
	// maxBytes is what the items of all lists may take.
	maxBytes = 32 << 20
	// maxItems is what those of one list may take.
	maxItems = 8 << 20
	// maxRequest is how long a request may be that is noted.
	maxRequest = 4 << 10
	// unused is after how long without a request a list is forgotten.
	unused = time.Minute
)

// Form is what a list is of, and how it's shown: all that its items depend on besides the version of the resource.
type Form struct {
	Endpoint any // what can be compared, and is another one when objects are shown otherwise
	Request  string
}

// Lists are those that are known. The zero value knows none.
type Lists struct {
	mu    sync.Mutex // guards the following, and all known
	forms map[Form]*known
	bytes int // of all items
	sweep *time.Timer
}

// known is a list that was asked for.
type known struct {
	version uint64
	used    time.Time
	packed  chan struct{} // closed when its items are packed or can't be; nil: nobody has begun
	items   *Items        // nil: they can't be remembered
}

// Noted tells whether a list of a version was asked for before.
func (l *Lists) Noted(f Form, version uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.forms[f]
	return k != nil && k.version == version
}

// Note says that somebody has asked for a list of a version, and that it was large.
func (l *Lists) Note(f Form, version uint64) {
	if len(f.Request) > maxRequest {
		return
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.forms[f]; k != nil {
		if k.version == version {
			return
		}
		l.dropLocked(f)
	}
	if l.forms == nil {
		l.forms = map[Form]*known{}
	}
	l.forms[f] = &known{version: version, used: now}
	l.trimLocked()
	if l.sweep == nil {
		l.sweep = time.AfterFunc(unused, l.forget)
	}
}

// Get returns the items of a list that was asked for before, at the same version. pack writes them; it's called by one of those who ask at the same
// time. Get returns nil without an error when the list wasn't asked for yet, or when its items can't be remembered. Its error is pack's or the context's.
func (l *Lists) Get(ctx context.Context, f Form, version uint64, pack func(io.Writer) error) (*Items, error) {
	l.mu.Lock()
	k := l.forms[f]
	if k == nil || k.version != version {
		l.mu.Unlock()
		return nil, nil
	}
	k.used = time.Now()
	mine := k.packed == nil
	if mine {
		k.packed = make(chan struct{})
	}
	l.mu.Unlock()
	if mine {
		return l.pack(f, k, pack)
	}
	select {
	case <-k.packed:
		l.mu.Lock()
		defer l.mu.Unlock()
		return k.items, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pack packs the items of a list, and remembers them if they can be.
func (l *Lists) pack(f Form, k *known, write func(io.Writer) error) (*Items, error) {
	defer close(k.packed) // also if write panics, and then without items
	items, err := Pack(write)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, errTooLarge):
		return nil, nil
	case err != nil:
		if l.forms[f] == k { // its client may have left: the next one tries again
			delete(l.forms, f)
		}
		return nil, err
	case l.forms[f] == k:
		k.items = items
		l.bytes += len(items.deflated)
		l.trimLocked()
	}
	return items, nil
}

// trimLocked forgets lists until the bounds hold; mu must be held.
func (l *Lists) trimLocked() {
	for len(l.forms) > maxForms || l.bytes > maxBytes {
		var oldest Form
		var at time.Time
		for f, k := range l.forms {
			if at.IsZero() || k.used.Before(at) {
				oldest, at = f, k.used
			}
		}
		l.dropLocked(oldest)
	}
}

// dropLocked forgets a list; mu must be held.
func (l *Lists) dropLocked(f Form) {
	if k := l.forms[f]; k.items != nil {
		l.bytes -= len(k.items.deflated)
	}
	delete(l.forms, f)
}

// forget forgets what nobody asks for any more, and comes back until that's all.
func (l *Lists) forget() {
	before := time.Now().Add(-unused)
	l.mu.Lock()
	defer l.mu.Unlock()
	for f, k := range l.forms {
		if !k.used.After(before) {
			l.dropLocked(f)
		}
	}
	if l.sweep = nil; len(l.forms) > 0 {
		l.sweep = time.AfterFunc(unused, l.forget)
	}
}

// Items are what follows a list's head, compressed.
type Items struct {
	Size     int    // in bytes, before they were compressed
	sum      uint32 // CRC-32 of these bytes
	deflated []byte // a whole stream of RFC 1951
}

// errTooLarge is Pack's error for items that take more than maxItems.
var errTooLarge = errors.New("the items take too much memory")

// Pack compresses what write writes. The error is write's.
func Pack(write func(io.Writer) error) (*Items, error) {
	var out limited
	zip, _ := flate.NewWriter(&out, flate.BestSpeed) // the level is a good one
	in := summed{to: zip}
	if err := write(&in); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return &Items{in.size, in.sum, out.bytes}, nil
}

// limited takes up to maxItems.
type limited struct{ bytes []byte }

func (l *limited) Write(p []byte) (int, error) {
	if len(l.bytes)+len(p) > maxItems {
		return 0, errTooLarge
	}
	l.bytes = append(l.bytes, p...)
	return len(p), nil
}

// summed counts what is written, and computes its checksum.
type summed struct {
	to   io.Writer
	size int
	sum  uint32
}

func (s *summed) Write(p []byte) (int, error) {
	s.size += len(p)
	s.sum = crc32.Update(s.sum, crc32.IEEETable, p)
	return s.to.Write(p)
}

// What a stream of gzip has around its blocks.
const (
	gzipHeader  = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff" // deflate, no name, no time, the fastest level, of no known system
	gzipTrailer = 8
	storedHead  = 5         // of a block that isn't compressed
	maxStored   = 1<<16 - 1 // what one has
)

// GzipSize returns how long the stream is that Write writes.
func (i *Items) GzipSize(head []byte) int {
	blocks := (len(head) + maxStored - 1) / maxStored
	return len(gzipHeader) + blocks*storedHead + len(head) + len(i.deflated) + gzipTrailer
}

// Write writes a list as a stream of gzip: its head and the items.
func (i *Items) Write(w io.Writer, head []byte) error {
	begin := append(make([]byte, 0, i.GzipSize(head)-len(i.deflated)), gzipHeader...)
	for rest := head; len(rest) > 0; {
		block := rest[:min(len(rest), maxStored)]
		rest = rest[len(block):]
		begin = append(begin, 0) // another block follows, and this one is stored
		begin = binary.LittleEndian.AppendUint16(begin, uint16(len(block)))
		begin = binary.LittleEndian.AppendUint16(begin, ^uint16(len(block)))
		begin = append(begin, block...)
	}
	trailer := binary.LittleEndian.AppendUint32(nil, join(crc32.ChecksumIEEE(head), i.sum, i.Size))
	trailer = binary.LittleEndian.AppendUint32(trailer, uint32(len(head)+i.Size))
	for _, part := range [][]byte{begin, i.deflated, trailer} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// join returns the CRC-32 of two texts that follow each other, from that of each and the length of the second. A CRC is what is left of a polynomial
// over GF(2), divided by crc32.IEEE. So the first text's is multiplied by x to the power of the bits that follow, and the second's is added.
func join(first, second uint32, length int) uint32 {
	power := uint32(1 << 31)  // x^0: the highest bit is the lowest power
	factor := uint32(1 << 23) // x^8, for one byte
	for ; length > 0; length >>= 1 {
		if length&1 != 0 {
			power = times(power, factor)
		}
		factor = times(factor, factor)
	}
	return times(first, power) ^ second
}

// times multiplies two polynomials, and divides by crc32.IEEE.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 { // by the powers of a, from the lowest one on
		if a&(1<<31) != 0 {
			product ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ crc32.IEEE
		} else {
			b >>= 1
		}
	}
	return product
}
