package etcd

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// RaiseRevision makes the store's revision be to, or what it is if that's more. The next Open finds it so: no write may come
// between this call and Close, and the store must not have the key yet. It costs one write to the database, however far the
// revision is raised: it puts the key there, empty, at that revision.
func (s *Server) RaiseRevision(key string, to int64) error {
	kv := s.Local.KV()
	if kv.Rev() >= to {
		return nil
	}
	entry, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(key), CreateRevision: to, ModRevision: to, Version: 1})
	if err != nil {
		return fmt.Errorf("raise the revision: %w", err)
	}
	tx := s.Local.Backend().BatchTx()
	tx.LockOutsideApply()
	tx.UnsafePut(schema.Key, mvcc.RevToBytes(mvcc.Revision{Main: to}, mvcc.NewRevBytes()), entry)
	tx.Unlock()
	tx.Commit()
	return nil
}
