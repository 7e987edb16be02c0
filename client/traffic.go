package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Traffic is what a server did in the last seconds. Only apiserver-lite tells it.
type Traffic struct {
	Writes   float64 // in a second
	Events   float64 // that watches were sent, in a second
	Watchers int     // that are open
	Lag      float64 // of the watch that is furthest behind, in seconds
	Memory   float64 // that the process has, in bytes
	Refusals float64 // requests that were asked to come back, in a second
	Clients  []Busy  // those that had most requests answered, the busiest first
}

// Busy is a client of the server's.
type Busy struct {
	UserAgent string  // its name for itself
	Requests  float64 // that were answered, in a second
}

// Traffic asks for the newest point of what the server did. It takes the right to get /metrics.
func (c *Client) Traffic(ctx context.Context) (t Traffic, err error) {
	var page struct {
		Series  map[string][]float64
		Clients []Busy
	}
	if err := c.page(ctx, "/apiserver-lite/v1/traffic", &page); err != nil {
		return t, err
	}
	last := func(name string) float64 {
		if all := page.Series[name]; len(all) > 0 {
			return all[len(all)-1]
		}
		return 0
	}
	return Traffic{
		Writes: last("writes"), Events: last("events"), Watchers: int(last("watchers")),
		Lag: last("lagSeconds"), Memory: last("memoryBytes"), Refusals: last("refusals"), Clients: page.Clients,
	}, nil
}

// Watcher is an open watch. Only apiserver-lite tells it.
type Watcher struct {
	Resource   string
	UserAgent  string
	LagEvents  int // that it has still to take
	LagSeconds float64
	BytesSent  int64   // since it was opened
	AgeSeconds float64 // since then
}

// Watchers lists the watches that are open. It takes the right to get /debug/watchers.
func (c *Client) Watchers(ctx context.Context) ([]Watcher, error) {
	var page struct{ Watchers []Watcher }
	err := c.page(ctx, "/debug/watchers", &page)
	return page.Watchers, err
}

// page reads a document of JSON.
func (c *Client) page(ctx context.Context, path string, to any) error {
	body, err := c.answer(ctx, &request{method: http.MethodGet, path: path})
	if err == nil {
		err = json.Unmarshal(body, to)
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}
