// Package health says how a server is: what /healthz, /livez and /readyz are asked by, and what they answer.
//
// It keeps nothing, starts no goroutine and takes no lock.
package health

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Check is one thing that can be wrong with a server.
type Check struct {
	Name  string
	Kinds []string     // the endpoints that it belongs to: healthz, livez, readyz
	Run   func() error // must return at once
}

// Checks are all that is looked at.
type Checks []Check

// Report returns what an endpoint answers: "ok", or which checks failed and why. ?verbose lists all, ?exclude=NAME leaves one out. reason is how an
// error is told.
func (c Checks) Report(kind string, query url.Values, reason func(error) string) (text string, well bool) {
	var list strings.Builder
	well = true
	for _, one := range c {
		if !slices.Contains(one.Kinds, kind) || slices.Contains(query["exclude"], one.Name) {
			continue
		}
		if err := one.Run(); err != nil {
			well = false
			fmt.Fprintf(&list, "[-]%s failed: %s\n", one.Name, reason(err))
		} else {
			fmt.Fprintf(&list, "[+]%s ok\n", one.Name)
		}
	}
	switch {
	case !well:
		return list.String() + kind + " check failed\n", false
	case query.Has("verbose"):
		return list.String() + kind + " check passed\n", true
	}
	return "ok", true
}

// Of returns the check of an endpoint that has a name.
func (c Checks) Of(kind, name string) (Check, bool) {
	i := slices.IndexFunc(c, func(one Check) bool { return one.Name == name && slices.Contains(one.Kinds, kind) })
	if i < 0 {
		return Check{}, false
	}
	return c[i], true
}

// Closed is what a check says that waits for a channel to be closed.
func Closed(c <-chan struct{}, otherwise string) error {
	select {
	case <-c:
		return nil
	default:
		return errors.New(otherwise)
	}
}

// Asks tells whether a request reads a health endpoint. Probes may without a token.
func Asks(r *http.Request) bool {
	name, check, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return (name == "healthz" || name == "livez" || name == "readyz") && !strings.Contains(check, "/") &&
		(r.Method == http.MethodGet || r.Method == http.MethodHead)
}
