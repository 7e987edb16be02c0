package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// back takes one in again that was dropped.
func (rs *replicas) back(r *replica) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.all = append(rs.all, r)
}

// contents are those of a namespace.
type contents struct{ name, path string }

const contained = 40

func (c contents) make(m *membersOf) {
	m.t.Helper()
	created := []int{http.StatusCreated, http.StatusConflict} // one without an answer had happened
	m.insist("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, c.name), created...)
	for n := range contained {
		m.insist("POST", c.path, fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, n), created...)
	}
}

// left tells how many objects are in it.
func (c contents) left(m *membersOf) int {
	m.t.Helper()
	return len(m.insist("GET", c.path, "", http.StatusOK).object.Items)
}

// TestMembersActStopped stops the member that acts for all in the middle of what it does, without its knowledge, until
// another one has done it, and everything that was deleted is there again under the same names. When the first one goes on,
// it knows of nothing that happened. It deletes nothing that is new, and all garbage goes.
func TestMembersActStopped(t *testing.T) {
	t.Parallel()
	m, f := newMembers(t, newProxies(t), 3), family{}
	f.make(m, "bystander", "first", true)
	for round, interrupted := 0, false; !interrupted; round++ {
		owner, space := fmt.Sprint("owner-", round), fmt.Sprint("space-", round)
		c := contents{space, "/api/v1/namespaces/" + space + "/configmaps"}
		f.make(m, owner, "first", false)
		c.make(m)
		acts := m.acting()
		m.drop(acts) // it won't answer
		m.insist("DELETE", widgets+"/"+owner, `{"propagationPolicy":"Background"}`, http.StatusOK, http.StatusNotFound)
		m.insist("DELETE", "/api/v1/namespaces/"+space, "", http.StatusOK, http.StatusNotFound, http.StatusConflict)
		acts.now().signal(syscall.SIGSTOP)
		garbage, objects := f.garbage(m), c.left(m)
		interrupted = garbage > 0 && objects > 0
		t.Logf("round %d: %s acted; %d widgets and %d objects of the namespace are left for the next one that acts", round, acts.name, garbage, objects)
		if interrupted {
			next := m.acting() // once the lease has ended
			eventually(t, next.name+" collects", func() bool { return f.garbage(m) == 0 })
			eventually(t, next.name+" removes the namespace", func() bool {
				return m.insist("GET", "/api/v1/namespaces/"+space, "", http.StatusOK, http.StatusNotFound).code == http.StatusNotFound
			})
			f.make(m, owner, "second", true)
			// What was garbage is there again, as dependents of the new owner.
			f.make(m, owner, "first", true)
			c.make(m)
		}
		acts.now().signal(syscall.SIGCONT)
		if interrupted {
			eventually(t, acts.name+" knows that it doesn't act any more", func() bool {
				_, a, err := acts.ask("GET", "/metrics", "")
				return err == nil && strings.Contains(a.body, "\napiserver_lite_replica_leads 0\n")
			})
		}
		m.back(acts)
		m.ready()
		if interrupted {
			// All that follows from what was written is done now.
			m.insist("GET", "/debug/quiescent?timeout=1m", "", http.StatusOK)
			if left := c.left(m); left != contained {
				t.Errorf("the new namespace has %d objects, want %d", left, contained)
			}
		}
	}
	eventually(t, "the garbage is gone", func() bool { return f.garbage(m) == 0 })
}
