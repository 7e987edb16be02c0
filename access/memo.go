package access

import (
	"crypto/sha256"
	"sync"
)

// maxVerified is how many credentials each memo remembers. An entry takes some hundred bytes.
const maxVerified = 4096

// memo remembers what the signatures of credentials have proven, because to verify one takes some ten microseconds or
// more. It knows credentials by their hashes. Whoever asks checks each time what may change: times, and what the
// credential is bound to.
type memo[T any] struct {
	mu    sync.RWMutex // guards known
	known map[[sha256.Size]byte]T
}

func (m *memo[T]) get(hash [sha256.Size]byte) (T, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	value, ok := m.known[hash]
	return value, ok
}

// put remembers a value. When there's no room, it forgets another one, whichever.
func (m *memo[T]) put(hash [sha256.Size]byte, value T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[[sha256.Size]byte]T{}
	}
	if len(m.known) >= maxVerified {
		for other := range m.known {
			delete(m.known, other)
			break
		}
	}
	m.known[hash] = value
}

// forget forgets all.
func (m *memo[T]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.known)
}
