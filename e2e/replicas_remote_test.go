package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
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

func newRemote(t *testing.T, n int) *remote {
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
		r.add(&replica{name: name, how: run{args: []string{"--etcd-servers", "http://" + l.address(), "--etcd-compaction-interval", "0"}}})
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

// split cuts one replica off from etcd for a while.
func (r *remote) split(one *replica, length time.Duration) {
	l := r.links[one.name]
	l.split()
	time.Sleep(length)
	l.heal()
}

func (r *remote) faults(length time.Duration) []fault {
	return []fault{
		{"nothing", func(*clients) { time.Sleep(length) }},
		{"a replica is killed", func(*clients) { r.kill(r.any(), rand.N(length)) }},
		{"a replica is stopped", func(*clients) { r.freeze(r.any(), length) }},
		{"history is compacted", r.compact},
		{"a replica is cut off", func(*clients) { r.split(r.any(), length) }},
		{"connections to etcd break", func(*clients) { r.links[r.any().name].drop() }},
		{"etcd is killed", func(*clients) { r.restartEtcd(rand.N(length)) }},
		{"a replica is restarted", func(*clients) { r.restart(r.any()) }},
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
