// Package loglimit bounds what strangers can make a log grow by: lines about requests that are refused.
package loglimit

import (
	"sync"
	"time"
)

// Lines is how many lines a Limit allows in a second: so many show what happens.
const Lines = 20

// Limit counts lines of a log. The zero value is ready, and safe for concurrent use.
type Limit struct {
	mu     sync.Mutex // guards what follows; a leaf
	second int64
	lines  int
	left   int // out of the log since the last line
}

// Allow tells whether there may be a line now, and how many were left out before it.
func (l *Limit) Allow(now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Unix() != l.second {
		l.second, l.lines = now.Unix(), 0
	}
	if l.lines++; l.lines > Lines {
		l.left++
		return 0, false
	}
	left, l.left = l.left, 0
	return left, true
}
