// Package await has what tests of servers wait with: until a condition holds, and for what a log says.
package await

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// Patience is how long a condition may take to come true before a test gives up: with the race detector, a cold cache
// and a machine that does much else.
const Patience = 2 * time.Minute

// Until waits until a condition holds, and fails the test if it doesn't in time.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	Right(t, func() string {
		if done() {
			return ""
		}
		return what
	})
}

// Right waits until wrong returns "", and fails the test with what it returned last if it doesn't in time.
func Right(t testing.TB, wrong func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(Patience)
	for left := wrong(); left != ""; left = wrong() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", Patience, left)
		}
		<-tick.C
	}
}

// Log is a log that a test reads while it's written. The zero value is an empty one.
type Log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was written since the last Take.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Take returns what was written since the last call.
func (l *Log) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}
