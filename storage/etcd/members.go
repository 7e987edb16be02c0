package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

const (
	// voterInterval is how often the leader looks who may vote. A member that has just joined waits for it, and each look
	// asks the others while there are learners to promote.
	voterInterval = 500 * time.Millisecond
	// caughtUp is how many entries a learner may lack to count as caught up: a fraction of a second of busy writing. A busy
	// learner always lacks some, and with clusterCatchUp entries in memory it gets these without the whole database.
	caughtUp = clusterCatchUp / 4
	// readyShare is the share of all entries that a learner may lack to be promoted: etcd's own bound.
	readyShare = 10
	// handOverTimeout bounds how long a leader tries to have another member lead: that takes two rounds of messages.
	handOverTimeout = time.Second
	// lostTimeout is how long a write may stay unanswered that was on the way to the old leader when another one began to
	// lead, and how long its client may take to ask again.
	lostTimeout = answerTimeout + 500*time.Millisecond
)

// Member is a process that has the data.
type Member struct {
	Name    string `json:"name"` // its --cluster-listen; "" if it hasn't started yet
	ID      string `json:"id"`
	Address string `json:"address"` // where the others reach it
	Voter   bool   `json:"voter"`   // else a learner
	Leader  bool   `json:"leader"`
	Answers bool   `json:"answers"` // to the member that was asked
	Lag     uint64 `json:"lag"`     // entries of the log that it lacks, of those that the member asked knows to be committed
}

// Errors of RemoveMember.
var (
	// ErrNoCluster is returned by a store that has one member and no port.
	ErrNoCluster = errors.New("the server isn't part of a cluster: it runs without --cluster-listen")
	// ErrNoMember is returned for a name that no member has.
	ErrNoMember = errors.New("no member has this name")
	// ErrNotNow is returned if etcd refuses a change of the members, because it would cost the majority.
	ErrNotNow = errors.New("the members can't change now")
)

// memberStatus is what members tell each other.
type memberStatus struct {
	Applied uint64 `json:"applied"` // the last entry that is in the member's store
}

func (c *cluster) serveStatus(w http.ResponseWriter, _ *http.Request) {
	local := c.local.Load()
	if local == nil {
		http.Error(w, "the member is starting", http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(memberStatus{Applied: local.AppliedIndex()})
}

// ask asks all other members how they are, at once. Who doesn't answer isn't in the map.
func (c *cluster) ask(ctx context.Context) map[types.ID]memberStatus {
	local := c.local.Load()
	var mu sync.Mutex // guards found
	found := map[types.ID]memberStatus{local.MemberID(): {Applied: local.AppliedIndex()}}
	var all sync.WaitGroup
	for _, m := range local.Cluster().Members() {
		if m.ID == local.MemberID() || len(m.PeerURLs) == 0 {
			continue
		}
		all.Go(func() {
			var s memberStatus
			if c.client.get(ctx, m.PeerURLs[0]+statusPath, &s) == nil {
				mu.Lock()
				defer mu.Unlock()
				found[m.ID] = s
			}
		})
	}
	all.Wait()
	return found
}

// Members lists the members, as this one knows them, sorted by address. A store without a cluster has ErrNoCluster.
func (s *Server) Members(ctx context.Context) ([]Member, error) {
	if s.cluster == nil {
		return nil, ErrNoCluster
	}
	status, committed := s.cluster.ask(ctx), s.Local.CommittedIndex()
	var all []Member
	for _, m := range s.Local.Cluster().Members() {
		st, answers := status[m.ID]
		each := Member{Name: m.Name, ID: m.ID.String(), Voter: !m.IsLearner, Leader: m.ID == s.Local.Leader(), Answers: answers}
		if len(m.PeerURLs) > 0 {
			each.Address = strings.TrimPrefix(m.PeerURLs[0], urlAt(""))
		}
		if answers && st.Applied < committed {
			each.Lag = committed - st.Applied
		}
		all = append(all, each)
	}
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.Address, b.Address) })
	return all, nil
}

// RemoveMember removes the member with a name, or an id. Its process ends, if it runs, and its directory can't be
// started again. Errors: ErrNoCluster, ErrNoMember, ErrNotNow with the reason, and those of requests.
func (s *Server) RemoveMember(ctx context.Context, name string) error {
	if s.cluster == nil {
		return ErrNoCluster
	}
	if err := s.cluster.readIndex(ctx); err != nil {
		return err
	}
	members := s.Local.Cluster().Members()
	at := slices.IndexFunc(members, func(m *membership.Member) bool {
		return name != "" && (m.Name == name || m.ID.String() == name || slices.Contains(m.PeerURLs, urlAt(name)))
	})
	if at < 0 {
		return fmt.Errorf("%q: %w", name, ErrNoMember)
	}
	if len(members) == 1 {
		return fmt.Errorf("%w: %s is the only member", ErrNotNow, name)
	}
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := s.Local.RemoveMember(bounded, uint64(members[at].ID)); err != nil {
		if bounded.Err() != nil {
			return fmt.Errorf("remove %s: whether it happened is unknown: %w: %w", name, bounded.Err(), err)
		}
		return fmt.Errorf("%w: %w", ErrNotNow, err)
	}
	s.log.Info("removed a member", "member", name)
	return nil
}

