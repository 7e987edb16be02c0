package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// clusterMember is a process of a cluster, and how it's started again.
type clusterMember struct {
	*process
	dir, address string
}

// startMember starts a process in a directory of its own. It joins the given member, or begins a cluster.
func startMember(t *testing.T, join *clusterMember) *clusterMember {
	t.Helper()
	m := &clusterMember{dir: filepath.Join(t.TempDir(), "data"), address: loopback.Address(t)}
	args := m.args()
	if join != nil {
		args = append(args, "--join", join.address, "--join-token-file", filepath.Join(join.dir, "join-token"))
	}
	m.process = start(t, args...)
	return m
}

func (m *clusterMember) args() []string {
	return []string{"--listen=127.0.0.1:0", "--data-dir", m.dir, "--cluster-listen", m.address}
}

// restart starts the process again, as it was started first but without the flags for joining.
func (m *clusterMember) restart(t *testing.T) {
	t.Helper()
	m.process = start(t, m.args()...)
}

// memberView is a member as the others see it.
type memberView struct {
	Address                string
	Voter, Leader, Answers bool
}

// members asks a process for the members.
func (c *client) members() (all []memberView) {
	c.t.Helper()
	var page struct{ Members []memberView }
	a := c.do(http.StatusOK, "GET", "/apiserver-lite/members", "")
	if err := json.Unmarshal([]byte(a.body), &page); err != nil {
		c.t.Fatal(err)
	}
	return page.Members
}

// awaitVoters waits until so many members vote, and so many don't; all of them answer.
func (c *client) awaitVoters(voters, learners int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d voters and %d learners", voters, learners), func() bool {
		v, l := 0, 0
		for _, m := range c.members() {
			switch {
			case !m.Answers:
				return false
			case m.Voter:
				v++
			default:
				l++
			}
		}
		return v == voters && l == learners
	})
}

// leader finds the member that leads, and the others.
func leader(t *testing.T, all ...*clusterMember) (lead *clusterMember, others []*clusterMember) {
	t.Helper()
	eventually(t, "somebody leads", func() bool {
		lead, others = nil, nil
		at := ""
		for _, m := range all[0].members() {
			if m.Leader {
				at = m.Address
			}
		}
		for _, m := range all {
			if m.address == at {
				lead = m
			} else {
				others = append(others, m)
			}
		}
		return lead != nil
	})
	return lead, others
}

// awaitWrite writes until it succeeds. Until then a write may be refused for now, or its outcome unknown.
func (c *client) awaitWrite(name string) {
	c.t.Helper()
	began := time.Now()
	for try := 0; ; try++ {
		a, err := c.try("POST", widgets, widget(fmt.Sprintf("%s-%d", name, try), 1))
		switch {
		case err != nil:
			c.t.Fatal(err)
		case a.code == http.StatusCreated:
			c.t.Logf("%s: a write succeeded after %v and %d tries", name, time.Since(began).Round(time.Millisecond), try)
			return
		case a.code != http.StatusServiceUnavailable && a.code != http.StatusGatewayTimeout || time.Since(began) > patience:
			c.t.Fatalf("%s: a write answered %d:\n%s", name, a.code, a.body)
		}
	}
}

// create writes a widget, again while that's refused for now or its outcome is unknown: on a busy machine the leader
// changes.
func (c *client) create(name string) error {
	for began := time.Now(); ; {
		a, err := c.try("POST", widgets, widget(name, 1))
		switch {
		case err != nil:
			return err
		case a.code == http.StatusCreated, a.code == http.StatusConflict: // by an earlier try
			return nil
		case a.code != http.StatusServiceUnavailable && a.code != http.StatusGatewayTimeout || time.Since(began) > patience:
			return fmt.Errorf("create %s: %d %s", name, a.code, a.body)
		}
	}
}

// read gets a widget, again while no majority answers.
func (c *client) read(name string) {
	c.t.Helper()
	eventually(c.t, name+" is read", func() bool {
		a, err := c.try("GET", widgets+"/"+name, "")
		if err != nil || a.code == http.StatusNotFound {
			c.t.Fatalf("get %s: %v %s", name, err, a.body)
		}
		return a.code == http.StatusOK
	})
}

