package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// once asks one replica, and if that says to try again, or says nothing, one other replica. It's how a client behaves that
// tries a second time and no more.
func (rs *replicas) once(method, path, body string) (tries []string, a answer, ok bool) {
	order := rand.Perm(len(rs.all))
	for _, at := range order[:2] {
		who, got, err := rs.all[at].ask(method, path, body)
		if err == nil && !retry(got.code) {
			return tries, got, true
		}
		tries = append(tries, fmt.Sprintf("%s: %d %v %s", who, got.code, err, got.body))
	}
	return tries, a, false
}

// roll restarts one replica after the other, as an operator does, and lets clients write and read meanwhile. whole waits
// until the replicas are as they were. No client fails that tries twice, and all that was acknowledged is there.
func (rs *replicas) roll(whole func()) {
	rs.t.Helper()
	var clients sync.WaitGroup
	var asking sync.RWMutex // for reading by each request, so that none of them meets two restarts
	var over atomic.Bool
	var second atomic.Int64 // requests that were answered at the second try
	end := sync.OnceFunc(func() {
		over.Store(true)
		clients.Wait()
	})
	defer end()
	const writers = 4
	acked := make([][]string, writers)
	ask := func(method, path, body string, codes ...int) bool {
		asking.RLock()
		tries, a, ok := rs.once(method, path, body)
		asking.RUnlock()
		if !ok {
			rs.t.Errorf("%s %s failed twice: %q", method, path, tries)
			return false
		}
		second.Add(int64(len(tries)))
		for _, code := range codes {
			if a.code == code {
				return true
			}
		}
		rs.t.Errorf("%s %s was answered %d after %q, want %v: %s", method, path, a.code, tries, codes, a.body)
		return false
	}
	for id := range writers {
		clients.Go(func() {
			for n := 0; !over.Load(); n++ {
				name := fmt.Sprintf("w%d-%d", id, n)
				// A write whose answer was lost has happened: the second try says that the name is taken.
				if !ask("POST", widgets, widget(name, 1), http.StatusCreated, http.StatusConflict) {
					return
				}
				acked[id] = append(acked[id], name)
				if !ask("GET", widgets+"/"+name, "", http.StatusOK) {
					return
				}
			}
		})
	}
	for _, r := range rs.all {
		before := second.Load()
		r.now().stop()
		r.away()
		rs.start(r)
		whole()
		asking.Lock()
		//lint:ignore SA2001 what was asked before that has been answered
		asking.Unlock()
		rs.t.Logf("%s was restarted: %d requests took a second try", r.name, second.Load()-before)
	}
	end()
	for _, r := range rs.all {
		there := map[string]bool{}
		for _, o := range r.now().do(http.StatusOK, "GET", widgets, "").object.Items {
			there[o.Metadata.Name] = true
		}
		for _, names := range acked {
			for _, name := range names {
				if !there[name] {
					rs.t.Errorf("%s doesn't have %s, which was acknowledged", r.name, name)
				}
			}
		}
	}
	rs.t.Logf("%d objects; %d requests took a second try", len(acked[0])*writers, second.Load())
}

// awaitWhole waits until all members are ready, and each sees that all of them vote and answer.
func (m *membersOf) awaitWhole() {
	m.t.Helper()
	m.ready()
	for _, r := range m.all {
		eventually(m.t, "all members vote, as "+r.name+" sees it", func() bool {
			var page struct{ Members []memberView }
			_, a, err := r.ask("GET", "/apiserver-lite/members", "")
			if err != nil || a.code != http.StatusOK || json.Unmarshal([]byte(a.body), &page) != nil {
				return false
			}
			leaders := 0
			for _, one := range page.Members {
				if !one.Voter || !one.Answers {
					return false
				}
				if one.Leader {
					leaders++
				}
			}
			return len(page.Members) == len(m.all) && leaders == 1
		})
	}
}

// TestMembersRoll restarts one of three members after the other.
func TestMembersRoll(t *testing.T) {
	t.Parallel()
	m := newMembers(t, newProxies(t), 3)
	m.awaitWhole()
	m.roll(m.awaitWhole)
}

// TestReplicasRoll restarts one of three replicas over an etcd after the other.
func TestReplicasRoll(t *testing.T) {
	t.Parallel()
	r := newRemote(t, 3)
	r.roll(r.ready)
}
