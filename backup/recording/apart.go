package recording

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/client"
)

// A server without a stream of several kinds, as kube-apiserver is one, is recorded by Kubernetes' own API: each kind is listed at one version,
// and then watched by itself. What the watches bring is put into one order by resourceVersion, which one etcd gives to all kinds, and waits a
// moment for that: a watch may be late, and a replay needs namespaces before what is in them, and owners before what they own.

const (
	// settle is how long a change waits for earlier ones, which come by other connections.
	settle = time.Second
	// mostLate is how long a change waits while a kind's connection is away, and how long a kind is waited for that can't be reached.
	mostLate = 30 * time.Second
	// mostHeld and heldBytes are how many changes wait, and how many bytes they have. When there are more, all are written as they are in order by then.
	mostHeld, heldBytes = 16 << 10, 64 << 20
	// firstPause and longestPause are between tries to reach a kind.
	firstPause, longestPause = 200 * time.Millisecond, 5 * time.Second
)

// lacksStream tells whether the server lacks a stream of several kinds. One that has it answers a question for a kind that nobody has with a
// Status about that kind. kube-apiserver says of the path that it isn't there, or that the user may not ask for it.
func (r *recorder) lacksStream(ctx context.Context) bool {
	for _, err := range client.FollowAll(ctx, r.server, "", []string{"none.apiserver-lite"}) {
		refusal, is := errors.AsType[*client.StatusError](err)
		return is && (refusal.Code == http.StatusNotFound && refusal.Reason == "" || refusal.Code == http.StatusForbidden && refusal.Kind == "")
	}
	return false
}

// apart records kinds each by itself.
type apart struct {
	*recorder
	news      chan news
	running   sync.WaitGroup
	followers map[string]*follower // by plural and group
	held      []news               // that isn't written yet
	bytes     int                  // of the changes held
	written   uint64               // the highest position
	away      time.Time            // when a connection was last seen to be away
}

// news is what a follower has found.
type news struct {
	of       *follower
	kind     client.ResourceInfo
	step     client.Step[client.Object]
	err      error
	at       time.Time
	position uint64 // by which changes are put in order
	gap      bool   // of a state: changes before it are missing
	written  bool
}

// follower follows one kind.
type follower struct {
	name     string
	stop     context.CancelFunc
	again    chan struct{} // its definition has changed
	counters client.Counters

	// What follows is of the recorder's goroutine.
	uid      string    // of its definition
	gone     bool      // which is deleted, as is known by now
	lost     time.Time // since when the kind can't be reached; zero if it can
	position uint64    // of the last change
	fresh    bool      // nothing has come since From
	current  bool      // it has had a state
}

func newApart(r *recorder) *apart {
	return &apart{recorder: r, news: make(chan news), followers: map[string]*follower{}}
}

// run records until ctx ends.
func (a *apart) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer a.running.Wait()
	defer cancel()
	if err := a.beginApart(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(settle / 10)
	defer tick.Stop()
	for {
		var err error
		select {
		case n := <-a.news:
			err = a.take(ctx, n)
		case now := <-tick.C:
			err = a.release(now, false)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			_ = a.release(time.Now(), true) // the writer keeps its error
			return err
		}
	}
}

// beginApart writes the state that the recording begins with, and starts to follow. All kinds are listed at the version of the first, so that an
// owner is there with what it owns; one that can't be is listed as it is now.
func (a *apart) beginApart(ctx context.Context) error {
	var all state
	at, since := a.From, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(a.kinds)) {
		objects, version, err := state(nil), at, a.mayWatch(ctx, name)
		if err == nil && !(a.ChangesOnly && a.From != "") {
			objects, version, err = a.list(ctx, name, at)
			if err != nil && a.From == "" && at != "" && !errors.Is(err, client.ErrForbidden) {
				objects, version, err = a.list(ctx, name, "")
			}
		}
		switch {
		case len(a.Resources) == 0 && answered(err) && !errors.Is(err, client.ErrUnauthorized) && !errors.Is(err, client.ErrExpired):
			a.Log.Warn("left out "+name, "error", err)
			continue
		case err != nil:
			return err
		case at == "":
			at = version
		}
		all, since[name] = append(all, objects...), version
	}
	if len(since) == 0 {
		return errors.New("none of the server's kinds can be listed and watched")
	}
	if err := a.begin(client.State[client.Object]{Objects: all, Version: at}); err != nil {
		return err
	}
	a.written = positionOf(at)
	for name, version := range since {
		f := a.follow(ctx, name, a.kinds[name], version)
		f.fresh, f.current, f.uid = a.From != "", true, a.known[identity{definition, client.Key{Name: name}}].uid
	}
	return nil
}

// answered tells whether an error is the server's answer, also that something of its own has failed, such as a kind's webhook.
func answered(err error) bool {
	_, is := errors.AsType[*client.StatusError](err)
	return is
}

