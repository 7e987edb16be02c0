package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// membersOf are the members of a store.
type membersOf struct {
	replicas
	network network
	token   string // the file for those that join
	joined  int    // members that there were, with those that were removed
}

// newMembers starts some, an odd number, and defines widgets.
func newMembers(t *testing.T, between network, n int) *membersOf {
	t.Helper()
	m := &membersOf{replicas: replicas{t: t, forgets: true}, network: between}
	m.join(n)
	m.all[0].process.define()
	m.awaitVoters(n)
	return m
}

// memberHistory is how long members keep history: so short that it's compacted all the time.
const memberHistory = 3 * time.Second

// join starts some more members, each in a directory of its own.
func (m *membersOf) join(n int) {
	m.t.Helper()
	for range n {
		r := &replica{name: fmt.Sprint("member ", m.joined)}
		dir, listen := filepath.Join(m.t.TempDir(), "data"), ""
		r.how, listen, r.peer = m.network.place(r.name)
		r.how.args = []string{"--listen", listen, "--data-dir", dir, "--cluster-listen", r.peer, "--history", memberHistory.String()}
		if m.joined == 0 {
			m.token = filepath.Join(dir, "join-token")
		} else {
			r.how.args = append(r.how.args, "--join", m.any().peer, "--join-token-file", m.token)
		}
		m.joined++
		m.add(r)
	}
}

// remove removes a member. Its process ends.
func (m *membersOf) remove(r *replica) {
	m.t.Helper()
	p := r.away()
	eventually(m.t, r.name+" is removed", func() bool { // etcd refuses while a member was connected for less than five seconds
		_, a, err := m.any().ask("DELETE", "/apiserver-lite/members/"+url.PathEscape(r.peer), "")
		return err == nil && (a.code == http.StatusOK || a.code == http.StatusNotFound) // the latter by an earlier try
	})
	m.drop(r)
	if code := p.wait(patience); code != 1 || !strings.Contains(p.stderr.String(), "was removed from the cluster") {
		m.t.Errorf("%s ended with %d:\n%s", r.name, code, p.stderr)
	}
}

// view asks any member for the members. There are none if it doesn't say.
func (m *membersOf) view() []memberView {
	var page struct{ Members []memberView }
	_, a, err := m.any().ask("GET", "/apiserver-lite/members", "")
	if err != nil || a.code != http.StatusOK || json.Unmarshal([]byte(a.body), &page) != nil {
		return nil
	}
	return page.Members
}

// leader waits until one of the members leads, and returns it.
func (m *membersOf) leader() (lead *replica) {
	m.t.Helper()
	eventually(m.t, "a member leads", func() bool {
		for _, one := range m.view() {
			at := slices.IndexFunc(m.all, func(r *replica) bool { return one.Leader && r.peer == one.Address })
			if at >= 0 {
				lead = m.all[at]
				return true
			}
		}
		return false
	})
	return lead
}

// awaitVoters waits until so many members vote.
func (m *membersOf) awaitVoters(n int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%d members vote", n), func() bool {
		voters := 0
		for _, one := range m.view() {
			if one.Voter {
				voters++
			}
		}
		return voters == n
	})
}

