package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// answer is what a script answers to one request.
type answer struct {
	status int // 200 if it's 0
	after  string
	body   string // lines
	hold   bool   // keep the connection open after the body
	cut    error  // ends the body with an error
	err    error  // instead of an answer
	hang   bool   // there is no answer
}

// script answers requests in turn, without a network, and notes when they came and from which version. The last answer is
// repeated.
type script struct {
	answers  []answer
	start    time.Time
	times    []time.Duration
	versions []string
	queries  []string // encoded, without timeoutSeconds
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.times = append(s.times, time.Since(s.start))
	s.versions = append(s.versions, r.URL.Query().Get("resourceVersion"))
	query := r.URL.Query()
	query.Del("timeoutSeconds")
	s.queries = append(s.queries, query.Encode())
	a := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if a.hang {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	if a.err != nil {
		return nil, a.err
	}
	header := http.Header{}
	if a.after != "" {
		header.Set("Retry-After", a.after)
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return &http.Response{StatusCode: a.status, Header: header, Request: r, Body: &scripted{Reader: strings.NewReader(a.body), ctx: r.Context(), answer: a}}, nil
}

// scripted is the body of an answer.
type scripted struct {
	io.Reader
	ctx    context.Context
	answer answer
}

func (b *scripted) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	switch {
	case err != io.EOF:
		return n, err
	case b.answer.cut != nil:
		return n, b.answer.cut
	case b.answer.hold:
		<-b.ctx.Done()
		return n, b.ctx.Err()
	}
	return n, err
}

func (b *scripted) Close() error { return nil }

// scripting returns widgets that a script answers for. In a synctest bubble its times are exact.
func scripting(t *testing.T, answers ...answer) (client.Collection[Widget], *script) {
	t.Helper()
	c, s := scriptedClient(t, answers...)
	return client.Resource[Widget](c, "example.com/v1", "widgets"), s
}

// scriptedClient returns a client that a script answers.
func scriptedClient(t *testing.T, answers ...answer) (*client.Client, *script) {
	t.Helper()
	s := &script{answers: answers, start: time.Now()}
	c, err := client.New("http://script", client.Options{HTTP: &http.Client{Transport: s}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func frame(kind, name, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q,"resourceVersion":%q}}}`+"\n", kind, name, version)
}

func failure(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","status":"Failure","code":%d,"reason":%q}`, code, reason)
}

func errorFrame(code int, reason string) string {
	return `{"type":"ERROR","object":` + failure(code, reason) + "}\n"
}

// TestFollowEnds: what ends Follow, with which error, after what.
func TestFollowEnds(t *testing.T) {
	a := frame("ADDED", "a", "5")
	for _, tt := range []struct {
		name    string
		version string
		answers []answer
		want    error
		events  int
	}{
		{"no version", "", nil, client.ErrVersion, 0},
		{"any version", "0", nil, client.ErrVersion, 0},
		{"no number", "x", nil, client.ErrVersion, 0},
		{"a negative number", "-1", nil, client.ErrVersion, 0},
		{"a number that is too large", "18446744073709551616", nil, client.ErrVersion, 0},
		{"expired, as an event", "1", []answer{{body: a + errorFrame(410, "Expired")}}, client.ErrExpired, 1},
		{"gone, as an event", "1", []answer{{body: errorFrame(410, "Gone")}}, client.ErrExpired, 0},
		{"expired, as an answer", "1", []answer{{body: a}, {status: 410, body: failure(410, "Expired")}}, client.ErrExpired, 1},
		{"expired, by a proxy", "1", []answer{{status: 410, body: "gone"}}, client.ErrExpired, 0},
		{"forbidden", "1", []answer{{status: 403, body: failure(403, "Forbidden")}}, client.ErrForbidden, 0},
		{"forbidden, as an event", "1", []answer{{body: a + errorFrame(403, "Forbidden")}}, client.ErrForbidden, 1},
		{"unauthorized", "1", []answer{{status: 401}}, client.ErrUnauthorized, 0},
		{"invalid", "1", []answer{{status: 422}}, client.ErrInvalid, 0},
		{"event without a version", "1", []answer{{body: a + frame("MODIFIED", "a", "")}}, client.ErrNoVersion, 1},
		{"bookmark without a version", "1", []answer{{body: frame("BOOKMARK", "", "")}}, client.ErrNoVersion, 0},
		{"another type", "1", []answer{{body: a + `{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"6"},"spec":{"size":"XXL"}}}` + "\n"}}, client.ErrType, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				widgets, _ := scripting(t, append(tt.answers, answer{hold: true})...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				events, errs := 0, []error{}
				for _, err := range widgets.Follow(ctx, tt.version) {
					if err != nil {
						errs = append(errs, err)
					} else {
						events++
					}
				}
				if len(errs) != 1 || !errors.Is(errs[0], tt.want) || events != tt.events {
					t.Errorf("it ends with %v after %d events, want %v after %d", errs, events, tt.want, tt.events)
				}
			})
		})
	}
}

