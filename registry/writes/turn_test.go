package writes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// unanswering is a store that doesn't answer some of the creates below a prefix.
type unanswering struct {
	storage.Store
	prefix storage.Prefix

	mu   sync.Mutex // guards lose
	lose func(create func() error)
}

// Create gives lose a create that it doesn't answer, once.
func (s *unanswering) Create(ctx context.Context, key string, value []byte, conds ...storage.Condition) (storage.Revision, error) {
	if !strings.HasPrefix(key, string(s.prefix)) {
		return s.Store.Create(ctx, key, value, conds...)
	}
	s.mu.Lock()
	lose := s.lose
	s.lose = nil
	s.mu.Unlock()
	if lose == nil {
		return s.Store.Create(ctx, key, value, conds...)
	}
	lose(func() error {
		_, err := s.Store.Create(context.WithoutCancel(ctx), key, value, conds...)
		return err
	})
	return 0, errors.Join(storage.ErrUnavailable, storage.ErrUnknownOutcome)
}

// addresses gives each object the one that it asks for.
type addresses struct {
	of   func() *registry.Endpoint
	held map[string]storage.Revision // 0 while the write is under way
	then func()                      // after something was taken; nil for nothing
	ends []storage.Revision          // what Settle was called with
}

func (a *addresses) claim(obj, _ registry.Typed, _ bool) (registry.Settle, error) {
	ip := obj.(*corev1.Service).Spec.ClusterIP
	snapshot := a.of().Cache().Snapshot()
	shown, held := a.held[ip]
	taken := held && (shown == 0 || shown > snapshot.Revision)
	for o := range snapshot.All(string(a.of().Prefix())) {
		taken = taken || strings.Contains(string(o.Raw()), ip)
	}
	if taken {
		return nil, apierrors.NewConflict(a.of().GroupResource(), ip, errors.New("taken"))
	}
	a.held[ip] = 0
	if a.then != nil {
		a.then()
	}
	return func(shown storage.Revision) {
		a.ends = append(a.ends, shown)
		if a.held[ip] = shown; shown == 0 {
			delete(a.held, ip)
		}
	}, nil
}

// TestTakenAfterUnknownOutcomes: what a write took whose outcome nobody knows stays taken until the next write has excluded it.
// Then it's free, or its object has it, and a write that comes to etcd even later isn't done.
func TestTakenAfterUnknownOutcomes(t *testing.T) {
	const group = "turns.example.com"
	store := &unanswering{prefix: storage.PrefixOf(group, "services")}
	var s *server
	a := &addresses{held: map[string]storage.Revision{}}
	s = start(t, "", registry.Options{}, func(r *registry.Registry) {
		store.Store, r.Store = r.Store, store
		r.Add(registry.Type{
			Names:    registry.Names{Group: group, Version: "v1", Kind: "Service"},
			New:      func() registry.Typed { return &corev1.Service{} },
			Validate: func(context.Context, registry.Typed, registry.Typed, string) field.ErrorList { return nil },
			Guard:    registry.Guard{Claim: a.claim},
		})
	})
	e := s.at(group, "v1", "services")
	a.of = func() *registry.Endpoint { return e.Endpoint }
	create := func(ctx context.Context, name, ip string) error {
		_, err := e.Create(ctx, "default", nil, fmt.Appendf(nil, `{"apiVersion":"%s/v1","kind":"Service","metadata":{"name":"%s"},"spec":{"clusterIP":"%s"}}`, group, name, ip))
		return err
	}
	for round := range 2 { // in the first one nobody has ever taken the turn
		ip := fmt.Sprint("10.0.0.", round)
		var late func() error
		store.lose = func(create func() error) { late = create }
		s.refused(create(s.ctx, fmt.Sprint("late", round), ip), 504, metav1.StatusReasonTimeout, "unknown")
		if _, held := a.held[ip]; !held {
			t.Errorf("%s is free while nobody knows", ip)
		}
		if err := create(s.ctx, fmt.Sprint("next", round), ip); err != nil {
			t.Errorf("what wasn't stored isn't free: %v", err)
		}
		if err := late(); !errors.Is(err, storage.ErrOutOfTurn) {
			t.Errorf("a write that comes after the next one: %v", err)
		}
	}

	store.lose = func(create func() error) {
		if err := create(); err != nil {
			t.Error(err)
		}
	}
	s.refused(create(s.ctx, "done", "10.0.1.0"), 504, metav1.StatusReasonTimeout, "unknown")
	s.refused(create(s.ctx, "another", "10.0.1.0"), 409, metav1.StatusReasonConflict, "taken")

	// A client that leaves before its write is sent leaves nothing to ask for.
	ctx, leave := context.WithCancel(s.ctx)
	a.then, a.ends = leave, nil
	if err := create(ctx, "left", "10.0.2.0"); err == nil || len(a.ends) != 1 || a.ends[0] != 0 {
		t.Errorf("a write that wasn't sent: %v, settled %v", err, a.ends)
	}
	a.then = nil
	if err := create(s.ctx, "stays", "10.0.2.0"); err != nil {
		t.Error(err)
	}
}
