package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// replicaKeys is how many widgets the clients of a round write: so few that they get in each other's way.
	replicaKeys = 5
	// requestPatience is how long a client waits for an answer. A replica that's stopped doesn't answer.
	requestPatience = 12 * time.Second
)

// clients are those of one round: writers, listers and watchers, which go to another replica with each request.
type clients struct {
	t        *testing.T
	replicas *replicas
	ledger   *ledger
	round    string // what the names of the round's widgets begin with
	from     int64  // the version at which the round begins
	working  sync.WaitGroup
	watching sync.WaitGroup

	mu   sync.Mutex // guards last and at
	last int64      // the version of the round's last write; 0 before it
	at   map[string]int64
}

// end returns the version of the round's last write, or 0.
func (c *clients) end() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// reached notes how far a watch has come.
func (c *clients) reached(who string, rv int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[who] = rv
}

// key returns the name of one of the round's widgets.
func (c *clients) key() string { return fmt.Sprintf("%sk%d", c.round, rand.IntN(replicaKeys)) }

// start starts them all. Writers end with ctx, watchers when they have seen the last write.
func (c *clients) start(ctx context.Context) {
	for id := range 4 {
		c.working.Go(func() { c.write(ctx, id) })
	}
	for id := range 2 {
		c.working.Go(func() { c.list(ctx, 10+id) })
	}
	for _, w := range []*hopper{
		{who: "a watch"}, {who: "another watch", drops: true}, {who: "a watch with bookmarks", bookmarks: true},
		{who: "a watch of a label", front: true, bookmarks: true}, {who: "a watch that lags", lags: true, drops: true},
	} {
		w.clients = c
		if !w.lags {
			c.reached(w.who, c.from)
		}
		c.watching.Go(w.run)
	}
}

// write reads and writes one widget after the other.
func (c *clients) write(ctx context.Context, id int) {
	for ctx.Err() == nil {
		key := c.key()
		value, rv, ok := c.get(id, key)
		if !ok {
			continue
		}
		if rand.IntN(4) == 0 { // others come first now and then
			key = c.key()
			if value, rv, ok = c.get(id, key); !ok {
				continue
			}
		}
		for range 1 + rand.IntN(3) { // from what it knows, which may be old
			c.swap(id, key, value, rv)
		}
	}
}

// get reads one widget.
func (c *clients) get(id int, key string) (value int64, rv string, ok bool) {
	call := c.ledger.now()
	who, a, err := c.replicas.any().ask("GET", widgets+"/"+key, "")
	switch {
	case err != nil || retry(a.code):
		return 0, "", false
	case a.code == http.StatusOK:
		value, rv = a.object.Spec.Size, a.object.Metadata.ResourceVersion
	case a.code != http.StatusNotFound || !strings.Contains(a.object.Message, key):
		c.ledger.wrong("%s answered GET %s with %d: %s", who, key, a.code, a.body)
		return 0, "", false
	}
	c.ledger.readAll(id, call, map[string]int64{key: value})
	return value, rv, true
}

// retry tells whether an answer says to try again.
func retry(code int) bool {
	return code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}

