package reads

import (
	"context"
	"fmt"
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
func (l *List) writeProtobuf(ctx context.Context, out *listWriter) error {
	size := 0
	for o, err := range l.converted(ctx) {
		m, err := l.message(o, err)
		if err != nil {
			return err
		}
		size += m.ItemSize(int64(o.Revision))
	}
	out.buf = l.appendProtobufHead(out.buf, size)
	written, err := l.writeMessages(ctx, out)
	if err == nil && written != size { // history was compacted, or a webhook converts an object in another way each time
		return fmt.Errorf("%s: the list has changed while it was written", l.endpoint.GroupResource())
	}
	return err
}

// appendProtobufHead appends what comes before items of so many bytes.
func (l *List) appendProtobufHead(buf []byte, items int) []byte {
	head := kubeproto.List{Revision: int64(l.Revision()), Continue: l.continues, Remaining: l.remaining, Shard: l.shard}
	return head.AppendHead(buf, kubeproto.TypeOf(l.shown.ListVersion, l.shown.ListKind), items)
}

// writeMessages writes the items and the list's tail, and returns how many bytes the items are.
func (l *List) writeMessages(ctx context.Context, out *listWriter) (items int, err error) {
	for o, err := range l.converted(ctx) {
		m, err := l.message(o, err)
		if err != nil {
			return items, err
		}
		before := len(out.buf)
		out.buf = m.AppendItem(out.buf, int64(o.Revision))
		items += len(out.buf) - before
		if err := out.flush(ListBuffer); err != nil {
			return items, err
		}
	}
	out.buf = kubeproto.AppendListTail(out.buf)
	return items, out.flush(0)
}

// message returns an item's message. err is that of finding the item.
func (l *List) message(o *kube.Object, err error) (kubeproto.Message, error) {
	if err != nil {
		return kubeproto.Message{}, l.Failed(err)
	}
	m, err := l.shown.Item.Message(o)
	if err != nil {
		err = l.endpoint.Unreadable(o.Name(), err)
	}
	return m, err
}
