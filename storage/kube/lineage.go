package kube

import (
	"unsafe"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
)

// Lineage is what decides about an object's life: who it is, who owns it, and who holds it. Its strings share the object's
// bytes, so whoever keeps one keeps all of these.
type Lineage struct {
	UID        string
	Owners     []Owner
	Finalizers []string
}

// Owner is one of an object's ownerReferences, without what only clients look at.
type Owner struct {
	APIVersion, Kind, Name, UID string
	Blocks                      bool // blockOwnerDeletion
}

// Owned tells whether the object's metadata has ownerReferences, without a look at its bytes.
func (o *Object) Owned() bool { return o.offsets.owned }

// Lineage reads the object's lineage from its bytes. It's empty for an object with an Err. What isn't of the right type is
// left out.
func (o *Object) Lineage() (l Lineage) {
	if o.Err != nil {
		return l
	}
	s := &jsonscan.Scanner{Data: o.raw, Pos: int(o.offsets.metadata.from)}
	s.Members(func(key []byte) {
		switch string(key) {
		case "uid":
			l.UID = text(s)
		case "finalizers":
			s.Elements(func() { l.Finalizers = append(l.Finalizers, text(s)) })
		case "ownerReferences":
			s.Elements(func() { l.Owners = append(l.Owners, ownerOf(s)) })
		default:
			s.Skip()
		}
	})
	return l
}

func ownerOf(s *jsonscan.Scanner) (o Owner) {
	s.Members(func(key []byte) {
		switch string(key) {
		case "apiVersion":
			o.APIVersion = text(s)
		case "kind":
			o.Kind = text(s)
		case "name":
			o.Name = text(s)
		case "uid":
			o.UID = text(s)
		case "blockOwnerDeletion":
			o.Blocks = s.Peek() == 't'
			s.Skip()
		default:
			s.Skip()
		}
	})
	return o
}

// text reads a value, and returns the text of a string, "" for anything else. It shares the scanned bytes, which never change.
func text(s *jsonscan.Scanner) string {
	b := s.Text()
	return unsafe.String(unsafe.SliceData(b), len(b))
}
