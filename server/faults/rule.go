package faults

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
)

// Rule says which requests meet which fault, and how often. It has one of Status, Delay, Cut, Watch and Stale.
type Rule struct {
	// Match says which requests the rule is about. By default all are.
	Match Match `json:"match,omitzero"`

	// Rate is the probability with which a request meets the fault, above 0 and at most 1. Defaults to 1.
	Rate *float64 `json:"rate,omitempty"`
	// Every has only each n-th of the requests meet it: the n-th, the 2n-th and so on. Defaults to 1.
	Every int64 `json:"every,omitempty"`
	// Times is how many requests meet it. Defaults to no end.
	Times int64 `json:"times,omitempty"`
	// Until is when the rule ends: an instant, as "2026-11-23T10:00:00Z", or how long it lasts from when it's put, as "30s". Defaults to no end.
	Until string `json:"until,omitempty"`
	// Seed is what the rule's chances begin with: the same seed, name and requests meet the same faults. Defaults to 0, which is as good as any.
	Seed uint64 `json:"seed,omitempty"`

	// Status answers with a Status of Kubernetes' instead.
	Status *Status `json:"status,omitempty"`
	// Delay has the request wait before anything is done for it.
	Delay *Delay `json:"delay,omitempty"`
	// Cut closes the connection.
	Cut Cut `json:"cut,omitempty"`
	// Watch is for open watches.
	Watch *Watch `json:"watch,omitempty"`
	// Stale is for lists.
	Stale *Stale `json:"stale,omitempty"`
}

// Match says which requests a rule is about: those that one of each list describes. An empty list is all. What ends in * is the beginning of a name.
type Match struct {
	// Users are the names of those who ask, as "system:serviceaccount:shop:*".
	Users []string `json:"users,omitempty"`
	// UserAgents are what clients call themselves, as "manager/*".
	UserAgents []string `json:"userAgents,omitempty"`
	// Verbs are Kubernetes' (get, list, watch, create, update, patch, delete, deletecollection), or of a path that is no resource's the method in lower case.
	Verbs []string `json:"verbs,omitempty"`
	// Resources are plurals, as "configmaps", "widgets.example.com" or "widgets.example.com/status".
	Resources []string `json:"resources,omitempty"`
	// Namespaces are those of the path.
	Namespaces []string `json:"namespaces,omitempty"`
	// Names are those of the path: the path of a create has none.
	Names []string `json:"names,omitempty"`
	// CEL is an expression that is true for such requests, over request.user, groups, userAgent, verb, resource, namespace, name, path and query, a map of
	// lists.
	CEL string `json:"cel,omitempty"`
}

// Status is an answer.
type Status struct {
	// Code is 409, 429, 500, 503 or 504.
	Code int32 `json:"code"`
	// RetryAfterSeconds is the header Retry-After. Defaults to 1 with 429, and to none with others.
	RetryAfterSeconds int32 `json:"retryAfterSeconds,omitempty"`
	// After has the request done first, so that a write has happened whose client hears that it failed. Watches never meet that.
	After bool `json:"after,omitempty"`
}

// Delay is how long a request waits. What is drawn lies between 0 and a minute.
type Delay struct {
	// Distribution is "fixed" (Mean), "uniform" (from Min to Max), "normal" (Mean and Deviation) or "exponential" (Mean). Defaults to fixed.
	Distribution string `json:"distribution,omitempty"`
	// Mean, Deviation, Min and Max are what it needs. Of a normal or exponential one Min and Max are limits, where they're set.
	Mean      metav1.Duration `json:"mean,omitzero"`
	Deviation metav1.Duration `json:"deviation,omitzero"`
	Min       metav1.Duration `json:"min,omitzero"`
	Max       metav1.Duration `json:"max,omitzero"`
}

// Cut says when a connection is closed. Watches meet CutRequest alone: theirs ends with Watch.
type Cut string

// When a connection is closed.
const (
	CutRequest Cut = "request" // before anything is done
	CutBefore  Cut = "before"  // all is done, and nothing is answered
	CutMiddle  Cut = "middle"  // in the middle of the answer
	CutAfter   Cut = "after"   // after the answer
)

// Watch is what happens to a watch.
type Watch struct {
	// End is how it ends: "clean", as when its time is over; "cut", by the connection; or "expired", by an ERROR event of code 410.
	End string `json:"end,omitempty"`
	// AfterEvents and After say when it ends: after so many events, or so long after it was opened. Defaults to at once.
	AfterEvents int             `json:"afterEvents,omitempty"`
	After       metav1.Duration `json:"after,omitzero"`
	// Expired refuses to resume: a watch from a resourceVersion gets an ERROR event of code 410.
	Expired bool `json:"expired,omitempty"`
	// NoBookmarks withholds bookmarks, except the one that ends the initial events.
	NoBookmarks bool `json:"noBookmarks,omitempty"`
}

