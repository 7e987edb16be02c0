package client

import (
	"net/url"
	"strconv"
	"time"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// Option says more about a request. An option that a request has no use for has no effect.
type Option func(*call)

// call is what options say about one call.
type call struct {
	query       url.Values
	since       string // of a watch
	subresource string
	uid, rv     string // preconditions of a delete
	propagation string
	grace       *int64
	pageSize    int
	inconsistent,
	bookmarks bool
	first, most time.Duration // of pauses
	resync      time.Duration
	counters    *Counters
	err         error // what is wrong with the options
}

// newCall reads the options.
func newCall(options []Option) *call {
	c := &call{query: url.Values{}, pageSize: defaultPageSize, counters: &Counters{}}
	for _, option := range options {
		option(c)
	}
	return c
}

// What each kind of request may have in its query; options that say something else have no effect on it.
var (
	paramsOfGet   = []string{"resourceVersion"}
	paramsOfList  = []string{"labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch"}
	paramsOfWatch = []string{"labelSelector", "fieldSelector", "timeoutSeconds"}
	paramsOfWrite = []string{"dryRun", "fieldManager", "fieldValidation"}
	paramsOfApply = []string{"dryRun", "fieldManager", "fieldValidation", "force"}
	// A deletion of one object has a name, and is none of those that are selected.
	paramsOfDelete = []string{"dryRun"}
	paramsOfSweep  = []string{"dryRun", "labelSelector", "fieldSelector"}
)

// only returns the part of the query that a request may have.
func (c *call) only(names ...string) url.Values {
	query := url.Values{}
	for _, name := range names {
		if values, has := c.query[name]; has {
			query[name] = values
		}
	}
	return query
}

func set(name, value string) Option {
	return func(c *call) { c.query.Set(name, value) }
}

// Labels narrows a list, a watch or a delete of a collection to objects that the label selector selects, such as
// "tier in (front,back),!legacy". package selectors has the syntax.
func Labels(selector string) Option {
	return func(c *call) {
		if _, err := selectors.ParseLabels(selector); err != nil {
			c.err = err
		}
		c.query.Set("labelSelector", selector)
	}
}

// Fields narrows it to objects that the field selector selects, such as "metadata.name=red" or "spec.node!=".
func Fields(selector string) Option {
	return func(c *call) {
		if _, err := selectors.ParseFields(selector); err != nil {
			c.err = err
		}
		c.query.Set("fieldSelector", selector)
	}
}

// NotOlderThan lets a get or a list be answered with any state that is at least as new as the version. "0" is any state.
// Without it the answer has the newest state.
func NotOlderThan(version string) Option {
	return func(c *call) {
		c.query.Set("resourceVersion", version)
		c.query.Set("resourceVersionMatch", "NotOlderThan")
	}
}

// At asks a list for the state at exactly that version. ErrExpired is returned if it's too old.
func At(version string) Option {
	return func(c *call) {
		c.query.Set("resourceVersion", version)
		c.query.Set("resourceVersionMatch", "Exact")
	}
}

// PageSize is how many objects a list fetches at once. Defaults to 500; 0 fetches all at once.
func PageSize(n int) Option { return func(c *call) { c.pageSize = n } }

// AllowInconsistent lets a list go on when its version expires between two pages: the rest is of a newer version, to which
// List.ResourceVersion then changes. Without it the list ends with ErrExpired.
func AllowInconsistent() Option { return func(c *call) { c.inconsistent = true } }

// Since begins a watch after the version. Without it a watch gives all that there is, as Added, and then what changes.
func Since(version string) Option { return func(c *call) { c.since = version } }

// Bookmarks yields bookmarks, too: events that have nothing but a ResourceVersion, up to which all has been given.
func Bookmarks() Option { return func(c *call) { c.bookmarks = true } }

// WatchFor ends a watch cleanly after that time. Without it the server chooses, usually from half an hour to an hour.
func WatchFor(d time.Duration) Option {
	return set("timeoutSeconds", strconv.Itoa(max(1, int(d/time.Second))))
}

// Backoff sets the pauses after failures: the first one, and the longest. Each is about twice the one before; if both are the
// same, all are exactly that.
func Backoff(first, longest time.Duration) Option {
	return func(c *call) { c.first, c.most = first, max(first, longest) }
}

// Resync is how often Reflect calls Store.Resync. Without it, never.
func Resync(every time.Duration) Option { return func(c *call) { c.resync = every } }

// CountIn counts what Follow, Track or Reflect does; nil counts nothing.
func CountIn(counters *Counters) Option {
	return func(c *call) {
		if counters == nil {
			counters = &Counters{}
		}
		c.counters = counters
	}
}

// DryRun does everything but store the result.
func DryRun() Option { return set("dryRun", "All") }

// FieldManager says who writes, for managedFields.
func FieldManager(name string) Option { return set("fieldManager", name) }

// Force lets an apply take fields from other field managers.
func Force() Option { return set("force", "true") }

// Strict refuses an object with unknown or repeated fields. Without it they're dropped, with a warning.
func Strict() Option { return set("fieldValidation", "Strict") }

// IfVersion deletes only what has that resourceVersion; ErrConflict says that it doesn't.
func IfVersion(version string) Option { return func(c *call) { c.rv = version } }

// IfUID deletes only the object with that UID; ErrConflict says that another has its name.
func IfUID(uid string) Option { return func(c *call) { c.uid = uid } }

// Propagation says what happens to the dependents of what is deleted.
type Propagation string

// The ways to delete.
const (
	Background Propagation = "Background" // dependents are deleted afterwards
	Foreground Propagation = "Foreground" // dependents are deleted first
	Orphan     Propagation = "Orphan"     // dependents stay
)

// Propagate sets what happens to the dependents of what is deleted. Without it the server chooses.
func Propagate(p Propagation) Option { return func(c *call) { c.propagation = string(p) } }

// GracePeriod is how long what is deleted has to end, for kinds that know this.
func GracePeriod(d time.Duration) Option {
	return func(c *call) {
		seconds := int64(d / time.Second)
		c.grace = &seconds
	}
}

// Subresource addresses a part of the object that has a path of its own, such as status.
func Subresource(name string) Option { return func(c *call) { c.subresource = name } }
