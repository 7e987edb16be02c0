package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// lamps have the subresources that the Go client has calls for.
var lamps = kind{file: "lamps.yaml", name: "Lamp", plural: "lamps", namespace: "default"}

// lamp is one of lamps, as the Go client has it.
type lamp struct {
	client.Meta
	Spec struct {
		Color string `json:"color,omitempty"`
		Size  int    `json:"size"`
	} `json:"spec"`
	Status struct {
		Size int `json:"size"`
	} `json:"status,omitzero"`
}

// gauge is one of plain.
type gauge struct {
	client.Meta
	Spec struct {
		Owner string   `json:"owner"`
		Color string   `json:"color"`
		Ratio float64  `json:"ratio"`
		Tags  []string `json:"tags"`
		Count int      `json:"count"`
		Text  string   `json:"text"`
	} `json:"spec"`
}

// goClient holds package client to what it promises, at whatever server this is. It's the one scenario that uses the
// package: the others measure servers, and a client that does more than a scenario needs would be measured with them.
func goClient(f *flag.FlagSet) measure {
	updates := f.Int("updates", 5000, "updates that Follow and a cache are given")
	cuts := f.Int("cuts", 3, "how often all connections are cut meanwhile")
	return func(ctx context.Context, b *bench) error {
		l, err := newLink(b.server)
		if err != nil {
			return err
		}
		defer l.http.CloseIdleConnections()
		c, err := client.New(b.url, client.Options{HTTP: l.http, Token: b.token, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		if err := b.verbs(ctx, c); err != nil {
			return err
		}
		k, objects, err := b.createObjects(plain, 100)
		if err != nil {
			return err
		}
		g := &gauges{bench: b, link: l, kind: k, objects: objects,
			Collection: client.Resource[gauge](c, "bench.example.com/v1", k.plural).In(k.namespace)}
		return g.run(ctx, *updates, *cuts)
	}
}

// link is the client's way to a server. It can be cut, and leads to where the server is after a restart.
type link struct {
	http *http.Client

	mu      sync.Mutex // guards both below
	address string
	conns   []net.Conn // since the last cut
}

func newLink(s *server) (*link, error) {
	l := &link{}
	l.http = &http.Client{Transport: &http.Transport{DialContext: l.dial, TLSClientConfig: s.tls()}}
	return l, l.lead(s.url)
}

// lead makes further connections lead to the URL's host.
func (l *link) lead(to string) error {
	u, err := url.Parse(to)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.address = u.Host
	return nil
}

func (l *link) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	l.mu.Lock()
	address := l.address
	l.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	return conn, nil
}

// cut closes all connections, whatever they are at.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		conn.Close() // one that is closed already says so
	}
	l.conns = nil
}

// verbs makes each call once and looks at what it gives.
func (b *bench) verbs(ctx context.Context, c *client.Client) error {
	k, err := b.ownNamespace(lamps)
	if err != nil {
		return err
	}
	v := &verbs{ctx: ctx, lamps: client.Resource[lamp](c, "bench.example.com/v1", k.plural).In(k.namespace)}
	v.write()
	v.part()
	v.read()
	v.refusals()
	found, err := c.FindKind(ctx, "bench.example.com/v1", k.name)
	v.want("FindKind", err == nil && found.Plural == k.plural && found.Namespaced, found, err)
	v.remove()
	if v.err != nil {
		return v.err
	}
	b.report(pairs{"part", "verbs"}, pairs{"checks", v.checks})
	return nil
}

// verbs makes calls and collects what is wrong about their outcomes.
type verbs struct {
	ctx    context.Context
	lamps  client.Collection[lamp]
	checks int
	err    error // of all that went wrong
}

// want notes a call whose outcome isn't ok.
func (v *verbs) want(call string, ok bool, got any, err error) {
	v.checks++
	if !ok {
		v.err = errors.Join(v.err, fmt.Errorf("%s gave %+v, error %v", call, got, err))
	}
}

func newLamp(name string, size int) *lamp {
	l := &lamp{Meta: client.Named(name)}
	l.Spec.Size, l.Labels = size, map[string]string{"app": "bench"}
	return l
}

