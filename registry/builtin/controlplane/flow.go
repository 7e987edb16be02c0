package controlplane

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules of the group flowcontrol.apiserver.k8s.io, in the order in which Kubernetes asks them.

// maxQueues is the largest number of a level's queues, as in Kubernetes.
const maxQueues = 10 * 1000 * 1000

// preservesZeroShares is an annotation by which an older version of levels keeps what it can't say.
const preservesZeroShares = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"

var flowVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateFlowSchema(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	c, at := &check{}, field.NewPath("spec")
	c.flowSchema(s.Name, &s.Spec, at)
	for _, fixed := range bootstrap.MandatoryFlowSchemas {
		c.Refuse(fixed.Name == s.Name && !equality.Semantic.DeepEqual(s.Spec, fixed.Spec), at, rules.Untagged(s.Spec), "spec of '"+s.Name+"' must equal the fixed value")
	}
	return c.All()
}

// check collects what is wrong with what divides the server among requests.
type check struct{ rules.Check }

func (c *check) flowSchema(name string, s *flowcontrolv1.FlowSchemaSpec, at *field.Path) {
	place := at.Child("matchingPrecedence")
	switch p := s.MatchingPrecedence; {
	case p <= 0:
		c.Add(field.Invalid(place, p, "must be a positive value"))
	case p > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		c.Add(field.Invalid(place, p, fmt.Sprintf("must not be greater than %d", flowcontrolv1.FlowSchemaMaxMatchingPrecedence)))
	case p == 1 && name != flowcontrolv1.FlowSchemaNameExempt:
		c.Add(field.Invalid(place, p, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	methods := []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType}
	if d := s.DistinguisherMethod; d != nil && !slices.Contains(methods, d.Type) {
		c.Add(field.NotSupported(at.Child("distinguisherMethod", "type"), rules.Untagged(d), methods))
	}
	level := at.Child("priorityLevelConfiguration", "name")
	if s.PriorityLevelConfiguration.Name == "" {
		c.Add(field.Required(level, "must reference a priority level"))
	} else {
		c.Subdomain(level, s.PriorityLevelConfiguration.Name)
	}
	for i := range s.Rules {
		c.flowRule(&s.Rules[i], at.Child("rules").Index(i))
	}
}

func (c *check) flowRule(r *flowcontrolv1.PolicyRulesWithSubjects, at *field.Path) {
	c.Lack(len(r.Subjects) == 0, at.Child("subjects"), "subjects must contain at least one value")
	for i := range r.Subjects {
		c.flowSubject(&r.Subjects[i], at.Child("subjects").Index(i))
	}
	c.Lack(len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0, at, "at least one of resourceRules and nonResourceRules has to be non-empty")
	for i := range r.ResourceRules {
		c.resourceRule(&r.ResourceRules[i], at.Child("resourceRules").Index(i))
	}
	for i := range r.NonResourceRules {
		c.nonResourceRule(&r.NonResourceRules[i], at.Child("nonResourceRules").Index(i))
	}
}

func (c *check) flowSubject(s *flowcontrolv1.Subject, at *field.Path) {
	kinds := []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser}
	if !slices.Contains(kinds, s.Kind) {
		c.Add(field.NotSupported(at.Child("kind"), s.Kind, kinds))
		return
	}
	missing := func(name string) {
		c.Add(field.Required(at.Child(name), fmt.Sprintf("%s is required when subject kind is '%s'", name, s.Kind)))
	}
	switch s.Kind {
	case flowcontrolv1.SubjectKindServiceAccount:
		if s.ServiceAccount == nil {
			missing("serviceAccount")
		} else {
			c.flowAccount(s.ServiceAccount, at.Child("serviceAccount"))
		}
	case flowcontrolv1.SubjectKindUser:
		if s.User == nil {
			missing("user")
		} else {
			c.Required(at.Child("user", "name"), s.User.Name)
		}
	case flowcontrolv1.SubjectKindGroup:
		if s.Group == nil {
			missing("group")
		} else {
			c.Required(at.Child("group", "name"), s.Group.Name)
		}
	}
	for _, other := range []struct {
		kind flowcontrolv1.SubjectKind
		name string
		set  bool
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil},
	} {
		c.Forbid(other.set && other.kind != s.Kind, at.Child(other.name), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", other.name, other.kind))
	}
}

func (c *check) flowAccount(s *flowcontrolv1.ServiceAccountSubject, at *field.Path) {
	if c.Required(at.Child("name"), s.Name) && s.Name != flowcontrolv1.NameAll {
		c.Texts(at.Child("name"), s.Name, validation.ValidateServiceAccountName(s.Name, false))
	}
	if s.Namespace == "" {
		c.Add(field.Required(at.Child("namespace"), "must specify namespace for service account"))
	} else {
		c.Texts(at.Child("namespace"), s.Namespace, validation.ValidateNamespaceName(s.Namespace, false))
	}
}

// wildcard tells whether a list of a rule has the wildcard, which may only be alone. others is what else would be in the list.
func (c *check) wildcard(at *field.Path, list []string, others string) bool {
	if !slices.Contains(list, flowcontrolv1.NameAll) {
		return false
	}
	c.Refuse(len(list) > 1, at, list, "if '*' is present, must not specify other "+others)
	return true
}

func (c *check) flowVerbs(at *field.Path, list []string) {
	if len(list) == 0 {
		c.Add(field.Required(at, "verbs must contain at least one value"))
	} else if !c.wildcard(at, list, "verbs") && !sets.New(flowVerbs...).HasAll(list...) {
		c.Add(field.NotSupported(at, list, flowVerbs))
	}
}

func (c *check) resourceRule(r *flowcontrolv1.ResourcePolicyRule, at *field.Path) {
	c.flowVerbs(at.Child("verbs"), r.Verbs)
	if groups := at.Child("apiGroups"); len(r.APIGroups) == 0 {
		c.Add(field.Required(groups, "resource rules must supply at least one api group"))
	} else {
		c.wildcard(groups, r.APIGroups, "api groups")
	}
	if resources := at.Child("resources"); len(r.Resources) == 0 {
		c.Add(field.Required(resources, "resource rules must supply at least one resource"))
	} else {
		c.wildcard(resources, r.Resources, "resources")
	}
	namespaces := at.Child("namespaces")
	if len(r.Namespaces) == 0 && !r.ClusterScope {
		c.Add(field.Required(namespaces, "resource rules that are not cluster scoped must supply at least one namespace"))
	} else if !c.wildcard(namespaces, r.Namespaces, "namespaces") {
		for i, name := range r.Namespaces {
			for _, text := range validation.ValidateNamespaceName(name, false) {
				c.Add(field.Invalid(namespaces.Index(i), name, "each member of this list must be '*' or a DNS-1123 label; "+text))
			}
		}
	}
}

func (c *check) nonResourceRule(r *flowcontrolv1.NonResourcePolicyRule, at *field.Path) {
	c.flowVerbs(at.Child("verbs"), r.Verbs)
	paths := at.Child("nonResourceURLs")
	if len(r.NonResourceURLs) == 0 {
		c.Add(field.Required(paths, "nonResourceURLs must contain at least one value"))
	} else if !c.wildcard(paths, r.NonResourceURLs, "non-resource URLs") {
		for i, path := range r.NonResourceURLs {
			if text := wrongPath(path); text != "" {
				c.Add(field.Invalid(paths.Index(i), path, text))
			}
		}
	}
}

// wrongPath says what is wrong with a path that isn't of a resource, or with a pattern of such paths.
func wrongPath(path string) string {
	n := strings.Count(path, "*")
	switch {
	case path == "":
		return "must not be empty"
	case path == "/":
		return ""
	case path[0] != '/':
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case n > 1 || n == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

func validateFlowSchemaStatus(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	return conditionTypes(s.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) flowcontrolv1.FlowSchemaConditionType { return c.Type })
}

// conditionTypes checks that the conditions of a status have types, each its own.
func conditionTypes[C any, T ~string](conditions []C, typeOf func(C) T) field.ErrorList {
	c, seen := &check{}, rules.Earlier[T]{}
	for i, condition := range conditions {
		at, of := field.NewPath("status", "conditions").Index(i).Child("type"), typeOf(condition)
		c.Twice(seen.Had(of), at, of)
		c.Required(at, string(of))
	}
	return c.Errs
}

func validatePriorityLevel(p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	c, at := &check{}, field.NewPath("spec")
	if _, ok := p.Annotations[preservesZeroShares]; ok {
		c.Add(field.Forbidden(field.NewPath("metadata", "annotations"), "annotation '"+preservesZeroShares+"' is forbidden"))
	}
	c.priorityLevel(p.Name, &p.Spec, at)
	for _, fixed := range bootstrap.MandatoryPriorityLevelConfigurations {
		if fixed.Name != p.Name {
			continue
		}
		want, except := fixed.Spec.DeepCopy(), ""
		if p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			want.Exempt, except = p.Spec.Exempt, " except the 'spec.exempt' field"
		}
		c.Refuse(!equality.Semantic.DeepEqual(p.Spec, *want), at, rules.Untagged(p.Spec), "spec of '"+p.Name+"'"+except+" must equal the fixed value")
	}
	return c.All()
}

func (c *check) priorityLevel(name string, s *flowcontrolv1.PriorityLevelConfigurationSpec, at *field.Path) {
	exempt := s.Type == flowcontrolv1.PriorityLevelEnablementExempt
	c.Refuse((name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != exempt, at.Child("type"), s.Type, "must be 'Exempt' if and only if `name` is 'exempt'")
	limited := s.Type == flowcontrolv1.PriorityLevelEnablementLimited
	switch {
	case exempt && s.Exempt != nil:
		if n := s.Exempt.NominalConcurrencyShares; n != nil {
			c.shares(*n, at.Child("exempt"))
		}
		c.lendable(s.Exempt.LendablePercent, at.Child("exempt"))
	case limited && s.Limited != nil:
		c.limitedLevel(s.Limited, at.Child("limited"))
	case !exempt && !limited && s.Type != "":
		c.Add(field.NotSupported(at.Child("type"), s.Type, []flowcontrolv1.PriorityLevelEnablement{flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}))
	}
	c.member(at.Child("exempt"), s.Exempt != nil, false, exempt)
	c.member(at.Child("limited"), s.Limited != nil, limited, limited)
	if s.Type == "" {
		c.Declare(field.Required(at.Child("type"), ""))
	}
	if s.Limited == nil {
		return
	}
	response := at.Child("limited", "limitResponse")
	queues := s.Limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue
	c.member(response.Child("queuing"), s.Limited.LimitResponse.Queuing != nil, queues, queues)
	if s.Limited.LimitResponse.Type == "" {
		c.Declare(field.Required(response.Child("type"), ""))
	}
}

// member checks whether what a type decides about is there.
func (c *check) member(at *field.Path, is, must, may bool) {
	if must && !is {
		c.Declare(field.Required(at, ""))
	}
	if is && !may {
		c.Declare(field.Forbidden(at, ""))
	}
}

func (c *check) limitedLevel(l *flowcontrolv1.LimitedPriorityLevelConfiguration, at *field.Path) {
	if l.NominalConcurrencyShares != nil {
		c.shares(*l.NominalConcurrencyShares, at)
	}
	response := at.Child("limitResponse")
	switch r := l.LimitResponse; r.Type {
	case flowcontrolv1.LimitResponseTypeReject, "":
	case flowcontrolv1.LimitResponseTypeQueue:
		if r.Queuing != nil {
			c.queuing(r.Queuing, response.Child("queuing"))
		}
	default:
		c.Add(field.NotSupported(response.Child("type"), r.Type, []flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}))
	}
	c.lendable(l.LendablePercent, at)
	if p := l.BorrowingLimitPercent; p != nil && *p < 0 {
		c.Add(field.Invalid(at.Child("borrowingLimitPercent"), *p, "if specified, must be a non-negative integer"))
	}
}

func (c *check) shares(n int32, of *field.Path) {
	c.Refuse(n < 0, of.Child("nominalConcurrencyShares"), n, "must be a non-negative integer")
}

func (c *check) lendable(percent *int32, of *field.Path) {
	if percent != nil && (*percent < 0 || *percent > 100) {
		c.Add(field.Invalid(of.Child("lendablePercent"), *percent, "must be between 0 and 100, inclusive"))
	}
}

func (c *check) queuing(q *flowcontrolv1.QueuingConfiguration, at *field.Path) {
	const positive = "must be positive"
	c.Refuse(q.QueueLengthLimit <= 0, at.Child("queueLengthLimit"), q.QueueLengthLimit, positive)
	if queues := at.Child("queues"); q.Queues <= 0 {
		c.Add(field.Invalid(queues, q.Queues, positive))
	} else if q.Queues > maxQueues {
		c.Add(field.Invalid(queues, q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	hand := at.Child("handSize")
	if q.HandSize <= 0 {
		c.Add(field.Invalid(hand, q.HandSize, positive))
	} else if q.HandSize > q.Queues {
		c.Add(field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	} else if bits := shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)); bits > shufflesharding.MaxHashBits {
		c.Add(field.Invalid(hand, q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, shufflesharding.MaxHashBits)))
	}
}

func validatePriorityLevelStatus(p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	return conditionTypes(p.Status.Conditions, func(c flowcontrolv1.PriorityLevelConfigurationCondition) flowcontrolv1.PriorityLevelConfigurationConditionType {
		return c.Type
	})
}

// byPrecedence orders schemas as they're asked about a request.
func byPrecedence(a, b registry.Typed) int {
	x, y := a.(*flowcontrolv1.FlowSchema), b.(*flowcontrolv1.FlowSchema)
	return cmp.Or(cmp.Compare(x.Spec.MatchingPrecedence, y.Spec.MatchingPrecedence), strings.Compare(x.Name, y.Name))
}

// The defaults of API Priority and Fairness, as the API documentation names them.
const (
	defaultPrecedence  int32 = 1000
	defaultShares      int32 = 30
	defaultQueues      int32 = 64
	defaultHandSize    int32 = 8
	defaultQueueLength int32 = 50
)

func defaultFlowSchema(s *flowcontrolv1.FlowSchema) {
	line.OrDefault(&s.Spec.MatchingPrecedence, defaultPrecedence)
}

func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if e := p.Spec.Exempt; e != nil {
		line.OrPointTo(&e.NominalConcurrencyShares, 0)
		line.OrPointTo(&e.LendablePercent, 0)
	}
	l := p.Spec.Limited
	if l == nil {
		return
	}
	line.OrPointTo(&l.NominalConcurrencyShares, defaultShares)
	line.OrPointTo(&l.LendablePercent, 0)
	if q := l.LimitResponse.Queuing; q != nil {
		line.OrDefault(&q.Queues, defaultQueues)
		line.OrDefault(&q.HandSize, defaultHandSize)
		line.OrDefault(&q.QueueLengthLimit, defaultQueueLength)
	}
}

func flowSchemaColumns() []registry.Column {
	doc := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return []registry.Column{
		column.Text("PriorityLevel", "spec.priorityLevelConfiguration.name", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]),
		column.AsText(column.Number("MatchingPrecedence", "spec.matchingPrecedence", doc["matchingPrecedence"])),
		column.OrNone("DistinguisherMethod", "spec.distinguisherMethod.type", doc["distinguisherMethod"]),
		column.Age(),
		column.Cell("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", func(o any) any {
			for _, c := range column.AsList(column.At(o, "status.conditions")) {
				if column.At(c, "type") == string(flowcontrolv1.FlowSchemaConditionDangling) {
					return column.Str(column.At(c, "status"))
				}
			}
			return "?"
		}),
	}
}

func priorityLevelColumns() []registry.Column {
	limit := func(name, path, description string) registry.Column {
		return column.Cell(name, description, func(o any) any {
			if n := column.At(o, "spec.limited."+path); n != nil {
				return n
			}
			return column.None
		})
	}
	queuing := func(name, field string) registry.Column {
		return limit(name, "limitResponse.queuing."+field, flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()[field])
	}
	return []registry.Column{
		column.Text("Type", "spec.type", flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]),
		limit("NominalConcurrencyShares", "nominalConcurrencyShares", flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]),
		queuing("Queues", "queues"),
		queuing("HandSize", "handSize"),
		queuing("QueueLengthLimit", "queueLengthLimit"),
		column.Age(),
	}
}
