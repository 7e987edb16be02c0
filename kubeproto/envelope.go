package kubeproto

import (
	"bytes"
	"errors"
	"fmt"
)

// Media is the media type of enveloped messages. StreamMedia is that of a watch.
const (
	Media       = "application/vnd.kubernetes.protobuf"
	StreamMedia = Media + ";stream=watch"
)

// prefix begins every body. A runtime.Unknown follows.
const prefix = "k8s\x00"

// The fields of a runtime.Unknown, and those of the runtime.TypeMeta in it.
const (
	unknownType     = 1
	unknownRaw      = 2
	unknownEncoding = 3
	unknownMedia    = 4

	typeAPIVersion = 1
	typeKind       = 2
)

// Type is the kind that an envelope names. The zero value names none.
type Type struct {
	head []byte // the envelope up to the message
}

// TypeOf returns the Type of a kind.
func TypeOf(apiVersion, kind string) Type {
	meta := appendText(appendText(nil, typeAPIVersion, apiVersion), typeKind, kind)
	return Type{append(appendHead([]byte(prefix), unknownType, len(meta)), meta...)}
}

// tail ends an envelope: two empty fields, which kube-apiserver writes, too.
const tail = "\x1a\x00\x22\x00"

// size is how large an envelope around n bytes is.
func (t Type) size(n int) int { return len(t.head) + sizeBytes(n) + len(tail) }

// begin appends what comes before a message of n bytes. tail must follow the message.
func (t Type) begin(dst []byte, n int) []byte {
	return appendHead(append(dst, t.head...), unknownRaw, n)
}

// Append appends a message in its envelope.
func (t Type) Append(dst, message []byte) []byte {
	return append(append(t.begin(dst, len(message)), message...), tail...)
}

// Envelope is what Open finds in a body.
type Envelope struct {
	APIVersion, Kind string // "" if the envelope doesn't say
	Message          []byte // a part of the body
}

// Open takes a body apart. It's strict, because nothing else would notice a body that was cut or joined with another: what
// an envelope may have it has once, and nothing follows. The error says what was expected, as the end of a sentence about the
// body.
func Open(body []byte) (Envelope, error) {
	rest, ok := bytes.CutPrefix(body, []byte(prefix))
	if !ok {
		return Envelope{}, errors.New("isn't Kubernetes protobuf: it must begin with k8s and a zero byte")
	}
	var e Envelope
	var seen [unknownMedia + 1]bool
	for len(rest) > 0 {
		at := len(body) - len(rest)
		f, after, ok := next(rest)
		switch {
		case !ok:
			return Envelope{}, fmt.Errorf("is cut, or has bytes after its end: at offset %d of %d no field of a runtime.Unknown is whole", at, len(body))
		case f.number > unknownMedia || f.wire != wireBytes || seen[f.number]:
			return Envelope{}, fmt.Errorf("has bytes after its end: at offset %d of %d there is no field that a runtime.Unknown still lacks", at, len(body))
		}
		seen[f.number], rest = true, after
		switch f.number {
		case unknownType:
			if !e.readType(f.content) {
				return Envelope{}, errors.New("isn't Kubernetes protobuf: its first field must be a runtime.TypeMeta")
			}
		case unknownRaw:
			e.Message = f.content
		default:
			if media := string(f.content); media != "" && (f.number == unknownEncoding || media != Media) {
				return Envelope{}, errors.New("has a message in another form: its contentEncoding must be empty, and its contentType empty or " + Media)
			}
		}
	}
	if !seen[unknownRaw] {
		return Envelope{}, errors.New("is cut: a runtime.Unknown with the field raw must follow k8s and the zero byte")
	}
	return e, nil
}

// readType reads a runtime.TypeMeta. It returns false if that's malformed.
func (e *Envelope) readType(meta []byte) bool {
	for len(meta) > 0 {
		f, rest, ok := next(meta)
		if !ok || f.wire != wireBytes {
			return false
		}
		switch meta = rest; f.number {
		case typeAPIVersion:
			e.APIVersion = string(f.content)
		case typeKind:
			e.Kind = string(f.content)
		}
	}
	return true
}