// write writes whole objects. What the other calls expect is what it leaves: a and b.
func (v *verbs) write() {
	a, err := v.lamps.Create(v.ctx, newLamp("a", 1))
	v.want("Create", err == nil && a.UID != "" && a.ResourceVersion != "" && a.Kind == "Lamp" && a.Spec.Size == 1, a, err)
	if err != nil {
		return
	}
	again := *a
	again.Spec.Size = 2
	updated, err := v.lamps.Update(v.ctx, &again)
	v.want("Update", err == nil && updated.Spec.Size == 2 && updated.ResourceVersion != a.ResourceVersion, updated, err)
	_, err = v.lamps.Update(v.ctx, &again)
	v.want("Update of an old state", errors.Is(err, client.ErrConflict), nil, err)
	updated, err = client.Update(v.ctx, v.lamps, "a", func(l *lamp) error { l.Spec.Size++; return nil })
	v.want("Update with a function", err == nil && updated.Spec.Size == 3, updated, err)
	if err == nil {
		updated.Spec.Size, updated.Status.Size = 77, 3
		updated, err = v.lamps.UpdateStatus(v.ctx, updated)
		v.want("UpdateStatus", err == nil && updated.Spec.Size == 3 && updated.Status.Size == 3, updated, err)
	}
	b, err := v.lamps.Apply(v.ctx, "bench", newLamp("b", 1))
	v.want("Apply", err == nil && b.Spec.Size == 1, b, err)
	_, err = v.lamps.Apply(v.ctx, "other", newLamp("b", 2))
	v.want("Apply of another's field", errors.Is(err, client.ErrConflict), nil, err)
	b, err = v.lamps.Apply(v.ctx, "other", newLamp("b", 2), client.Force())
	v.want("Apply by force", err == nil && b.Spec.Size == 2, b, err)
}

// part writes parts of objects.
func (v *verbs) part() {
	color := client.Merge(map[string]any{"spec": map[string]any{"color": "red"}})
	a, err := v.lamps.Patch(v.ctx, "a", color)
	v.want("a merge patch", err == nil && a.Spec.Color == "red" && a.Spec.Size == 3, a, err)
	a, err = v.lamps.Patch(v.ctx, "a", client.JSONPatch([]map[string]any{{"op": "remove", "path": "/spec/color"}}))
	v.want("a JSON patch", err == nil && a.Spec.Color == "", a, err)
	a, err = v.lamps.Patch(v.ctx, "a", color, client.DryRun())
	v.want("a dry run", err == nil && a.Spec.Color == "red", a, err)
	scale, err := v.lamps.SetScale(v.ctx, "a", 5)
	v.want("SetScale", err == nil && scale.Spec.Replicas == 5, scale, err)
	scale, err = v.lamps.Scale(v.ctx, "a")
	v.want("Scale", err == nil && scale.Spec.Replicas == 5 && scale.Name == "a", scale, err)
	a, err = v.lamps.Until(v.ctx, "a", func(l *lamp) (bool, error) { return l != nil && l.Spec.Size == 5 && l.Spec.Color == "", nil })
	v.want("Until", err == nil, a, err)
}

// read reads what write and part have left.
func (v *verbs) read() {
	a, err := v.lamps.Get(v.ctx, "a")
	v.want("Get", err == nil && a.Name == "a" && a.Spec.Size == 5, a, err)
	list, err := v.lamps.List(v.ctx, client.PageSize(1), client.Labels("app=bench"))
	v.want("List", err == nil, nil, err)
	if err != nil {
		return
	}
	all, err := list.Slice(v.ctx)
	v.want("a list in pages", err == nil && len(all) == 2 && all[1].Name == "b", all, err)
	if list, err = v.lamps.List(v.ctx, client.At(list.ResourceVersion), client.Fields("metadata.name=b")); err == nil {
		all, err = list.Slice(v.ctx)
	}
	v.want("a list at a version", err == nil && len(all) == 1 && all[0].Spec.Size == 2, all, err)
	var events []string
	for event, failed := range v.lamps.Watch(v.ctx, client.WatchFor(time.Second)) {
		if err = failed; err == nil {
			events = append(events, event.Type.String()+" "+event.Key.Name)
		}
	}
	slices.Sort(events)
	v.want("Watch", err == nil && slices.Equal(events, []string{"ADDED a", "ADDED b"}), events, err)
}

// refusals asks for what is to be refused.
func (v *verbs) refusals() {
	_, err := v.lamps.Get(v.ctx, "none")
	v.want("Get of nothing", errors.Is(err, client.ErrNotFound), nil, err)
	_, err = v.lamps.Create(v.ctx, newLamp("a", 1))
	v.want("Create of what is there", errors.Is(err, client.ErrExists), nil, err)
	_, err = v.lamps.Create(v.ctx, newLamp("c", -1))
	refusal, ok := errors.AsType[*client.StatusError](err)
	v.want("Create of what isn't valid", errors.Is(err, client.ErrInvalid) && ok && len(refusal.Causes) > 0 && refusal.Causes[0].Field == "spec.size", refusal, err)
	_, err = v.lamps.Patch(v.ctx, "a", client.Merge(map[string]any{"spec": map[string]any{"unknown": 1}}), client.Strict())
	v.want("an unknown field", err != nil, nil, err)
	err = v.lamps.Delete(v.ctx, "a", client.IfUID("another"))
	v.want("Delete of another", errors.Is(err, client.ErrConflict), nil, err)
	_, err = v.lamps.List(v.ctx, client.NotOlderThan("999999999"))
	v.want("List of the future", errors.Is(err, client.ErrVersionTooLarge), nil, err)
}

