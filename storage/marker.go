package storage

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
)

// Own is the prefix of the keys that are the program's own, in every store: they hold no objects.
const Own = "/apiserver-lite/"

// MarkerKey says that the keys next to it are ours, as the marker file says it of a data directory: a store in a shared
// etcd is served only if it has a Marker there, or no key at all under Root and Own. Whoever finds no key writes it, in a
// transaction whose conditions are that MarkerKey and MigrationKey don't exist. It's written once: the revision of that write
// is where the store's own history begins, and what came before it isn't there for watches to resume from.
const MarkerKey = Own + "marker"

// AccountKey holds the key that signs ServiceAccounts' tokens, where several processes share the store. In a data directory of
// one process the file AccountKeyFile has it.
const (
	AccountKey     = Own + AccountKeyFile
	AccountKeyFile = "service-account.key"
)

// MigrationKey is there while a migration fills a store: such a store has no MarkerKey yet, or isn't to be served.
const MigrationKey = Own + "migration"

// MarkerLayout says how the keys and values of a store are laid out. Raise it when an older program must not open what a
// newer one wrote.
const MarkerLayout = 1

// Marker is the value of MarkerKey, and what the marker file of a data directory has.
type Marker struct {
	Layout int `json:"layout"`
	// ID is random: it tells this store from another one with the same keys. The cluster id of etcd in a data directory derives from it,
	// so files that come from another directory are noticed.
	ID string `json:"id"`
}

// NewMarker returns the marker of a new store.
func NewMarker() Marker { return Marker{Layout: MarkerLayout, ID: rand.Text()} }

// Bytes is what is stored.
func (m Marker) Bytes() []byte {
	b, _ := json.Marshal(m) // a struct of a number and a string
	return b
}

// ParseMarker reads a stored marker. It refuses what isn't one, and one of a newer layout.
func ParseMarker(value []byte) (Marker, error) {
	var m Marker
	if err := json.Unmarshal(value, &m); err != nil || m.Layout <= 0 || m.ID == "" {
		return Marker{}, errors.New(MarkerKey + " is no marker of this program")
	}
	if err := m.Known(MarkerLayout); err != nil {
		return Marker{}, fmt.Errorf("%s %w", MarkerKey, err)
	}
	return m, nil
}

// Known returns an error, which follows a name, if the marker is of a newer layout than those that the program knows.
func (m Marker) Known(most int) error {
	if m.Layout > most {
		return fmt.Errorf("has layout %d, made by a newer version; this one knows layouts up to %d: run the newer version", m.Layout, most)
	}
	return nil
}
