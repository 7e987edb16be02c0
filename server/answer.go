package server

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/server/markup"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/packed"
)

const (
	// largeAnswer is the size in bytes from which an answer is compressed for a client that accepts it;
	// kube-apiserver's figure.
	largeAnswer = 128 << 10
	// maxLargeAnswers is how many answers that are larger may be written at once. Each has buffers and perhaps
	// a compressor, of about 1 MiB together. Others wait for one of these to end.
	maxLargeAnswers = 32
	// largeAnswerWait is how long they wait before the client is asked to come back.
	largeAnswerWait = 20 * time.Second
)

// enterLarge waits until the request may write a large answer. It may do so until it's answered.
func (w *response) enterLarge(ctx context.Context) (err error) {
	if !w.held.large.Held() && !w.held.stalled.Held() {
		w.held.large, err = w.capacity.large.enter(ctx, w.held.flow, 1, largeAnswerWait)
		w.held.reenter = func() error {
			place, err := w.capacity.large.Enter(ctx, w.held.flow, 1, readDeadline)
			w.held.large = place
			return err
		}
	}
	return err
}

// enterSorting waits until the request may sort a list, which has the whole list in memory before it answers.
func (w *response) enterSorting(r *http.Request) error {
	if !selectors.IsLite(w.query) || w.query.Get("sortBy") == "" {
		return nil
	}
	return w.enterLarge(r.Context())
}

// tryEnterLarge is enterLarge without the wait. It returns whether the request may write a large answer.
func (w *response) tryEnterLarge() bool {
	if !w.held.large.Held() {
		w.held.large, _ = w.capacity.large.Enter(context.Background(), w.held.flow, 1, 0)
	}
	return w.held.large.Held()
}

// leaveLarge ends what enterLarge began, if it did.
func (w *response) leaveLarge() {
	w.held.large.Leave()
	w.held.stalled.Leave()
}

const (
	// stallTime is how long a client may take over a piece of a large answer before its place is given to others: long for
	// a kernel whose buffers have room, and short for those who wait.
	stallTime = 100 * time.Millisecond
	// maxStalled is how many large answers may be without a place because their clients take nothing. Each keeps its
	// buffers, about 1 MiB, and a sorted one what it has of history, 4 MiB at most. One that is beyond keeps its place, until its connection's time is over.
	maxStalled = 256
)

// writeOut writes to the client. While the client takes nothing of a large answer, the answer has no place.
func (w *response) writeOut(p []byte) (int, error) {
	defer w.trace.Wrote(time.Now())
	if !w.held.large.Held() || w.held.reenter == nil {
		return w.ResponseWriter.Write(p)
	}
	stalled := make(chan struct{}) // closed when the place was given back
	stall := time.AfterFunc(stallTime, func() {
		defer close(stalled)
		var err error
		if w.held.stalled, err = w.capacity.stalled.Enter(context.Background(), w.held.flow, 1, 0); err == nil {
			w.held.large.Leave()
		}
	})
	n, err := w.ResponseWriter.Write(p)
	if stall.Stop() {
		return n, err
	}
	<-stalled
	if err == nil && !w.held.large.Held() {
		err = w.held.reenter()
	}
	w.held.stalled.Leave()
	return n, err
}

// answer takes the body of an answer in pieces of any size. It sends a small one whole, with its length, when it's
// closed. A larger one is sent as a stream, compressed if the client wants that. Nothing is sent before it's known which
// of the two it is, not even the code.
type answer struct {
	w    *response
	r    *http.Request
	code int

	*answerBuffers
	to    io.Writer // the stream, once there is one
	piece time.Time // when the current piece was begun
}

// answerBuffers is what an answer needs, pooled.
type answerBuffers struct {
	head []byte // the beginning of the body, while it's small
	out  *bufio.Writer
	zip  *gzip.Writer // nil until one is needed
}

// compressedPiece is how much of a compressed stream is sent at once. The compressor hands it
// over a few bytes at a time.
const compressedPiece = 32 << 10

var answerPool = sync.Pool{New: func() any {
	return &answerBuffers{out: bufio.NewWriterSize(nil, compressedPiece)}
}}

