package remote

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Claim makes sure that the prefix of a client of Connect holds our data, and returns its marker, with the revision at which
// that was written. A prefix without keys gets a marker. One with keys and without a marker is refused, and so is one that
// a migration is filling.
func Claim(ctx context.Context, client *clientv3.Client) (storage.Marker, storage.Revision, error) {
	for {
		got, err := client.Get(ctx, storage.MarkerKey)
		if err != nil {
			return storage.Marker{}, 0, credentials("read "+storage.MarkerKey, err)
		}
		if len(got.Kvs) > 0 {
			marker, err := storage.ParseMarker(got.Kvs[0].Value)
			if err != nil {
				return storage.Marker{}, 0, refuse("--etcd-prefix: %w", err)
			}
			return marker, storage.Revision(got.Kvs[0].ModRevision), checkMigration(ctx, client)
		}
		if err := writeMarker(ctx, client); err != nil {
			return storage.Marker{}, 0, err
		}
	}
}

// checkMigration refuses a store that a migration is filling.
func checkMigration(ctx context.Context, client *clientv3.Client) error {
	got, err := client.Get(ctx, storage.MigrationKey, clientv3.WithCountOnly())
	switch {
	case err != nil:
		return credentials("read "+storage.MigrationKey, err)
	case got.Count > 0:
		return refuse("--etcd-prefix: a migration is filling it, or broke off: see %s", storage.MigrationKey)
	}
	return nil
}

// writeMarker writes a marker if there is no key at all. It returns nil, too, if somebody else wrote one meanwhile.
func writeMarker(ctx context.Context, client *clientv3.Client) error {
	// Two steps, because etcd reads all values of a range that a transaction compares.
	some, err := client.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	switch {
	case err != nil:
		return credentials("read the prefix", err)
	case len(some.Kvs) > 0 && string(some.Kvs[0].Key) == storage.MarkerKey:
		return nil
	case len(some.Kvs) > 0 && string(some.Kvs[0].Key) == storage.MigrationKey:
		return checkMigration(ctx, client)
	case len(some.Kvs) > 0:
		return refuse("--etcd-prefix: there are keys, as %.128q, that aren't this program's: choose another prefix", some.Kvs[0].Key)
	}
	marker := storage.NewMarker()
	empty := clientv3.Compare(clientv3.CreateRevision("/"), "=", 0).WithPrefix() // no key at all
	if _, err := client.Txn(ctx).If(empty).Then(clientv3.OpPut(storage.MarkerKey, string(marker.Bytes()))).Commit(); err != nil {
		return credentials("write "+storage.MarkerKey, err)
	}
	return nil
}
