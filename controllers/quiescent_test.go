package controllers

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// TestHeldBound: the list of what is held ends after maxHeld objects, and says how many more there are.
func TestHeldBound(t *testing.T) {
	r := newCollectorRig(t)
	c := New(Options{Registry: r.Registry.Door(), Cacher: r.cacher, Log: slog.New(slog.DiscardHandler)})
	c.reader.deleting = map[string]*kube.Object{}
	for i := range maxHeld + 3 {
		key := fmt.Sprintf("%sdefault/t%04d", r.things.Prefix(), i)
		c.reader.deleting[key] = kube.NewObject(key, fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t%04d","finalizers":["x.y/z"]}}`, i), 1)
	}
	held, more := c.held()
	if len(held) != maxHeld || more != 3 || held[0].Name != "t0000" || held[maxHeld-1].Name != "t0999" {
		t.Errorf("%d are held and %d more, want %d and 3", len(held), more, maxHeld)
	}
}

// TestPendingExpired: what has expired and isn't queued yet is left to do, and has a cause.
func TestPendingExpired(t *testing.T) {
	r := newCollectorRig(t)
	c := New(Options{Registry: r.Registry.Door(), Cacher: r.cacher, On: Set{Expiry: true}, Log: slog.New(slog.DiscardHandler)})
	c.reader.begin()
	for _, due := range []struct{ name, ttl string }{{"over", "1s"}, {"later", "24h"}, {"over-too", "1m"}} {
		key := string(r.things.Prefix()) + "default/" + due.name
		o := kube.NewObject(key, fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":%q,%s"creationTimestamp":%q}}`,
			due.name, ttl(due.ttl), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)), 1)
		for _, k := range c.all {
			k.observe(&cacher.Event{Prefix: r.things.Prefix(), Cur: o})
		}
	}
	if c.quiet(1) {
		t.Error("nothing is left")
	}
	var left []string
	for _, p := range c.pending(1) {
		left = append(left, p.String()+": "+p.Cause)
	}
	want := []string{"example.com/v1 Thing default/over: it has expired just now", "example.com/v1 Thing default/over-too: it has expired just now"}
	if !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}
