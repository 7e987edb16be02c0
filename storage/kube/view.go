package kube

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// View is the form in which a client gets the objects of one resource. Two watchers with one *View
// get the same bytes. A changed definition has new views, and ends the watches that used the old ones.
//
// Stored bytes lack the resourceVersion, and may name another version of the group than the one that's
// served. A View copies the bytes and puts both in, at the offsets that the Object knows.
type View struct {
	APIVersion string // as served: "group/version"; never empty where objects are copied
	Kind       string
	// OmitTypeMeta leaves kind and apiVersion out of items, as lists of built-in kinds do.
	OmitTypeMeta bool
	// MetadataOnly shows nothing but metadata, under the view's own kind and apiVersion.
	MetadataOnly bool
	// Render, if set, appends what is shown instead of the object: a document made of it. o.Revision is the
	// resourceVersion to show. An event is rendered once for all its watchers, when the first of them takes it; so
	// what depends on the time is as old as that. Render may be called while a lock of the cacher is held, for which
	// only readers of the same event or the same state wait: it must not block or call the cacher.
	Render func(dst []byte, o *Object) []byte
	// ServerSent writes events as server-sent ones (watchstream.ServerSentMedia), and not as lines. See AsServerSent.
	ServerSent bool
	// Encoding, if set, makes messages of objects: the view is one of protobuf, and not of JSON. See Protobuf.
	Encoding *Encoding
	// First, if set, is the view of the first event of each watch.
	First *View
	// Projection, if set, is what Render leaves of objects. Watchers get no event of a change that it doesn't show.
	Projection *Projection
	// Conversion, if set, makes what is shown of objects that can't be shown as they are stored.
	Conversion *Conversion

	envelope kubeproto.Type // around each message, where there's an Encoding
}

// AsServerSent returns the view of JSON that shows the same and writes events as server-sent ones.
func (v *View) AsServerSent() *View {
	events := *v
	events.ServerSent = true
	if v.First != nil {
		events.First = v.First.AsServerSent()
	}
	return &events
}

// Append appends an object as JSON to dst; the view must be one of JSON. Where the view has a Conversion, the object must
// come from Shown or Prepare.
func (v *View) Append(dst []byte, o *Object) []byte { return v.appendAt(dst, o, o.Revision) }

// appendAt appends the object as if rev were its last write, which is how a deleted one is shown.
func (v *View) appendAt(dst []byte, o *Object, rev storage.Revision) []byte {
	switch {
	case v.Render != nil:
		if rev != o.Revision {
			o = o.At(rev)
		}
		return v.Render(dst, o)
	case v.MetadataOnly:
		return v.appendMetadata(dst, o, rev)
	case v.OmitTypeMeta:
		return v.appendBare(dst, o, rev)
	}
	api, version := o.offsets.apiVersion, o.offsets.version
	if api.from < version.from {
		dst = append(append(dst, o.raw[:api.from]...), v.APIVersion...)
		dst = o.appendVersion(append(dst, o.raw[api.to:version.from]...), rev)
		return append(dst, o.raw[version.to:]...)
	}
	dst = o.appendVersion(append(dst, o.raw[:version.from]...), rev)
	dst = append(append(dst, o.raw[version.to:api.from]...), v.APIVersion...)
	return append(dst, o.raw[api.to:]...)
}

// appendBare leaves out the members apiVersion and kind. In canonical bytes the names are sorted, so that apiVersion comes
// before kind, and both before metadata. Other bytes keep both members, which does no harm.
func (v *View) appendBare(dst []byte, o *Object, rev storage.Revision) []byte {
	const apiMember, kindMember = `"apiVersion":"`, `"kind":"`
	api, kind, version := o.offsets.apiVersion, o.offsets.kind, o.offsets.version
	apiAt, kindAt := int(api.from)-len(apiMember), int(kind.from)-len(kindMember) // where the members begin
	canonical := apiAt > 0 && kindAt > int(api.to) && kind.to < version.from &&
		string(o.raw[apiAt:api.from]) == apiMember && string(o.raw[kindAt:kind.from]) == kindMember
	if !canonical {
		full := View{APIVersion: v.APIVersion, Kind: v.Kind}
		return full.appendAt(dst, o, rev)
	}
	const quote, comma = 1, 1
	rest := int(api.to) + quote
	if first := apiAt == len("{"); first { // the comma after it goes, too
		dst, rest = append(dst, '{'), rest+comma
	} else {
		dst = append(dst, o.raw[:apiAt-comma]...)
	}
	after := int(kind.to) + quote
	if kindAt == rest { // nothing is between them, nor before
		after += comma
	} else {
		dst = append(dst, o.raw[rest:kindAt-comma]...)
	}
	dst = o.appendVersion(append(dst, o.raw[after:version.from]...), rev)
	return append(dst, o.raw[version.to:]...)
}