// TestFollowContext: it ends with the cause of its context, while it reads and while it pauses.
func TestFollowContext(t *testing.T) {
	for name, a := range map[string]answer{"reading": {hold: true}, "pausing": {status: 500}, "told to wait": {status: 429, after: "100"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				widgets, _ := scripting(t, a)
				enough := errors.New("enough")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second/2, func() { cancel(enough) })
				var ended error
				for _, err := range widgets.Follow(ctx, "1") {
					ended = err
				}
				if !errors.Is(ended, enough) {
					t.Errorf("it ended with %v", ended)
				}
			})
		})
	}
}

// TestFollowPauses: when it connects again, and from where.
func TestFollowPauses(t *testing.T) {
	refused := errors.New("connection refused")
	for _, tt := range []struct {
		name     string
		answers  []answer
		at       []time.Duration // at the earliest, each at most half of its pause later
		versions []string
	}{
		{"clean ends, once a second", []answer{{body: frame("ADDED", "a", "5")}, {body: ""}, {body: frame("BOOKMARK", "", "9")}, {hold: true}},
			[]time.Duration{0, 1, 1, 1}, []string{"1", "5", "5", "9"}},
		{"failures, longer each time", []answer{{err: refused}, {status: 500}, {status: 502, body: "<html>"}, {body: "garbage\n"}, {cut: io.ErrUnexpectedEOF}, {body: errorFrame(500, "InternalError")}, {status: 404}, {hold: true}},
			[]time.Duration{0, 1, 2, 4, 8, 16, 30, 30}, []string{"1", "1", "1", "1", "1", "1", "1", "1"}},
		{"an event begins anew", []answer{{err: refused}, {err: refused}, {body: frame("ADDED", "a", "5"), cut: refused}, {err: refused}, {hold: true}},
			[]time.Duration{0, 1, 2, 1, 2}, []string{"1", "1", "1", "5", "5"}},
		{"never before it's told", []answer{{status: 429, after: "7"}, {status: 503, after: "9"}, {hold: true}},
			[]time.Duration{0, 7, 9}, []string{"1", "1", "1"}},
		{"the head of an answer that doesn't come", []answer{{hang: true}, {hold: true}},
			[]time.Duration{0, 61}, []string{"1", "1"}},
		{"a frame that is cut", []answer{{body: frame("ADDED", "a", "5") + `{"type":"ADDED","obj`}, {hold: true}},
			[]time.Duration{0, 1}, []string{"1", "5"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				widgets, s := scripting(t, tt.answers...)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var counters client.Counters
				for range widgets.Follow(ctx, "1", client.CountIn(&counters)) {
				}
				if clean := tt.name == "clean ends, once a second"; !clean && int(counters.Failures.Load()) != len(s.times)-1 {
					t.Errorf("%d failures are counted, want %d", counters.Failures.Load(), len(s.times)-1)
				}
				if !slices.Equal(s.versions, tt.versions) {
					t.Errorf("it watched from %q, want %q", s.versions, tt.versions)
				}
				last := time.Duration(0)
				for i, at := range s.times {
					pause, least := at-last, tt.at[i]*time.Second
					if pause < least || pause > least+least/2 {
						t.Errorf("connection %d came %v after the one before, want %v to %v", i, pause, least, least+least/2)
					}
					last = at
				}
			})
		})
	}
}