// awaitCompaction waits until the round's first version is history that nobody has.
func (m *membersOf) awaitCompaction(c *clients) {
	m.t.Helper()
	eventually(m.t, "history is compacted", func() bool {
		_, a, err := m.any().ask("GET", fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", widgets, c.from), "")
		return err == nil && a.code == http.StatusGone
	})
}

// split cuts a member off during something.
func (m *membersOf) split(cut *replica, meanwhile func()) {
	m.network.split([]*replica{cut})
	defer m.network.heal()
	meanwhile()
}

// cutOff cuts members off for a while that begins when each of them says that it's alone. If that leaves a majority, it
// takes writes.
func (m *membersOf) cutOff(c *clients, length time.Duration, cut ...*replica) {
	m.t.Helper()
	m.network.split(cut)
	defer m.network.heal()
	for _, r := range cut {
		eventually(m.t, r.name+" says that it's alone", func() bool {
			_, a, err := r.ask("GET", "/readyz", "")
			return err == nil && a.code == http.StatusInternalServerError && strings.Contains(a.body, "(1 of ")
		})
	}
	if len(cut) < len(m.all)-len(m.all)/2 {
		m.goOn(length, cut...)()
	} else {
		time.Sleep(length)
	}
}

func (m *membersOf) faults(length time.Duration) []fault {
	return []fault{
		{"nothing", func(*clients) { time.Sleep(length) }},
		{"a member is killed", m.one(m.kill, rand.N(length))},
		{"a member is stopped", m.one(m.freeze, length)},
		{"a member is restarted", m.one(m.restart, 0)},
		{"two members are killed", func(*clients) {
			order := rand.Perm(len(m.all))
			m.all[order[0]].away().kill()
			m.kill(m.all[order[1]], func() { time.Sleep(rand.N(length)) })
			m.start(m.all[order[0]])
		}},
		{"a member is added and another one removed", func(*clients) {
			gone := m.any()
			m.join(1)
			m.goOn(0)()
			m.remove(gone)
			m.goOn(0)()
			m.awaitVoters(3)
		}},
		{"a member is cut off", m.one(m.split, rand.N(length))},
		{"the leader is cut off", func(c *clients) { m.cutOff(c, rand.N(length), m.leader()) }},
		{"all are cut off from each other", func(c *clients) { m.cutOff(c, rand.N(length), m.all...) }},
		{"history is compacted", m.awaitCompaction},
	}
}

// TestMembersModel: clients of three members of a store, which go from one to the other, are told what they would be told
// by one process, while members are killed, stopped, cut off, restarted, added and removed, and history is compacted.
func TestMembersModel(t *testing.T) {
	t.Parallel()
	m := newMembers(t, newProxies(t), 3)
	m.run(0, m.faults(time.Second))
}

// dependent is a widget that has an owner.
func dependent(name, owner, uid string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Widget","name":%q,"uid":%q}]}}`, name, owner, uid)
}

// acting waits until one of the replicas acts for all, and returns it.
func (rs *replicas) acting() (acts *replica) {
	rs.t.Helper()
	eventually(rs.t, "a replica acts", func() bool {
		for _, r := range rs.all {
			_, a, err := r.ask("GET", "/metrics", "")
			if err == nil && strings.Contains(a.body, "\napiserver_lite_replica_leads 1\n") {
				acts = r
				return true
			}
		}
		return false
	})
	return acts
}

// family is widgets that are to stay or to go.
type family map[string]bool

// make creates an owner with some dependents.
func (f family) make(m *membersOf, owner, children string, stays bool) {
	const dependents = 80 // so many that a collector has begun, and hasn't ended yet, when it's killed
	m.t.Helper()
	created := []int{http.StatusCreated, http.StatusConflict} // one without an answer had happened
	m.insist("POST", widgets, widget(owner, 1), created...)
	uid := m.insist("GET", widgets+"/"+owner, "", http.StatusOK).object.Metadata.UID
	f[owner] = stays
	for n := range dependents {
		name := fmt.Sprintf("%s-%s-%d", children, owner, n)
		m.insist("POST", widgets, dependent(name, owner, uid), created...)
		f[name] = stays
	}
}

// garbage tells how many of those are left that are to go. The others are all there.
func (f family) garbage(m *membersOf) (left int) {
	m.t.Helper()
	there := map[string]bool{}
	for _, o := range m.insist("GET", widgets, "", http.StatusOK).object.Items {
		there[o.Metadata.Name] = true
	}
	for name, stays := range f {
		switch {
		case stays && !there[name]:
			m.t.Fatalf("%s is gone, which has a living owner", name)
		case !stays && there[name]:
			left++
		}
	}
	return left
}

// TestMembersCollect: the garbage of deleted owners is collected while the member that does it is stopped, and killed, and
// another one goes on. Nothing else is: neither what has a living owner, nor what belongs to a new owner of an old name.
func TestMembersCollect(t *testing.T) {
	t.Parallel()
	m, f := newMembers(t, newProxies(t), 3), family{}
	f.make(m, "bystander", "first", true)
	for round, interrupted := 0, false; !interrupted; round++ {
		owner := fmt.Sprint("owner-", round)
		f.make(m, owner, "first", false)
		acts := m.acting()
		m.insist("DELETE", widgets+"/"+owner, `{"propagationPolicy":"Background"}`, http.StatusOK, http.StatusNotFound)
		if round%2 == 0 {
			m.restart(acts, func() {})
		} else {
			acts.away().kill()
			left := f.garbage(m) // nobody acts until the lease has ended
			interrupted = left > 0
			t.Logf("round %d: %d are left for the next one that acts", round, left)
			m.start(acts)
		}
		f.make(m, owner, "second", true)
	}
	eventually(t, "the garbage is gone", func() bool { return f.garbage(m) == 0 })
}
