package quota

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Ledger has the charges that are open: what requests under way have added to the status of quotas, and whose objects may not
// be there yet. Who counts the objects leaves room for these, or the count would give back what a request has taken. The zero
// value is ready, and safe for concurrent use.
type Ledger struct {
	mu   sync.Mutex // guards open, and what its charges take
	open map[string]map[*Charge]bool
}

// Charge is what one request takes of the quotas of its namespace, from before it takes anything until its object is stored
// or won't be. It's closed once, by whoever ends the write.
type Charge struct {
	ledger    *Ledger
	namespace string
	takes     map[types.UID]Usage
	done      chan struct{} // closed by Close
}

// Begin opens the charge of a request. It takes nothing yet.
func (l *Ledger) Begin(namespace string) *Charge {
	c := &Charge{ledger: l, namespace: namespace, takes: map[types.UID]Usage{}, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[string]map[*Charge]bool{}
	}
	if l.open[namespace] == nil {
		l.open[namespace] = map[*Charge]bool{}
	}
	l.open[namespace][c] = true
	return c
}

// Take says what the charge takes of a quota; nil for nothing any more. It's called before that is stored in the quota, and
// may be called again when the quota was written meanwhile.
func (c *Charge) Take(of types.UID, usage Usage) {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	c.takes[of] = usage
}

// Close ends the charge. Once it's closed, a barrier shows its object, or there is none. If nobody knows whether it was stored,
// it counts once it's there, like an object that nobody was charged for.
func (c *Charge) Close() {
	l := c.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open[c.namespace], c)
	if len(l.open[c.namespace]) == 0 {
		delete(l.open, c.namespace)
	}
	close(c.done)
}

// Done is closed when the charge is.
func (c *Charge) Done() <-chan struct{} { return c.done }

// Taken returns what the open charges of a namespace take of a quota, together, and those that take something. The objects of
// some of these may be there already.
func (l *Ledger) Taken(namespace string, of types.UID) (sum Usage, open []*Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum = Usage{}
	for c := range l.open[namespace] {
		if len(c.takes[of]) == 0 {
			continue
		}
		open = append(open, c)
		sum.Add(c.takes[of])
	}
	return sum, open
}

// Open counts the charges that are open. There are none while no request is under way.
func (l *Ledger) Open() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, charges := range l.open {
		n += len(charges)
	}
	return n
}