// remove removes what is there.
func (v *verbs) remove() {
	err := v.lamps.Delete(v.ctx, "a", client.Propagate(client.Background))
	v.want("Delete", err == nil, nil, err)
	err = v.lamps.DeleteCollection(v.ctx, client.Labels("app=bench"))
	v.want("DeleteCollection", err == nil, nil, err)
	_, err = v.lamps.Until(v.ctx, "b", client.Gone)
	v.want("Until it's gone", err == nil, nil, err)
}

// gauges are objects that are followed, and mirrored in a cache.
type gauges struct {
	*bench
	client.Collection[gauge]
	link    *link
	kind    kind
	objects []*object
}

// soon makes the client come back soon after a cut. The pauses are no matter of the server.
var soon = client.Backoff(10*time.Millisecond, 100*time.Millisecond)

func (g *gauges) run(ctx context.Context, updates, cuts int) error {
	cache, err := client.StartCache(ctx, g.Collection, soon)
	if err != nil {
		return err
	}
	defer cache.Close()
	from := cache.Version()

	var all []written
	var wrote error
	var writing sync.WaitGroup
	writing.Go(func() { all, wrote = g.updateAll(g.kind, g.objects, updates, 0) })
	got, err := g.follow(ctx, from, updates, cuts)
	writing.Wait()
	if err := errors.Join(wrote, err); err != nil {
		return err
	}
	if err := g.same(got, all); err != nil {
		return err
	}
	begin := time.Now()
	if got, err = g.follow(ctx, from, updates, 0); err != nil {
		return err
	}
	took := time.Since(begin)
	if err := g.same(got, all); err != nil {
		return err
	}
	g.report(pairs{"part", "follow", "updates", updates, "cuts", cuts}, pairs{"events_per_s", float64(updates) / took.Seconds()})
	return g.mirror(ctx, cache)
}

// followed is an event that Follow gave.
type followed struct {
	name, version string
}

// follow follows so many events, and cuts all connections on the way.
func (g *gauges) follow(ctx context.Context, from string, events, cuts int) (got []followed, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("there was no end after %v", patience))
	defer cancel()
	for event, err := range g.Follow(ctx, from, soon) {
		if err != nil {
			return nil, fmt.Errorf("follow, after %d events of %d: %w", len(got), events, err)
		}
		got = append(got, followed{event.Key.Name, event.ResourceVersion})
		if len(got) == events {
			break
		}
		if cuts > 0 && len(got)%max(1, events/(cuts+1)) == 0 {
			g.link.cut()
		}
	}
	return got, nil
}

// same tells where Follow didn't give each update once and in order.
func (g *gauges) same(got []followed, all []written) error {
	for i, w := range all {
		if want := (followed{w.object.name, strconv.FormatInt(w.version, 10)}); got[i] != want {
			return fmt.Errorf("event %d of Follow is %v, want %v", i, got[i], want)
		}
	}
	return nil
}

// mirror looks whether the cache is right: after the updates, after a cut with a deletion, and after a restart.
func (g *gauges) mirror(ctx context.Context, cache *client.Cache[gauge]) error {
	if err := g.right(ctx, cache); err != nil {
		return err
	}
	g.link.cut()
	gone := g.objects[len(g.objects)-1]
	g.objects = g.objects[:len(g.objects)-1]
	if _, err := g.expect("DELETE", g.kind.path()+"/"+gone.name, "", nil, 200); err != nil {
		return err
	}
	if err := g.right(ctx, cache); err != nil {
		return fmt.Errorf("after a cut: %w", err)
	}
	restarts := 0
	if g.restarts() {
		restarts++
		if _, err := g.restart(ctx); err != nil {
			return err
		}
		if err := g.link.lead(g.url); err != nil {
			return err
		}
		if err := g.right(ctx, cache); err != nil {
			return fmt.Errorf("after a restart: %w", err)
		}
	}
	counters := cache.Counters()
	g.report(pairs{"part", "cache", "restarts", restarts}, pairs{"events", counters.Events.Load(), "watches", counters.Watches.Load(),
		"failures", counters.Failures.Load(), "relists", counters.Relists.Load()})
	return nil
}

// right updates an object, waits until the cache has that, and compares the cache with a list at its version.
func (g *gauges) right(ctx context.Context, cache *client.Cache[gauge]) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the cache didn't catch up within %v", patience))
	defer cancel()
	if err := g.update(g.kind, g.objects[0]); err != nil {
		return err
	}
	if err := cache.WaitFor(ctx, strconv.FormatInt(g.objects[0].version, 10)); err != nil {
		return err
	}
	has, version := cache.Snapshot()
	list, err := g.List(ctx, client.At(version))
	if err != nil {
		return err
	}
	listed, err := list.Slice(ctx)
	if err != nil {
		return err
	}
	if got, want := versions(has), versions(listed); len(want) != len(g.objects) || !maps.Equal(got, want) {
		return fmt.Errorf("at version %s the cache has %v, and a list %v", version, got, want)
	}
	return nil
}

// versions returns the objects' versions by their names.
func versions(objects []*gauge) map[string]string {
	all := map[string]string{}
	for _, o := range objects {
		all[o.Name] = o.ResourceVersion
	}
	return all
}