// memberCommand runs apiserver-lite member.
func memberCommand(args ...string) (string, error) {
	out, err := exec.Command(binary(), append([]string{"member"}, args...)...).CombinedOutput()
	return string(out), err
}

// TestMembers takes a cluster through its life: a second member, a third, the death of the leader, restarts, a member
// that was stopped for so long that it gets the whole database, removal, and a lost majority.
func TestMembers(t *testing.T) {
	t.Parallel()
	one := startMember(t, nil)
	one.define()
	two := startMember(t, one)
	one.awaitVoters(1, 1)
	atLearner := two.watch(widgets + "?watch=true&resourceVersion=0")
	one.do(http.StatusCreated, "POST", widgets, widget("a", 1)) // it votes alone: nothing can keep it from answering
	atLearner.expect("ADDED", "a")
	two.read("a")
	if err := two.create("b"); err != nil {
		t.Fatal(err)
	}
	one.read("b")
	began := time.Now()
	three := startMember(t, two) // any member lets others in
	three.awaitVoters(3, 0)
	t.Logf("three members vote %v after the start of the third", time.Since(began).Round(time.Millisecond))
	three.read("b")
	out, err := memberCommand("list", "--server", two.url)
	if err != nil || strings.Count(out, "voter") != 2 || strings.Count(out, "leader") != 1 {
		t.Fatalf("member list: %v\n%s", err, out)
	}

	lead, others := leader(t, one, two, three)
	lead.kill()
	for _, m := range others {
		m.awaitWrite("leaderless-" + strconv.Itoa(m.cmd.Process.Pid))
	}
	lead.restart(t)
	lead.awaitVoters(3, 0)

	stopForLong(t, one, two, three)
	loseMajority(t, one, two, three)
	removeMember(t, one, two, three)
}

