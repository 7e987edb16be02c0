package server

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Where users are told apart, FlowSchemas say to which flow and which level a request belongs, and
// PriorityLevelConfigurations what a level may have. Those of Kubernetes are in effect until others with their names are
// stored, and its mandatory ones always are.

// Where the seats of leases come from, and the name of what other requests have where users aren't told apart.
const (
	leaseLevel   = "leader-election"
	defaultLevel = "global-default"
)

// leaseSchema is ours: everybody's leases have the level of the leases of Kubernetes' own controllers, so that a controller
// that renews its own doesn't wait behind its lists. Its precedence is just before that of all ServiceAccounts.
var leaseSchema = &flowcontrolv1.FlowSchema{Spec: flowcontrolv1.FlowSchemaSpec{
	PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: leaseLevel},
	MatchingPrecedence:         8999,
	DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
	Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
		Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: flowcontrolv1.NameAll}}},
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
			Verbs: []string{"get", "create", "update", "patch"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Namespaces: []string{flowcontrolv1.NamespaceEvery},
		}},
	}},
}}

func init() { leaseSchema.Name = "leases" }

// priorities are the levels and schemas in effect.
type priorities struct {
	most   int // seats of all levels
	pool   *fair.Pool
	levels map[string]*fair.Level // by their names; only derive uses it, of which one runs at a time
	stored *registry.Derived[*flowSchemas]
	fixed  *flowSchemas // instead of stored, where the kinds aren't served
}

// flowSchemas are the FlowSchemas in effect, in the order in which they're asked. They never change.
type flowSchemas struct {
	all    []flowSchema
	levels []namedLevel
}

// flowSchema is a FlowSchema with its level.
type flowSchema struct {
	*flowcontrolv1.FlowSchema
	level *fair.Level // nil: exempt
	named *flowcontrolv1.PriorityLevelConfiguration
}

type namedLevel struct {
	name  string
	level *fair.Level
}

var (
	schemasPrefix = storage.PrefixOf(flowcontrolv1.GroupName, "flowschemas")
	levelsPrefix  = storage.PrefixOf(flowcontrolv1.GroupName, "prioritylevelconfigurations")
)

// newPriorities returns the levels that share so many seats. r is nil where nobody can store others.
func newPriorities(most int, r *registry.Registry) *priorities {
	p := &priorities{most: most, pool: fair.NewPool(0), levels: map[string]*fair.Level{}}
	if r == nil {
		p.fixed = p.derive(nil, nil)
		return p
	}
	var (
		flows  registry.Decoded[flowcontrolv1.FlowSchema]
		levels registry.Decoded[flowcontrolv1.PriorityLevelConfiguration]
	)
	leave := func(*kube.Object, error) {} // an object that nobody can read has no effect; whoever reads it has it logged
	p.stored = registry.Derive(r, func(of func(storage.Prefix) []*kube.Object) *flowSchemas {
		return p.derive(flows.All(of(schemasPrefix), leave), levels.All(of(levelsPrefix), leave))
	}, schemasPrefix, levelsPrefix)
	return p
}

// now returns the schemas in effect.
func (p *priorities) now() *flowSchemas {
	if p.stored == nil {
		return p.fixed
	}
	return p.stored.Get()
}

// inEffect returns what is mandatory, what is stored besides, and what is suggested and not stored. What is mandatory has the UID of the
// stored object of its name.
func inEffect[T any, P interface {
	*T
	metav1.Object
	DeepCopy() *T
}](mandatory, stored, suggested []P) (all []P) {
	known := map[string]int{} // where an object of that name is in all
	for i, these := range [][]P{mandatory, stored, suggested} {
		for _, one := range these {
			at, again := known[one.GetName()]
			switch {
			case !again && i == 0:
				one = P(one.DeepCopy()) // Kubernetes' own, which all servers of this process share
				fallthrough
			case !again:
				known[one.GetName()] = len(all)
				all = append(all, one)
			case at < len(mandatory):
				all[at].SetUID(one.GetUID())
			}
		}
	}
	return all
}

