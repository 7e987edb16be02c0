package plugins

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/lru"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// EventRateLimit refuses writes of Events beyond some rates: of all, or of each namespace, user, or source and object.
type EventRateLimit struct {
	limits []*eventLimit
}

// eventRates is the Configuration eventratelimit.admission.k8s.io/v1alpha1.
type eventRates struct {
	metav1.TypeMeta `json:",inline"`
	Limits          []eventRate `json:"limits"`
}

// eventRate is one limit: so many writes a second for long, and so many at once.
type eventRate struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize"` // how many of what the type tells apart are remembered
}

// rememberedKeys is how many namespaces, users, or sources and objects a limit remembers, unless it says so itself. Whoever is
// forgotten begins anew. It's kube-apiserver's figure.
const rememberedKeys = 4096

// eventKeys are what the types of limits tell apart.
var eventKeys = map[string]func(*request) string{
	"Server":          func(*request) string { return "" },
	"Namespace":       func(r *request) string { return r.Namespace },
	"User":            func(r *request) string { return r.User.GetName() },
	"SourceAndObject": sourceAndObject,
}

// sourceAndObject is who reports an Event, and of what.
func sourceAndObject(r *request) string {
	source, object := r.Object.Object["source"], r.Object.Object["involvedObject"]
	return strings.Join([]string{
		textOf(source, "component"), textOf(source, "host"), textOf(object, "kind"), textOf(object, "namespace"),
		textOf(object, "name"), textOf(object, "uid"), textOf(object, "apiVersion"),
	}, "")
}

// eventLimit is an eventRate at work.
type eventLimit struct {
	eventRate
	key   func(*request) string
	mu    sync.Mutex
	known *lru.Cache // of *rate.Limiter, by key; guarded by mu
}

// NewEventRateLimit returns the plug-in. configuration is a Configuration as YAML or JSON; without one there is no limit to go by,
// which is an error.
func NewEventRateLimit(configuration []byte) (*EventRateLimit, error) {
	var rates eventRates
	if err := yaml.Unmarshal(configuration, &rates); err != nil {
		return nil, err
	}
	if want := (metav1.TypeMeta{APIVersion: "eventratelimit.admission.k8s.io/v1alpha1", Kind: "Configuration"}); len(configuration) > 0 && rates.TypeMeta != want {
		return nil, fmt.Errorf("the configuration is %q %q, not %q %q", rates.APIVersion, rates.Kind, want.APIVersion, want.Kind)
	}
	e := &EventRateLimit{}
	errs := field.ErrorList{}
	if len(rates.Limits) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("limits"), rates.Limits, "must not be empty"))
	}
	for i, l := range rates.Limits {
		errs = append(errs, l.validate(field.NewPath("limits").Index(i))...)
		size := int(cmp.Or(max(l.CacheSize, 0), rememberedKeys))
		e.limits = append(e.limits, &eventLimit{eventRate: l, key: eventKeys[l.Type], known: lru.New(size)})
	}
	return e, errs.ToAggregate()
}

func (l *eventRate) validate(at *field.Path) (errs field.ErrorList) {
	if eventKeys[l.Type] == nil {
		errs = append(errs, field.NotSupported(at.Child("type"), l.Type, []string{"Namespace", "Server", "SourceAndObject", "User"}))
	}
	if l.Burst <= 0 {
		errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
	}
	if l.QPS <= 0 {
		errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
	}
	if l.CacheSize < 0 && l.Type != "Server" {
		errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
	}
	return errs
}

// Concerns is about Events of the core group that are created or updated. Those of events.k8s.io aren't limited, as in Kubernetes.
func (e *EventRateLimit) Concerns(a *registry.Attributes) bool {
	return !a.DryRun && a.Kind.Group == corev1.GroupName && a.Kind.Kind == "Event" && a.Operation != registry.Delete
}

// Validate counts the request against each limit, also against those after one that refuses it.
func (e *EventRateLimit) Validate(_ context.Context, r *request) (registry.Verdict, error) {
	var errs []error
	for _, l := range e.limits {
		if key := l.key(r); !l.of(key).AllowN(time.Now(), 1) {
			errs = append(errs, fmt.Errorf("limit reached on type %v for key %v", l.Type, key))
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return registry.Refuse(apierrors.NewTooManyRequestsError(err.Error())), nil
	}
	return registry.Verdict{}, nil
}

// of returns the limiter of a key.
func (l *eventLimit) of(key string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known.Get(key); ok {
		return known.(*rate.Limiter)
	}
	limiter := rate.NewLimiter(rate.Limit(l.QPS), int(l.Burst))
	l.known.Add(key, limiter)
	return limiter
}
