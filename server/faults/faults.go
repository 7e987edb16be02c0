// Package faults has a server fail on purpose, so that tests see what its clients make of that. Kubernetes has nothing of that.
//
// Rules say which requests meet a fault, how often, and which. They come over HTTP (Faults.Put), and live in the memory of the process: maxRules of
// them, each of maxRule bytes. A request is looked at when it's known who makes it and that he may, and before its route (Faults.Strike). It meets the
// fault of the first rule, by name, that is about it and whose turn it is. Hit.Serve does the fault around the route; the faults of a watch are where
// the watch is opened (Open, Source). Each fault is in a log that tests read, which keeps the last maxLog.
//
// A fault never makes the server say what isn't so: a stale list is one that was true, and no event comes twice.
//
// Goroutines: one for each open watch that a rule ends after a time, which the watch's Close waits for. Locks: a rule's turn, then the log; the list of
// rules is replaced as a whole.
package faults

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/faketime"
	"github.com/apiserver-lite/apiserver-lite/server/health"
)

const (
	// Path is where the rules are, each at its name below.
	Path = "/apiserver-lite/v1/faults"
	// LogPath is where the log is.
	LogPath = "/apiserver-lite/v1/faultlog"
)

// What the rules and the log may take.
const (
	// maxRules is how many rules there may be: each request asks each of them.
	maxRules = 64
	// maxRule is how long a rule may be as JSON, in bytes.
	maxRule = 16 << 10
	// maxLog is how many faults the log keeps: some 8 MiB at worst.
	maxLog = 4096
	// maxLogged is how much an entry of the log has of each text that a client sent, in bytes. Names and most paths fit.
	maxLogged = 256
)

// Versions tell which versions of the objects there are.
type Versions struct {
	Newest func() int64
	Oldest func() int64 // that history still has
}

// Faults are the rules of a server, and the log of what they did. Nil is a server that never fails on purpose.
type Faults struct {
	versions Versions
	log      *slog.Logger
	done     *prometheus.CounterVec

	rules atomic.Pointer[[]*armed] // in the order of their names; what it points to never changes

	mu      sync.Mutex // guards the following, and who replaces the rules
	entries []Entry    // the last maxLog, that of a number at the place before it, in rounds of maxLog
	count   int64      // of all there were
}