// answer begins one. It must be closed or dropped, and then not be used again.
func (w *response) answer(r *http.Request, code int) *answer {
	return &answer{w: w, r: r, code: code, answerBuffers: answerPool.Get().(*answerBuffers)}
}

func (a *answer) Write(p []byte) (int, error) {
	if a.to == nil {
		if len(a.head)+len(p) <= largeAnswer {
			a.head = append(a.head, p...)
			return len(p), nil
		}
		if err := a.stream(); err != nil {
			return 0, err
		}
	}
	n, err := a.to.Write(p)
	if err == nil {
		a.giveWay()
	}
	return n, err
}

// Large answers take whole cores. A write to the store passes several goroutines on its way, and each of them would
// have to wait for a core. So while writes are under way, all large answers together rest longer than they work.
const (
	// restsPerPiece is how long they rest, in units of what they work.
	restsPerPiece = 10
	// maxPieceTime is what a piece counts at most: one that took longer has waited for its client.
	maxPieceTime = time.Millisecond
)

// giveWay rests after a piece of a large answer, if writes are under way.
func (a *answer) giveWay() {
	if a.w.capacity.inflight.Writing.Load() > 0 {
		worked := min(time.Since(a.piece), maxPieceTime)
		rest := time.NewTimer(restInTime(a.r.Context(), worked*restsPerPiece*time.Duration(max(1, a.w.capacity.large.Taken()))))
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-a.r.Context().Done(): // the next piece finds out
		}
	}
	a.piece = time.Now()
}

// restInTime returns how long of a rest the request can afford: less and less while the first half of its time goes
// by, and nothing after that, so that the answer is done before the request must end.
func restInTime(ctx context.Context, rest time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return rest
	}
	const half = readDeadline / 2
	spare := min(max(time.Until(deadline)-half, 0), half)
	return time.Duration(float64(rest) * spare.Seconds() / half.Seconds())
}

// stream begins to send.
func (a *answer) stream() error {
	if err := a.w.enterLarge(a.r.Context()); err != nil {
		return err
	}
	a.to = a.w
	if negotiation.Gzip(a.r.Header.Values("Accept-Encoding")) {
		header := a.w.Header()
		header.Set("Content-Encoding", "gzip")
		header.Del("Content-Length")
		if tag := header.Get("ETag"); tag != "" { // other bytes
			header.Set("ETag", strings.TrimSuffix(tag, `"`)+gzipTag+`"`)
		}
		a.out.Reset(a.w)
		if a.zip == nil {
			a.zip, _ = gzip.NewWriterLevel(a.out, gzip.BestSpeed) // the level is a good one
		} else {
			a.zip.Reset(a.out)
		}
		a.to = a.zip
	}
	a.w.WriteHeader(a.code)
	a.piece = time.Now()
	_, err := a.to.Write(a.head)
	return err
}

// close sends what is left.
func (a *answer) close() error {
	defer a.drop()
	switch {
	case a.to == nil:
		a.w.Header().Set("Content-Length", strconv.Itoa(len(a.head)))
		a.w.WriteHeader(a.code)
		_, err := a.w.Write(a.head)
		return err
	case a.to == a.zip:
		if err := a.zip.Close(); err != nil {
			return err
		}
		return a.out.Flush()
	}
	return nil
}

// drop gives the buffers back.
func (a *answer) drop() {
	if a.answerBuffers != nil {
		a.head = a.head[:0]
		a.out.Reset(nil)
		answerPool.Put(a.answerBuffers)
		a.answerBuffers = nil
	}
}

// gzipTag is what the ETag of a compressed answer has at its end.
const gzipTag = "-gzip"

// writeBody answers with a body that is there already, compressed if it's large, unless too many are: it may be the
// answer of a write that has happened, which must not be refused. end comes after it.
func (w *response) writeBody(r *http.Request, code int, body []byte, end string) error {
	if len(body) > largeAnswer && negotiation.Gzip(r.Header.Values("Accept-Encoding")) && w.tryEnterLarge() {
		a := w.answer(r, code)
		defer a.drop()
		if _, err := a.Write(body); err != nil {
			return err
		}
		if _, err := io.WriteString(a, end); err != nil {
			return err
		}
		return a.close()
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+len(end)))
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil {
		return err
	}
	_, err := io.WriteString(w, end)
	return err
}