// derive makes the levels what their configurations say, and returns the schemas.
func (p *priorities) derive(flows []*flowcontrolv1.FlowSchema, stored []*flowcontrolv1.PriorityLevelConfiguration) *flowSchemas {
	configurations := inEffect(bootstrap.MandatoryPriorityLevelConfigurations, stored, bootstrap.SuggestedPriorityLevelConfigurations)
	flows = inEffect(bootstrap.MandatoryFlowSchemas, flows, append(slices.Clone(bootstrap.SuggestedFlowSchemas), leaseSchema))
	slices.SortStableFunc(flows, func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	byName := p.configure(configurations)
	next := &flowSchemas{}
	for _, c := range configurations {
		if l := p.levels[c.Name]; l != nil {
			next.levels = append(next.levels, namedLevel{c.Name, l})
		}
	}
	for _, f := range flows {
		if c := byName[f.Spec.PriorityLevelConfiguration.Name]; c != nil { // others dangle
			next.all = append(next.all, flowSchema{f, p.levels[c.Name], c})
		}
	}
	return next
}

// configure shares the seats between the levels by their shares, as kube-apiserver does. What a level lends goes to whoever
// needs it at the moment. It returns the configurations by name.
func (p *priorities) configure(configurations []*flowcontrolv1.PriorityLevelConfiguration) map[string]*flowcontrolv1.PriorityLevelConfiguration {
	byName := map[string]*flowcontrolv1.PriorityLevelConfiguration{}
	sum := 0.0
	for _, c := range configurations {
		shares, _, _ := commons(c)
		sum += shares
		byName[c.Name] = c
	}
	shared, limits, levels := 0, map[*fair.Level]fair.Limits{}, map[string]*fair.Level{}
	for _, c := range configurations {
		shares, lends, borrows := commons(c)
		nominal := 0
		if sum > 0 {
			nominal = int(math.Ceil(float64(p.most) * shares / sum))
		}
		lent := int(math.Round(float64(nominal) * lends / 100))
		shared += lent
		if c.Spec.Limited == nil {
			continue
		}
		may := fair.Limits{Reserved: nominal - lent, Most: nominal + p.most}
		if borrows != nil {
			may.Most = nominal + int(math.Round(float64(nominal)*float64(*borrows)/100))
		}
		if q := c.Spec.Limited.LimitResponse.Queuing; q != nil {
			may.PerFlow, may.Waiting = int(q.HandSize)*int(q.QueueLengthLimit), int(q.Queues)*int(q.QueueLengthLimit)
		}
		level := p.levels[c.Name]
		if level == nil {
			level = p.pool.Add(may)
		}
		levels[c.Name], limits[level] = level, may
	}
	p.levels = levels
	p.pool.Share(shared, limits)
	return byName
}

// defaultShares is what a level has that doesn't say: Kubernetes' default.
const defaultShares = 30

// commons returns what limited and exempt levels have in common: their shares, what they lend and, nil for any number, what
// they borrow, both in percent.
func commons(c *flowcontrolv1.PriorityLevelConfiguration) (shares, lends float64, borrows *int32) {
	value := func(p *int32, otherwise int32) float64 {
		if p == nil {
			return float64(otherwise)
		}
		return float64(*p)
	}
	switch {
	case c.Spec.Limited != nil:
		l := c.Spec.Limited
		return value(l.NominalConcurrencyShares, defaultShares), value(l.LendablePercent, 0), l.BorrowingLimitPercent
	case c.Spec.Exempt != nil:
		return value(c.Spec.Exempt.NominalConcurrencyShares, 0), value(c.Spec.Exempt.LendablePercent, 0), nil
	}
	return 0, 0, nil
}

// of returns the schema of a request.
func (s *flowSchemas) of(u user.Info, asks *authorizer.AttributesRecord) *flowSchema {
	for i := range s.all {
		if s.all[i].matches(u, asks) {
			return &s.all[i]
		}
	}
	for i := range s.all {
		if s.all[i].Name == flowcontrolv1.FlowSchemaNameCatchAll {
			return &s.all[i]
		}
	}
	return nil // it's mandatory
}

// flow names the flow of a request within its schema.
func (s *flowSchema) flow(u user.Info, asks *authorizer.AttributesRecord) fair.Flow {
	f := fair.Flow{Rule: s.Name}
	if m := s.Spec.DistinguisherMethod; m != nil {
		switch m.Type {
		case flowcontrolv1.FlowDistinguisherMethodByUserType:
			f.Who = u.GetName()
		case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
			f.Who = asks.Namespace
		}
	}
	return f
}

func (s *flowSchema) matches(u user.Info, asks *authorizer.AttributesRecord) bool {
	for i := range s.Spec.Rules {
		rule := &s.Spec.Rules[i]
		if !slices.ContainsFunc(rule.Subjects, func(s flowcontrolv1.Subject) bool { return isSubject(u, s) }) {
			continue
		}
		if asks.ResourceRequest {
			for j := range rule.ResourceRules {
				if ruleMatches(&rule.ResourceRules[j], asks) {
					return true
				}
			}
			continue
		}
		for j := range rule.NonResourceRules {
			r := &rule.NonResourceRules[j]
			if has(r.Verbs, asks.Verb) && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool { return urlMatches(url, asks.Path) }) {
				return true
			}
		}
	}
	return false
}

