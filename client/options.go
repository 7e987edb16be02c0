package client

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// Option says more about a request. One that would change what the request is about, or when it's done, is refused where it has no
// use: Labels, Fields, Where, SortBy and Only where nothing is selected or listed, At and AtTime where nothing is read, IfVersion and IfUID where nothing is deleted. Any other has no effect
// there.
type Option func(*settings)

// settings are what options say about one call.
type settings struct {
	query            url.Values
	since            string // of a watch
	subresource      string
	ifUID, ifVersion string // preconditions of a delete
	propagation      string
	grace            *int64
	pageSize         int
	pageBytes        int // 0: no bound of its own
	inconsistent,
	bookmarks bool
	firstPause, longestPause time.Duration
	resync                   time.Duration
	counters                 *Counters
	err                      error // what is wrong with the options
}

// newSettings reads the options.
func newSettings(options []Option) *settings {
	s := &settings{query: url.Values{}, pageSize: defaultPageSize, counters: &Counters{}}
	for _, option := range options {
		option(s)
	}
	return s
}

// verb is a kind of request.
type verb struct {
	name    string // as one says it: a list
	params  []string
	deletes bool // it may have preconditions
	creates bool // it needs no name
}

// The kinds of requests, with what each may have in its query.
var (
	aGet    = verb{name: "a get", params: []string{"resourceVersion", "resourceVersionMatch", instantParameter, liteParameter, "fields"}}
	aList   = verb{name: "a list", params: []string{"labelSelector", "fieldSelector", liteParameter, "sortBy", "fields", "resourceVersion", "resourceVersionMatch", instantParameter}}
	aWatch  = verb{name: "a watch", params: []string{"labelSelector", "fieldSelector", liteParameter, "fields", "timeoutSeconds"}}
	aCreate = verb{name: "a create", params: paramsOfWrite, creates: true}
	aUpdate = verb{name: "an update", params: paramsOfWrite}
	aPatch  = verb{name: "a patch", params: paramsOfWrite}
	anApply = verb{name: "an apply", params: append(paramsOfWrite, "force")}
	// A deletion of one object has a name, and is none of those that are selected.
	aDelete           = verb{name: "a delete", params: []string{"dryRun"}, deletes: true}
	aDeleteCollection = verb{name: "a delete of a collection", params: []string{"dryRun", "labelSelector", "fieldSelector", liteParameter}, deletes: true}
)

// instantParameter asks for the state at an instant.
const instantParameter = "at"

// liteParameter asks for what apiserver-lite has besides Kubernetes' API.
const liteParameter = "lite"

var paramsOfWrite = []string{"dryRun", "fieldManager", "fieldValidation"}

// check tells what is wrong with the options of a request of that kind.
func (s *settings) check(v verb) error {
	lacks := func(name string) bool { return s.query.Has(name) && !slices.Contains(v.params, name) }
	useless := ""
	switch {
	case s.err != nil:
		return s.err
	case lacks("labelSelector"):
		useless = "Labels"
	case lacks("fieldSelector"):
		useless = "Fields"
	case lacks("sortBy"):
		useless = "SortBy"
	case lacks("fields"):
		useless = "Only"
	case lacks("resourceVersionMatch") && s.query.Get("resourceVersionMatch") == matchExact:
		useless = "At"
	case lacks(instantParameter):
		useless = "AtTime"
	case s.ifVersion != "" && !v.deletes:
		useless = "IfVersion"
	case s.ifUID != "" && !v.deletes:
		useless = "IfUID"
	default:
		return nil
	}
	return fmt.Errorf("client: %s has no use in %s", useless, v.name)
}

// only returns the part of the query that a request of that kind may have.
func (s *settings) only(v verb) url.Values {
	query := url.Values{}
	for _, name := range v.params {
		if values, has := s.query[name]; has {
			query[name] = values
		}
	}
	if v.name == aGet.name && query.Get("resourceVersionMatch") != matchExact { // which is what a version means there
		query.Del("resourceVersionMatch")
	}
	return query
}

// page returns the query of a page of a list, with size objects at most or 0 for all: of the first, or of the one that a token stands for.
func (s *settings) page(size int, token string) url.Values {
	query := s.only(aList)
	if size > 0 {
		query.Set("limit", strconv.Itoa(size))
	}
	if token != "" {
		query.Del("resourceVersion") // the token has it
		query.Del("resourceVersionMatch")
		query.Del(instantParameter)
		query.Set("continue", token)
	}
	return query
}

// How the version that a list asks for is matched.
const (
	matchExact        = "Exact"
	matchNotOlderThan = "NotOlderThan"
)

func set(name, value string) Option {
	return func(s *settings) { s.query.Set(name, value) }
}

// Labels narrows a list, a watch or a delete of a collection to objects that the label selector selects, such as
// "tier in (front,back),!legacy". package selectors has the syntax.
func Labels(selector string) Option {
	return func(s *settings) {
		if _, err := selectors.ParseLabels(selector); err != nil {
			s.err = err
		}
		s.query.Set("labelSelector", selector)
	}
}

// Fields narrows it to objects that the field selector selects, such as "metadata.name=red" or "spec.node!=".
func Fields(selector string) Option {
	return func(s *settings) {
		if _, err := selectors.ParseFields(selector); err != nil {
			s.err = err
		}
		s.query.Set("fieldSelector", selector)
	}
}

// Where narrows it to objects that an expression of any fields selects, such as "spec.size>3,spec.host^=eu-||!spec.owner"; package selectors has the
// syntax. Only apiserver-lite knows it: kube-apiserver refuses most expressions, and understands the others in its own way.
func Where(expression string) Option {
	return func(s *settings) {
		if _, err := selectors.ParseExpression(expression); err != nil {
			s.err = err
		}
		s.query.Set("fieldSelector", expression)
		s.query.Set(liteParameter, "true")
	}
}

