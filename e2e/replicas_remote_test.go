package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// remote are replicas over an etcd that runs by itself, each over a link of its own.
type remote struct {
	replicas
	etcd   *etcdProcess
	links  map[string]*relay
	client *clientv3.Client
	direct *relay
}

func newRemote(t *testing.T, n int, args ...string) *remote {
	t.Helper()
	r := &remote{replicas: replicas{t: t}, etcd: startEtcd(t), links: map[string]*relay{}}
	r.direct = newRelay(t, r.etcd.address())
	var err error
	if r.client, err = clientv3.New(clientv3.Config{Endpoints: []string{"http://" + r.direct.address()}, Logger: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.client.Close() })
	for i := range n {
		name := fmt.Sprint("replica ", i)
		l := newRelay(t, r.etcd.address())
		r.links[name] = l
		r.add(&replica{name: name, how: run{args: append([]string{"--etcd-servers", "http://" + l.address(), "--etcd-compaction-interval", "0"}, args...)}})
	}
	r.all[0].process.define()
	return r
}

// restartEtcd kills the etcd and starts it again.
func (r *remote) restartEtcd(after time.Duration) {
	r.etcd.kill()
	time.Sleep(after)
	address := r.etcd.start()
	for _, l := range r.links {
		l.to(address)
	}
	r.direct.to(address)
}

// compact removes all history that every watch but the one that lags has read.
func (r *remote) compact(c *clients) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rv := c.slowest()
	if _, err := r.client.Compact(ctx, rv); err != nil && !strings.Contains(err.Error(), "compacted") {
		r.t.Errorf("compact %d: %v", rv, err)
	}
}

// split cuts one replica off from etcd during something.
func (r *remote) split(one *replica, meanwhile func()) {
	l := r.links[one.name]
	l.split()
	defer l.heal()
	meanwhile()
}

func (r *remote) faults(length time.Duration) []fault {
	return []fault{
		{"nothing", func(*clients) { time.Sleep(length) }},
		{"a replica is killed", r.one(r.kill, rand.N(length))},
		{"a replica is stopped", r.one(r.freeze, length)},
		{"history is compacted", r.compact},
		{"a replica is cut off", r.one(r.split, length)},
		{"connections to etcd break", func(*clients) { r.links[r.any().name].drop() }},
		{"etcd is killed", func(*clients) { r.restartEtcd(rand.N(length)) }},
		{"a replica is restarted", r.one(r.restart, 0)},
		{"history is compacted again", r.compact},
	}
}

// slowest is how far all watches have come that may not miss anything.
func (c *clients) slowest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	least := int64(-1)
	for _, rv := range c.at {
		if least < 0 || rv < least {
			least = rv
		}
	}
	return least
}

// TestReplicas: clients of several replicas over one etcd, which go from one to the other, are told what they would be
// told by one process, while replicas and etcd are killed, stopped and cut off, and history is compacted.
func TestReplicas(t *testing.T) {
	t.Parallel()
	r := newRemote(t, 3)
	r.run(0, r.faults(time.Second))
}

// listed returns the addresses to which default/kubernetes leads, by what one of the replicas says.
func (rs *replicas) listed(by *replica) (all []string) {
	_, a, err := by.ask("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "")
	var list struct {
		Items []struct {
			Endpoints []struct{ Addresses []string }
			Ports     []struct{ Port int }
		}
	}
	if err != nil || json.Unmarshal([]byte(a.body), &list) != nil {
		return nil
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			all = append(all, fmt.Sprintf("http://%s:%d", e.Addresses[0], slice.Ports[0].Port))
		}
	}
	slices.Sort(all)
	return all
}

// TestReplicasAreListed: default/kubernetes leads to all replicas that are alive, also after the death of one that doesn't act,
// of the one that does, and of one that comes back.
func TestReplicasAreListed(t *testing.T) {
	t.Parallel()
	r := newRemote(t, 3, "--builtin=all")
	agree := func(what string) {
		t.Helper()
		var want []string
		for _, one := range r.all {
			if base := one.base(); base != "" {
				want = append(want, base)
			}
		}
		slices.Sort(want)
		for _, one := range r.all {
			if one.base() != "" {
				eventually(t, fmt.Sprintf("%s: %s lists %v", what, one.name, want), func() bool { return slices.Equal(r.listed(one), want) })
			}
		}
	}
	agree("at first")
	acts := r.acting()
	for _, one := range r.all {
		if one != acts {
			one.away().kill()
			agree("without one that doesn't act")
			r.start(one)
			agree("with the one that came back")
			break
		}
	}
	acts.away().kill()
	agree("without the one that acted")
}