// Stale is how old a list is.
type Stale struct {
	// Versions is how many writes it may lack, of any object of the server: between 1 and this many, as far as history goes back. Lists that ask for an exact
	// or a least version, or for a further page, never meet that.
	Versions int64 `json:"versions"`
}

// The kinds of faults, as the metric has them.
const (
	kindStatus = "status"
	kindDelay  = "delay"
	kindCut    = "cut"
	kindWatch  = "watch"
	kindStale  = "stale"
)

var kinds = []string{kindStatus, kindDelay, kindCut, kindWatch, kindStale}

// Page is a rule as clients see it.
type Page struct {
	Name string `json:"name"`
	Rule Rule   `json:"rule"`
	// Matched is how many requests the rule was about, and Hits how many of them met the fault.
	Matched int64 `json:"matched"`
	Hits    int64 `json:"hits"`
	// Ended says that no request will.
	Ended bool `json:"ended"`
	// Failure is why its CEL expression couldn't be evaluated the last time, if it couldn't. Such a request doesn't meet the fault.
	Failure string `json:"failure,omitempty"`
}

// armed is a rule in effect.
type armed struct {
	Rule
	name  string
	about matcher
	until time.Time // zero: it has no end

	mu      sync.Mutex // guards the following
	random  *rand.Rand
	matched int64
	hits    int64
	failure string
}

// arm makes a rule ready, or says in a Status what is wrong with it.
func arm(name string, rule Rule, now time.Time) (*armed, error) {
	a := &armed{Rule: rule, name: name}
	var errs field.ErrorList
	for _, why := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(field.NewPath("name"), name, why))
	}
	errs = append(errs, rule.validate()...)
	var err error
	if a.until, err = rule.end(now); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("until"), rule.Until, err.Error()))
	}
	if a.about, err = rule.Match.compile(); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("match", "cel"), rule.Match.CEL, err.Error()))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "apiserver-lite", Kind: "Fault"}, name, errs)
	}
	of := fnv.New64a() // so that two rules of one seed don't meet the same chances
	of.Write([]byte(name))
	a.random = rand.New(rand.NewPCG(rule.Seed, of.Sum64()))
	return a, nil
}

// end returns when a rule ends, zero for never.
func (r *Rule) end(now time.Time) (time.Time, error) {
	if r.Until == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(r.Until); err == nil {
		if d <= 0 {
			return time.Time{}, errors.New("a duration must be above 0")
		}
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, r.Until)
	if err != nil {
		return time.Time{}, errors.New("must be an instant, as 2026-11-23T10:00:00Z, or a duration, as 30s")
	}
	return at, nil
}

// maxPatterns is how many patterns a list of a rule may have: each request may be compared with all.
const maxPatterns = 64

// verbs are all that a request can have: those of resources, and methods.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post", "put", "head", "options"}

// validate returns what is wrong with a rule by itself.
func (r *Rule) validate() (errs field.ErrorList) {
	if r.Rate != nil && !(*r.Rate > 0 && *r.Rate <= 1) {
		errs = append(errs, field.Invalid(field.NewPath("rate"), *r.Rate, "must be above 0 and at most 1"))
	}
	if r.Every < 0 {
		errs = append(errs, field.Invalid(field.NewPath("every"), r.Every, "must not be negative"))
	}
	if r.Times < 0 {
		errs = append(errs, field.Invalid(field.NewPath("times"), r.Times, "must not be negative"))
	}
	for _, list := range r.Match.lists() {
		at := field.NewPath("match", list.name)
		if len(list.all) > maxPatterns {
			errs = append(errs, field.TooMany(at, len(list.all), maxPatterns))
		}
		if slices.Contains(list.all, "") {
			errs = append(errs, field.Invalid(at, "", "must not be empty; leave the list out for all"))
		}
	}
	for _, verb := range r.Match.Verbs {
		if verb != "" && !fits([]string{verb}, verbs...) {
			errs = append(errs, field.NotSupported(field.NewPath("match", "verbs"), clip.Text(verb), verbs))
		}
	}
	if r.kind() == "" {
		errs = append(errs, field.Required(field.NewPath("status"), "exactly one of status, delay, cut, watch and stale says what happens"))
	}
	errs = append(errs, r.Status.validate(field.NewPath("status"))...)
	errs = append(errs, r.Delay.validate(field.NewPath("delay"))...)
	errs = append(errs, r.Watch.validate(field.NewPath("watch"))...)
	if cuts := []string{string(CutRequest), string(CutBefore), string(CutMiddle), string(CutAfter)}; r.Cut != "" && !slices.Contains(cuts, string(r.Cut)) {
		errs = append(errs, field.NotSupported(field.NewPath("cut"), string(r.Cut), cuts))
	}
	if r.Stale != nil && r.Stale.Versions < 1 {
		errs = append(errs, field.Invalid(field.NewPath("stale", "versions"), r.Stale.Versions, "must be at least 1"))
	}
	if r.Until == "" && r.Times == 0 && r.Every < 2 && (r.Rate == nil || *r.Rate == 1) && r.Match.everything() {
		errs = append(errs, field.Required(field.NewPath("until"), "a rule about every request that each of them meets needs an end: set until, or times, every, a rate below 1, or match"))
	}
	return errs
}