// mayWatch returns an error if the user may not watch a kind: a list alone wouldn't tell.
func (a *apart) mayWatch(ctx context.Context, name string) error {
	kind := a.kinds[name]
	review, err := json.Marshal(map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{
		"resourceAttributes": map[string]any{"verb": "watch", "group": document.Group(kind.APIVersion), "resource": kind.Plural}}})
	if err != nil {
		return err
	}
	object := client.Object(review)
	answer, err := client.Resource[client.Object](a.server, "authorization.k8s.io/v1", "selfsubjectaccessreviews").Create(ctx, &object)
	var status struct{ Allowed *bool }
	if err != nil || answer.Decode(&status, "status") != nil || status.Allowed == nil || *status.Allowed {
		return nil // or else the watch will tell
	}
	return &client.StatusError{Code: http.StatusForbidden, Reason: "Forbidden", Kind: kind.Plural, Message: fmt.Sprintf("the user may not watch %s", name)}
}

// follow starts to follow a kind, from a version on, or, without one, from what there is. A kind that isn't known yet is asked for.
func (a *apart) follow(ctx context.Context, name string, kind client.ResourceInfo, since string) *follower {
	ctx, stop := context.WithCancel(ctx)
	f := &follower{name: name, stop: stop, again: make(chan struct{}, 1)}
	f.position = positionOf(since)
	a.followers[name] = f
	a.running.Go(func() { f.run(ctx, a.server, kind, since, a.news) })
	return f
}

// run tells what happens to a kind until ctx ends. While the kind isn't served, as by a server that starts, it's asked for now and then, and when its
// definition changes. Then it goes on where it was.
func (f *follower) run(ctx context.Context, server *client.Client, kind client.ResourceInfo, since string, to chan<- news) {
	tell := func(step client.Step[client.Object], err error) {
		select {
		case to <- news{of: f, kind: kind, step: step, err: err, at: time.Now()}:
		case <-ctx.Done():
		}
	}
	for pause := firstPause; ctx.Err() == nil; pause = f.pause(ctx, pause) {
		var err error
		if kind.Plural == "" {
			kind, err = server.Find(ctx, f.name)
		}
		if err != nil {
			tell(client.Step[client.Object]{}, err)
			continue
		}
		from := client.Resource[client.Object](server, kind.APIVersion, kind.Plural)
		for step, err := range from.Track(ctx, client.Since(since), client.Bookmarks(), client.Backoff(firstPause, longestPause), client.CountIn(&f.counters)) {
			tell(step, err)
			switch {
			case err == nil && step.State != nil:
				since, pause = step.State.Version, firstPause
			case err == nil:
				since, pause = step.Event.ResourceVersion, firstPause
			}
			if errors.Is(err, client.ErrNotFound) {
				break
			}
		}
		kind = client.ResourceInfo{}
	}
}

// pause waits before the kind is asked for again, and returns how long to wait the next time.
func (f *follower) pause(ctx context.Context, pause time.Duration) time.Duration {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return min(2*pause, longestPause)
	case <-f.again:
		return firstPause
	case <-ctx.Done():
		return pause
	}
}

// take takes what a follower has found.
func (a *apart) take(ctx context.Context, n news) error {
	f := n.of
	switch {
	case ctx.Err() != nil || a.followers[f.name] != f: // it was stopped
		return nil
	case n.err != nil:
		return a.failed(f, n.err)
	}
	f.lost, f.fresh = time.Time{}, false
	switch {
	case n.step.State == nil && n.step.Event.Type == client.Bookmark:
	case n.step.State == nil:
		a.hold(ctx, n, n.step.Event.ResourceVersion)
	case f.current:
		n.gap = true
		for _, e := range n.step.State.Objects {
			if a.defines(e) {
				a.served(ctx, *e.Object)
			}
		}
		a.hold(ctx, n, n.step.State.Version)
	default: // of a new kind: each object belongs where it was written last
		f.current = true
		all := n.step.State.Objects
		slices.SortFunc(all, func(a, b client.Event[client.Object]) int {
			return cmp.Compare(positionOf(a.ResourceVersion), positionOf(b.ResourceVersion))
		})
		for _, e := range all {
			a.hold(ctx, news{of: f, kind: n.kind, at: n.at, step: client.Step[client.Object]{Event: e}}, e.ResourceVersion)
		}
		a.hold(ctx, n, n.step.State.Version)
	}
	if len(a.held) > mostHeld || a.bytes > heldBytes {
		return a.release(time.Now(), true)
	}
	return nil
}

// positionOf is a version as a number, which Kubernetes promises it to be. One that isn't comes with what was before it.
func positionOf(version string) uint64 {
	at, _ := strconv.ParseUint(version, 10, 64)
	return at
}

