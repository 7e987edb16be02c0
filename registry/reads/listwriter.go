package reads

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"runtime"
	"strconv"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// ListBuffer is how much of a list is put together before it's written. Each write of an answer without a known
// length costs two system calls: with 64 KiB a list takes a fifth more CPU.
const ListBuffer = 256 << 10

// listBuffers holds *[]byte, as large as the lists were that they served. A buffer that a large item has blown up
// isn't kept.
var listBuffers = sync.Pool{New: func() any { return new([]byte) }}

// listWriter puts the pieces of a list together.
type listWriter struct {
	to     io.Writer
	buf    []byte
	pooled *[]byte
}

func newListWriter(to io.Writer) *listWriter {
	pooled := listBuffers.Get().(*[]byte)
	return &listWriter{to: to, buf: (*pooled)[:0], pooled: pooled}
}

// flush writes what there is, if that's at least so many bytes.
func (w *listWriter) flush(least int) error {
	if len(w.buf) < least {
		return nil
	}
	_, err := w.to.Write(w.buf)
	w.buf = w.buf[:0]
	if least > 0 {
		runtime.Gosched() // many lists at once would leave little to the writers
	}
	return err
}

// drop gives the buffer back.
func (w *listWriter) drop() {
	if cap(w.buf) <= 2*ListBuffer {
		*w.pooled = w.buf[:0]
		listBuffers.Put(w.pooled)
	}
}

// Write writes the list as one JSON document, or as one message of protobuf. An error that isn't the writer's is a Status
// error, or the server's own failure; what was written before it is no whole document.
func (l *List) Write(ctx context.Context, w io.Writer) error {
	out := newListWriter(w)
	defer out.drop()
	if l.shown.Item.Encoding != nil {
		return l.writeProtobuf(ctx, out)
	}
	out.buf = l.appendHeader(out.buf)
	return l.writeItems(ctx, out)
}

// Version names what the items of the list are made of, besides its endpoint and the request. ok is false if they aren't made of the state in
// memory alone, so that they aren't the same for the same version.
func (l *List) Version() (version uint64, ok bool) {
	if l.snapshot == nil || l.shown.Kind == form.Table { // a Table tells ages; what an object is converted to is kept with it
		return 0, false
	}
	return l.snapshot.Version, true
}

// Endpoint returns what the list is of.
func (l *List) Endpoint() *registry.Endpoint { return l.endpoint }

// AppendHead appends what Write writes before what WriteItems writes, which are so many bytes.
func (l *List) AppendHead(buf []byte, items int) []byte {
	if l.shown.Item.Encoding != nil {
		return l.appendProtobufHead(buf, items-len(kubeproto.AppendListTail(nil)))
	}
	return l.appendHeader(buf)
}

// WriteItems writes the items of a list that has some, and what follows them. Its errors are those of Write.
func (l *List) WriteItems(ctx context.Context, w io.Writer) error {
	out := newListWriter(w)
	defer out.drop()
	if l.shown.Item.Encoding != nil {
		_, err := l.writeMessages(ctx, out)
		return err
	}
	return l.writeItems(ctx, out)
}

// writeItems writes the items as JSON. If there are none, and the header that goes before them is still in out, they may be null.
func (l *List) writeItems(ctx context.Context, out *listWriter) error {
	first := true
	for o, err := range l.converted(ctx) {
		if err != nil {
			return l.Failed(err)
		}
		if !first {
			out.buf = append(out.buf, ',')
		}
		first = false
		out.buf = l.shown.Item.Append(out.buf, o)
		if err := out.flush(ListBuffer); err != nil {
			return err
		}
	}
	if first && (l.shown.Item.MetadataOnly || l.shown.NullRows) { // kube-apiserver gathers those in a list that begins as nothing
		out.buf = append(bytes.TrimSuffix(out.buf, []byte("[")), "null}\n"...)
		return out.flush(0)
	}
	out.buf = append(out.buf, "]}\n"...)
	return out.flush(0)
}

// ConversionBatch is how many objects are converted at once: as many as a webhook gets in one request.
const ConversionBatch = 500

// converted yields what is listed, ready to be shown.
func (l *List) converted(ctx context.Context) iter.Seq2[*kube.Object, error] {
	view := l.shown.Item
	if view.Conversion == nil {
		return l.Items(ctx)
	}
	return func(yield func(*kube.Object, error) bool) {
		next, stop := iter.Pull2(l.Items(ctx))
		defer stop()
		for {
			batch, err := nextBatch(next)
			if err == nil {
				err = view.Prepare(ctx, batch)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, o := range batch {
				if !yield(o, nil) {
					return
				}
			}
			if len(batch) < ConversionBatch {
				return
			}
		}
	}
}

func nextBatch(next func() (*kube.Object, error, bool)) ([]*kube.Object, error) {
	batch := make([]*kube.Object, 0, ConversionBatch)
	for len(batch) < ConversionBatch {
		o, err, ok := next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		batch = append(batch, o)
	}
	return batch, nil
}

func (l *List) appendHeader(buf []byte) []byte {
	shown := l.shown
	buf = append(append(buf, `{"kind":"`...), shown.ListKind...)
	buf = append(append(buf, `","apiVersion":"`...), shown.ListVersion...)
	buf = append(buf, `","metadata":{`...)
	if rev := l.Revision(); rev > 0 { // nothing stored has a version
		buf = append(strconv.AppendInt(append(buf, `"resourceVersion":"`...), int64(rev), 10), '"')
	}
	if l.continues != "" || l.endpoint.Typed == nil && l.shown.Kind == form.Whole { // of custom resources kube-apiserver says that nothing follows, too
		buf = append(append(append(buf, `,"continue":"`...), l.continues...), '"')
	}
	if l.remaining > 0 {
		buf = strconv.AppendInt(append(buf, `,"remainingItemCount":`...), int64(l.remaining), 10)
	}
	if l.shard != "" {
		name, _ := json.Marshal(l.shard) // a string always encodes
		buf = append(append(append(buf, `,"shardInfo":{"selector":`...), name...), '}')
	}
	return append(append(buf, `},`...), shown.Members...)
}
