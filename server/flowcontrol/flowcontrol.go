// Package flowcontrol says where requests get their seats. Where users are told apart, FlowSchemas say to which flow and which level a
// request belongs, and PriorityLevelConfigurations what a level may have: Priorities. Those of Kubernetes are in effect until others with
// their names are stored, and its mandatory ones always are. Elsewhere each address is a flow: Addresses.
package flowcontrol

import (
	"cmp"
	"math"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Where the seats of leases come from, and the name of what other requests have where users aren't told apart.
const (
	LeaseLevel   = "leader-election"
	DefaultLevel = "global-default"
)

// leaseSchema is ours: everybody's leases have the level of the leases of Kubernetes' own controllers, so that a controller
// that renews its own doesn't wait behind its lists. Its precedence is just before that of all ServiceAccounts.
var leaseSchema = &flowcontrolv1.FlowSchema{Spec: flowcontrolv1.FlowSchemaSpec{
	PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: LeaseLevel},
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

// Priorities are the levels and schemas in effect.
type Priorities struct {
	most   int // seats of all levels
	pool   *fair.Pool
	levels map[string]*fair.Level // by their names; only derive uses it, of which one runs at a time
	stored *registry.Derived[*Schemas]
	fixed  *Schemas // instead of stored, where the kinds aren't served
}

// Schemas are the FlowSchemas in effect, in the order in which they're asked. They never change.
type Schemas struct {
	all    []Schema
	Levels []Level
}

// Schema is a FlowSchema with its level.
type Schema struct {
	*flowcontrolv1.FlowSchema
	Level *fair.Level // nil: exempt
	Named *flowcontrolv1.PriorityLevelConfiguration
}

// Level is a level by its name.
type Level struct {
	Name string
	*fair.Level
}

var (
	schemasPrefix = storage.PrefixOf(flowcontrolv1.GroupName, "flowschemas")
	levelsPrefix  = storage.PrefixOf(flowcontrolv1.GroupName, "prioritylevelconfigurations")
)

// New returns the levels that share so many seats. r is nil where nobody can store others.
func New(most int, r *registry.Registry) *Priorities {
	p := &Priorities{most: most, pool: fair.NewPool(0), levels: map[string]*fair.Level{}}
	if r == nil {
		p.fixed = p.derive(nil, nil)
		return p
	}
	var (
		flows  registry.Decoded[flowcontrolv1.FlowSchema]
		levels registry.Decoded[flowcontrolv1.PriorityLevelConfiguration]
	)
	leave := func(*kube.Object, error) {} // an object that nobody can read has no effect; whoever reads it has it logged
	p.stored = registry.Derive(r, func(of func(storage.Prefix) []*kube.Object) *Schemas {
		return p.derive(flows.All(of(schemasPrefix), leave), levels.All(of(levelsPrefix), leave))
	}, schemasPrefix, levelsPrefix)
	return p
}

// Now returns the schemas in effect.
func (p *Priorities) Now() *Schemas {
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
func (p *Priorities) derive(flows []*flowcontrolv1.FlowSchema, stored []*flowcontrolv1.PriorityLevelConfiguration) *Schemas {
	configurations := inEffect(bootstrap.MandatoryPriorityLevelConfigurations, stored, bootstrap.SuggestedPriorityLevelConfigurations)
	flows = inEffect(bootstrap.MandatoryFlowSchemas, flows, append(slices.Clone(bootstrap.SuggestedFlowSchemas), leaseSchema))
	slices.SortStableFunc(flows, func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	byName := p.configure(configurations)
	next := &Schemas{}
	for _, c := range configurations {
		if l := p.levels[c.Name]; l != nil {
			next.Levels = append(next.Levels, Level{c.Name, l})
		}
	}
	for _, f := range flows {
		if c := byName[f.Spec.PriorityLevelConfiguration.Name]; c != nil { // others dangle
			next.all = append(next.all, Schema{f, p.levels[c.Name], c})
		}
	}
	return next
}

// configure shares the seats between the levels by their shares, as kube-apiserver does. What a level lends goes to whoever
// needs it at the moment. It returns the configurations by name.
func (p *Priorities) configure(configurations []*flowcontrolv1.PriorityLevelConfiguration) map[string]*flowcontrolv1.PriorityLevelConfiguration {
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

// Of returns the schema of a request.
func (s *Schemas) Of(u user.Info, asks *authorizer.AttributesRecord) *Schema {
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

// Flow names the flow of a request within its schema.
func (s *Schema) Flow(u user.Info, asks *authorizer.AttributesRecord) fair.Flow {
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

func (s *Schema) matches(u user.Info, asks *authorizer.AttributesRecord) bool {
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

// Metrics are kube-apiserver's metrics of flow control that cost nothing, of the levels that it returns.
type Metrics func() []Level

var (
	inQueue   = prometheus.NewDesc("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat, by level.", []string{"priority_level"}, nil)
	executing = prometheus.NewDesc("apiserver_flowcontrol_current_executing_seats", "Seats that are taken, by level.", []string{"priority_level"}, nil)
)

func (m Metrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- inQueue
	descs <- executing
}

func (m Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, l := range m() {
		used, waiting := l.Now()
		metrics <- prometheus.MustNewConstMetric(inQueue, prometheus.GaugeValue, float64(waiting), l.Name)
		metrics <- prometheus.MustNewConstMetric(executing, prometheus.GaugeValue, float64(used), l.Name)
	}
}
