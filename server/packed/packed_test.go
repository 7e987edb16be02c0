package packed

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// writing is a pack function that writes a text.
func writing(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// unzipped reads a stream as clients do, and checks that it's as long as GzipSize says.
func unzipped(t *testing.T, i *Items, head string) string {
	t.Helper()
	var b bytes.Buffer
	if err := i.Write(&b, []byte(head)); err != nil {
		t.Fatal(err)
	}
	if size := i.GzipSize([]byte(head)); b.Len() != size {
		t.Errorf("the stream has %d bytes, and GzipSize says %d", b.Len(), size)
	}
	r, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	r.Multistream(false) // some clients read no further than the first member
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if b.Len() > 0 {
		t.Errorf("%d bytes follow the stream", b.Len())
	}
	return string(all)
}

// TestItems: any head and any items are one stream of gzip.
func TestItems(t *testing.T) {
	for name, c := range map[string]struct{ head, items string }{
		"small":               {`{"items":[`, `]}`},
		"no head":             {"", "items"},
		"no items":            {"head", ""},
		"nothing":             {"", ""},
		"a full block":        {strings.Repeat("h", maxStored), "items"},
		"more than one block": {strings.Repeat("head", maxStored/2), "items"},
		"large":               {"head", strings.Repeat(`{"kind":"Widget"},`, 1<<16)},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := Pack(writing(c.items))
			if err != nil {
				t.Fatal(err)
			}
			if i.Size != len(c.items) {
				t.Errorf("Size is %d, want %d", i.Size, len(c.items))
			}
			for _, head := range []string{c.head, c.head + "again"} {
				if got := unzipped(t, i, head); got != head+c.items {
					t.Errorf("the stream has %d bytes, want %d", len(got), len(head+c.items))
				}
			}
		})
	}
}

// FuzzJoin: the checksum of two texts is that of both together.
func FuzzJoin(f *testing.F) {
	f.Add([]byte(nil), []byte(nil))
	f.Add([]byte("a"), []byte("bc"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		got := join(crc32.ChecksumIEEE(first), crc32.ChecksumIEEE(second), len(second))
		if want := crc32.ChecksumIEEE(append(first[:len(first):len(first)], second...)); got != want {
			t.Errorf("join gives %08x, want %08x", got, want)
		}
	})
}

// TestGet: the first request is noted, the second one packs, and others get what it has packed until the version changes.
func TestGet(t *testing.T) {
	var l Lists
	ctx, f := t.Context(), Form{1, "/widgets"}
	packs := 0
	get := func(version uint64) *Items {
		t.Helper()
		i, err := l.Get(ctx, f, version, func(w io.Writer) error {
			packs++
			return writing(fmt.Sprint("items of ", version))(w)
		})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	if get(1) != nil || packs != 0 {
		t.Error("the first request isn't only noted")
	}
	l.Note(f, 1)
	for range 3 {
		l.Note(f, 1)
		if got := unzipped(t, get(1), "the "); got != "the items of 1" || packs != 1 {
			t.Errorf("a further request gets %q, after %d packs", got, packs)
		}
	}
	if long := (Form{1, strings.Repeat("w", maxRequest+1)}); true {
		if l.Note(long, 1); l.Noted(long, 1) {
			t.Error("a very long request is noted")
		}
	}
	if i, err := l.Get(ctx, Form{2, "/widgets"}, 1, nil); i != nil || err != nil {
		t.Error("another endpoint gets the items")
	}
	if get(2) != nil {
		t.Error("another version gets the items")
	}
	l.Note(f, 2)
	if l.bytes != 0 {
		t.Errorf("%d bytes are kept of the version before", l.bytes)
	}
	if get(1) != nil {
		t.Error("the version before is still there")
	}
	if got := unzipped(t, get(2), ""); got != "items of 2" {
		t.Errorf("the next version is %q", got)
	}
}

// TestGetTogether: those who ask while one packs wait for it. If it fails, they aren't told its error, and somebody else may try.
func TestGetTogether(t *testing.T) {
	failed := errors.New("the client has left")
	for name, c := range map[string]struct {
		write     func(io.Writer) error
		err       error
		remembers bool
	}{
		"it packs":  {writing("items"), nil, true},
		"it fails":  {func(io.Writer) error { return failed }, failed, false},
		"too large": {func(w io.Writer) error { _, err := io.CopyN(w, noise{}, 2*maxItems); return err }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l Lists
				f := Form{Request: "/widgets"}
				l.Note(f, 1)
				begin := make(chan struct{})
				type result struct {
					items *Items
					err   error
				}
				first, others := make(chan result), make(chan result)
				go func() {
					i, err := l.Get(t.Context(), f, 1, func(w io.Writer) error {
						<-begin
						return c.write(w)
					})
					first <- result{i, err}
				}()
				synctest.Wait()
				for range 3 {
					go func() {
						i, err := l.Get(t.Context(), f, 1, nil) // which nobody may call
						others <- result{i, err}
					}()
				}
				left, leave := context.WithCancel(t.Context())
				leave()
				if _, err := l.Get(left, f, 1, nil); !errors.Is(err, context.Canceled) {
					t.Errorf("who has left waits, and gets %v", err)
				}
				close(begin)
				if r := <-first; !errors.Is(r.err, c.err) || (r.items != nil) != c.remembers {
					t.Errorf("the first one gets %v, %v", r.items, r.err)
				}
				for range 3 {
					if r := <-others; r.err != nil || (r.items != nil) != c.remembers {
						t.Errorf("another one gets %v, %v", r.items, r.err)
					}
				}
				time.Sleep(3 * unused) // the sweep's timer ends
			})
		})
	}
}

// noise can't be compressed.
type noise struct{}

func (noise) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(rand.Uint32())
	}
	return len(p), nil
}

// TestBounds: the lists that nobody has asked for the longest go when there are too many or they take too much, and all go in the end.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lists
		add := func(n int, size int64) {
			f := Form{Endpoint: n}
			l.Note(f, 1)
			if _, err := l.Get(t.Context(), f, 1, func(w io.Writer) error { _, err := io.CopyN(w, noise{}, size); return err }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		has := func(n int) bool { return l.Noted(Form{Endpoint: n}, 1) }
		known := func() (lists, bytes int) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.forms), l.bytes
		}
		for n := range maxForms + 10 {
			add(n, 100)
		}
		if lists, _ := known(); lists != maxForms || has(0) || has(9) || !has(10) {
			t.Errorf("%d lists are known", lists)
		}
		for n := range 10 {
			add(1000+n, maxItems*3/4)
		}
		if lists, bytes := known(); bytes > maxBytes || lists != 5 || !has(1009) || !has(1005) {
			t.Errorf("%d lists take %d bytes", lists, bytes)
		}
		time.Sleep(3 * unused)
		if lists, bytes := known(); lists != 0 || bytes != 0 {
			t.Errorf("after a while %d lists take %d bytes", lists, bytes)
		}
	})
}

// TestGetPanics: nobody waits for a list whose packing has panicked.
func TestGetPanics(t *testing.T) {
	var l Lists
	f := Form{Request: "/widgets"}
	l.Note(f, 1)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic isn't passed on")
			}
		}()
		_, _ = l.Get(t.Context(), f, 1, func(io.Writer) error { panic("broken") })
	}()
	if i, err := l.Get(t.Context(), f, 1, nil); i != nil || err != nil {
		t.Errorf("the next one gets %v, %v", i, err)
	}
}
