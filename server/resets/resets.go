// Package resets keeps the states that an ephemeral server can be taken back to. Kubernetes has nothing of that. It starts no goroutine.
package resets

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

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

// Snapshots are the states that a server can be reset to. It's nil for servers that aren't ephemeral.
type Snapshots struct {
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

// New returns the snapshots of a server without any.
func New(r *registry.Registry) *Snapshots {
	return &Snapshots{registry: r, named: map[string]snapshot{}}
}

// Begin notes how the server started.
func (s *Snapshots) Begin(ctx context.Context) error {
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

// NameOf returns the name of a state that a query gives. The error is a Status of 400.
func NameOf(query url.Values, key string) (string, error) {
	if name := query.Get(key); len(query[key]) == 1 && snapshotName.MatchString(name) {
		return name, nil
	}
	return "", registry.Refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("%s must be given once, "+
		"and be a name of 1 to 63 letters, digits, '-', '_' and '.' that begins and ends with a letter or digit", key))
}

// Page is the answer to a reset and to a snapshot.
type Page struct {
	Name            string `json:"name,omitempty"` // of the state; "" for that of the start
	ResourceVersion string `json:"resourceVersion"`
	Objects         int    `json:"objects"`
}

// Reset takes the server back to the state of a name, or for "" to how it started, and calls then before others can. It returns the
// state with the revision that it has now. The error is a Status.
func (s *Snapshots) Reset(ctx context.Context, name string, then func(ctx context.Context) error) (Page, error) {
	to := s.start
	if name != "" {
		s.mu.Lock()
		to = s.named[name].State
		s.mu.Unlock()
	}
	if to == nil {
		return Page{}, registry.Refusal(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is no snapshot %q", name))
	}
	s.resetting.Lock()
	defer s.resetting.Unlock()
	rev, err := s.registry.Reset(ctx, to)
	if err == nil {
		err = then(ctx)
	}
	objects, _ := to.Size()
	return Page{name, rev.String(), objects}, err
}

// Take keeps the present state under a name, instead of the one that had the name before. The error is a Status.
func (s *Snapshots) Take(ctx context.Context, name string) (Page, error) {
	state, err := s.registry.State(ctx)
	if err != nil {
		return Page{}, err
	}
	objects, bytes := state.Size()
	return Page{name, state.Revision().String(), objects}, s.add(name, snapshot{state, bytes})
}

// add keeps a state under a name, instead of the one that had the name before.
func (s *Snapshots) add(name string, add snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.named[name]
	switch {
	case !known && len(s.named) >= maxSnapshots:
		return registry.Refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			fmt.Sprintf("there are %d snapshots, and no more are kept: use one of their names again", maxSnapshots))
	case add.bytes > maxSnapshotBytes:
		return registry.Refusal(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the objects take %d bytes, and a snapshot at most %d", add.bytes, maxSnapshotBytes))
	case s.bytes-old.bytes+add.bytes > maxSnapshotsBytes:
		return registry.Refusal(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("all snapshots together would take more than %d bytes: use one of their names again", maxSnapshotsBytes))
	}
	s.named[name] = add
	s.bytes += add.bytes - old.bytes
	return nil
}