// hold keeps news until they're written.
func (a *apart) hold(ctx context.Context, n news, version string) {
	n.of.position = max(n.of.position, positionOf(version)) // each kind's order is its own, whatever versions a server gives
	n.position = n.of.position
	if n.step.State == nil {
		a.bytes += len(*n.step.Event.Object)
		if a.defines(n.step.Event) {
			a.served(ctx, *n.step.Event.Object)
		} else if f := a.ends(n.step.Event); f != nil {
			f.gone = true
		}
	}
	a.held = append(a.held, n)
}

// served has the kind of a definition followed.
func (a *apart) served(ctx context.Context, o client.Object) {
	f := a.followers[o.Name()]
	if f == nil {
		f = a.follow(ctx, o.Name(), client.ResourceInfo{}, "")
	}
	f.uid, f.gone, f.lost = o.UID(), false, time.Time{}
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// ends returns the follower of the kind whose definition an event says is deleted, or nil. One that has come back is another one.
func (a *apart) ends(e client.Event[client.Object]) *follower {
	if e.Type == client.Deleted && kindOf(*e.Object) == definition {
		if f := a.followers[e.Object.Name()]; f != nil && f.uid == e.Object.UID() {
			return f
		}
	}
	return nil
}

// failed says what has gone wrong. An error ends the recording.
func (a *apart) failed(f *follower, err error) error {
	first := f.lost.IsZero()
	if first {
		f.lost = time.Now()
	}
	switch {
	case f.fresh && (errors.Is(err, client.ErrExpired) || errors.Is(err, client.ErrVersionTooLarge)):
		return a.tooOld(err)
	case errors.Is(err, client.ErrExpired):
		a.Log.Warn("history of " + f.name + " is gone: listing anew")
	case errors.Is(err, client.ErrNotFound):
		if first {
			a.Log.Warn(f.name+" isn't served", "error", err)
		}
	case refused(err) && (len(a.Resources) > 0 || errors.Is(err, client.ErrUnauthorized)):
		return fmt.Errorf("%s: %w", f.name, err)
	case refused(err):
		a.Log.Warn("left out "+f.name+" from here on", "error", err)
		a.leave(f)
	default:
		a.Log.Warn("trying again", "kind", f.name, "error", err)
	}
	return nil
}

// leave stops to follow a kind.
func (a *apart) leave(f *follower) {
	f.stop()
	delete(a.followers, f.name)
}

// release writes what has waited long enough, or all, and what comes before that.
func (a *apart) release(now time.Time, all bool) error {
	for _, f := range a.followers {
		away := f.counters.Lag() > 0 || !f.current
		if away && !f.gone && (f.lost.IsZero() || now.Sub(f.lost) < mostLate) {
			a.away = now
		}
	}
	due, last := false, uint64(0)
	for _, n := range a.held {
		waited := now.Sub(n.at)
		if all || waited >= mostLate || waited >= settle && now.Sub(a.away) >= settle {
			due, last = true, max(last, n.position)
		}
	}
	if !due {
		return nil
	}
	slices.SortStableFunc(a.held, func(a, b news) int { return cmp.Compare(a.position, b.position) })
	b := batch{a, map[string]int{}, map[*follower]bool{}}
	for i, n := range a.held {
		if o := n.step.Event.Object; o != nil && n.step.Event.Type == client.Added {
			b.owners[o.UID()] = i
		}
	}
	for i := 0; i < len(a.held) && a.held[i].position <= last; i++ {
		if err := b.put(i); err != nil {
			return err
		}
	}
	a.held = slices.DeleteFunc(a.held, func(n news) bool { return n.written })
	return nil
}

// batch is held news in order, while they're written.
type batch struct {
	*apart
	owners map[string]int     // what comes into being among them, by uid
	busy   map[*follower]bool // one of its news waits for owners
}

// put writes news, and before them the owners of the object, with all that comes before these in their kind. Owners come later by position where
// they were changed before their kind, which is new, was listed.
func (b *batch) put(i int) error {
	n := &b.held[i]
	if n.written {
		return nil
	}
	n.written = true
	if o := n.step.Event.Object; o != nil && !b.busy[n.of] {
		b.busy[n.of] = true
		for _, owner := range ownersOf(*o) {
			at, is := b.owners[owner]
			for k := 0; is && k <= at && !b.busy[b.held[at].of]; k++ {
				if b.held[k].of == b.held[at].of {
					if err := b.put(k); err != nil {
						return err
					}
				}
			}
		}
		b.busy[n.of] = false
	}
	return b.writeNews(*n)
}

// writeNews writes what a follower has found.
func (a *apart) writeNews(n news) error {
	if n.position > a.written {
		a.written, a.version = n.position, strconv.FormatUint(n.position, 10)
	}
	if n.step.State != nil {
		kind := strings.TrimSuffix(n.kind.Kind+"."+document.Group(n.kind.APIVersion), ".")
		return a.bridge(n.at, kind, n.gap, *n.step.State)
	}
	o := *n.step.Event.Object
	a.bytes -= len(o)
	if f := a.ends(n.step.Event); f != nil {
		a.leave(f)
	}
	return a.write(n.at, n.step.Event)
}
