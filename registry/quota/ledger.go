package quota

import (
	"context"
	"sync"
)

// Ledger knows which namespaces have requests under way that were charged to a quota. What such a request writes may not be
// there yet. So the objects of such a namespace can't be counted: the count would give back what the request has taken. The
// zero value is ready.
type Ledger struct {
	mu   sync.Mutex // guards open
	open map[string]*account
}

// account is a namespace with requests under way.
type account struct {
	requests int
	idle     chan struct{} // closed when there are none
}

// Begin notes a request that's about to be charged, until its context ends: by then its object is stored, or won't be.
func (l *Ledger) Begin(ctx context.Context, namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[string]*account{}
	}
	a := l.open[namespace]
	if a == nil {
		a = &account{idle: make(chan struct{})}
		l.open[namespace] = a
	}
	a.requests++
	context.AfterFunc(ctx, func() { l.end(namespace) })
}

func (l *Ledger) end(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.open[namespace]
	if a.requests--; a.requests == 0 {
		close(a.idle)
		delete(l.open, namespace)
	}
}

// Open returns how many requests are under way in all namespaces together.
func (l *Ledger) Open() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.open {
		n += a.requests
	}
	return n
}

// Idle tells whether no request is under way in a namespace.
func (l *Ledger) Idle(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[namespace] == nil
}

// Wait waits for a moment at which no request is under way in a namespace, or for the end of ctx, whose error it returns.
func (l *Ledger) Wait(ctx context.Context, namespace string) error {
	l.mu.Lock()
	a := l.open[namespace]
	l.mu.Unlock()
	if a == nil {
		return nil
	}
	select {
	case <-a.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