func (v *View) appendMetadata(dst []byte, o *Object, rev storage.Revision) []byte {
	metadata, version := o.offsets.metadata, o.offsets.version
	dst = append(append(dst, `{"kind":"`...), v.Kind...)
	dst = append(append(dst, `","apiVersion":"`...), v.APIVersion...)
	dst = append(append(dst, `","metadata":`...), o.raw[metadata.from:version.from]...)
	dst = append(o.appendVersion(dst, rev), o.raw[version.to:metadata.to]...)
	return append(dst, '}')
}

// appendVersion appends a resourceVersion, or none for 0: the object of a dry run has no revision.
func (o *Object) appendVersion(dst []byte, rev storage.Revision) []byte {
	if rev == 0 && o.offsets.insert {
		return dst
	}
	if !o.offsets.insert {
		return strconv.AppendInt(dst, int64(rev), 10)
	}
	dst = append(dst, `"resourceVersion":"`...)
	dst = strconv.AppendInt(dst, int64(rev), 10)
	if o.offsets.comma {
		return append(dst, '"', ',')
	}
	return append(dst, '"')
}

// AppendBookmark appends a whole BOOKMARK event at a revision. annotation is the name of the annotation that it carries, ""
// for none.
func (v *View) AppendBookmark(dst []byte, rev storage.Revision, annotation string) []byte {
	switch {
	case v.ServerSent:
		return watchstream.AppendServerSentID(dst, int64(rev))
	case v.Encoding != nil:
		return kubeproto.AppendBookmark(dst, v.envelope, int64(rev), annotation)
	}
	b := watchstream.BookmarkOf{APIVersion: v.APIVersion, Kind: v.Kind, ResourceVersion: rev.String(), InitialEnd: annotation == watchstream.InitialEventsEnd}
	if v.Render == nil {
		return watchstream.AppendBookmark(dst, b)
	}
	return v.appendJSONFrame(dst, watchstream.Bookmark, NewObject("", b.AppendObject(nil), rev), rev)
}

// AppendError appends a whole ERROR event.
func (v *View) AppendError(dst []byte, f watchstream.Failure) []byte {
	switch {
	case v.ServerSent:
		f.Message = watchstream.Advised(f.Message, f.Code)
		return watchstream.AppendServerSentError(dst, f.Status(), f.Code)
	case v.Encoding != nil:
		return kubeproto.AppendError(dst, kubeproto.Failure(f.Code, f.Reason, f.Message))
	}
	return watchstream.AppendError(dst, f.Status())
}

// AppendFrame appends a whole event. The error is that of the view's Encoding.
func (v *View) AppendFrame(dst []byte, t watchstream.Type, o *Object, rev storage.Revision) ([]byte, error) {
	if v.Encoding == nil {
		return v.appendJSONFrame(dst, t, o, rev), nil
	}
	m, err := v.Message(o)
	if err != nil {
		return dst, err
	}
	return m.AppendEvent(dst, v.envelope, t.String(), int64(rev)), nil
}

// AppendState appends the ADDED event of an object of an initial state, as AppendFrame does. As a server-sent event it has no id: who has got a
// part of the state must begin again.
func (v *View) AppendState(dst []byte, o *Object) ([]byte, error) {
	if v.ServerSent {
		dst = watchstream.AppendServerSentHead(dst, watchstream.Added, 0)
		return v.appendLine(dst, o, o.Revision), nil
	}
	return v.AppendFrame(dst, watchstream.Added, o, o.Revision)
}

// appendLine appends the object and the end of a server-sent event, in which the object must be one line. What somebody else has put into etcd may
// have several.
func (v *View) appendLine(dst []byte, o *Object, rev storage.Revision) []byte {
	from := len(dst)
	dst = v.appendAt(dst, o, rev)
	if data := dst[from:]; bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		var line bytes.Buffer
		json.Compact(&line, data) // it's JSON, as the scanner has found
		dst = append(dst[:from], line.Bytes()...)
	}
	return watchstream.AppendServerSentTail(dst)
}

// FrameOverhead is room for what a frame adds to the stored bytes: the envelope and the resourceVersion.
const FrameOverhead = 96

// NewFrame returns a whole event in memory of its own.
func (v *View) NewFrame(t watchstream.Type, o *Object, rev storage.Revision) ([]byte, error) {
	if v.Encoding == nil {
		size := len(o.raw) + len(v.APIVersion) + FrameOverhead
		return v.appendJSONFrame(make([]byte, 0, size), t, o, rev), nil
	}
	m, err := v.Message(o)
	if err != nil {
		return nil, err
	}
	name, at := t.String(), int64(rev)
	return m.AppendEvent(make([]byte, 0, m.EventSize(v.envelope, name, at)), v.envelope, name, at), nil
}

// appendJSONFrame appends a whole event as one JSON document and a newline, or as a server-sent event.
func (v *View) appendJSONFrame(dst []byte, t watchstream.Type, o *Object, rev storage.Revision) []byte {
	if v.ServerSent {
		dst = watchstream.AppendServerSentHead(dst, t, int64(rev))
		return v.appendLine(dst, o, rev)
	}
	dst = watchstream.AppendHead(dst, t)
	dst = v.appendAt(dst, o, rev)
	return watchstream.AppendTail(dst)
}
