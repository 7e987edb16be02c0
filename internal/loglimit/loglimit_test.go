package loglimit

import (
	"testing"
	"time"
)

// TestOneClient: whoever is refused all the time leaves lines for others, and all together have Lines in a second.
func TestOneClient(t *testing.T) {
	var l Limit
	now := time.Unix(1, 0)
	allowed := func(client string, tries int) (n int) {
		for range tries {
			if _, ok := l.Allow(now, client); ok {
				n++
			}
		}
		return n
	}
	if n := allowed("a", 1000); n != Lines/2 {
		t.Errorf("one client has %d lines, want %d", n, Lines/2)
	}
	if n := allowed("b", 1); n != 1 {
		t.Error("another client has no line")
	}
	rest := 0
	for _, client := range []string{"b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		rest += allowed(client, 1000)
	}
	if rest > Lines/2-1 {
		t.Errorf("%d lines in a second", Lines/2+1+rest)
	}
	now = now.Add(time.Second)
	if left, ok := l.Allow(now, "a"); !ok || left < 1000-Lines {
		t.Errorf("a second later: %v, %d were left out", ok, left)
	}
}
