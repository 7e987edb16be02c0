package kubeproto

import (
	"encoding/binary"
	"math/bits"
)

// The wire types of protobuf.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2 // a length and as many bytes: texts, bytes and messages
	wireGroup   = 3 // begins a group; nothing of Kubernetes' has any
	wireEnd     = 4 // ends one
	wireFixed32 = 5
)

// tag is what a field begins with, for field numbers below 16.
func tag(field, wire byte) byte { return field<<3 | wire }

// sizeVarint is how many bytes a number takes.
func sizeVarint(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

func appendVarint(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(n)) }

// sizeBytes is how many bytes a field of n bytes takes, with its tag and length.
func sizeBytes(n int) int { return 1 + sizeVarint(n) + n }

// appendHead appends what comes before the n bytes of a field.
func appendHead(dst []byte, field byte, n int) []byte {
	return appendVarint(append(dst, tag(field, wireBytes)), n)
}

func appendText(dst []byte, field byte, text string) []byte {
	return append(appendHead(dst, field, len(text)), text...)
}

// field is one field of a message. content is set for wireBytes only.
type field struct {
	number  uint64
	wire    byte
	content []byte
}

// next takes the first field of a message. ok is false if the bytes don't begin with a whole field.
func next(message []byte) (f field, rest []byte, ok bool) {
	head, n := binary.Uvarint(message)
	if n <= 0 || head>>3 == 0 {
		return f, message, false
	}
	f = field{number: head >> 3, wire: byte(head & 7)}
	rest = message[n:]
	switch f.wire {
	case wireVarint:
		if _, n = binary.Uvarint(rest); n <= 0 {
			return f, message, false
		}
	case wireFixed64:
		n = 8
	case wireFixed32:
		n = 4
	case wireGroup, wireEnd:
		n = 0
	case wireBytes:
		size, head := binary.Uvarint(rest)
		if head <= 0 || size > uint64(len(rest)-head) {
			return f, message, false
		}
		n = head + int(size)
		f.content = rest[head:n]
	default:
		return f, message, false
	}
	if n > len(rest) {
		return f, message, false
	}
	return f, rest[n:], true
}

// Measure returns how deeply a message may nest, or a number above most as soon as it's more than that, and how many texts,
// bytes and messages are in it by then. Whether bytes are a message or a text can't be told without the schema, so whatever
// could be a message counts as one. It takes time in proportion to the message: no byte is the head of a field on two levels.
func Measure(message []byte, most int) (levels, values int) {
	levels = 1
	open := [][]byte{message} // what is left of the message on each level
	for len(open) > 0 {
		last := len(open) - 1
		f, rest, ok := next(open[last])
		if !ok { // the end, or no message after all
			open = open[:last]
			continue
		}
		open[last] = rest
		if f.wire != wireBytes {
			continue
		}
		values++
		if len(f.content) < 2 { // too short for a field with content
			continue
		}
		open = append(open, f.content)
		if levels = max(levels, len(open)); levels > most {
			break
		}
	}
	return levels, values
}
