// Package faketime answers those who move the clock of a server of tests. Kubernetes has nothing of that.
//
// The clock stands still between the requests that move it, and one that does is answered when what came due by it is done. One moves it at a time.
//
// Goroutines: none. Locks: the turn, which is held while the server does what came due, and can be given up.
package faketime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/status"
)

// Path is where the clock is.
const Path = "/debug/clock"

const (
	// maxAdvance is how far one request moves the clock: as long as an object with apiserver-lite/ttl may live.
	maxAdvance = 10 * 365 * 24 * time.Hour
	// defaultTimeout is how long a request that doesn't say it waits for what came due.
	defaultTimeout = 30 * time.Second
)

// end is as far as the clock goes, so that no time is too far from another for a time.Duration.
var end = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Step is something that goes by the clock, besides what looks at the clock whenever it's asked.
type Step struct {
	// Name says what it is, to follow "waiting for".
	Name string
	// Before, if set, returns when the step knows all that was there at the time that is about to pass.
	Before func(ctx context.Context) error
	// After returns when it has done what came due. The error is ctx's, or a Status.
	After func(ctx context.Context) error
}

// Clock is the clock of a server, and what goes by it. Nil is a server that goes by the machine's.
type Clock struct {
	clock   *clock.Clock
	steps   []Step
	longest time.Duration
	turn    chan struct{} // capacity 1: whoever has put something in moves the clock
}

// New returns the Clock of a server, or nil if the clock is the machine's. The steps are done in their order. A request waits for at most the longest
// time. The log says that the clock stands still.
func New(c *clock.Clock, longest time.Duration, log *slog.Logger, steps ...Step) *Clock {
	if !c.Stands() {
		return nil
	}
	log.Warn("THE CLOCK STANDS STILL: this server's time moves only when it's told; it's for tests alone (--fake-clock)", "time", c.Now().Format(time.RFC3339), "move", "POST "+Path+"?advance=1h")
	return &Clock{clock: c, steps: steps, longest: longest, turn: make(chan struct{}, 1)}
}

// Then adds a step, before anybody asks.
func (c *Clock) Then(s Step) {
	if c != nil {
		c.steps = append(c.steps, s)
	}
}

// Collectors are the metrics.
func (c *Clock) Collectors() []prometheus.Collector {
	on := prometheus.NewGauge(prometheus.GaugeOpts{Name: "apiserver_lite_fake_clock_on", Help: "Whether the server's time moves only when it's told (--fake-clock): 1 or 0."})
	if c != nil {
		on.Set(1)
	}
	return []prometheus.Collector{on}
}

// page is the answer.
type page struct {
	Time time.Time `json:"time"`
}

// Answer answers a request at Path. The error is a Status, or of ctx, which is the request's.
func (c *Clock) Answer(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if len(r.URL.RawQuery) > 0 {
			return status.BadRequest("GET " + Path + " takes no parameters: POST moves the clock")
		}
	case http.MethodPost:
		if err := c.serveAdvance(r); err != nil {
			return err
		}
	default:
		w.Header().Set("Allow", "GET, POST")
		return status.Error(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "only GET and POST are served here")
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(page{c.clock.Now()})
}

func (c *Clock) serveAdvance(r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return status.BadRequest("the query doesn't parse: " + err.Error())
	}
	if r.ContentLength != 0 {
		return status.BadRequest("this takes no body: how far the clock goes is said in the query, as advance=1h")
	}
	by, timeout, err := parse(query, c.longest)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	what, moved, err := c.advance(ctx, by)
	if err == nil || r.Context().Err() != nil {
		return err
	}
	return c.late(what, moved, timeout, err)
}

// parse reads the query of a request that moves the clock. The error is a Status.
func parse(query url.Values, longest time.Duration) (by, timeout time.Duration, err error) {
	timeout = defaultTimeout
	for name, values := range query {
		d, err := time.ParseDuration(values[0])
		bad := err != nil || len(values) > 1 || d <= 0
		switch name {
		case "advance":
			by, bad = d, bad || d > maxAdvance
		case "timeout":
			timeout, bad = d, bad || d > longest
		default:
			bad = true
		}
		if bad {
			return 0, 0, status.BadRequest(fmt.Sprintf("%s=%s can't be used: the parameters are advance, how far the clock goes, as 90s or 24h, more than 0 and at most %v, "+
				"and timeout, how long to wait for what comes due, as 30s, of at most %v, each once", clip.Text(name), clip.Text(values[0]), maxAdvance, longest))
		}
	}
	if by == 0 {
		return 0, 0, status.BadRequest("how far the clock goes is missing: say it in the query, as " + Path + "?advance=1h")
	}
	return by, timeout, nil
}

// advance moves the clock when it's its turn, and does what came due. It returns whether it moved the clock, and after an error what it was waiting for.
func (c *Clock) advance(ctx context.Context, by time.Duration) (waiting string, moved bool, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return "another request, which moves the clock", false, ctx.Err()
	}
	if next := c.clock.Now().Add(by); next.After(end) {
		return "", false, status.BadRequest(fmt.Sprintf("the clock goes no further than %s, and %v from now is %s", end.Format(time.RFC3339), by, next.Format(time.RFC3339)))
	}
	for _, s := range c.steps {
		if s.Before != nil {
			if err := s.Before(ctx); err != nil {
				return s.Name, false, err
			}
		}
	}
	c.clock.Advance(by)
	for _, s := range c.steps {
		if err := s.After(ctx); err != nil {
			return s.Name, true, err
		}
	}
	return "", true, nil
}

// late makes a Status of the error of advance that says whether the clock was moved.
func (c *Clock) late(waiting string, moved bool, timeout time.Duration, err error) error {
	said := "the clock wasn't moved"
	if moved {
		said = "the clock was moved, and says " + c.clock.Now().Format(time.RFC3339Nano)
	}
	var known *apierrors.StatusError
	switch {
	case errors.As(err, &known) && known.ErrStatus.Code < http.StatusInternalServerError:
		return err
	case errors.As(err, &known):
		told := known.ErrStatus.DeepCopy()
		told.Message = said + "; " + told.Message
		return &apierrors.StatusError{ErrStatus: *told}
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("%s; after %v still waiting for %s", said, timeout, waiting))
	}
	return fmt.Errorf("%s; %s: %w", said, waiting, err)
}
