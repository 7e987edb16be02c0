package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
)

// Tests take an ephemeral server back to how it started with POST /debug/reset, or to a state that they named before with
// POST /debug/snapshot?name=x and name again in POST /debug/reset?to=x. Kubernetes has nothing of that.

const (
	// maxSnapshots is how many snapshots a server keeps. A suite has a handful.
	maxSnapshots = 64
	// maxSnapshotBytes bounds the keys and values of one snapshot, so that a reset fits into one of the store's requests
	// (etcd.BulkBytes).
	maxSnapshotBytes = 128 << 20
	// maxSnapshotsBytes bounds those of all together, as if they shared nothing. What hasn't changed they do share.
	maxSnapshotsBytes = 512 << 20
)

// snapshotName is what names of states may be. The bound of 63 characters is that of a DNS label.
var snapshotName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// snapshots are the states that a server can be reset to. It's nil for servers that aren't ephemeral.
type snapshots struct {
	registry *registry.Registry
	start    *registry.State // how the server started; set before it's ready

	resetting sync.Mutex // held during a reset and what it has to write after it, before the locks of the registry

	mu    sync.Mutex // guards named and bytes
	named map[string]snapshot
	bytes int64 // of all of them
}

// snapshot is a registry.State that has a name, and its size.
type snapshot struct {
	*registry.State
	bytes int64
}

// begin notes how the server started.
func (s *snapshots) begin(ctx context.Context) error {
	if s == nil {
		return nil
	}
	var err error
	switch s.start, err = s.registry.State(ctx); {
	case ctx.Err() != nil: // a Status wouldn't tell that the start was given up
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("note the state of the start: %w", err)
	}
	return nil
}

// resetPage is the answer to a reset and to a snapshot.
type resetPage struct {
	Name            string `json:"name,omitempty"` // of the state; "" for that of the start
	ResourceVersion string `json:"resourceVersion"`
	Objects         int    `json:"objects"`
}

// serveReset answers POST /debug/reset.
func (h *handler) serveReset(w *response, r *http.Request) error {
	if err := h.besides.snapshots.check(w, r, "to"); err != nil {
		return err
	}
	to, name := h.besides.snapshots.start, ""
	if w.query.Has("to") {
		var err error
		if name, err = nameOf(w.query, "to"); err != nil {
			return err
		}
		if to = h.besides.snapshots.find(name); to == nil {
			return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is no snapshot %q", name))
		}
	}
	h.besides.snapshots.resetting.Lock()
	defer h.besides.snapshots.resetting.Unlock()
	rev, err := h.registry.Reset(r.Context(), to)
	if err != nil {
		return err
	}
	if h.rbac != nil && name == "" { // what the start noted may lack some of Kubernetes' own rules; what has a name has them as they were
		if err := h.rbac.Bootstrap(r.Context(), h.log); err != nil {
			return err
		}
	}
	objects, _ := to.Size()
	return w.writePage(resetPage{name, rev.String(), objects})
}

// serveSnapshot answers POST /debug/snapshot.
func (h *handler) serveSnapshot(w *response, r *http.Request) error {
	if err := h.besides.snapshots.check(w, r, "name"); err != nil {
		return err
	}
	name, err := nameOf(w.query, "name")
	if err != nil {
		return err
	}
	if h.rbac != nil {
		if err := h.rbac.Bootstrapped(r.Context()); err != nil {
			return err
		}
	}
	state, err := h.registry.State(r.Context())
	if err != nil {
		return err
	}
	objects, bytes := state.Size()
	if err := h.besides.snapshots.add(name, snapshot{state, bytes}); err != nil {
		return err
	}
	return w.writePage(resetPage{name, state.Revision().String(), objects})
}

// check refuses all but a POST on an ephemeral server, without a body, and without other parameters than one. A reset takes
// everything away, so nothing of a request for one is ignored.
func (s *snapshots) check(w *response, r *http.Request, parameter string) error {
	switch {
	case s == nil:
		return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, "only a server with --ephemeral can be reset")
	case r.Method != http.MethodPost:
		return methodNotAllowed(w, http.MethodPost, "only POST is served here")
	}
	for name := range w.query {
		if name != parameter {
			return statusError(http.StatusBadRequest, metav1.StatusReasonBadRequest,
				fmt.Sprintf("there is no parameter %s here, only %s", guard.Quote(name), parameter))
		}
	}
	switch sent, err := readAll(w, r); {
	case err != nil:
		return err
	case len(sent) > 0:
		return statusError(http.StatusBadRequest, metav1.StatusReasonBadRequest, "this takes no body: what it is to do is said in the query, as "+parameter+"=NAME")
	}
	return nil
}

// nameOf returns the name of a state that a query gives.
func nameOf(query url.Values, key string) (string, error) {
	if name := query.Get(key); len(query[key]) == 1 && snapshotName.MatchString(name) {
		return name, nil
	}
	return "", statusError(http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("%s must be given once, "+
		"and be a name of 1 to 63 letters, digits, '-', '_' and '.' that begins and ends with a letter or digit", key))
}

func (s *snapshots) find(name string) *registry.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named[name].State
}

// add keeps a state under a name, instead of the one that had the name before.
func (s *snapshots) add(name string, add snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.named[name]
	switch {
	case !known && len(s.named) >= maxSnapshots:
		return statusError(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			fmt.Sprintf("there are %d snapshots, and no more are kept: use one of their names again", maxSnapshots))
	case add.bytes > maxSnapshotBytes:
		return statusError(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the objects take %d bytes, and a snapshot at most %d", add.bytes, maxSnapshotBytes))
	case s.bytes-old.bytes+add.bytes > maxSnapshotsBytes:
		return statusError(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("all snapshots together would take more than %d bytes: use one of their names again", maxSnapshotsBytes))
	}
	s.named[name] = add
	s.bytes += add.bytes - old.bytes
	return nil
}

// writePage answers with a value as JSON.
func (w *response) writePage(page any) error {
	w.Header().Set("Content-Type", string(negotiation.JSON))
	return json.NewEncoder(w).Encode(page)
}
