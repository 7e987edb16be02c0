// Package recording is what happened to a server's objects, as a file: Record writes it while a server is watched, and Replay makes the same
// happen to another server.
//
// A file is JSON lines, each with a time and a type. BEGIN is the first, with the resourceVersion after which the changes begin. ADDED,
// MODIFIED and DELETED have the object, as a watch has them; the state that a recording begins with is ADDED, owners before what they own. GAP says that history
// was gone, so that what follows makes up for changes that nobody has seen. END is the last; a file without it was cut. A file may be gzip.
//
// Record follows one stream and keeps of each object its uid and resourceVersion, and the state that a recording begins with until it's
// written. It has one goroutine more, which brings lines to the file that no others follow soon. Of a server that has no stream of several kinds,
// as kube-apiserver is one, it follows each kind by a goroutine of its own, and keeps changes for a moment to put them in order (apart). Replay reads in the caller's goroutine, which says
// what each change has to wait for (schedule), and workers write to the target; all of them end before Replay returns. It keeps of each object
// some hundred bytes, and its uid for good, because others may name it as their owner later. Nothing bounds these but the number of objects.
//
// Bounds: maxLine, windowChanges, windowBytes, maxListed, mostHeld, heldBytes. Locks: those of writer, schedule and replayer, none of which is taken under another.
package recording

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// The types of lines. Those of changes are those of a watch.
const (
	Begin    = "BEGIN" // the first line
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Gap      = "GAP" // changes are missing here
	End      = "END" // the last line
)

// Form is what the first line of a file says of its form.
const Form = "apiserver-lite/recording/v1"

// Line is a line of a file.
type Line struct {
	Time            time.Time     `json:"time"` // when the change was seen, by the clock of who recorded it
	Type            string        `json:"type"`
	Form            string        `json:"form,omitempty"`            // of BEGIN
	ResourceVersion string        `json:"resourceVersion,omitempty"` // of BEGIN and END
	Object          client.Object `json:"object,omitempty"`          // of a change
}

// maxLine is how many bytes a line may have: some times what a server takes as an object, which may be escaped here.
const maxLine = 32 << 20

var (
	// ErrCut is returned at the end of a file that has no END: what comes before it is sound.
	ErrCut = errors.New("the recording is cut")
	// ErrForm is returned for what is no recording, or a line that isn't one of a recording.
	ErrForm = errors.New("this isn't a recording")
)

// Reader reads a file's lines.
type Reader struct {
	from *bufio.Reader
	line int
	end  bool
}

// NewReader reads the beginning of a file, which may be gzip. ErrForm says that it's no recording, ErrCut that it's empty.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{from: bufio.NewReaderSize(from, 64<<10)}
	if magic, _ := r.from.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		unpacked, err := gzip.NewReader(r.from)
		if err != nil {
			return nil, cut(1, err)
		}
		r.from = bufio.NewReaderSize(unpacked, 64<<10)
	}
	first, err := r.Next()
	switch {
	case err != nil:
		return nil, err
	case first.Type != Begin || first.Form != Form:
		return nil, fmt.Errorf("%w: its first line must be %s with the form %s", ErrForm, Begin, Form)
	}
	return r, nil
}

// At is the number of the line that Next returned last, from 1 on.
func (r *Reader) At() int { return r.line }

// Next returns the next line. io.EOF comes after END, ErrCut if there's none: also where the last line is incomplete.
func (r *Reader) Next() (Line, error) {
	if r.end {
		return Line{}, io.EOF
	}
	text, err := r.read()
	if err != nil {
		return Line{}, err
	}
	var l Line
	if err := json.Unmarshal(text, &l); err != nil {
		return Line{}, fmt.Errorf("%w: line %d: %w", ErrForm, r.line, err)
	}
	switch l.Type {
	case Gap:
	case Begin:
		if r.line > 1 {
			return Line{}, fmt.Errorf("%w: line %d: %s is for the first line", ErrForm, r.line, Begin)
		}
	case End:
		r.end = true
	case Added, Modified, Deleted:
		if l.Object.Kind() == "" || l.Object.APIVersion() == "" || l.Object.Name() == "" {
			return Line{}, fmt.Errorf("%w: line %d: an object without apiVersion, kind or metadata.name", ErrForm, r.line)
		}
	default:
		return Line{}, fmt.Errorf("%w: line %d: the type %.20q isn't one that this program knows", ErrForm, r.line, l.Type)
	}
	return l, nil
}

// read returns the text of the next line.
func (r *Reader) read() (text []byte, err error) {
	r.line++
	for {
		part, err := r.from.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text) > maxLine:
			return nil, fmt.Errorf("%w: line %d has more than %d bytes", ErrForm, r.line, maxLine)
		case err == nil:
			return text, nil
		case err != bufio.ErrBufferFull:
			return nil, cut(r.line, err)
		}
	}
}

// cut is the error of a file that ends within a line, or before it.
func cut(line int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w at line %d", ErrCut, line)
	}
	return fmt.Errorf("line %d: %w", line, err)
}