// SortBy puts a list into the order of a field, such as ".spec.size", or "-.spec.size" for the largest first. Only apiserver-lite knows it: another
// server ignores it.
func SortBy(field string) Option {
	return func(s *settings) {
		if _, err := selectors.ParseSortKey(field); err != nil {
			s.err = err
		}
		s.query.Set("sortBy", field)
		s.query.Set(liteParameter, "true")
	}
}

// Only leaves of each object some fields, such as "metadata.labels,spec.ports[*].port", and those by which it's known: apiVersion, kind, name,
// namespace and resourceVersion. A watch has no event of a change of something else. It's for reading: an update of what is left would
// take the rest away. Only apiserver-lite knows it: another server ignores it.
func Only(fields string) Option {
	return func(s *settings) {
		if _, err := selectors.ParsePaths(fields); err != nil {
			s.err = err
		}
		s.query.Set("fields", fields)
		s.query.Set(liteParameter, "true")
	}
}

// NotOlderThan lets a get or a list be answered with any state that is at least as new as the version. "0" is any state.
// Without it the answer has the newest state.
func NotOlderThan(version string) Option {
	return func(s *settings) {
		s.query.Set("resourceVersion", version)
		s.query.Set("resourceVersionMatch", matchNotOlderThan)
	}
}

// At asks a get or a list for the state at exactly that version. ErrExpired is returned if it's too old. Only apiserver-lite has a get at a version:
// what another server answers is an error if it's newer.
func At(version string) Option {
	return func(s *settings) {
		s.query.Set("resourceVersion", version)
		s.query.Set("resourceVersionMatch", matchExact)
		s.query.Del(instantParameter)
	}
}

// AtTime asks a get or a list for the state at an instant, as exactly as the server knows it, which is mostly to a second. ErrExpired is returned
// if it's too long ago. Only apiserver-lite knows it: another server ignores it.
func AtTime(instant time.Time) Option {
	return atInstant(instant.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano))
}

// Ago asks a get or a list for the state of so long ago by the server's clock, and else is AtTime.
func Ago(d time.Duration) Option { return atInstant(max(0, d).String()) }

func atInstant(text string) Option {
	return func(s *settings) {
		s.query.Set(instantParameter, text)
		s.query.Del("resourceVersion")
		s.query.Del("resourceVersionMatch")
	}
}

// PageSize is how many objects a list fetches at once. Defaults to 500; 0 fetches all at once.
func PageSize(n int) Option { return func(s *settings) { s.pageSize = n } }

// PageBytes is how many bytes a page may have: one that has more is asked for again with half as many objects, and later ones may grow
// again. It bounds what a list keeps in memory where objects are large. One object may have more.
func PageBytes(n int) Option { return func(s *settings) { s.pageBytes = n } }

// AllowInconsistent lets a list go on when its version expires between two pages: the rest is of a newer version, to which
// List.ResourceVersion then changes. Without it the list ends with ErrExpired.
func AllowInconsistent() Option { return func(s *settings) { s.inconsistent = true } }

// Since begins a watch after the version. Without it a watch gives all that there is, as Added, and then what changes.
func Since(version string) Option { return func(s *settings) { s.since = version } }

// Bookmarks yields bookmarks, too: events that have nothing but a ResourceVersion, up to which all has been given.
func Bookmarks() Option { return func(s *settings) { s.bookmarks = true } }

// WatchFor ends a watch cleanly after that time. Without it the server chooses, usually from half an hour to an hour.
func WatchFor(d time.Duration) Option {
	return set("timeoutSeconds", strconv.Itoa(max(1, int(d/time.Second))))
}

// Backoff sets the pauses after failures: the first one, and the longest. Each is about twice the one before; if both are the
// same, all are exactly that.
func Backoff(first, longest time.Duration) Option {
	return func(s *settings) { s.firstPause, s.longestPause = first, max(first, longest) }
}

// Resync is how often Reflect calls Store.Resync. Without it, never.
func Resync(every time.Duration) Option { return func(s *settings) { s.resync = every } }

// CountIn counts what Follow, Track or Reflect does; nil counts nothing.
func CountIn(counters *Counters) Option {
	return func(s *settings) {
		counters = cmp.Or(counters, &Counters{})
		s.counters = counters
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

// IfVersion deletes only what has that resourceVersion; ErrConflict says that it doesn't. What is written has the version in itself:
// see Collection.Update and the function Update.
func IfVersion(version string) Option { return func(s *settings) { s.ifVersion = version } }

// IfUID deletes only the object with that UID; ErrConflict says that another has its name.
func IfUID(uid string) Option { return func(s *settings) { s.ifUID = uid } }

// Propagation says what happens to the dependents of what is deleted.
type Propagation string

// The ways to delete.
const (
	Background Propagation = "Background" // dependents are deleted afterwards
	Foreground Propagation = "Foreground" // dependents are deleted first
	Orphan     Propagation = "Orphan"     // dependents stay
)

// Propagate sets what happens to the dependents of what is deleted. Without it the server chooses.
func Propagate(p Propagation) Option { return func(s *settings) { s.propagation = string(p) } }

// GracePeriod is how long what is deleted has to end, for kinds that know this.
func GracePeriod(d time.Duration) Option {
	return func(s *settings) {
		s.grace = new(int64(d / time.Second))
	}
}

// Subresource addresses a part of the object that has a path of its own, such as status.
func Subresource(name string) Option { return func(s *settings) { s.subresource = name } }
