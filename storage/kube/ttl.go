package kube

import "github.com/apiserver-lite/apiserver-lite/internal/jsonscan"

// TTLAnnotation says how long an object lives, as a Go duration from its creation.
const TTLAnnotation = "apiserver-lite/ttl"

// Life is what an object says about how long it lives. Its strings share the object's bytes.
type Life struct {
	TTL     string // the value of TTLAnnotation
	Created string // creationTimestamp
}

// HasTTL tells whether the object has TTLAnnotation, without a look at its bytes.
func (o *Object) HasTTL() bool { return o.offsets.ttl }

// Life reads what the object says about its life from its bytes. It's empty for an object with an Err. What isn't a string
// is left out.
func (o *Object) Life() (l Life) {
	if o.Err != nil {
		return l
	}
	s := &jsonscan.Scanner{Data: o.raw, Pos: int(o.offsets.metadata.from)}
	s.Members(func(key []byte) {
		switch string(key) {
		case "creationTimestamp":
			l.Created = text(s)
		case "annotations":
			s.Members(func(key []byte) {
				if string(key) == TTLAnnotation {
					l.TTL = text(s)
				} else {
					s.Skip()
				}
			})
		default:
			s.Skip()
		}
	})
	return l
}
