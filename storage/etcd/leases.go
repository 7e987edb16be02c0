package etcd

import (
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

// keepAliveTimeout stands for the default of etcd's client, five seconds: how long a lease counts as alive before the first
// answer.
const keepAliveTimeout = time.Second

// leaseServer is etcd's, but renews a lease without reading the database. Etcd's own puts the store's revision into each answer,
// for which it waits while the database is being written anew. So every lease would end in that time. And what ends it is a
// write, for which consistent reads of a member wait as well, until the database is written.
type leaseServer struct {
	pb.LeaseServer
	local *etcdserver.EtcdServer
}

// newLeases returns the leases of an etcd in this process.
func newLeases(client *clientv3.Client, local *etcdserver.EtcdServer) clientv3.Lease {
	server := leaseServer{v3rpc.NewQuotaLeaseServer(local), local}
	return clientv3.NewLeaseFromLeaseClient(adapter.LeaseServerToLeaseClient(server), client, keepAliveTimeout)
}

// LeaseKeepAlive renews the leases that a stream names, until the stream ends. To renew one that is past its time waits for its
// end, or etcd's, whatever becomes of the stream. So a goroutine does that, and may outlive the call.
func (s leaseServer) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	done := make(chan error, 1) // capacity 1, because nobody may wait any more
	go func() { done <- s.renew(stream) }()
	select {
	case err := <-done:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// renew does LeaseKeepAlive's work. Its answers say of no revision: etcd's client asks for none.
func (s leaseServer) renew(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		left, err := s.local.LeaseRenew(stream.Context(), lease.LeaseID(req.ID))
		if errors.Is(err, lease.ErrLeaseNotFound) {
			left, err = 0, nil // that's how the client learns that it has ended
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: req.ID, TTL: left}); err != nil {
			return err
		}
	}
}
