package tracing

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Part is what a request's time goes to.
type Part int

// The parts, in the order in which a write goes through them.
const (
	Rights    Part = iota // who asks, and whether he may
	Barrier               // until memory has what was acknowledged
	Queue                 // for a seat, or for room
	Body                  // until the body is there
	Turn                  // for other writes of the same object
	Admission             // plug-ins and webhooks
	Etcd                  // transactions, from the call to the answer
	Writing               // of the answer
	Webhooks              // of admission, and so within that
	parts
)

// partNames are what the log calls the parts.
var partNames = [parts]string{"rights", "barrier", "queue", "body", "turn", "admission", "etcd", "writing", "webhooks"}

const (
	// Slow is how long a request may take before the log says where its time went, in kube-apiserver's figure.
	Slow = 500 * time.Millisecond
	// notable is how long a step takes that is named besides the sum of its part.
	notable = 10 * time.Millisecond
	// maxNotable is how many of them a request keeps. The deletion of a collection may have thousands.
	maxNotable = 16
	// precision is that of durations in the log.
	precision = 100 * time.Microsecond
)

// Request is where the time of one request goes. The zero value is ready. It's safe for concurrent use once Begin was called, if it is. A nil
// Request notes nothing.
type Request struct {
	// Long says that the request may last as long as its client wants: it's never slow. Set it before others have the Request.
	Long bool

	span    trace.Span // nil unless the request is traced; set by Tracer.Begin
	took    [parts]atomic.Int64
	written atomic.Int64 // when the answer was begun to be written, in nanoseconds since 1970

	mu    sync.Mutex // guards the following
	steps []noted
}

// noted is a step that took its time.
type noted struct {
	name string
	took time.Duration
}

type requestKey struct{}

// NewContext returns a context in which Begin notes for a Request.
func NewContext(ctx context.Context, q *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, q)
}

// Step is something that a request does now. The zero value is of no request.
type Step struct {
	of    *Request
	part  Part
	name  string
	began time.Time
	span  trace.Span
}

// Begin begins a step of the request that ctx is of, if it's of one. Its name has no bound on its values. If the request is traced, the
// context that it returns is that of the step's span.
func Begin(ctx context.Context, part Part, name string) (context.Context, Step) {
	q, _ := ctx.Value(requestKey{}).(*Request)
	return q.Begin(ctx, part, name)
}

// Begin is the function of that name for a Request.
func (q *Request) Begin(ctx context.Context, part Part, name string) (context.Context, Step) {
	if q == nil {
		return ctx, Step{}
	}
	s := Step{of: q, part: part, name: name, began: time.Now()}
	if q.span != nil {
		ctx, s.span = q.span.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithTimestamp(s.began))
	}
	return ctx, s
}

// End ends the step. The error is for the trace; nil if all went well.
func (s Step) End(err error) {
	if s.of == nil {
		return
	}
	now := time.Now()
	took := now.Sub(s.began)
	s.of.took[s.part].Add(int64(took))
	if took >= notable {
		s.of.note(s.name, took)
	}
	if s.span != nil {
		if err != nil {
			s.span.SetStatus(codes.Error, err.Error())
		}
		s.span.End(trace.WithTimestamp(now))
	}
}

// note keeps a step, or instead of the shortest one if there are many.
func (q *Request) note(name string, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.steps) < maxNotable {
		q.steps = append(q.steps, noted{name, took})
		return
	}
	shortest := 0
	for i := range q.steps {
		if q.steps[i].took < q.steps[shortest].took {
			shortest = i
		}
	}
	if q.steps[shortest].took < took {
		q.steps[shortest] = noted{name, took}
	}
}

// Wrote notes a piece of the answer that was handed on since began.
func (q *Request) Wrote(began time.Time) {
	q.written.CompareAndSwap(0, began.UnixNano())
	q.took[Writing].Add(int64(time.Since(began)))
}

// Took returns what a part took until now.
func (q *Request) Took(part Part) time.Duration { return time.Duration(q.took[part].Load()) }

// Ended ends the request's span, if it's traced.
func (q *Request) Ended(code int, bytes int64) {
	if q.span == nil {
		return
	}
	if began := q.written.Load(); began != 0 {
		_, span := q.span.TracerProvider().Tracer(scope).Start(trace.ContextWithSpan(context.Background(), q.span), "write the answer", trace.WithTimestamp(time.Unix(0, began)))
		span.End()
	}
	q.span.SetAttributes(attribute.Int("http.response.status_code", code), attribute.Int64("http.response.body.size", bytes))
	if code >= http.StatusInternalServerError {
		q.span.SetStatus(codes.Error, http.StatusText(code))
	}
	q.span.End()
}

// Attributes are where the time went, for a line of the log: each part that took some, what is left, and the steps that took longest. Parts
// of what was done at once may add up to more than it took.
func (q *Request) Attributes(took time.Duration) []slog.Attr {
	q.mu.Lock()
	steps := slices.Clone(q.steps)
	q.mu.Unlock()
	var all []slog.Attr
	rest := took
	for part := range parts {
		d := q.Took(part)
		if part != Webhooks {
			rest -= d
		}
		if d >= precision {
			all = append(all, slog.Duration(partNames[part], d.Round(precision)))
		}
	}
	if rest >= precision {
		all = append(all, slog.Duration("rest", rest.Round(precision)))
	}
	if len(steps) == 0 {
		return all
	}
	slices.SortStableFunc(steps, func(a, b noted) int { return cmp.Compare(b.took, a.took) })
	var text []string
	for _, s := range steps {
		text = append(text, s.name+" "+s.took.Round(precision).String())
	}
	return append(all, slog.String("steps", strings.Join(text, ", ")))
}
