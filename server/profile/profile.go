// Package profile serves Go's profiles of the process at /debug/pprof/, as kube-apiserver does. They tell what the program does, and the
// text of stacks has no secrets in it, but a profile costs CPU, so that it's for users who have the right to it. A Profiles is told of a
// request by the request's goroutine, and starts none. Its bound is MaxProfiles.
package profile

import (
	"net/http"
	"net/http/pprof"
	"path"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server/status"
)

// Path is where the profiles are, with a slash after it.
const Path = "/debug/pprof"

// MaxProfiles is how many profiles may be on their way at once. Of CPU profiles a process can make one at a time.
const MaxProfiles = 2

// maxTime is how long a profile may go on. One that takes longer is a slip, and keeps others from theirs.
const maxTime = 10 * time.Minute

// sampleBytes is how many bytes are allocated between two samples of the heap: Go's default.
const sampleBytes = 512 << 10

// Options say whether profiles are served.
type Options struct {
	// On says whether there are any. Nil: only where users may do what RBAC's rules allow, and without profiles of the heap.
	On *bool
	// Contention takes samples of what waits for what, for the profile block. It slows the process down.
	Contention bool
}

// AddFlags adds kube-apiserver's flags for the options.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.Var(&flag{&o.On}, "profiling", "serve Go's profiles at /debug/pprof/, with those of the heap (default: where users' rights count, without the heap's)")
	set.Lookup("profiling").NoOptDefVal = "true"
	set.BoolVar(&o.Contention, "contention-profiling", false, "take samples of what waits for what, for the profile block, if profiles are served")
}

// Served tells whether profiles are served, where users' rights count or don't.
func (o Options) Served(rights bool) bool {
	if o.On == nil {
		return rights
	}
	return *o.On
}

// Sample has the process take the samples that the options ask for, and no others. It sets what a process has one of: a program calls it
// once, before it starts a server. Samples of the heap take about 1 % of a write's CPU.
func (o Options) Sample() {
	runtime.MemProfileRate = 0
	if o.On == nil || !*o.On {
		return
	}
	runtime.MemProfileRate = sampleBytes
	if o.Contention {
		runtime.SetBlockProfileRate(1) // each event, as kube-apiserver does
	}
}

// Profiles serves profiles. It's safe for concurrent use.
type Profiles struct{ places chan struct{} }

// New returns what serves profiles.
func New() *Profiles { return &Profiles{make(chan struct{}, MaxProfiles)} }

// Serve answers a request at Path or below it. Profiles that take time end with the request's context. Its error is a refusal that counts
// as "profiles".
func (p *Profiles) Serve(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path == Path {
		http.Redirect(w, r, Path+"/", http.StatusFound)
		return nil
	}
	if asked, err := strconv.ParseFloat(r.FormValue("seconds"), 64); err == nil && asked > maxTime.Seconds() {
		return status.BadRequest("the parameter seconds is larger than " + strconv.FormatFloat(maxTime.Seconds(), 'f', -1, 64))
	}
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	default:
		return status.TooMany("profiles", "other profiles are being made, please try again later")
	}
	switch path.Base(r.URL.Path) {
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	case "heap", "allocs":
		if runtime.MemProfileRate == 0 {
			return status.Error(http.StatusNotFound, metav1.StatusReasonNotFound, "no samples of the heap are taken: start the server with --profiling")
		}
		pprof.Index(w, r)
	default:
		pprof.Index(w, r)
	}
	return nil
}

// flag is a switch that says nothing unless it's given.
type flag struct{ to **bool }

func (f *flag) String() string {
	if f.to == nil || *f.to == nil {
		return ""
	}
	return strconv.FormatBool(**f.to)
}

func (f *flag) Type() string { return "bool" }

func (f *flag) Set(s string) error {
	on, err := strconv.ParseBool(s)
	*f.to = &on
	return err
}