func isSubject(u user.Info, s flowcontrolv1.Subject) bool {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		return s.User.Name == flowcontrolv1.NameAll || s.User.Name == u.GetName()
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		return s.Group.Name == flowcontrolv1.NameAll || slices.Contains(u.GetGroups(), s.Group.Name)
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		if s.ServiceAccount.Name != flowcontrolv1.NameAll {
			return serviceaccount.MatchesUsername(s.ServiceAccount.Namespace, s.ServiceAccount.Name, u.GetName())
		}
		of, ok := strings.CutPrefix(u.GetName(), serviceaccount.ServiceAccountUsernamePrefix)
		namespace, _, named := strings.Cut(of, serviceaccount.ServiceAccountUsernameSeparator)
		return ok && named && namespace == s.ServiceAccount.Namespace
	}
	return false
}

func ruleMatches(r *flowcontrolv1.ResourcePolicyRule, asks *authorizer.AttributesRecord) bool {
	resource := asks.Resource
	if !has(r.Verbs, asks.Verb) || !has(r.APIGroups, asks.APIGroup) {
		return false
	}
	if asks.Subresource != "" {
		resource += "/" + asks.Subresource
	}
	if !has(r.Resources, resource) {
		return false
	}
	if asks.Namespace == "" {
		return r.ClusterScope
	}
	return has(r.Namespaces, asks.Namespace)
}

// has tells whether a list of a rule has something. Alone, "*" is everything.
func has(list []string, one string) bool {
	return len(list) == 1 && list[0] == flowcontrolv1.VerbAll || slices.Contains(list, one)
}

// urlMatches tells whether a rule's URL is a path, or the beginning of one up to a slash.
func urlMatches(url, path string) bool {
	if url == flowcontrolv1.NonResourceAll || url == path {
		return true
	}
	url = strings.TrimSuffix(url, "*")
	if !strings.HasSuffix(url, "/") {
		return strings.HasPrefix(path, url) && strings.HasPrefix(path[len(url):], "/")
	}
	return strings.HasPrefix(path, url)
}

// classified is where a request gets its seat.
type classified struct {
	level        *fair.Level // nil: it needs none
	flow         fair.Flow
	schema, name string // of the FlowSchema and the level, for metrics
}

// classify finds out where a request gets its seat. Where users are told apart and schemas are stored, the answer names the
// stored objects by their UIDs, as kube-apiserver's does.
func (h *handler) classify(w *response, r *http.Request) classified {
	if h.identity == nil || !h.identity.on {
		if isLease(r.URL.Path) {
			return classified{h.seats.leases, w.share.flow, "", leaseLevel}
		}
		return classified{h.seats.rest, w.share.flow, "", defaultLevel}
	}
	u, asks := registry.UserFrom(r.Context()), w.asks
	if asks == nil {
		asks = access.AttributesOf(r)
	}
	s := h.priorities.now().of(u, asks)
	if lastsLong(asks) { // kube-apiserver gives it no seat
		return classified{s.level, s.flow(u, asks), s.Name, s.named.Name}
	}
	if s.UID != "" {
		w.Header().Set(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID, string(s.UID))
	}
	if s.named.UID != "" {
		w.Header().Set(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID, string(s.named.UID))
	}
	return classified{s.level, s.flow(u, asks), s.Name, s.named.Name}
}

// levelsNow returns the levels of requests.
func (h *handler) levelsNow() []namedLevel {
	if h.identity.on {
		return h.priorities.now().levels
	}
	return []namedLevel{{leaseLevel, h.seats.leases}, {defaultLevel, h.seats.rest}}
}

// seatsNow returns how many seats of requests are taken.
func (h *handler) seatsNow() (n int) {
	for _, l := range h.levelsNow() {
		n += taken(l.level)
	}
	return n
}

// flowMetrics are kube-apiserver's metrics of flow control that cost nothing.
type flowMetrics struct{ handler *handler }

var (
	inQueue   = prometheus.NewDesc("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat, by level.", []string{"priority_level"}, nil)
	executing = prometheus.NewDesc("apiserver_flowcontrol_current_executing_seats", "Seats that are taken, by level.", []string{"priority_level"}, nil)
)

func (m flowMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- inQueue
	descs <- executing
}

func (m flowMetrics) Collect(metrics chan<- prometheus.Metric) {
	for _, l := range m.handler.levelsNow() {
		used, waiting := l.level.Now()
		metrics <- prometheus.MustNewConstMetric(inQueue, prometheus.GaugeValue, float64(waiting), l.name)
		metrics <- prometheus.MustNewConstMetric(executing, prometheus.GaugeValue, float64(used), l.name)
	}
}
