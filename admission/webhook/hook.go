package webhook

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/expression"
	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

const (
	// defaultTimeout is for a webhook that says none; one that was written here says it.
	defaultTimeout = 10 * time.Second
	// maxCalls bounds the calls of one webhook under way at once. Others wait for a slot, within their timeout.
	maxCalls = 32
	// maxAnswer bounds an answer, in bytes: a patch may replace the largest object.
	maxAnswer = 3 << 20
)

// hook is one webhook of a configuration. Immutable.
type hook struct {
	configuration string
	name          string
	spec          *admissionregistrationv1.MutatingWebhook // of a validating one, too
	namespaces    labels.Selector
	objects       labels.Selector
	conditions    func() match.Conditions // compiled at the first call
	timeout       time.Duration
	calls         hookclient.Config
	err           error // why it can't be called; nil for most
}

// newHook reads a webhook of a configuration.
func newHook(configuration string, spec *admissionregistrationv1.MutatingWebhook) *hook {
	h := &hook{configuration: configuration, name: spec.Name, spec: spec, timeout: defaultTimeout}
	h.conditions = sync.OnceValue(func() match.Conditions {
		return match.CompileConditions(expression.New(false), spec.MatchConditions)
	})
	if s := spec.TimeoutSeconds; s != nil {
		h.timeout = time.Duration(*s) * time.Second
	}
	h.namespaces, h.objects = labels.Everything(), labels.Everything()
	for _, s := range []struct {
		from *metav1.LabelSelector
		to   *labels.Selector
	}{{spec.NamespaceSelector, &h.namespaces}, {spec.ObjectSelector, &h.objects}} {
		if s.from == nil {
			continue
		}
		parsed, err := metav1.LabelSelectorAsSelector(s.from)
		if err != nil {
			h.err = err
			continue
		}
		*s.to = parsed
	}
	h.calls = configOf(&spec.ClientConfig)
	return h
}

func configOf(c *admissionregistrationv1.WebhookClientConfig) hookclient.Config {
	config := hookclient.Config{URL: ptr.Deref(c.URL, ""), CABundle: c.CABundle, MaxCalls: maxCalls, MaxAnswer: maxAnswer}
	if s := c.Service; s != nil {
		config.Service = &hookclient.Service{Namespace: s.Namespace, Name: s.Name, Path: ptr.Deref(s.Path, ""), Port: ptr.Deref(s.Port, 0)}
	}
	return config
}

// key identifies a webhook, also after its configuration was written again.
func (h *hook) key() any { return hookKey{h.configuration, h.name} }

type hookKey struct{ configuration, name string }

// ignores tells whether a failed call lets the request pass.
func (h *hook) ignores() bool {
	return h.spec.FailurePolicy != nil && *h.spec.FailurePolicy == admissionregistrationv1.Ignore
}

// mayRun tells whether it may be called about a dry run.
func (h *hook) mayRun(dryRun bool) bool {
	if !dryRun {
		return true
	}
	e := h.spec.SideEffects
	return e != nil && (*e == admissionregistrationv1.SideEffectClassNone || *e == admissionregistrationv1.SideEffectClassNoneOnDryRun)
}

// again tells whether it may be called twice for one write.
func (h *hook) again() bool {
	p := h.spec.ReinvocationPolicy
	return p != nil && *p == admissionregistrationv1.IfNeededReinvocationPolicy
}

// hooks are all webhooks of a kind of configurations, in the order in which they're called.
type hooks struct {
	all   []*hook
	paths atomic.Pointer[paths]
}

// paths remembers which webhooks can concern a path, for what was served when it was made. It has an entry for each path
// that was written to.
type paths struct {
	catalog *registry.Catalog
	known   sync.Map // from path to []candidate
}

// path is what of a request never depends on objects.
type path struct {
	operation   registry.Operation
	resource    schema.GroupVersionResource
	subresource string
	namespaced  bool
}

// candidate is a webhook with the place by which one of its rules is about a path.
type candidate struct {
	*hook
	at    match.Place
	index int // in the audit log: of a mutating webhook among all, of a validating one among those that are called
}

// about returns the webhooks whose rules are about a request.
func (h *hooks) about(a *registry.Attributes, c *registry.Catalog) []candidate {
	if len(h.all) == 0 || match.Exempt(a) {
		return nil
	}
	known := h.paths.Load()
	if known == nil || known.catalog != c {
		known = &paths{catalog: c}
		h.paths.Store(known)
	}
	key := path{a.Operation, a.Resource, a.Subresource, a.Namespace != ""}
	if found, ok := known.known.Load(key); ok {
		return found.([]candidate)
	}
	var found []candidate
	p := match.PathOf(a, c)
	for i, one := range h.all {
		if at, ok := match.Rules(one.spec.Rules, one.spec.MatchPolicy, p); ok {
			found = append(found, candidate{one, at, i})
		}
	}
	known.known.Store(key, found)
	return found
}

// clients are the HTTP clients of webhooks, one for all webhooks that are called in the same way.
type clients struct {
	network hookclient.Network
	closing sync.WaitGroup // goroutines that close clients

	mu     sync.Mutex // guards what follows
	open   map[string]*hookclient.Client
	closed bool
}

// keyOf identifies a way of calling.
func keyOf(c hookclient.Config) string {
	service := ""
	if s := c.Service; s != nil {
		service = fmt.Sprintf("%s/%s:%d%s", s.Namespace, s.Name, s.Port, s.Path)
	}
	return strings.Join([]string{c.URL, service, string(c.CABundle)}, "\x00")
}

// begin returns a client that is open until its Done.
func (c *clients) begin(config hookclient.Config) (*hookclient.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, hookclient.ErrClosed
	}
	key := keyOf(config)
	client := c.open[key]
	if client == nil {
		var err error
		if client, err = hookclient.New(config, c.network); err != nil {
			return nil, err
		}
		if c.open == nil {
			c.open = map[string]*hookclient.Client{}
		}
		c.open[key] = client
	}
	return client, client.Begin()
}

// keep closes the clients that none of the webhooks calls any more, when the calls under way have ended.
func (c *clients) keep(used []*hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		return
	}
	keys := make([]string, 0, len(used))
	for _, h := range used {
		keys = append(keys, keyOf(h.calls))
	}
	for key, client := range c.open {
		if !slices.Contains(keys, key) {
			delete(c.open, key)
			c.closing.Go(client.Close)
		}
	}
}

// Close refuses further calls, waits for those under way, and closes all clients.
func (c *clients) Close() error {
	c.mu.Lock()
	c.closed = true
	for key, client := range c.open {
		delete(c.open, key)
		c.closing.Go(client.Close)
	}
	c.mu.Unlock()
	c.closing.Wait()
	return nil
}
