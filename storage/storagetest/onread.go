package storagetest

import "context"

// OnRead is a storage.Transformer that leaves values as they are, and is called for each that is read from etcd, with its key, by any goroutine. Its
// error becomes that of the read. Tests hold up readers with it, or make a value unreadable.
type OnRead func(key string) error

// ToStorage implements storage.Transformer.
func (f OnRead) ToStorage(_ context.Context, _ string, value []byte) ([]byte, error) {
	return value, nil
}

// FromStorage implements storage.Transformer.
func (f OnRead) FromStorage(_ context.Context, key string, stored []byte) ([]byte, bool, error) {
	return stored, false, f(key)
}
