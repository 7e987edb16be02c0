package kube

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// offsets say where in the raw bytes the members are that a View replaces.
type offsets struct {
	apiVersion extent // between the quotes
	kind       extent // between the quotes
	metadata   extent // the whole value
	version    extent // of resourceVersion, between the quotes; or where the member is to be inserted
	insert     bool   // there is no resourceVersion: the whole member is inserted
	comma      bool   // and others follow it
	owned      bool   // there are ownerReferences
	ttl        bool   // there is the annotation TTLAnnotation
}

type extent struct{ from, to uint32 }

// scanner reads stored bytes once. It checks that they are one JSON object, and notes what an Object needs of them.
type scanner struct{ jsonscan.Scanner }

// maxStored bounds a stored value, in bytes: offsets into it are 32 bits wide.
const maxStored = 1 << 31

// encrypted is what every value begins with that Kubernetes' providers have encrypted.
const encrypted = "k8s:enc:"

var errEncrypted = errors.New("it's encrypted, and the server has no keys: see --encryption-provider-config")

// scan fills in the object's attributes.
func (s *scanner) scan(o *Object) error {
	if strings.HasPrefix(string(s.Data[:min(len(s.Data), len(encrypted))]), encrypted) {
		return errEncrypted
	}
	if len(s.Data) > maxStored {
		return fmt.Errorf("stored value of %d bytes is too large", len(s.Data))
	}
	var twice string
	var seen struct{ apiVersion, kind, metadata bool }
	once := func(seen *bool, name string) {
		if *seen {
			twice = name
		}
		*seen = true
	}
	if s.Peek() != '{' {
		s.Fail("an object")
	}
	s.Members(func(key []byte) {
		switch string(key) {
		case "apiVersion":
			once(&seen.apiVersion, "apiVersion")
			o.offsets.apiVersion = s.stringExtent()
		case "kind":
			once(&seen.kind, "kind")
			o.offsets.kind = s.stringExtent()
		case "metadata":
			once(&seen.metadata, "metadata")
			s.Peek()
			o.offsets.metadata.from = uint32(s.Pos)
			s.metadata(o)
			o.offsets.metadata.to = uint32(s.Pos)
		default:
			s.Skip()
		}
	})
	if !s.AtEnd() {
		s.Fail("the end")
	}
	switch {
	case s.Err() != nil:
		return fmt.Errorf("stored value isn't valid JSON: %w", s.Err())
	case twice != "":
		return fmt.Errorf("stored value has two members %s", twice)
	case !seen.apiVersion || !seen.kind || !seen.metadata:
		return fmt.Errorf("stored value lacks apiVersion, kind or metadata")
	case !utf8.Valid(s.Data):
		return fmt.Errorf("stored value isn't valid UTF-8")
	}
	return nil
}

func (s *scanner) metadata(o *Object) {
	if s.Peek() != '{' {
		s.Fail("an object as metadata")
		return
	}
	goesIn, found, members := uint32(s.Pos+1), false, 0
	s.Members(func(key []byte) {
		members++
		switch string(key) {
		case "resourceVersion":
			found = true
			o.offsets.version = s.stringExtent()
		case "uid": // canonical bytes are sorted: resourceVersion goes just before it
			goesIn = s.keyAt(key)
			s.Skip()
		case "labels":
			o.Labels = s.labels()
		case "deletionTimestamp":
			o.DeletionTimestamp = text(&s.Scanner)
		case "ownerReferences":
			o.offsets.owned = true
			s.Skip()
		case "annotations":
			s.Members(func(key []byte) {
				o.offsets.ttl = o.offsets.ttl || string(key) == TTLAnnotation
				s.Skip()
			})
		default:
			s.Skip()
		}
	})
	if !found {
		o.offsets.version = extent{goesIn, goesIn}
		o.offsets.insert, o.offsets.comma = true, members > 0
	}
}

// keyAt is where the quoted key that Members has just read begins.
func (s *scanner) keyAt(key []byte) uint32 {
	return uint32(cap(s.Data)-cap(key)) - 1
}

// labels reads the labels that are strings: no label selector can match another value.
func (s *scanner) labels() selectors.Set {
	var few [2 * 8]string // most objects have at most eight labels, which need no allocation until the end
	set, sorted := few[:0], true
	s.Members(func(key []byte) {
		k := unquote(key)
		if s.Peek() != '"' {
			s.Skip()
			return
		}
		if n := len(set); n > 0 && set[n-2] >= k {
			sorted = false
		}
		set = append(set, k, text(&s.Scanner))
	})
	if !sorted {
		set = sortLabels(set)
	}
	return slices.Clone(selectors.Set(set))
}

// sortLabels sorts pairs by key. Of two pairs with one key the later one stays, as in encoding/json.
func sortLabels(set []string) []string {
	type pair struct{ k, v string }
	pairs := make([]pair, 0, len(set)/2)
	for i := 0; i < len(set); i += 2 {
		pairs = append(pairs, pair{set[i], set[i+1]})
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.k, b.k) })
	out := set[:0]
	for _, p := range pairs {
		if n := len(out); n > 0 && out[n-2] == p.k {
			out[n-1] = p.v
			continue
		}
		out = append(out, p.k, p.v)
	}
	return out
}

func unquote(b []byte) string {
	b = jsonscan.Unquote(b)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// stringExtent reads a string, and returns where it is.
func (s *scanner) stringExtent() extent {
	s.Peek()
	from := s.Pos + 1
	return extent{uint32(from), uint32(from + len(s.Quoted()))}
}