// Entry is a fault that a request met.
type Entry struct {
	// Number is 1 for the first fault of the server, and grows by 1.
	Number int64 `json:"number"`
	// Time is when the request met it.
	Time metav1.MicroTime `json:"time"`
	// Rule is the name of the rule.
	Rule string `json:"rule"`
	// Request says which of the requests that the rule is about it was, from 1.
	Request int64 `json:"request"`
	// Fault says what was done, as "status 503", "delay 120ms" or "cut middle".
	Fault string `json:"fault"`
	// User, UserAgent and Verb are the request's, and so are the others.
	User      string `json:"user,omitempty"`
	UserAgent string `json:"userAgent,omitempty"`
	Verb      string `json:"verb"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Path      string `json:"path"`
	// AuditID is the id of the request, by which its answer, the server's log and the audit log know it.
	AuditID string `json:"auditID"`
}

// New returns the faults of a server, without a rule, or nil if it's to have none. The log says that they're on.
func New(on bool, versions Versions, log *slog.Logger) *Faults {
	if !on {
		return nil
	}
	log.Warn("FAULTS ARE ON: this server fails on purpose where rules say so; it's for tests alone (--faults)", "rules", Path)
	f := &Faults{versions: versions, log: log, done: newCounter()}
	f.rules.Store(&[]*armed{})
	return f
}

func newCounter() *prometheus.CounterVec {
	done := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_lite_faults_total", Help: "Faults that requests met on purpose, by what they do."}, []string{"fault"})
	for _, kind := range kinds {
		done.WithLabelValues(kind)
	}
	return done
}

// Collectors are the metrics. A nil Faults says that they're off.
func (f *Faults) Collectors() []prometheus.Collector {
	on := prometheus.NewGauge(prometheus.GaugeOpts{Name: "apiserver_lite_faults_on", Help: "Whether the server fails on purpose where rules say so (--faults): 1 or 0."})
	if f == nil {
		return []prometheus.Collector{on, newCounter()}
	}
	on.Set(1)
	return []prometheus.Collector{on, f.done}
}

// Strike returns the fault that a request meets, nil if it's served as ever. w is what it would be answered by, and asks what it was allowed, nil where
// nobody asks for that.
func (f *Faults) Strike(w http.ResponseWriter, r *http.Request, asks *authorizer.AttributesRecord, auditID string) *Hit {
	rules := *f.rules.Load()
	if len(rules) == 0 || exempt(r) {
		return nil
	}
	about := subjectOf(r, asks)
	_, about.connected = w.(http.Flusher)
	for _, rule := range rules {
		if !rule.concerns(about, f.versions) {
			continue
		}
		now := time.Now()
		if hit := rule.draw(now, about, f.versions); hit != nil {
			f.done.WithLabelValues(hit.kind).Inc()
			f.note(Entry{
				Time: metav1.NewMicroTime(now), Rule: rule.name, Request: hit.request, Fault: hit.what, AuditID: auditID,
				User: logged(about.user), UserAgent: logged(about.userAgent), Verb: about.verb,
				Resource: logged(strings.Join(about.resources, ",")), Namespace: logged(about.namespace), Name: logged(about.name), Path: logged(about.path),
			})
			return hit
		}
	}
	return nil
}

// logged returns what the log has of a text: a copy, so that the request it's of needn't stay.
func logged(text string) string { return strings.Clone(clip.To(text, maxLogged)) }

// exempt tells whether no rule is about a request: tests need the rules and the clock, and others the health.
func exempt(r *http.Request) bool {
	path := r.URL.Path
	return path == Path || strings.HasPrefix(path, Path+"/") || path == LogPath || path == faketime.Path || path == "/metrics" || health.Asks(r)
}

// note puts a fault into the log.
func (f *Faults) note(e Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	e.Number = f.count
	if len(f.entries) < maxLog {
		f.entries = append(f.entries, e)
	} else {
		f.entries[(f.count-1)%maxLog] = e
	}
}

// Log returns the faults of the log after the one of a number, of one rule or with "" of all.
func (f *Faults) Log(rule string, after int64) []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := []Entry{}
	for n := max(f.count-int64(len(f.entries)), after, 0); n < f.count; n++ {
		if e := f.entries[n%maxLog]; rule == "" || e.Rule == rule {
			found = append(found, e)
		}
	}
	return found
}

// Put arms a rule, in the place of one of the same name, whose count begins anew. It reports whether there was none. The error is a Status.
func (f *Faults) Put(name string, rule Rule) (page Page, created bool, err error) {
	made, err := arm(name, rule, time.Now())
	if err != nil {
		return Page{}, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rules := slices.Clone(*f.rules.Load())
	i, found := find(rules, name)
	switch {
	case found:
		rules[i] = made
	case len(rules) == maxRules:
		return Page{}, false, registry.Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			"there are as many rules as there may be, 64: delete those that have ended")
	default:
		rules = slices.Insert(rules, i, made)
	}
	f.rules.Store(&rules)
	f.log.Info("a rule for faults is armed", "rule", name)
	return made.page(time.Now()), !found, nil
}

// Get returns a rule. The error is a Status.
func (f *Faults) Get(name string) (Page, error) {
	rules := *f.rules.Load()
	i, found := find(rules, name)
	if !found {
		return Page{}, notFound(name)
	}
	return rules[i].page(time.Now()), nil
}

// List returns all rules, in the order of their names, which is the one in which they're asked.
func (f *Faults) List() []Page {
	pages := []Page{}
	for _, rule := range *f.rules.Load() {
		pages = append(pages, rule.page(time.Now()))
	}
	return pages
}

// Delete removes a rule, or with "" all, and returns what it was. A fault that a request has met goes on. The error is a Status.
func (f *Faults) Delete(name string) ([]Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rules := *f.rules.Load()
	gone, left := rules, []*armed{}
	if name != "" {
		i, found := find(rules, name)
		if !found {
			return nil, notFound(name)
		}
		gone, left = rules[i:i+1], slices.Delete(slices.Clone(rules), i, i+1)
	}
	f.rules.Store(&left)
	pages := []Page{}
	for _, rule := range gone {
		pages = append(pages, rule.page(time.Now()))
	}
	return pages, nil
}

func find(rules []*armed, name string) (i int, found bool) {
	return slices.BinarySearchFunc(rules, name, func(a *armed, name string) int { return strings.Compare(a.name, name) })
}

func notFound(name string) error {
	return registry.Refusal(http.StatusNotFound, metav1.StatusReasonNotFound, "there is no rule for faults "+strconv.Quote(clip.Text(name))+": "+Path+" lists those that there are")
}
