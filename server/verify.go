package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/apiserver-lite/apiserver-lite/server/inflight"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// verifyAttempts is how often Verify looks again when somebody writes meanwhile.
const verifyAttempts = 10

var errNotRunning = errors.New("server: not running: it hasn't started, or its start failed")

// Verify compares everything in the caches with etcd and returns all differences, or an error of the comparison. It
// reads all that is stored; tests call it before they close a server. On a Server that isn't started, whose start
// failed, or that is closed, it returns an error.
func (s *Server) Verify(ctx context.Context) error {
	in := s.life.instance()
	if in == nil {
		return errNotRunning
	}
	if in.rights.may.RBAC() { // it writes for some time after the start
		if err := in.rights.may.Rules().Bootstrapped(ctx); err != nil {
			return err
		}
	}
	var err error
	for range verifyAttempts {
		var still bool
		if still, err = in.verify(ctx); err == nil || still || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// verify returns the differences, and whether they're real: whether nothing was written since the comparison
// began.
func (in *instance) verify(ctx context.Context) (still bool, err error) {
	served := map[storage.Prefix]bool{} // also those that are empty in etcd
	for _, g := range in.registry.Catalog().Groups {
		for _, v := range g.Versions {
			for _, e := range v.Resources {
				served[storage.PrefixOf(e.Group, e.Plural)] = true
			}
		}
	}
	return in.cacher.Compare(ctx, in.backing.store, served)
}

// Leftovers tells, after Close, what requests and connections took and nobody gave back: each of it ends with whoever opened
// it. The error is nil if there is nothing. Tests call it. What a connection held can take some milliseconds longer than
// Close. Before Close it tells what is held now.
func (s *Server) Leftovers() error {
	in := s.life.instance()
	if in == nil {
		return nil
	}
	h := in.handler
	open, lobby := in.port.Connections()
	var left []error
	for _, held := range []struct {
		what string
		n    int
	}{
		{"open watches", len(h.watches.All())},
		{"groups of watches", int(in.cacher.Usage().Groups)},
		{"reads", h.capacity.inflight.Now(inflight.Read)},
		{"writes", h.capacity.inflight.Now(inflight.Write)},
		{"requests that only wait", h.capacity.inflight.Now(inflight.Long)},
		{"seats of requests", h.seatsNow()},
		{"seats of bodies that arrive", h.capacity.uploads.Taken()},
		{"room of large bodies that arrive", h.capacity.raw.Taken()},
		{"seats of arriving requests", h.capacity.arrivals.Taken()},
		{"seats of what waits", h.capacity.quiescent.Taken()},
		{"places of Lists", h.capacity.lists.Taken()},
		{"seats of snapshots", h.capacity.backups.Taken()},
		{"places of large answers", h.capacity.large.Taken()},
		{"places of large answers whose clients don't take them", h.capacity.stalled.Taken()},
		{"places of answers in YAML", h.capacity.yaml.Taken()},
		{"places of connections", open},
		{"seats in the lobby", lobby},
		{"queues of writes", in.registry.Usage().WriteQueues},
		{"calls of conversion webhooks", in.registry.Usage().WebhookCalls},
		{"charges of quotas", in.quotas.Open()},
	} {
		if held.n != 0 {
			left = append(left, fmt.Errorf("%d %s", held.n, held.what))
		}
	}
	return errors.Join(left...)
}
