package storage

import "context"

// Transformer is what an object's value goes through on its way to etcd and back, such as encryption. It's asked about all keys, also those that
// hold no object. It is safe for concurrent use. Whoever reads a list, history or a watch of etcd's waits for it.
type Transformer interface {
	// ToStorage returns what is stored of a value under a key. It may return value itself, which nobody changes. A write whose value it
	// refuses fails with ErrNotTransformed.
	ToStorage(ctx context.Context, key string, value []byte) ([]byte, error)

	// FromStorage returns the value of what is stored under a key, which nobody changes. stale tells that ToStorage would store the value in
	// another way now, as under a newer key. Its error is that of the read: the Err of a Change, or that of Get and GetAt.
	FromStorage(ctx context.Context, key string, stored []byte) (value []byte, stale bool, err error)
}