// writeStream answers with a document that writes itself in large pieces, indented on their way where that's
// wanted. Only YAML is built in memory.
func (w *response) writeStream(r *http.Request, media negotiation.Media, write func(io.Writer) error) error {
	header := w.Header()
	header.Set("Content-Type", string(media))
	vary(header, "Accept, Accept-Encoding")
	switch {
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusOK)
		return nil
	case media == negotiation.YAML:
		if err := w.enterLarge(r.Context()); err != nil {
			return err
		}
		var all limitedBuffer
		if err := write(&all); err != nil {
			return err
		}
		return w.writeObject(r, http.StatusOK, media, all.Bytes())
	}
	a := w.answer(r, http.StatusOK)
	defer a.drop()
	if err := w.layOut(r, media, a, write); err != nil {
		return err
	}
	return a.close()
}

// writeList answers with a list. The items of a large one are compressed once for all who ask for it in the same way while it doesn't change.
func (w *response) writeList(r *http.Request, media negotiation.Media, list *reads.List) error {
	write := w.auditedStream(media, func(out io.Writer) error { return list.Write(r.Context(), out) })
	version, ok := list.Version()
	if !ok || r.Method != http.MethodGet || !negotiation.Gzip(r.Header.Values("Accept-Encoding")) || media == negotiation.YAML || w.wantsPretty(r) || w.audit.WantsResponse() {
		return w.writeStream(r, media, write)
	}
	form := packed.Form{Endpoint: list.Endpoint(), Request: r.URL.Path + "?" + r.URL.RawQuery + " " + strings.Join(r.Header.Values("Accept"), ",")}
	if w.capacity.packed.Noted(form, version) {
		if err := w.enterLarge(r.Context()); err != nil {
			return err
		}
		items, err := w.capacity.packed.Get(r.Context(), form, version, func(out io.Writer) error { return list.WriteItems(r.Context(), out) })
		if err != nil {
			return err
		}
		if items != nil {
			return w.writePacked(media, list.AppendHead(nil, items.Size), items)
		}
	}
	err := w.writeStream(r, media, write)
	if err == nil && w.Header().Get("Content-Encoding") == "gzip" { // so it was large
		w.capacity.packed.Note(form, version)
	}
	return err
}

// writePacked answers with a list whose items are compressed already.
func (w *response) writePacked(media negotiation.Media, head []byte, items *packed.Items) error {
	header := w.Header()
	header.Set("Content-Type", string(media))
	header.Set("Content-Encoding", "gzip")
	header.Set("Content-Length", strconv.Itoa(items.GzipSize(head)))
	vary(header, "Accept, Accept-Encoding")
	w.WriteHeader(http.StatusOK)
	return items.Write(w, head)
}

// layOut writes a document to an answer, indented where that's wanted.
func (w *response) layOut(r *http.Request, media negotiation.Media, a *answer, write func(io.Writer) error) error {
	if media != negotiation.JSON || !w.wantsPretty(r) {
		return write(a)
	}
	return write(markup.NewIndenter(a))
}

// notModified answers 304 if the client has what a tag names in the form that is asked for, and else sets the
// ETag. tag is "" for none.
func (w *response) notModified(r *http.Request, media negotiation.Media, tag string) bool {
	if tag == "" {
		return false
	}
	if media != negotiation.JSON {
		tag += "-" + strings.TrimPrefix(string(media), "application/")
	} else if w.wantsPretty(r) {
		tag += "-pretty"
	}
	for _, header := range r.Header.Values("If-None-Match") {
		for known := range strings.SplitSeq(header, ",") {
			known = strings.TrimPrefix(strings.TrimSpace(known), "W/")
			if known == `"`+tag+`"` || known == `"`+tag+gzipTag+`"` || known == "*" {
				w.Header().Set("ETag", strings.Replace(known, "*", `"`+tag+`"`, 1))
				vary(w.Header(), "Accept, Accept-Encoding")
				w.WriteHeader(http.StatusNotModified)
				return true
			}
		}
	}
	w.Header().Set("ETag", `"`+tag+`"`)
	return false
}
