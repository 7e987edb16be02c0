package traffic

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxClients is how many clients are told apart in an Interval. The requests of others aren't counted.
	maxClients = 512
	// maxShown is how many of them a Page has.
	maxShown = 20
	// maxAgent is how much of a client's name for itself is kept, in bytes.
	maxAgent = 128
)

// Client is what a client did in the last Interval.
type Client struct {
	UserAgent string  `json:"userAgent"`
	Requests  float64 `json:"requests"` // that were answered, in a second
}

// clients counts requests by the clients' names for themselves. The zero value is ready.
type clients struct {
	mu    sync.Mutex // guards the following
	now   map[string]int
	since time.Time // when now was begun
	last  []Client  // of the Interval before, the busiest first
}

// Request counts a request that was answered.
func (l *Log) Request(userAgent string) {
	if len(userAgent) > maxAgent {
		userAgent = strings.ToValidUTF8(userAgent[:maxAgent], "")
	}
	c := &l.clients
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, known := c.now[userAgent]; known || len(c.now) < maxClients {
		if c.now == nil {
			c.now = map[string]int{}
		}
		if !known {
			userAgent = strings.Clone(userAgent) // not the whole head of the request
		}
		c.now[userAgent] = n + 1
	}
}

// turn begins an Interval.
func (c *clients) turn(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := make([]Client, 0, len(c.now))
	for agent, n := range c.now {
		last = append(last, Client{agent, float64(n) / at.Sub(c.since).Seconds()})
	}
	slices.SortFunc(last, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.UserAgent, b.UserAgent))
	})
	c.now, c.since, c.last = nil, at, slices.Clip(last[:min(len(last), maxShown)])
}

// busiest returns the clients of the last Interval.
func (c *clients) busiest() []Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}
