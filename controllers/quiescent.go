package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Object names an object in a Report.
type Object struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid,omitempty"`
}

func (o Object) String() string {
	switch {
	case o.Name == "": // everything
		return ""
	case o.Namespace != "":
		return fmt.Sprintf("%s %s %s/%s", o.APIVersion, o.Kind, o.Namespace, o.Name)
	}
	return fmt.Sprintf("%s %s %s", o.APIVersion, o.Kind, o.Name)
}

// Held is an object that is being deleted, and that no controller removes: finalizers of others keep it, or a grace period,
// which somebody else ends.
type Held struct {
	Object
	Finalizers                 []string `json:"finalizers"` // those of others; of a namespace's spec, too
	DeletionGracePeriodSeconds int64    `json:"deletionGracePeriodSeconds,omitempty"`
}

// Pending is something that a controller has still to do.
type Pending struct {
	Object
	Cause string // what it waits for, or what the last attempt failed with
}

// Report is what Quiescent found.
type Report struct {
	Revision storage.Revision // everything up to it was acted on, and all that followed from that
	Held     []Held           // at most maxHeld
	HeldMore int              // how many more are held
	Pending  []Pending        // what is left to do; at most maxPending. There is one if Quiescent failed, else none
}

const (
	// maxHeld and maxPending bound the lists of a Report: what a person reads, or a test compares.
	maxHeld    = 1000
	maxPending = 100
)

// Quiescent returns when the controllers have acted on every change up to a revision, or up to now if it's 0, and on all
// that followed from those. Work that isn't due yet doesn't count, and neither does what others hold (see Held).
// The error is ctx's; then the Report says what is left.
//
// Quiescent waits for a moment at which nothing at all is left to do. So it may wait for the work that later changes make,
// too.
func (c *Controllers) Quiescent(ctx context.Context, rev storage.Revision) (Report, error) {
	if rev == 0 {
		var err error
		if rev, err = c.cacher.Barrier(ctx); err != nil {
			return c.report(rev), err
		}
	}
	for {
		news := c.reader.bell.wait()
		at := c.reader.position()
		if at >= rev && c.quiet(at) {
			report := Report{Revision: at}
			report.Held, report.HeldMore = c.held()
			return report, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return c.report(rev), ctx.Err()
		}
	}
}

// CatchUp returns when the controllers were told everything that was written before the call. The error is ctx's or the store's.
func (c *Controllers) CatchUp(ctx context.Context) error {
	rev, err := c.cacher.Barrier(ctx)
	if err != nil {
		return err
	}
	for {
		news := c.reader.bell.wait()
		if c.reader.position() >= rev {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// report says what is left when Quiescent has failed. The revision is 0 if it isn't known up to which one it was to wait.
func (c *Controllers) report(rev storage.Revision) Report {
	r := Report{Revision: c.reader.position(), Pending: c.pending(rev)}
	r.Held, r.HeldMore = c.held()
	return r
}

// quiet tells whether nothing is left to do about the changes up to a revision, which all controllers were told, and that
// nothing they wrote comes after it. The order matters: a queue that is empty can only get new keys by a change after at.
// If that change is a controller's, its revision is noted before its own queue is empty.
func (c *Controllers) quiet(at storage.Revision) bool {
	for _, k := range c.all {
		if !k.idle() {
			return false
		}
	}
	return c.actor.last() <= at
}

// pending says what is left to do up to a revision. It always says something: with nothing left it was called too late.
func (c *Controllers) pending(rev storage.Revision) (all []Pending) {
	for _, k := range c.all {
		all = append(all, k.pending(maxPending-len(all))...)
	}
	slices.SortFunc(all, func(a, b Pending) int { return strings.Compare(a.String(), b.String()) })
	at, last := c.reader.position(), max(rev, c.actor.last())
	switch {
	case len(all) > 0:
	case at < last:
		all = []Pending{{Cause: fmt.Sprintf("the controllers have seen changes up to resourceVersion %d, and not up to %d", at, last)}}
	case rev == 0:
		all = []Pending{{Cause: "the store hasn't said yet up to which resourceVersion there is anything to do"}}
	default:
		all = []Pending{{Cause: "what was left when the time was over has been done since"}}
	}
	return all
}

// Left counts the objects about which something is left to do, up to maxPending.
func (c *Controllers) Left() (n int) {
	for _, k := range c.all {
		n += len(k.pending(maxPending - n))
	}
	return n
}

// held lists the objects that others hold, and says how many there are besides those in the list.
func (c *Controllers) held() (all []Held, more int) {
	c.reader.mu.Lock()
	deleting := slices.Collect(maps.Values(c.reader.deleting))
	c.reader.mu.Unlock()
	slices.SortFunc(deleting, func(a, b *kube.Object) int { return cmp.Compare(a.Key, b.Key) })
	all = []Held{} // [] in JSON
	for _, o := range deleting {
		switch finalizers, grace := c.others(o), gracePeriod(o); {
		case len(finalizers) == 0 && grace == 0:
		case len(all) < maxHeld:
			all = append(all, Held{c.object(o), finalizers, grace})
		default:
			more++
		}
	}
	return all, more
}

// gracePeriod returns how many seconds an object that is being deleted was given to end, 0 if it needn't. When they have
// passed, whoever runs it deletes it again.
func gracePeriod(o *kube.Object) int64 {
	if o.Err != nil {
		return 0
	}
	seconds, _ := strconv.ParseInt(o.Field("metadata.deletionGracePeriodSeconds"), 10, 64) // none is 0
	return seconds
}

// others returns those finalizers of an object that no controller which is on removes.
func (c *Controllers) others(o *kube.Object) []string {
	finalizers := append([]string{}, o.Lineage().Finalizers...) // [] in JSON
	if p, _, _, _ := storage.SplitKey(o.Key); p == namespacesPrefix {
		ns := &corev1.Namespace{}
		_ = json.Unmarshal(o.Raw(), ns) // what can't be read has none
		for _, f := range ns.Spec.Finalizers {
			finalizers = append(finalizers, string(f))
		}
	}
	return slices.DeleteFunc(finalizers, func(f string) bool { return c.removes[f] })
}

// object names a stored object.
func (c *Controllers) object(o *kube.Object) Object {
	named := c.keyed(o.Key)
	named.UID = types.UID(o.Lineage().UID)
	return named
}
