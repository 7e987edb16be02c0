package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// memory answers watches from memory: whole frames, repeated, without a network.
type memory struct{ frames []byte }

func (r memory) RoundTrip(q *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: q, Body: &repeated{r.frames, 0}}, nil
}

// repeated is a body without an end.
type repeated struct {
	frames []byte
	at     int
}

func (b *repeated) Read(p []byte) (int, error) {
	n := copy(p, b.frames[b.at:])
	if b.at += n; b.at == len(b.frames) {
		b.at = 0
	}
	return n, nil
}

func (b *repeated) Close() error { return nil }

// Gear is an object of 1 KB, as controllers have them.
type Gear struct {
	client.Meta
	Spec struct {
		Model    string   `json:"model"`
		Teeth    int      `json:"teeth"`
		Ratio    float64  `json:"ratio"`
		Enabled  bool     `json:"enabled"`
		Notes    string   `json:"notes"`
		Places   []string `json:"places"`
		Supplier struct {
			Name    string `json:"name"`
			Country string `json:"country"`
		} `json:"supplier"`
	} `json:"spec"`
	Status struct {
		Phase   string `json:"phase"`
		Message string `json:"message"`
	} `json:"status"`
}

// gear is a frame of 1 KB.
func gear(i int) string {
	object := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Gear","metadata":{"name":"gear-%06d","namespace":"default","uid":"0c6ff1a4-7b5c-4f0a-9a39-%012d","resourceVersion":"%d","generation":1,"creationTimestamp":"2026-11-21T18:00:00Z","labels":{"app.kubernetes.io/name":"gears","app.kubernetes.io/part-of":"clock","tier":"front"},"annotations":{"example.com/owner":"workshop"}},"spec":{"model":"M-%d","teeth":%d,"ratio":1.25,"enabled":true,"notes":"%s","places":["left","right","middle"],"supplier":{"name":"Gears and Sons","country":"Switzerland"}},"status":{"phase":"Ready","message":"turning"}}`,
		i, i, i+1, i%100, i%50, strings.Repeat("a gear of the large clock; ", 12))
	return `{"type":"MODIFIED","object":` + object + "}\n"
}

// BenchmarkFollow reads events of 1 KB into typed structs, decoding included, from memory.
func BenchmarkFollow(b *testing.B) {
	var frames bytes.Buffer
	for i := range 1000 {
		io.WriteString(&frames, gear(i))
	}
	c, err := client.New("http://memory", client.Options{HTTP: &http.Client{Transport: memory{frames.Bytes()}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("struct", func(b *testing.B) { follow[Gear](b, c, frames.Len()/1000) })
	b.Run("Object", func(b *testing.B) { follow[client.Object](b, c, frames.Len()/1000) })
}

func follow[T any](b *testing.B, c *client.Client, size int) {
	gears := client.Resource[T](c, "example.com/v1", "gears")
	b.SetBytes(int64(size))
	b.ReportAllocs()
	n := 0
	for _, err := range gears.Follow(context.Background(), "1") {
		if err != nil {
			b.Fatal(err)
		}
		if n++; !b.Loop() {
			break
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkCacheGet looks an object up while events come in.
func BenchmarkCacheGet(b *testing.B) {
	var cache client.Cache[Gear]
	var state []client.Event[Gear]
	for i := range 10000 {
		key := client.Key{Namespace: "default", Name: fmt.Sprintf("gear-%06d", i)}
		state = append(state, client.Event[Gear]{Type: client.Added, Key: key, Object: &Gear{}, ResourceVersion: "1"})
	}
	cache.Replace(state, "1")
	b.ReportAllocs()
	for b.Loop() {
		if cache.Get(state[77].Key) == nil {
			b.Fatal("it isn't there")
		}
	}
}

// BenchmarkCacheApply changes an object while a thousand callers wait for a version that is far ahead.
func BenchmarkCacheApply(b *testing.B) {
	var cache client.Cache[Gear]
	cache.Replace(nil, "1")
	ctx, cancel := context.WithCancel(b.Context())
	var waiting sync.WaitGroup
	for range 1000 {
		waiting.Go(func() { cache.WaitFor(ctx, "1000000000000") })
	}
	b.ReportAllocs()
	version := 2
	for b.Loop() {
		cache.Apply(client.Event[Gear]{Type: client.Modified, Key: client.Key{Name: "gear"}, Object: &Gear{}, ResourceVersion: strconv.Itoa(version)})
		version++
	}
	cancel()
	waiting.Wait()
}
