package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestPage: pages double up to their bounds, and shrink where values are large.
func TestPage(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	for name, c := range map[string]struct {
		value int // the size of each
		want  []int
	}{
		"small values":          {100, []int{64, 128, 256, 512, 1000, 1000}},
		"of 20 KiB":             {20 * kib, []int{64, 128, 256, 409, 409}},
		"of 1 MiB":              {mib, []int{64, 8, 8}},
		"larger than a page":    {16 * mib, []int{64, 1, 1}},
		"nothing but deletions": {0, []int{64, 128}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Page{MaxKeys: 1000, MaxBytes: 8 * mib}
			for i, want := range c.want {
				if got := p.Keys(); got != want {
					t.Fatalf("page %d has %d keys, want %d", i, got, want)
				}
				p.Read(p.Keys() * c.value)
			}
		})
	}
	p := Page{MaxKeys: 10, MaxBytes: mib}
	if p.Keys() != 10 {
		t.Errorf("the first page has %d keys, of at most 10", p.Keys())
	}
}

// refusing is a Transformer that refuses what is stored.
type refusing struct{ err error }

func (r refusing) ToStorage(context.Context, string, []byte) ([]byte, error) { return nil, r.err }

func (r refusing) FromStorage(context.Context, string, []byte) ([]byte, bool, error) {
	return nil, false, r.err
}

// TestReader: what a Transformer refuses keeps its key and value, and a deletion has no value that it could refuse.
func TestReader(t *testing.T) {
	broken := errors.New("broken")
	r := Reader{Transformer: refusing{broken}}
	kv := &mvccpb.KeyValue{Key: []byte("k"), Value: []byte("v"), ModRevision: 7}
	if c := r.Decode(kv); !errors.Is(c.Err, broken) || c.Key != "k" || string(c.Value) != "v" || c.Revision != 7 {
		t.Errorf("read %+v", c)
	}
	if c := r.DecodeEvent(&mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: kv}); c.Err != nil || !c.Deleted || c.Value != nil || c.Revision != 7 {
		t.Errorf("a deletion is %+v", c)
	}
	if c := (&Reader{}).DecodeEvent(&mvccpb.Event{Kv: kv}); c.Err != nil || c.Deleted || string(c.Value) != "v" {
		t.Errorf("a put is %+v", c)
	}
}

// oddRefusing is a Transformer that turns what is stored into upper case, and refuses what ends in an odd digit.
type oddRefusing struct{ err error }

func (oddRefusing) ToStorage(_ context.Context, _ string, value []byte) ([]byte, error) {
	return value, nil
}

func (r oddRefusing) FromStorage(_ context.Context, _ string, stored []byte) ([]byte, bool, error) {
	if (stored[len(stored)-1]-'0')%2 == 1 {
		return nil, false, r.err
	}
	return bytes.ToUpper(stored), true, nil
}

// TestDecodePage: a page of any length is what Decode makes of each key, in order.
func TestDecodePage(t *testing.T) {
	for name, r := range map[string]Reader{"plain": {}, "transformed": {Transformer: oddRefusing{errors.New("odd")}}} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, pageShare, pageShare + 1, pagePart, pagePart + 1, 1000} {
				kvs := make([]*mvccpb.KeyValue, n)
				want := make([]storage.Change, n)
				for i := range kvs {
					kvs[i] = &mvccpb.KeyValue{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i), ModRevision: int64(i)}
					want[i] = r.Decode(kvs[i])
				}
				i := 0
				for got := range r.DecodePage(kvs) {
					if w := want[i]; got.Key != w.Key || got.Revision != w.Revision || string(got.Value) != string(w.Value) || got.Stale != w.Stale || fmt.Sprint(got.Err) != fmt.Sprint(w.Err) {
						t.Fatalf("of %d keys, number %d is %+v, want %+v", n, i, got, w)
					}
					i++
				}
				if i != n {
					t.Fatalf("of %d keys, %d are given", n, i)
				}
			}
		})
	}
}

// countingReads is a Transformer that counts what it reads.
type countingReads struct{ reads *atomic.Int64 }

func (countingReads) ToStorage(_ context.Context, _ string, value []byte) ([]byte, error) {
	return value, nil
}

func (c countingReads) FromStorage(_ context.Context, _ string, stored []byte) ([]byte, bool, error) {
	c.reads.Add(1)
	return stored, false, nil
}

// TestDecodePageStops: who takes one value of a large page has a part of it worked on, and not all.
func TestDecodePageStops(t *testing.T) {
	page := make([]*mvccpb.KeyValue, 1000)
	for i := range page {
		page[i] = &mvccpb.KeyValue{Key: fmt.Appendf(nil, "k%d", i)}
	}
	var reads atomic.Int64
	r := Reader{Transformer: countingReads{&reads}}
	for range r.DecodePage(page) {
		break
	}
	if n := reads.Load(); n == 0 || n > pagePart {
		t.Errorf("%d values were worked on, want at most %d", n, pagePart)
	}
}
