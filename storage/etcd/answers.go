package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/raft/v3"

	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// In a cluster an answer may not come: the leader is gone, or a majority is. etcd then keeps a request for six seconds
// and more. Here each gets an answer within answerTimeout, which for a write begins when its burst goes (bursts.go). While
// nobody leads, a request waits for a leader, and if none comes it fails with ErrNoLeader, without having been sent. One that
// was sent and isn't answered fails with errUnanswered: whether it happened is unknown.

const (
	// answerTimeout bounds every request, from when it goes: a new leader is there about a second after the last one died.
	answerTimeout = 2500 * time.Millisecond
	// answerPoll is how often a request that waits for a leader looks for one. That adds little to the second that an
	// election takes, and a thousand requests that wait look 50,000 times a second, which is a few per cent of a core.
	answerPoll = 20 * time.Millisecond
	// probeInterval is how often a member asks whether a majority still answers. What it asks for is a round trip to the
	// others; and a member that was cut off finds that out after probeInterval and answerTimeout.
	probeInterval = time.Second
)

var (
	// errUnanswered is returned for a request that the cluster was given.
	errUnanswered = fmt.Errorf("the cluster didn't answer within %v", answerTimeout)
	// errNoIndex is returned for a read index.
	errNoIndex = fmt.Errorf("the cluster's leader didn't answer within %v: %w", answerTimeout, etcderrors.ErrNoLeader)
)

// outage says that no majority answers.
type outage struct {
	since  time.Time
	voters string // how many of them answer, of how many
}

func (o *outage) error() error {
	return fmt.Errorf("no majority of the cluster's voting members answers since %s (%s of them do): %w",
		o.since.UTC().Format(time.RFC3339), o.voters, etcderrors.ErrNoLeader)
}

// awaitLeader waits until there's somebody to send a request to. The error says why not.
func (c *cluster) awaitLeader(ctx context.Context) error {
	if c.led() {
		return nil
	}
	tick := time.NewTicker(answerPoll)
	defer tick.Stop()
	for !c.led() {
		select {
		case <-tick.C:
		case <-c.local.Load().StoppingNotify():
			return etcderrors.ErrStopped
		case <-ctx.Done():
			if o := c.lost.Load(); o != nil {
				return o.error()
			}
			return fmt.Errorf("the cluster has no leader: %w", etcderrors.ErrNoLeader)
		}
	}
	return nil
}

// led reports whether a request has somewhere to go. A learner, and a member that was cut off just now, may know a
// leader that is gone: the probe finds that out.
func (c *cluster) led() bool { return c.local.Load().Leader() != 0 && c.lost.Load() == nil }

// readIndex returns when this member's store has everything that was acknowledged before the call, on any member.
// Callers that wait at the same time share one question to the leader. Errors: ErrNoLeader, ErrStopped, ctx's.
func (c *cluster) readIndex(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	another := func(error) bool { return true } // leader: it's asked next
	return c.tried(ctx, errNoIndex, another, c.local.Load().LinearizableReadNotify)
}

// layer has every call answered in time. A transaction's time begins when it goes: where many are under way, it's one of a burst.
func (c *cluster) layer(ctx context.Context, call kv.Call) error {
	if call.Txn {
		defer c.bursts.leave(c.bursts.enter(ctx))
	}
	return c.within(ctx, call.Send)
}

// within makes a request that answers in time.
func (c *cluster) within(ctx context.Context, request func(context.Context) error) error {
	return c.tried(ctx, errUnanswered, dropped, request)
}

// tried makes a request, and once more while again says so of its error. late is the error if nothing is answered in time.
func (c *cluster) tried(ctx context.Context, late error, again func(error) bool, request func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for {
		if err := c.awaitLeader(bounded); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return err
		}
		err := request(bounded)
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, etcderrors.ErrStopped):
			return err
		case bounded.Err() != nil:
			return late
		case !again(err):
			return err
		}
		pause(bounded)
	}
}

// dropped reports whether raft took no request, because the leader is handing over: nothing happened. The error comes
// through gRPC's types, which keep the text only.
func dropped(err error) bool {
	return strings.Contains(err.Error(), raft.ErrProposalDropped.Error())
}

// pause waits before the same is tried again.
func pause(ctx context.Context) {
	t := time.NewTimer(answerPoll)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
