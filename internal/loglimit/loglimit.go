// Package loglimit bounds what strangers can make a log grow by: lines about requests that are refused.
package loglimit

import (
	"sync"
	"time"
)

// Lines is how many lines a Limit allows in a second: half of them, which one client has, show what happens to it.
const Lines = 40

// Limit counts lines of a log, and whose requests caused them: one client has at most as many as it leaves to others. The zero value is ready, and safe for concurrent use.
type Limit struct {
	mu     sync.Mutex // guards what follows; a leaf
	second int64
	lines  int
	of     map[string]int // of these, by client
	left   int            // out of the log since the last line
}

// Allow tells whether there may be a line now about a request of a client, such as an address, and how many lines were left
// out before it.
func (l *Limit) Allow(now time.Time, client string) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Unix() != l.second {
		l.second, l.lines, l.of = now.Unix(), 0, map[string]int{}
	}
	if l.of[client] >= Lines-l.lines {
		l.left++
		return 0, false
	}
	l.lines++
	l.of[client]++
	left, l.left = l.left, 0
	return left, true
}
