package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/server/inflight"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/status"
)

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "*": true, "deflate, gzip;q=1.0, *;q=0.5": true,
		"gzip;q=0": false, "gzip;q=0.001": true, "*;q=0": false, "identity": false, "identity;q=0": false,
		"gzip;q=0,*;q=1": false, "br;q=1": false, "gzip;q=x": false, "gzip;q=-1": false, "gzip;q=NaN": false,
		"identity;q=1, gzip;q=0.9": false, "identity;q=0.5, gzip": true, ";;;,gzip": true,
	} {
		if got := negotiation.Gzip([]string{header}); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
	if !negotiation.Gzip([]string{"br", "gzip"}) || negotiation.Gzip(nil) {
		t.Error("of several headers or none")
	}
}

// TestLargeAnswersQueue: a large answer beyond the bound waits for its turn, and is refused after a while.
func TestLargeAnswersQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := fair.NewLevel(fair.Limits{Most: 2, PerFlow: 9, Waiting: 9})
		piece := []byte(strings.Repeat("x", largeAnswer))
		begin := func(ctx context.Context, who string) (*response, func() error) {
			w := &response{held: held{flow: fair.Flow{Who: who}}, ResponseWriter: httptest.NewRecorder(), log: slog.New(slog.DiscardHandler), capacity: &capacity{large: bound{Level: large}, inflight: inflight.New()}}
			r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
			return w, func() error {
				return w.writeStream(r, negotiation.JSON, func(out io.Writer) error {
					for range 2 {
						if _, err := out.Write(piece); err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		first, write := begin(t.Context(), "first")
		if err := write(); err != nil || first.bytes != 2*largeAnswer {
			t.Fatalf("%d bytes, %v", first.bytes, err)
		}
		second, write := begin(t.Context(), "second")
		if err := write(); err != nil {
			t.Fatal(err)
		}
		third, write := begin(t.Context(), "third")
		start := time.Now()
		err := write()
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != 429 || time.Since(start) != largeAnswerWait || third.code != 0 {
			t.Errorf("the third: %v after %v, code %d", err, time.Since(start), third.code)
		}
		go func() {
			time.Sleep(time.Second)
			first.leaveLarge()
		}()
		start = time.Now()
		if err := write(); err != nil || time.Since(start) != time.Second {
			t.Errorf("when there is a place: %v after %v", err, time.Since(start))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, write = begin(gone, "fourth")
		if err := write(); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that is gone: %v", err)
		}
		second.leaveLarge()
		second.leaveLarge() // again
		third.leaveLarge()
		if large.Taken() != 0 {
			t.Errorf("%d places are still taken", large.Taken())
		}
	})
}

// TestLargeAnswersEnd: while writes are under way all the time, and as many large answers as may be, each still has the
// time that it needs.
func TestLargeAnswersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, large := inflight.New(), fair.NewLevel(fair.Limits{Most: maxLargeAnswers})
		f.Writing.Add(1)
		for i := range maxLargeAnswers - 1 {
			if _, err := large.Enter(t.Context(), fair.Flow{Who: strconv.Itoa(i)}, 1, 0); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), readDeadline)
		defer cancel()
		w := &response{ResponseWriter: httptest.NewRecorder(), log: slog.New(slog.DiscardHandler), capacity: &capacity{large: bound{Level: large}, inflight: f}}
		r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
		const pieces = 1000
		err := w.writeStream(r, negotiation.JSON, func(out io.Writer) error {
			piece := make([]byte, largeAnswer+1)
			for range pieces {
				if err := ctx.Err(); err != nil {
					return err
				}
				time.Sleep(maxPieceTime) // what making it takes
				if _, err := out.Write(piece); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || w.bytes != pieces*(largeAnswer+1) {
			t.Errorf("%d bytes, %v", w.bytes, err)
		}
	})
}

// TestAnswerFails: what goes wrong before the first byte is a Status, and after it cuts the answer off.
func TestAnswerFails(t *testing.T) {
	cause := status.Error(http.StatusGone, "Expired", "too old")
	for _, size := range []int{0, largeAnswer, largeAnswer + 1} {
		rec := httptest.NewRecorder()
		w := &response{ResponseWriter: rec, log: slog.New(slog.DiscardHandler), capacity: &capacity{large: bound{Level: fair.NewLevel(fair.Limits{Most: 1})}, inflight: inflight.New()}}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		handle(func(w *response, r *http.Request) error {
			return w.writeStream(r, negotiation.JSON, func(out io.Writer) error {
				out.Write(make([]byte, size))
				return cause
			})
		})(w, r)
		if large := size > largeAnswer; w.end.cutOff != large || !large && (rec.Code != 410 || rec.Header().Get("Content-Encoding") != "") {
			t.Errorf("after %d bytes: cut off %v, %d", size, w.end.cutOff, rec.Code)
		}
	}
}

// BenchmarkAnswer compresses a megabyte.
func BenchmarkAnswer(b *testing.B) {
	body := []byte(strings.Repeat(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","uid":"`+"0123456789abcdef"+`"}},`, 10_000))
	for name, encoding := range map[string]string{"plain": "", "gzip": "gzip"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept-Encoding", encoding)
			for b.Loop() {
				w := &response{ResponseWriter: &discard{header: http.Header{}}, capacity: &capacity{large: bound{Level: fair.NewLevel(fair.Limits{Most: 1})}, inflight: inflight.New()}}
				err := w.writeStream(r, negotiation.JSON, func(out io.Writer) error {
					for rest := body; len(rest) > 0; rest = rest[min(len(rest), 64<<10):] {
						if _, err := out.Write(rest[:min(len(rest), 64<<10)]); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
