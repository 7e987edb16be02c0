package registry

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// List is the answer to a list: one instant of a collection, written without being built in memory.
type List struct {
	endpoint *Endpoint
	snapshot *cacher.Snapshot
	prefix   string // of the keys
	selector
}

// List opens a list of a namespace, or of all for "". Errors are Status errors.
func (e *Endpoint) List(ctx context.Context, namespace string, q url.Values) (*List, error) {
	if namespace != "" && !e.Namespaced {
		return nil, errNotServed()
	}
	opts, err := parseListOptions(q)
	if err != nil {
		return nil, err
	}
	sel, err := e.parseSelector(q)
	if err != nil {
		return nil, err
	}
	switch sel.namespace {
	case "", namespace:
	default:
		if namespace == "" {
			namespace = sel.namespace
		} else {
			sel.fields = sel.allFields // its term matches nothing here
		}
	}
	prefix, err := e.res.prefix.Namespace(namespace)
	if err != nil {
		return nil, e.fail(namespace, err)
	}
	if err := e.freshen(ctx, opts.revision, opts.hasRevision); err != nil {
		return nil, err
	}
	return &List{endpoint: e, snapshot: e.res.cache.Snapshot(), prefix: prefix, selector: sel}, nil
}

// Revision returns the list's resourceVersion.
func (l *List) Revision() storage.Revision { return l.snapshot.Revision }

// listBuffer is how much of a list is put together before it's written.
const listBuffer = 64 << 10

// listBuffers holds *[]byte. A buffer that a large item has blown up isn't kept.
var listBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, listBuffer+listBuffer/4)
	return &b
}}

// WriteTo writes the list as one JSON document.
func (l *List) WriteTo(w io.Writer) (int64, error) {
	pooled := listBuffers.Get().(*[]byte)
	buf := (*pooled)[:0]
	defer func() {
		if cap(buf) <= 2*listBuffer {
			*pooled = buf[:0]
			listBuffers.Put(pooled)
		}
	}()
	var written int64
	flush := func() error {
		n, err := w.Write(buf)
		written += int64(n)
		buf = buf[:0]
		return err
	}
	buf = l.appendHeader(buf)
	first := true
	for o := range l.snapshot.All(l.prefix) {
		if !l.selects(o) {
			continue
		}
		if !first {
			buf = append(buf, ',')
		}
		first = false
		buf = l.endpoint.shown.item.Append(buf, o)
		if len(buf) >= listBuffer {
			if err := flush(); err != nil {
				return written, err
			}
		}
	}
	buf = append(buf, "]}\n"...)
	return written, flush()
}

func (l *List) appendHeader(buf []byte) []byte {
	buf = append(buf, `{"kind":"`...)
	buf = append(buf, l.endpoint.shown.listKind...)
	buf = append(buf, `","apiVersion":"`...)
	buf = append(buf, l.endpoint.shown.listVersion...)
	buf = append(buf, `","metadata":{"resourceVersion":"`...)
	buf = strconv.AppendInt(buf, int64(l.snapshot.Revision), 10)
	return append(append(buf, `"},`...), l.endpoint.shown.members...)
}

// selects tells whether an object is in the list. What can't be read is reported and left out.
func (l *List) selects(o *cacher.Object) bool {
	if l.name != "" && o.Name() != l.name {
		return false
	}
	if o.Err != nil {
		l.endpoint.res.registry.unreadable.report(o, o.Err)
		return false
	}
	return l.labels.Matches(o.Labels) && l.fields.Matches(o)
}

// selector is what labelSelector and fieldSelector select.
type selector struct {
	labels          selectors.LabelSelector
	fields          selectors.FieldSelector
	namespace, name string                  // asked for by field selector; "" for any
	allFields       selectors.FieldSelector // with the terms that name and namespace stand for
}
