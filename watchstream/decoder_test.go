package watchstream_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// decodeAll returns what a decoder gives, as "TYPE object", and the error that ends it.
func decodeAll(r io.Reader, limit int) (got []string, err error) {
	d := watchstream.NewDecoder(r)
	d.MaxFrame = limit
	for {
		t, object, err := d.Next()
		if err != nil {
			if _, _, again := d.Next(); again != err {
				return got, fmt.Errorf("the error isn't final: first %w, then %w", err, again)
			}
			return got, err
		}
		got = append(got, t.String()+" "+string(object))
	}
}

func TestDecoder(t *testing.T) {
	const added, deleted = `{"type":"ADDED","object":{"a":"}\n"}}`, `{"type":"DELETED","object":{"b":1}}`
	long := `{"type":"ADDED","object":{"a":"` + strings.Repeat("x", 70<<10) + `"}}`
	for _, tt := range []struct {
		name, input string
		want        []string
		err         error
	}{
		{"nothing", "", nil, io.EOF},
		{"two", added + "\n" + deleted + "\n", []string{`ADDED {"a":"}\n"}`, `DELETED {"b":1}`}, io.EOF},
		{"no newline at the end", added + "\n" + deleted, []string{`ADDED {"a":"}\n"}`, `DELETED {"b":1}`}, io.EOF},
		{"empty lines", "\n\r\n" + added + "\r\n\n", []string{`ADDED {"a":"}\n"}`}, io.EOF},
		{"cut within a frame", added + "\n" + deleted[:len(deleted)-1], []string{`ADDED {"a":"}\n"}`}, io.ErrUnexpectedEOF},
		{"another order", `{"object": {"b":1}, "type": "MODIFIED"}` + "\n", []string{`MODIFIED {"b":1}`}, io.EOF},
		{"more members", `{"type": "BOOKMARK", "x": 1, "object": {"b":1}}` + "\n", []string{`BOOKMARK {"b":1}`}, io.EOF},
		{"an error", `{"type":"ERROR","object":{"code":410}}` + "\n", []string{`ERROR {"code":410}`}, io.EOF},
		{"garbage", added + "\n<html>\n" + deleted, []string{`ADDED {"a":"}\n"}`}, watchstream.ErrFrame},
		{"no type", `{"object":{}}` + "\n", nil, watchstream.ErrFrame},
		{"unknown type", `{"type":"MOVED","object":{}}` + "\n", nil, watchstream.ErrFrame},
		{"no object", `{"type":"ADDED"}` + "\n", nil, watchstream.ErrFrame},
		{"object that is none", `{"type":"ADDED","object":1` + "\n", nil, watchstream.ErrFrame},
		{"long", long + "\n" + long + "\n", []string{"ADDED " + long[25:len(long)-1], "ADDED " + long[25:len(long)-1]}, io.EOF},
		{"too long", added + "\n" + long + long + "\n", []string{`ADDED {"a":"}\n"}`}, watchstream.ErrFrameTooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for kind, r := range map[string]io.Reader{
				"whole":         strings.NewReader(tt.input),
				"byte by byte":  iotest.OneByteReader(strings.NewReader(tt.input)),
				"end with data": iotest.DataErrReader(strings.NewReader(tt.input)),
				"half":          iotest.HalfReader(strings.NewReader(tt.input)),
			} {
				got, err := decodeAll(r, 100<<10)
				if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) {
					t.Errorf("%s: got %.200q, %v; want %.200q, %v", kind, got, err, tt.want, tt.err)
				}
			}
		})
	}
	cut := errors.New("cut")
	got, err := decodeAll(io.MultiReader(strings.NewReader(added+"\n"+deleted), iotest.ErrReader(cut)), 0)
	if len(got) != 1 || err != cut {
		t.Errorf("a reader's error comes as %v after %q", err, got)
	}
}

// FuzzDecoder: whatever comes, however it's cut into reads, the decoder gives the same and ends.
func FuzzDecoder(f *testing.F) {
	f.Add(`{"type":"ADDED","object":{"a":1}}` + "\n\n" + `{"object":{},"type":"ERROR"}`)
	f.Fuzz(func(t *testing.T, input string) {
		want, wantErr := decodeAll(strings.NewReader(input), 1<<10)
		got, err := decodeAll(iotest.OneByteReader(strings.NewReader(input)), 1<<10)
		if !slices.Equal(got, want) || err.Error() != wantErr.Error() {
			t.Errorf("whole: %q, %v; byte by byte: %q, %v", want, wantErr, got, err)
		}
	})
}

// BenchmarkDecoder reads events of 1 KB.
func BenchmarkDecoder(b *testing.B) {
	frame := `{"type":"MODIFIED","object":{"a":"` + strings.Repeat("x", 1000) + `"}}` + "\n"
	r, w := io.Pipe()
	batch := []byte(strings.Repeat(frame, 60))
	go func() {
		for {
			if _, err := w.Write(batch); err != nil {
				return
			}
		}
	}()
	defer r.Close()
	d := watchstream.NewDecoder(r)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := d.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
