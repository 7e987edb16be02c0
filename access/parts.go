package access

import (
	"hash/maphash"
	"maps"
)

// partsOf is of how many maps parts consists. With 30,000 keys a change copies a hundred of them, and 2 KB besides.
const partsOf = 256

// parts is a map that is copied in part to be changed. Copies share what no change was about. The zero value is empty.
type parts[V any] [partsOf]map[string]V

var partSeed = maphash.MakeSeed()

func partOf(key string) int { return int(maphash.String(partSeed, key) % partsOf) }

func (p *parts[V]) get(key string) V { return p[partOf(key)][key] }

// edited is a copy of parts that is being changed, by one goroutine, and that nobody else has yet.
type edited[V any] struct {
	of    *parts[V]
	owned [partsOf]bool
}

func edit[V any](p *parts[V]) edited[V] { return edited[V]{of: p} }

// own returns the map that a key belongs to, so that the caller can change it.
func (e *edited[V]) own(key string) map[string]V {
	at := partOf(key)
	if !e.owned[at] {
		e.owned[at] = true
		if e.of[at] = maps.Clone(e.of[at]); e.of[at] == nil {
			e.of[at] = map[string]V{}
		}
	}
	return e.of[at]
}