// kind returns what a rule does, "" if it isn't exactly one thing.
func (r *Rule) kind() (kind string) {
	for of, set := range map[string]bool{kindStatus: r.Status != nil, kindDelay: r.Delay != nil, kindCut: r.Cut != "", kindWatch: r.Watch != nil, kindStale: r.Stale != nil} {
		if set && kind != "" {
			return ""
		}
		if set {
			kind = of
		}
	}
	return kind
}

// reasons are those of the codes that a fault may answer with.
var reasons = map[int32]metav1.StatusReason{
	http.StatusConflict: metav1.StatusReasonConflict, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
}

func (s *Status) validate(at *field.Path) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	if reasons[s.Code] == "" {
		errs = append(errs, field.NotSupported(at.Child("code"), fmt.Sprint(s.Code), []string{"409", "429", "500", "503", "504"}))
	}
	if s.RetryAfterSeconds < 0 {
		errs = append(errs, field.Invalid(at.Child("retryAfterSeconds"), s.RetryAfterSeconds, "must not be negative"))
	}
	return errs
}

func (w *Watch) validate(at *field.Path) (errs field.ErrorList) {
	if w == nil {
		return nil
	}
	if ends := []string{endClean, endCut, endExpired}; w.End != "" && !slices.Contains(ends, w.End) {
		errs = append(errs, field.NotSupported(at.Child("end"), w.End, ends))
	}
	if w.AfterEvents < 0 || w.After.Duration < 0 {
		errs = append(errs, field.Invalid(at, "", "afterEvents and after must not be negative"))
	}
	if w.End == "" && (w.AfterEvents != 0 || w.After.Duration != 0) {
		errs = append(errs, field.Required(at.Child("end"), "it says how the watch ends: "+strings.Join([]string{endClean, endCut, endExpired}, ", ")))
	}
	if w.End == "" && !w.Expired && !w.NoBookmarks {
		errs = append(errs, field.Required(at, "set end, expired or noBookmarks"))
	}
	if w.Expired && (w.End != "" || w.NoBookmarks) {
		errs = append(errs, field.Invalid(at.Child("expired"), true, "such a watch isn't opened: end and noBookmarks are for one that is"))
	}
	return errs
}

func (a *armed) page(now time.Time) Page {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Page{Name: a.name, Rule: a.Rule, Matched: a.matched, Hits: a.hits, Failure: a.failure, Ended: a.endedLocked(now)}
}

func (a *armed) endedLocked(now time.Time) bool {
	return !a.until.IsZero() && !now.Before(a.until) || a.Times > 0 && a.hits >= a.Times
}

// draw counts a request that a rule is about, and returns the fault if it's the request's turn. Each request before the rule's end takes a chance of the
// generator, so that which meet the fault depends on their order alone.
func (a *armed) draw(now time.Time, about *subject, v Versions) *Hit {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.endedLocked(now) {
		return nil
	}
	a.matched++
	chance := a.random.Float64()
	if a.Every > 1 && a.matched%a.Every != 0 || a.Rate != nil && chance >= *a.Rate {
		return nil
	}
	a.hits++
	h := &Hit{rule: a, kind: a.kind(), request: a.matched}
	switch h.kind {
	case kindStatus:
		h.what = fmt.Sprintf("status %d", a.Status.Code)
		if a.Status.After {
			h.what += " after"
		}
	case kindDelay:
		h.delay = a.Delay.draw(a.random)
		h.what = "delay " + h.delay.String()
	case kindCut:
		h.what = "cut " + string(a.Cut)
	case kindWatch:
		h.what = "watch " + a.Watch.what()
	case kindStale:
		back := 1 + a.random.Int64N(a.Stale.Versions)
		h.version = max(v.Newest()-back, v.Oldest(), 1)
		h.what = fmt.Sprintf("stale %d", h.version)
	}
	return h
}
