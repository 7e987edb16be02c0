package watchstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

var (
	// ErrFrame is returned by a Decoder for a line that is no event.
	ErrFrame = errors.New("no watch event")
	// ErrFrameTooLong is returned by a Decoder for a line that is longer than its MaxFrame.
	ErrFrameTooLong = errors.New("watch event is too long")
)

const (
	// DefaultMaxFrame is how long a frame may be, in bytes. Etcd takes requests of 1.5 MiB by default; this leaves
	// room for servers that were told to take more.
	DefaultMaxFrame = 16 << 20
	// firstRead is the size of a decoder's first buffer: most events fit, and a quiet watch costs no more.
	firstRead = 4 << 10
	// maxQuotedFrame is how many bytes of a line that is no event an error repeats: enough to recognize a proxy's page of
	// HTML or another document, in an error that stays one line.
	maxQuotedFrame = 80
)

// Decoder reads frames, one line each, as they come over HTTP. It checks that a line is an event; whether the event's
// object is sound JSON is found by whoever decodes the object. Empty lines are skipped.
//
// Its buffer has 4 KiB at first, and grows to the longest frame.
type Decoder struct {
	// MaxFrame is how many bytes a frame may have. Defaults to DefaultMaxFrame.
	MaxFrame int

	r          io.Reader
	buf        []byte
	start, end int // of what was read and not yet given
	err        error
}

// NewDecoder returns a decoder of what r gives.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: r} }

// Next returns the type of the next event and its object as JSON, which is valid until Next is called again. Errors
// are final:
//
//   - io.EOF after the last whole frame, where a server has ended the watch;
//   - io.ErrUnexpectedEOF within a frame, where a connection was cut;
//   - one that wraps ErrFrame or ErrFrameTooLong;
//   - the reader's.
//
// For Error the object is a Status.
func (d *Decoder) Next() (t Type, object []byte, err error) {
	for {
		line, err := d.line()
		if err != nil {
			return None, nil, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if t, object, err = parseFrame(line); err != nil {
			d.err = err
		}
		return t, object, err
	}
}

// line returns the next line. The last one may lack its newline if it's a whole document.
func (d *Decoder) line() ([]byte, error) {
	if d.err != nil {
		return nil, d.err
	}
	for searched := d.start; ; {
		if i := bytes.IndexByte(d.buf[searched:d.end], '\n'); i >= 0 {
			line := d.buf[d.start : searched+i]
			d.start = searched + i + 1
			return line, d.checkLength(len(line))
		}
		searched = d.end
		if err := d.checkLength(d.end - d.start); err != nil {
			return nil, err
		}
		searched -= d.makeRoom()
		n, err := d.r.Read(d.buf[d.end:])
		d.end += n
		if err != nil && n == 0 {
			return d.last(err)
		}
	}
}

// checkLength returns the error of a line that is too long.
func (d *Decoder) checkLength(n int) error {
	limit := d.MaxFrame
	if limit <= 0 {
		limit = DefaultMaxFrame
	}
	if n > limit {
		d.err = fmt.Errorf("%w: more than %d bytes", ErrFrameTooLong, limit)
	}
	return d.err
}

// makeRoom makes room after what is buffered, and returns by how much that moved to the front.
func (d *Decoder) makeRoom() (moved int) {
	if d.start == d.end {
		moved = d.start
		d.start, d.end = 0, 0
	}
	if d.end < len(d.buf) {
		return moved
	}
	if d.start > 0 && d.end-d.start <= len(d.buf)/2 {
		copy(d.buf, d.buf[d.start:d.end])
	} else {
		grown := make([]byte, max(2*len(d.buf), firstRead))
		copy(grown, d.buf[d.start:d.end])
		d.buf = grown
	}
	moved += d.start
	d.end -= d.start
	d.start = 0
	return moved
}

// last is what follows when the reader has ended with err.
func (d *Decoder) last(err error) ([]byte, error) {
	rest := bytes.TrimSpace(d.buf[d.start:d.end])
	d.start, d.end = 0, 0
	d.err = err
	switch {
	case len(rest) == 0 || !errors.Is(err, io.EOF):
		return nil, err
	case json.Valid(rest):
		return rest, nil
	}
	d.err = io.ErrUnexpectedEOF
	return nil, d.err
}

// parseFrame takes a frame apart. Servers write the type first and then the object, and nothing else; a frame with other
// members, or in another order, is parsed as a document.
func parseFrame(line []byte) (t Type, object []byte, err error) {
	for t := Added; t <= Error; t++ {
		if object, ok := bytes.CutPrefix(line, []byte(heads[t])); ok {
			if object, ok = bytes.CutSuffix(object, []byte("}")); ok && len(object) > 1 && object[0] == '{' && object[len(object)-1] == '}' {
				return t, object, nil
			}
			break
		}
	}
	var frame struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &frame); err != nil {
		return None, nil, fmt.Errorf("%w: %s: %w", ErrFrame, quoteFrame(line), err)
	}
	for t := Added; t <= Error; t++ {
		if typeNames[t] == frame.Type && len(frame.Object) > 0 {
			return t, frame.Object, nil
		}
	}
	return None, nil, fmt.Errorf("%w: %s", ErrFrame, quoteFrame(line))
}

// quoteFrame returns the beginning of a line for a message.
func quoteFrame(line []byte) string {
	if len(line) > maxQuotedFrame {
		return fmt.Sprintf("%q...", line[:maxQuotedFrame])
	}
	return fmt.Sprintf("%q", line)
}
