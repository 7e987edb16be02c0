package recording

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

// flushInterval is how long a line may wait for others until it's brought to the file: so much is lost at most when the program is killed.
const flushInterval = time.Second

// writer writes a file's lines.
type writer struct {
	mu      sync.Mutex // guards all below
	to      *bufio.Writer
	packed  *gzip.Writer // nil for plain lines
	encoder *json.Encoder
	changes int
	err     error // the first of a write
}

func newWriter(to io.Writer, packed bool) *writer {
	w := &writer{}
	if packed {
		w.packed = gzip.NewWriter(to)
		to = w.packed
	}
	w.to = bufio.NewWriterSize(to, 64<<10)
	w.encoder = json.NewEncoder(w.to)
	w.encoder.SetEscapeHTML(false)
	return w
}

// write adds a line. Its error may be of an earlier one.
func (w *writer) write(l Line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Object != nil {
		w.changes++
	}
	if err := w.encoder.Encode(l); w.err == nil {
		w.err = err
	}
	return w.err
}

// failed returns the error of the first write that failed.
func (w *writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// flush brings to the file what was written.
func (w *writer) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.to.Buffered() > 0 {
		if w.err = w.to.Flush(); w.err == nil && w.packed != nil {
			w.err = w.packed.Flush()
		}
	}
	return w.err
}

// run flushes until ctx ends, or calls failed with the error of a write.
func (w *writer) run(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := w.flush(); err != nil {
				failed(err)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// close ends the file.
func (w *writer) close() error {
	err := w.flush()
	if w.packed != nil {
		err = errors.Join(err, w.packed.Close())
	}
	return err
}
