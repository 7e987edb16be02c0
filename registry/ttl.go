package registry

import (
	"errors"
	"fmt"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// maxTTL bounds how long an object that expires may live. Who asks for more doesn't want it to expire.
const maxTTL = 10 * 365 * 24 * time.Hour

// ParseTTL reads the value of kube.TTLAnnotation, a duration as Go writes it ("90s"), from 0 to maxTTL. The
// error says what it must be, to follow the annotation's name. It isn't a Status.
func ParseTTL(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errors.New("must be a duration as Go writes it, such as 90s or 1h30m")
	case d < 0:
		return 0, errors.New("must not be negative")
	case d > maxTTL:
		return 0, fmt.Errorf("must not be over ten years (%v)", maxTTL)
	}
	return d, nil
}

// Lifetime says how long the objects of a Go type live: see Definition.
type Lifetime struct {
	TTL   time.Duration
	Times []string
}

// Lifetimes returns the Go types whose objects live so long after their last write, by the prefix of their keys.
// The map is the caller's. Nobody may change the Times in it.
func (d Door) Lifetimes() map[storage.Prefix]Lifetime {
	all := map[storage.Prefix]Lifetime{}
	for _, res := range d.registry.builtins {
		if t := res.Storage.Typed; t.TTL > 0 {
			all[res.Prefix] = Lifetime{t.TTL, t.Times}
		}
	}
	return all
}
