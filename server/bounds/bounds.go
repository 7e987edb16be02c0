// Package bounds says how much clients may take, by flags.
//
// Goroutines: none. Locks: none.
package bounds

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/events"
)

// Bounds are how much clients may take.
type Bounds struct {
	// MaxConnections is how many connections may be open, watches included. The requests of further ones are
	// answered 503 with Retry-After, except those for /healthz, /livez, /readyz, /metrics, /version and
	// /debug/watchers. Defaults to 65536, or to what the process's limit of open files leaves besides a reserve
	// for the store, if that's less; more than that is never taken. Several Servers in one process share its
	// limit: set it there.
	MaxConnections int

	// HTTP2MaxStreams is how many requests one HTTP/2 connection may have open. Defaults to 5000.
	HTTP2MaxStreams int

	// WatchWriteTimeout ends a watch whose client has taken no byte for so long while there was
	// something to send. Defaults to 1m.
	WatchWriteTimeout time.Duration

	// MaxReads and MaxWrites say how many requests are worked for at once, without the streams of watches. As with kube-apiserver, only their sum
	// counts. Further ones wait for their turn. If both are 0, they are DefaultMaxReads and DefaultMaxWrites.
	MaxReads, MaxWrites int

	// RequestTimeout is how long a request may take that isn't a watch; a write never takes more than 34 s. Defaults to 1m.
	RequestTimeout time.Duration

	// MinWatchTimeout is how long a watch lasts at least whose client doesn't say it; it's at most twice as long. Defaults to 30m.
	MinWatchTimeout time.Duration

	// GoawayChance is the probability, 0.02 at most, with which a request over HTTP/2 has its client open another connection, so that clients spread over
	// several servers. Defaults to none.
	GoawayChance float64

	// EventTTL is how long an Event lives after its last write. Defaults to 1h.
	EventTTL time.Duration
}

// The defaults.
const (
	DefaultHTTP2MaxStreams   = 5000
	DefaultWatchWriteTimeout = time.Minute
	DefaultRequestTimeout    = time.Minute // kube-apiserver's

	// DefaultMaxReads and DefaultMaxWrites are how many requests of each sort kube-apiserver works for at once. As there,
	// only their sum counts.
	DefaultMaxReads  = 400
	DefaultMaxWrites = 200
)

// maxHTTP2Streams is the most that HTTP2MaxStreams may be. Each stream that is open costs a goroutine and buffers, so
// that a larger number is a slip.
const maxHTTP2Streams = 1 << 20

// maxGoawayChance is the most that kube-apiserver takes.
const maxGoawayChance = 0.02

// AddKubernetesFlags adds those of kube-apiserver's flags that mean the same here.
func (b *Bounds) AddKubernetesFlags(set *pflag.FlagSet) {
	set.IntVar(&b.MaxReads, "max-requests-inflight", DefaultMaxReads, "with --max-mutating-requests-inflight, how many requests are worked for at once")
	set.IntVar(&b.MaxWrites, "max-mutating-requests-inflight", DefaultMaxWrites, "with --max-requests-inflight, how many requests are worked for at once")
	set.DurationVar(&b.RequestTimeout, "request-timeout", DefaultRequestTimeout, "how long a request may take that isn't a watch; a write never takes more than 34 s")
	set.Var((*seconds)(&b.MinWatchTimeout), "min-request-timeout", "how many seconds a watch lasts at least whose client doesn't say it; it's at most twice as long (default 1800)")
	set.Float64Var(&b.GoawayChance, "goaway-chance", 0, "probability, 0.02 at most, with which a request over HTTP/2 has its client open another connection, so that clients spread over several servers")
	set.DurationVar(&b.EventTTL, "event-ttl", events.DefaultTTL, "how long an Event lives after its last write")
}

// AddFlags adds the flags that only this server has.
func (b *Bounds) AddFlags(set *pflag.FlagSet) {
	set.IntVar(&b.MaxConnections, "max-connections", 0, "connections that may be open; further ones are told to come back (default 65536, or what the limit of open files leaves)")
	set.IntVar(&b.HTTP2MaxStreams, "http2-max-streams", DefaultHTTP2MaxStreams, "requests that one HTTP/2 connection may have open")
	set.DurationVar(&b.WatchWriteTimeout, "watch-write-timeout", DefaultWatchWriteTimeout, "how long a watch's client may take nothing before it's cut off")
}

// seconds is a flag that takes a number of seconds.
type seconds time.Duration

func (s *seconds) String() string {
	if *s == 0 {
		return ""
	}
	return fmt.Sprint(int64(time.Duration(*s) / time.Second))
}

func (s *seconds) Type() string { return "int" }

func (s *seconds) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	*s = seconds(time.Duration(n) * time.Second)
	return err
}

// Requests returns how many requests are worked for at once.
func (b *Bounds) Requests() int {
	return cmp.Or(b.MaxReads+b.MaxWrites, DefaultMaxReads+DefaultMaxWrites)
}

// Time is how long a request may take.
func (b *Bounds) Time() time.Duration { return cmp.Or(b.RequestTimeout, DefaultRequestTimeout) }

// Validate tells the first bound that can't work, by the name of its flag.
func (b *Bounds) Validate() error {
	switch {
	case b.WatchWriteTimeout < 0:
		return fmt.Errorf("--watch-write-timeout must not be negative: %v", b.WatchWriteTimeout)
	case b.HTTP2MaxStreams < 0 || b.HTTP2MaxStreams > maxHTTP2Streams:
		return fmt.Errorf("--http2-max-streams must be between 1 and %d: %d", maxHTTP2Streams, b.HTTP2MaxStreams)
	case b.MaxConnections < 0:
		return fmt.Errorf("--max-connections must not be negative: %d", b.MaxConnections)
	case b.MaxReads < 0 || b.MaxWrites < 0:
		return fmt.Errorf("--max-requests-inflight=%d and --max-mutating-requests-inflight=%d must not be negative", b.MaxReads, b.MaxWrites)
	case b.RequestTimeout < 0:
		return fmt.Errorf("--request-timeout can not be negative value: %v", b.RequestTimeout)
	case b.MinWatchTimeout < 0:
		return fmt.Errorf("--min-request-timeout can not be negative value: %v", b.MinWatchTimeout)
	case b.EventTTL < 0:
		return fmt.Errorf("--event-ttl must not be negative: %v", b.EventTTL)
	case b.GoawayChance < 0 || b.GoawayChance > maxGoawayChance:
		return fmt.Errorf("--goaway-chance can not be less than 0 or greater than %v: %v", maxGoawayChance, b.GoawayChance)
	}
	return nil
}