// HandOver has another member lead, if this one does and another one can, so that nobody misses the leader when this one
// stops. Raft forgets a write that another member has sent to the old leader just then. Its client is told that the outcome
// is unknown, and may ask this member next. So HandOver returns only when those clients have asked.
func (s *Server) HandOver() {
	c := s.cluster
	if c == nil || !c.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	local := c.local.Load()
	var to *membership.Member
	found := c.ask(ctx)
	for _, m := range local.Cluster().Members() {
		status, answers := found[m.ID]
		if m.ID != local.MemberID() && !m.IsLearner && answers && (to == nil || status.Applied > found[to.ID].Applied) {
			to = m
		}
	}
	if to == nil {
		return
	}
	if err := local.MoveLeader(ctx, uint64(local.MemberID()), uint64(to.ID)); err != nil {
		c.log.Info("no other member leads yet", "asked", to.Name, "error", err)
		return
	}
	lost := time.NewTimer(lostTimeout)
	defer lost.Stop()
	select {
	case <-lost.C:
	case <-s.Done():
	}
}

// run keeps the cluster in order until ctx ends: it finds out whether a majority answers, and has the right number of
// members vote.
func (c *cluster) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { c.probe(ctx) })
	both.Go(func() { c.balance(ctx) })
	both.Wait()
}

// probe asks, again and again, for a read index. If none comes, no majority answers.
func (c *cluster) probe(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, answerTimeout)
		err := c.local.Load().LinearizableReadNotify(bounded)
		cancel()
		was := c.lost.Load()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && was != nil:
			c.lost.Store(nil)
			c.log.Info("a majority of the cluster's members answers again", "after", time.Since(was.since).Round(time.Second))
		case err == nil:
		case was != nil:
			c.lost.Store(&outage{was.since, c.answering(ctx)})
		case time.Since(began) >= answerTimeout: // a leader that changes fails at once
			o := &outage{began, c.answering(ctx)}
			c.lost.Store(o)
			c.log.Error("writes and consistent reads are refused", "error", o.error())
		}
	}
}

// answering says how many of the voters answer.
func (c *cluster) answering(ctx context.Context) string {
	found, voters, answer := c.ask(ctx), 0, 0
	for _, m := range c.local.Load().Cluster().Members() {
		if m.IsLearner {
			continue
		}
		voters++
		if _, ok := found[m.ID]; ok {
			answer++
		}
	}
	return fmt.Sprintf("%d of %d", answer, voters)
}

// balance promotes learners while this member leads.
func (c *cluster) balance(ctx context.Context) {
	tick := time.NewTicker(voterInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.leads() {
			c.promote(ctx)
		}
	}
}

// leads reports whether this member leads, as far as it knows.
func (c *cluster) leads() bool {
	local := c.local.Load()
	return local.Leader() == local.MemberID()
}

// promote lets learners vote until there are as many voters as there should be: an odd number, because with an even one
// no more members may be lost than with one less. So learners are promoted in pairs, when both have caught up.
func (c *cluster) promote(ctx context.Context) {
	local := c.local.Load()
	var learners []*membership.Member
	voters := 0
	for _, m := range local.Cluster().Members() {
		switch {
		case !m.IsLearner:
			voters++
		case m.Name != "":
			learners = append(learners, m)
		}
	}
	if len(learners) == 0 || voters >= c.o.Voters {
		return
	}
	found, committed := c.ask(ctx), local.CommittedIndex()
	learners = slices.DeleteFunc(learners, func(m *membership.Member) bool {
		s, ok := found[m.ID]
		return !ok || s.Applied+caughtUp < committed || s.Applied < committed-committed/readyShare
	})
	for _, m := range learners[:max(0, c.o.votersAmong(voters+len(learners))-voters)] {
		if err := c.promoteOne(ctx, m); err != nil {
			c.log.Info("a learner isn't promoted yet", "member", m.Name, "error", err)
			return
		}
		c.log.Info("a member votes from now on", "member", m.Name)
	}
}

// promoteOne lets a learner vote. It tries for answerTimeout: until the second of a pair votes, no voter may be missed.
func (c *cluster) promoteOne(ctx context.Context, m *membership.Member) error {
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for {
		_, err := c.local.Load().PromoteMember(bounded, uint64(m.ID))
		if err == nil || bounded.Err() != nil || !c.leads() {
			return err
		}
		pause(bounded)
	}
}

// votersAmong is how many of the members that could vote should: the largest odd number up to Voters.
func (o ClusterOptions) votersAmong(could int) int {
	n := min(could, o.Voters)
	if n%2 == 0 {
		n--
	}
	return n
}
