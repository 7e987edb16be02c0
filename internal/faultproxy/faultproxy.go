// Package faultproxy stands between clients and a server in tests, and spoils answers as it's told: it refuses requests,
// delays them, cuts connections at any byte, ends streams where they shouldn't, and puts garbage into them.
package faultproxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Fault is what goes wrong with one answer. The zero value is nothing.
type Fault struct {
	// Delay is how long the request waits first.
	Delay time.Duration
	// Hang leaves the request without an answer until the client goes.
	Hang bool
	// Status, if it isn't 0, is answered by the proxy; Reason goes with it, and RetryAfter in seconds if it isn't 0.
	Status     int
	Reason     string
	RetryAfter int
	// Spoil, if it's set, is what happens to the body, and After says where: after so many lines, and so many bytes of the
	// next one. If the body doesn't come that far nothing happens.
	Spoil Spoil
	Lines int
	Bytes int
	// Text is what Garbage puts there.
	Text string
}

// Spoil is what can happen to a body.
type Spoil int

// What can happen to a body.
const (
	Nothing Spoil = iota
	Cut           // the connection breaks
	End           // the body ends as if it were complete
	Garbage       // Text follows, and then the end of the body
)

// Expired is the ERROR event that says that history is gone.
const Expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}` + "\n"

// Proxy forwards requests to a server.
type Proxy struct {
	// URL is where clients find it.
	URL string
	// Spoiled counts the faults that happened.
	Spoiled atomic.Int64

	server *httptest.Server
	target *url.URL
	plan   func(*http.Request) Fault
	http   *http.Transport
}

// New starts a proxy that is closed when the test ends. The plan is asked for each request, by many goroutines.
func New(t testing.TB, target string, plan func(*http.Request) Fault) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: u, plan: plan, http: &http.Transport{DisableCompression: true}}
	p.server = httptest.NewServer(p)
	p.URL = p.server.URL
	t.Cleanup(func() {
		p.Break()
		p.server.Close()
		p.http.CloseIdleConnections()
	})
	return p
}

// Break breaks all connections of clients.
func (p *Proxy) Break() { p.server.CloseClientConnections() }

// ServeHTTP forwards a request, and spoils the answer.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := p.plan(r)
	if fault.Delay > 0 {
		select {
		case <-time.After(fault.Delay):
		case <-r.Context().Done():
			return
		}
	}
	if fault.Hang {
		p.Spoiled.Add(1)
		<-r.Context().Done()
		return
	}
	if fault.Status != 0 {
		p.refuse(w, fault)
		return
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = p.target.Scheme, p.target.Host, p.target.Host
	out.RequestURI = ""
	response, err := p.http.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler) // the server is away: so is the proxy
	}
	defer response.Body.Close()
	for name, values := range response.Header {
		if name != "Content-Length" || fault.Spoil == Nothing {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(response.StatusCode)
	p.forward(w, response.Body, fault)
}

func (p *Proxy) refuse(w http.ResponseWriter, fault Fault) {
	p.Spoiled.Add(1)
	if fault.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(fault.Status)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"by the proxy","reason":%q,"code":%d}`, fault.Reason, fault.Status)
}

// forward copies the body as far as the fault lets it.
func (p *Proxy) forward(w http.ResponseWriter, body io.Reader, fault Fault) {
	control := http.NewResponseController(w)
	control.Flush()
	buf := make([]byte, 32<<10)
	at := place{fault.Lines, fault.Bytes}
	for {
		n, err := body.Read(buf)
		chunk, there := buf[:n], false
		if fault.Spoil != Nothing {
			chunk, there = at.before(chunk)
		}
		if _, failed := w.Write(chunk); failed != nil || control.Flush() != nil {
			return
		}
		if there {
			p.Spoiled.Add(1)
			switch fault.Spoil {
			case Cut:
				panic(http.ErrAbortHandler)
			case Garbage:
				io.WriteString(w, fault.Text)
			}
			return
		}
		switch err {
		case nil:
		case io.EOF:
			return
		default:
			panic(http.ErrAbortHandler)
		}
	}
}

// place is a place in a body: after so many lines and bytes.
type place struct{ lines, bytes int }

// before returns what comes before the place, and whether the place is right after that.
func (p *place) before(chunk []byte) ([]byte, bool) {
	i := 0
	for ; p.lines > 0; p.lines-- {
		newline := bytes.IndexByte(chunk[i:], '\n')
		if newline < 0 {
			return chunk, false
		}
		i += newline + 1
	}
	if rest := len(chunk) - i; rest < p.bytes {
		p.bytes -= rest
		return chunk, false
	}
	return chunk[:i+p.bytes], true
}
