package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkKubectlGet measures what the server adds to `kubectl get` of one object. It alternates calls to the server with
// calls to one that answers the same bytes from memory, which take kubectl's own time. What it must reach: extra-ms below 5,
// the difference of the medians of the time that passes. It also reports that of kubectl's CPU, and how long the server takes
// for all requests of a call by its own metrics. Cold means that kubectl hasn't cached what is served.
func BenchmarkKubectlGet(b *testing.B) {
	s := start(b, "--ephemeral")
	newKubectl(b, s).do("", "create", "configmap", "settings", "--from-literal=a=1")
	canned := &canned{of: s.url, answers: map[string]*answer{}}
	server := httptest.NewServer(canned)
	b.Cleanup(server.Close)
	for _, cache := range []string{"warm", "cold"} {
		b.Run(cache, func(b *testing.B) {
			var ours, own spent
			keep := b.TempDir()
			for range 2 { // kubectl's cache, and the answers
				get(b, s.url, keep)
				get(b, server.URL, keep)
			}
			before, requests := handled(b, s)
			for b.Loop() {
				dir := keep
				if cache == "cold" {
					dir = b.TempDir()
				}
				ours.add(get(b, s.url, dir))
				own.add(get(b, server.URL, dir))
			}
			after, more := handled(b, s)
			calls := float64(len(ours.time))
			b.ReportMetric(0, "ns/op") // of both together, which says nothing
			b.ReportMetric(median(ours.time), "ms/get")
			b.ReportMetric(median(own.time), "kubectl-ms/get")
			b.ReportMetric(median(ours.time)-median(own.time), "extra-ms")
			b.ReportMetric(median(ours.cpu)-median(own.cpu), "extra-cpu-ms")
			b.ReportMetric((after-before)*1000/calls, "server-ms/get")
			b.ReportMetric((more-requests)/calls, "requests/get")
		})
	}
}

// spent is what calls took, in milliseconds.
type spent struct{ time, cpu []float64 }

func (s *spent) add(time, cpu time.Duration) {
	s.time, s.cpu = append(s.time, milliseconds(time)), append(s.cpu, milliseconds(cpu))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(all []float64) float64 {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// get has kubectl show the object of a server, with a cache in dir.
func get(b *testing.B, url, dir string) (passed, cpu time.Duration) {
	k := &kubectl{t: b, flags: []string{"--server", url}, dir: dir}
	cmd := k.command(b.Context(), "", "get", "configmap", "settings")
	begin := time.Now()
	out, err := cmd.Output()
	passed = time.Since(begin)
	if err != nil || !bytes.Contains(out, []byte("settings   1 ")) {
		b.Fatalf("%v: %s", err, out)
	}
	return passed, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// handled returns how many seconds the server has spent on how many requests; what asks for that is one of the next time's.
func handled(b *testing.B, s *apiserver) (seconds, requests float64) {
	k := newKubectl(b, s)
	for line := range strings.Lines(k.do("", "get", "--raw", "/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case strings.HasPrefix(name, "apiserver_request_duration_seconds_sum{"):
			seconds += n
		case strings.HasPrefix(name, "apiserver_request_duration_seconds_count{"):
			requests += n
		}
	}
	if requests == 0 {
		b.Fatal("there are no metrics of requests")
	}
	return seconds, requests
}

// canned answers as another server did when it was first asked the same.
type canned struct {
	of string // the other's URL

	mu      sync.Mutex // guards answers
	answers map[string]*answer
}

// answer is what a request was answered.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := c.answer(r)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.code)
	w.Write(a.body) // a client that has gone doesn't need it
}

func (c *canned) answer(r *http.Request) (*answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.Method + " " + r.URL.String() + " " + r.Header.Get("Accept") + " " + r.Header.Get("Accept-Encoding") + " " + r.Header.Get("If-None-Match")
	if a := c.answers[key]; a != nil {
		return a, nil
	}
	request, err := http.NewRequestWithContext(r.Context(), r.Method, c.of+r.URL.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header = r.Header.Clone()
	res, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	a := &answer{res.StatusCode, res.Header, body}
	c.answers[key] = a
	return a, nil
}