// swap replaces a value, if it's still there.
func (c *clients) swap(id int, key string, expected int64, rv string) {
	s := &swap{key: key, expected: expected, id: c.ledger.next.Add(1)}
	method, path, body := "POST", widgets, ""
	s.written = s.id
	object := func(more string) string {
		return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"labels":{"tier":%q}%s},"spec":{"size":%d}}`, key, tierOf(s.id), more, s.id)
	}
	switch {
	case expected == 0:
		body = object("")
	case rand.IntN(8) == 0:
		method, path, body, s.written = "DELETE", widgets+"/"+key, fmt.Sprintf(`{"preconditions":{"resourceVersion":%q}}`, rv), 0
	default:
		method, path, body = "PUT", widgets+"/"+key, object(fmt.Sprintf(`,"resourceVersion":%q`, rv))
	}
	acked, call := c.ledger.acked.Load(), c.ledger.now()
	who, a, err := c.replicas.any().ask(method, path, body)
	switch {
	case err != nil || retry(a.code): // nobody knows
	case a.code == http.StatusOK || a.code == http.StatusCreated:
		s.answered = done
		if method != "DELETE" {
			if s.rv = a.object.rv(c.t); s.rv <= acked {
				c.ledger.wrong("%s answered %s %s with version %d; %d was acknowledged before it was sent", who, method, key, s.rv, acked)
			}
		}
	case a.code == http.StatusConflict, a.code == http.StatusNotFound && strings.Contains(a.object.Message, key):
		s.answered = refused
	default:
		c.ledger.wrong("%s answered %s %s with %d: %s", who, method, key, a.code, a.body)
	}
	c.ledger.wrote(id, s, call)
}

// list lists in every way.
func (c *clients) list(ctx context.Context, id int) {
	for ctx.Err() == nil {
		acked, call := c.ledger.acked.Load(), c.ledger.now()
		kind := rand.IntN(4)
		query, least := "", acked
		switch kind {
		case 0:
			query, least = "?resourceVersion=0", 0
		case 1:
			query = fmt.Sprint("?resourceVersion=", acked)
		case 2:
			query = "?labelSelector=tier"
		}
		who, a, err := c.replicas.any().ask("GET", widgets+query, "")
		if err != nil || retry(a.code) {
			continue
		}
		if a.code != http.StatusOK {
			c.ledger.wrong("%s answered a list%s with %d: %s", who, query, a.code, a.body)
			continue
		}
		s := seenList{who: who, rv: a.object.rv(c.t), items: map[string]int64{}}
		for _, o := range a.object.Items {
			if strings.HasPrefix(o.Metadata.Name, c.round) {
				s.items[o.Metadata.Name] = o.Spec.Size
			}
		}
		if s.rv < least {
			c.ledger.wrong("%s answered a list%s at %d; %d was acknowledged before it was asked", who, query, s.rv, acked)
		}
		if s.rv < c.from {
			continue // of a replica that lags: there's nothing yet
		}
		if kind >= 2 {
			values := map[string]int64{}
			for k := range replicaKeys {
				name := fmt.Sprintf("%sk%d", c.round, k)
				values[name] = s.items[name]
			}
			c.ledger.readAll(id, call, values)
		}
		c.ledger.saw(s)
	}
}

// hopper is a watch that goes on at another replica whenever it ends.
type hopper struct {
	*clients
	who       string
	front     bool // only tier=front
	bookmarks bool
	drops     bool // leaves by itself
	lags      bool // pauses, so that history may be gone

	at   stretch
	hops int
}

// over tells whether the watch has seen the round's last write.
func (h *hopper) over() bool {
	end := h.end()
	return end > 0 && h.at.to >= end
}

func (h *hopper) run() {
	h.at = stretch{who: h.who, from: h.from, to: h.from, front: h.front}
	for ; !h.over() && !h.ledger.failed() && !h.t.Failed(); h.hops++ {
		if h.lags && h.hops%3 == 2 {
			time.Sleep(4 * time.Second) // it lags: the version that it goes on from gets old
		}
		h.watch(h.replicas.any())
		if !h.lags {
			h.reached(h.who, h.at.to)
		}
	}
	h.ledger.watchedAll(h.at)
}

// watch watches one replica until that ends.
func (h *hopper) watch(r *replica) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	path := fmt.Sprintf("%s?watch=true&timeoutSeconds=%d&resourceVersion=%d", widgets, 1+rand.IntN(5), h.at.to)
	if h.front {
		path += "&labelSelector=tier%3Dfront"
	}
	if h.bookmarks {
		path += "&allowWatchBookmarks=true"
	}
	base := r.base()
	request, err := http.NewRequestWithContext(ctx, "GET", base+path, nil)
	if base == "" || err != nil {
		time.Sleep(5 * time.Millisecond)
		return
	}
	res, err := r.http.Do(request)
	if err != nil {
		return
	}
	defer res.Body.Close()
	switch {
	case retry(res.StatusCode):
		return
	case res.StatusCode == http.StatusGone:
		h.expired(r, "an answer")
		return
	case res.StatusCode != http.StatusOK:
		body, _ := io.ReadAll(res.Body)
		h.ledger.wrong("%s at %s from %d was answered %d: %s", h.who, r.name, h.at.to, res.StatusCode, body)
		return
	}
	left := -1
	if h.drops {
		left = rand.IntN(100)
	}
	for lines := bufio.NewReader(res.Body); left != 0 && !h.over(); left-- {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			h.ledger.wrong("%s at %s got %q: %v", h.who, r.name, line, err)
			return
		}
		if !h.take(r, e, line) {
			return
		}
	}
}

// take notes an event, and tells whether the watch goes on.
func (h *hopper) take(r *replica, e event, line string) bool {
	if e.Type == "ERROR" {
		switch {
		case e.Object.Code == http.StatusGone:
			h.expired(r, line)
		case !retry(e.Object.Code):
			h.ledger.wrong("%s at %s from %d got %s", h.who, r.name, h.at.to, line)
		}
		return false
	}
	rv := e.Object.rv(h.t)
	if rv < h.at.to || rv == h.at.to && e.Type != "BOOKMARK" {
		h.ledger.wrong("%s at %s went back: after %d comes %s", h.who, r.name, h.at.to, line)
		return false
	}
	h.at.to = rv
	if e.Type != "BOOKMARK" && strings.HasPrefix(e.Object.Metadata.Name, h.round) {
		h.at.events = append(h.at.events, e)
	}
	return true
}

// expired begins anew from a list, as clients do. Only a watch that paused may have to, if history is long.
func (h *hopper) expired(r *replica, line string) {
	if !h.lags && !h.replicas.forgets {
		h.ledger.wrong("%s at %s from %d has expired, and didn't pause: %s", h.who, r.name, h.at.to, line)
		return
	}
	h.replicas.expired.Add(1)
	_, a, err := h.replicas.any().ask("GET", widgets, "")
	if err != nil || a.code != http.StatusOK {
		return
	}
	rv := a.object.rv(h.t)
	if rv < h.at.to {
		h.ledger.wrong("%s had come to %d, and a list has %d", h.who, h.at.to, rv)
	}
	h.ledger.watchedAll(h.at)
	h.at = stretch{who: h.who, from: rv, to: rv, front: h.front}
}

// finish writes the round's last widget, at whichever replica takes it, and waits for the watchers.
func (c *clients) finish() {
	c.t.Helper()
	c.working.Wait()
	s := &swap{key: c.round + "last", id: c.ledger.next.Add(1)}
	for tierOf(s.id) != "front" {
		s.id = c.ledger.next.Add(1)
	}
	s.written, s.answered = s.id, done
	call := c.ledger.now()
	eventually(c.t, "the last write is acknowledged", func() bool {
		_, a, err := c.replicas.any().ask("POST", widgets, widget(s.key, int(s.id)))
		switch {
		case err == nil && a.code == http.StatusCreated:
			s.rv = a.object.rv(c.t)
			return true
		case err == nil && a.code == http.StatusConflict: // one without an answer had happened
			_, a, err := c.replicas.any().ask("GET", widgets+"/"+s.key, "")
			if err != nil || a.code != http.StatusOK {
				return false
			}
			s.rv, _ = strconv.ParseInt(a.object.Metadata.ResourceVersion, 10, 64)
			return true
		}
		return false
	})
	c.ledger.wrote(0, s, call)
	c.mu.Lock()
	c.last = s.rv
	c.mu.Unlock()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watching.Wait()
	}()
	select {
	case <-watched:
	case <-time.After(patience):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.t.Fatalf("the last write is at %d, and the watches have come to %v", c.last, c.at)
	}
}
