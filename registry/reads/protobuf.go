package reads

import (
	"context"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// TreeOf returns the content of a message that a client sent.
func TreeOf(m registry.Message) (map[string]any, error) {
	tree, err := jsontree.OfValue(m)
	if err != nil {
		return nil, registry.BadBody(object.Undecodable(err))
	}
	if text, ok := BadText(tree); !ok {
		return nil, registry.BadRequest("the body of the request is not valid UTF-8 in %q", clip.Text(text))
	}
	return tree, nil
}

// BadText looks for a text in a tree that isn't UTF-8. Decoders of protobuf let such texts pass, which JSON can't have.
func BadText(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, utf8.ValidString(v)
	case map[string]any:
		for k, v := range v {
			if !utf8.ValidString(k) {
				return k, false
			}
			if text, ok := BadText(v); !ok {
				return text, false
			}
		}
	case []any:
		for _, v := range v {
			if text, ok := BadText(v); !ok {
				return text, false
			}
		}
	}
	return "", true
}

// writeProtobuf is Write for a list of protobuf. The envelope begins with the length of the whole list, so the
// items are gone through twice: what isn't kept of them is encoded twice, too.
func (l *List) writeProtobuf(ctx context.Context, w io.Writer) error {
	view, size := l.shown.Item, 0
	item := func(o *kube.Object, err error) (kubeproto.Message, error) {
		if err != nil {
			return kubeproto.Message{}, l.Failed(err)
		}
		m, err := view.Message(o)
		if err != nil {
			err = l.endpoint.Unreadable(o.Name(), err)
		}
		return m, err
	}
	for o, err := range l.converted(ctx) {
		m, err := item(o, err)
		if err != nil {
			return err
		}
		size += m.ItemSize(int64(o.Revision))
	}
	out := newListWriter(w)
	defer out.drop()
	head := kubeproto.List{Revision: int64(l.Revision()), Continue: l.continues, Remaining: l.remaining, Shard: l.shard}
	out.buf = head.AppendHead(out.buf, kubeproto.TypeOf(l.shown.ListVersion, l.shown.ListKind), size)
	for o, err := range l.converted(ctx) {
		m, err := item(o, err)
		if err != nil {
			return err
		}
		before := len(out.buf)
		out.buf = m.AppendItem(out.buf, int64(o.Revision))
		size -= len(out.buf) - before
		if err := out.flush(ListBuffer); err != nil {
			return err
		}
	}
	if size != 0 { // history was compacted, or a webhook converts an object in another way each time
		return fmt.Errorf("%s: the list has changed while it was written", l.endpoint.GroupResource())
	}
	out.buf = kubeproto.AppendListTail(out.buf)
	return out.flush(0)
}