// stopForLong stops a follower while more is written than the leader keeps for it. Its watch has everything afterwards,
// and so have its lists; a 410 would be right, too.
func stopForLong(t *testing.T, all ...*clusterMember) {
	const writers, each = 16, 200 // more than the entries that a leader keeps in memory, storage/etcd's clusterCatchUp
	lead, others := leader(t, all...)
	slow := others[0]
	slow.awaitWrite("before-the-stop")
	list := slow.do(http.StatusOK, "GET", widgets+"?resourceVersion=0", "").object
	w := slow.watch(widgets + "?watch=true&resourceVersion=" + list.Metadata.ResourceVersion)
	slow.signal(syscall.SIGSTOP)
	var writing sync.WaitGroup
	for writer := range writers {
		writing.Go(func() {
			for i := range each {
				if err := lead.create(fmt.Sprintf("many-%d-%d", writer, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	slow.signal(syscall.SIGCONT)
	slow.awaitWrite("after-the-stop")
	var want, got int
	eventually(t, "both list", func() bool {
		a, err := slow.try("GET", widgets, "")
		b, err2 := lead.try("GET", widgets, "")
		want, got = len(a.object.Items), len(b.object.Items)
		return err == nil && err2 == nil && a.code == http.StatusOK && b.code == http.StatusOK
	})
	if got != want {
		t.Errorf("the leader lists %d widgets, the member that was stopped %d", got, want)
	}
	seen := map[string]bool{}
	for len(seen) < writers*each {
		e, err := w.next()
		if err != nil {
			t.Fatalf("after %d events: %v", len(seen), err)
		}
		if e.Type == "ERROR" && e.Object.Code == http.StatusGone {
			t.Logf("the watch ended with 410 after %d events", len(seen))
			return
		}
		if seen[e.Object.Metadata.Name] {
			t.Fatalf("%s came twice", e.Object.Metadata.Name)
		}
		if strings.HasPrefix(e.Object.Metadata.Name, "many-") {
			seen[e.Object.Metadata.Name] = true
		}
	}
}

// loseMajority stops two of three members, and starts them again.
func loseMajority(t *testing.T, all ...*clusterMember) {
	left, gone := all[0], all[1:]
	for _, m := range gone {
		m.kill()
	}
	eventually(t, "readyz says since when the majority is lost", func() bool {
		a, err := left.try("GET", "/readyz", "")
		return err == nil && a.code == http.StatusInternalServerError && strings.Contains(a.body, "no majority") && since.MatchString(a.body)
	})
	a := left.do(http.StatusServiceUnavailable, "POST", widgets, widget("lost", 1))
	if a.header.Get("Retry-After") == "" || !strings.Contains(a.object.Message, "no majority") {
		t.Errorf("a write answered %v\n%s", a.header, a.body)
	}
	a = left.do(http.StatusServiceUnavailable, "GET", widgets, "")
	if a.header.Get("Retry-After") == "" || !strings.Contains(a.object.Message, "no majority") {
		t.Errorf("a consistent read answered %v\n%s", a.header, a.body)
	}
	list := left.do(http.StatusOK, "GET", widgets+"?resourceVersion=0", "").object
	w := left.watch(widgets + "?watch=true&resourceVersion=" + list.Metadata.ResourceVersion)
	if e, err := left.watch(widgets + "?watch=true&resourceVersion=0").next(); err != nil || e.Type != "ADDED" {
		t.Errorf("a watch that began without a majority got %+v, %v", e, err)
	}
	gone[0].restart(t)
	gone[0].awaitWrite("found")
	if e, err := w.next(); err != nil || e.Type != "ADDED" {
		t.Errorf("the watch got %+v, %v", e, err)
	}
	eventually(t, "the member that was left is ready again", func() bool {
		a, err := left.try("GET", "/readyz", "")
		return err == nil && a.code == http.StatusOK
	})
	gone[1].restart(t)
	left.awaitVoters(3, 0)
}

// removeMember removes a follower: its process ends and says why, and so does its next start.
func removeMember(t *testing.T, all ...*clusterMember) {
	lead, others := leader(t, all...)
	gone := others[0]
	if out, err := memberCommand("remove", "nobody", "--server", lead.url); err == nil || !strings.Contains(out, "there is no member") {
		t.Errorf("removing nobody: %v\n%s", err, out)
	}
	eventually(t, "the member is removed", func() bool { // etcd refuses while a member was connected for less than five seconds
		out, err := memberCommand("remove", gone.address, "--server", lead.url)
		return err == nil && !strings.Contains(out, gone.address)
	})
	if code := gone.wait(patience); code != 1 || !strings.Contains(gone.stderr.String(), "was removed from the cluster") {
		t.Errorf("the removed member ended with %d:\n%s", code, gone.stderr)
	}
	again := launch(t, run{args: gone.args()})
	if code := again.wait(patience); code != 1 || !strings.Contains(again.stderr.String(), "was removed from the cluster") {
		t.Errorf("started again, it ended with %d:\n%s", code, again.stderr)
	}
	if err := os.RemoveAll(gone.dir); err != nil {
		t.Fatal(err)
	}
	fresh := startMember(t, lead)
	fresh.awaitVoters(3, 0)
}

// TestJoinRefused: what isn't let in says why in one line, and ends with code 1.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	one, other := startMember(t, nil), startMember(t, nil)
	used := start(t, "--data-dir", filepath.Join(t.TempDir(), "data"))
	used.stop()
	usedDir := ""
	for i, arg := range used.cmd.Args {
		if arg == "--data-dir" {
			usedDir = used.cmd.Args[i+1]
		}
	}
	token, err := os.ReadFile(filepath.Join(one.dir, "join-token"))
	if err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(wrong, []byte(strings.TrimSpace(string(token))[:len(token)-3]+"22\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, dir, token, want string }{
		{"a wrong secret", t.TempDir(), wrong, "doesn't know the token"},
		{"another cluster's authority", t.TempDir(), filepath.Join(other.dir, "join-token"), "another fingerprint"},
		{"a directory with data", usedDir, filepath.Join(one.dir, "join-token"), "has data of its own"},
	} {
		p := launch(t, run{args: []string{"--listen=127.0.0.1:0", "--data-dir", test.dir, "--cluster-listen", loopback.Address(t), "--join", one.address, "--join-token-file", test.token}})
		if code := p.wait(patience); code != 1 || !strings.Contains(p.stderr.String(), test.want) {
			t.Errorf("%s: it ended with %d:\n%s", test.name, code, p.stderr)
		}
	}
	res, err := http.Get("http://" + one.address + "/members")
	if err == nil {
		defer res.Body.Close()
		if res.StatusCode == http.StatusOK {
			t.Error("the cluster's port answers plain HTTP")
		}
	}
}
