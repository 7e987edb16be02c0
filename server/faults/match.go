package faults

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// subject is what rules look at of a request.
type subject struct {
	user      string
	groups    []string
	userAgent string
	verb      string
	resources []string // a watch of several kinds has several, a path that is no resource's none
	namespace string
	name      string
	path      string
	query     url.Values
	connected bool // it has a connection, as the request of a List's object hasn't
}

// mergedPath is where several kinds are watched at once.
const mergedPath = "/apiserver-lite/v1/watch"

// subjectOf returns what rules look at of a request. asks is nil where rights don't count.
func subjectOf(r *http.Request, asks *authorizer.AttributesRecord) *subject {
	if asks == nil {
		asks = access.AttributesOf(r)
	}
	u := registry.UserFrom(r.Context())
	s := &subject{user: u.GetName(), groups: u.GetGroups(), userAgent: r.UserAgent(), verb: asks.Verb, namespace: asks.Namespace, name: asks.Name, path: r.URL.Path}
	s.query, _ = url.ParseQuery(r.URL.RawQuery) // one that doesn't parse is refused later
	switch {
	case asks.ResourceRequest:
		resource := asks.Resource
		if asks.APIGroup != "" {
			resource += "." + asks.APIGroup
		}
		if asks.Subresource != "" {
			resource += "/" + asks.Subresource
		}
		s.resources = []string{resource}
	case r.URL.Path == mergedPath && r.Method == http.MethodGet:
		s.verb, s.resources, s.namespace = "watch", s.query["resource"], s.query.Get("namespace")
	}
	if s.query.Get("resourceVersion") == "" && r.Header.Get("Last-Event-Id") != "" { // an EventSource that comes back
		s.query.Set("resourceVersion", r.Header.Get("Last-Event-Id"))
	}
	return s
}

// lists are a rule's lists of patterns.
func (m *Match) lists() []patterns {
	return []patterns{{"users", m.Users}, {"userAgents", m.UserAgents}, {"verbs", m.Verbs}, {"resources", m.Resources}, {"namespaces", m.Namespaces}, {"names", m.Names}}
}

// patterns are one of a rule's lists.
type patterns struct {
	name string
	all  []string
}

// everything tells whether a rule is about all requests.
func (m *Match) everything() bool {
	for _, list := range m.lists() {
		if len(list.all) > 0 && !slices.Contains(list.all, "*") {
			return false
		}
	}
	return m.CEL == "" || strings.TrimSpace(m.CEL) == "true"
}

// matcher is a Match with its expression compiled.
type matcher struct {
	*Match
	program cel.Program // nil: it has none
}

// matchEnvironment returns what the expressions of rules are compiled in: Kubernetes' libraries, and request. (A variable can't be called namespace in CEL.)
var matchEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	texts := apiservercel.NewListType(apiservercel.StringType, -1)
	types := map[string]*apiservercel.DeclType{"groups": texts, "query": apiservercel.NewMapType(apiservercel.StringType, texts, -1)}
	for _, name := range []string{"user", "userAgent", "verb", "resource", "namespace", "name", "path"} {
		types[name] = apiservercel.StringType
	}
	members := map[string]*apiservercel.DeclField{}
	for name, of := range types {
		members[name] = apiservercel.NewDeclField(name, of, true, nil, nil)
	}
	request := apiservercel.NewObjectType("faults.request", members)
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.Variable("request", request.CelType())}, DeclTypes: []*apiservercel.DeclType{request},
	})
	if err != nil {
		return nil, err
	}
	return set.NewExpressionsEnv(), nil
})

// maxExpression is how long an expression may be, in bytes.
const maxExpression = 4 << 10

// compile returns what matches. The error says what is wrong with the expression.
func (m *Match) compile() (matcher, error) {
	if m.CEL == "" {
		return matcher{Match: m}, nil
	}
	if len(m.CEL) > maxExpression {
		return matcher{}, fmt.Errorf("must be at most %d bytes", maxExpression)
	}
	env, err := matchEnvironment()
	if err != nil {
		return matcher{}, err
	}
	ast, issues := env.Compile(m.CEL)
	if issues.Err() != nil {
		return matcher{}, issues.Err()
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return matcher{}, fmt.Errorf("must be true or false, and is of the type %v", ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(celconfig.PerCallLimit))
	return matcher{Match: m, program: program}, err
}

// concerns tells whether a rule is about a request.
func (a *armed) concerns(s *subject, v Versions) bool {
	m := a.about
	if !a.suits(s, v) || !fits(m.Verbs, s.verb) || !fits(m.Users, s.user) || !fits(m.UserAgents, s.userAgent) || !fits(m.Namespaces, s.namespace) || !fits(m.Names, s.name) || !fits(m.Resources, s.resources...) {
		return false
	}
	if m.program == nil {
		return true
	}
	is, err := s.evaluate(m.program)
	if err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.failure = clip.Text(err.Error())
	}
	return is && err == nil
}

// suits tells whether a request could meet a rule's fault at all.
func (a *armed) suits(s *subject, v Versions) bool {
	version := s.query.Get("resourceVersion")
	switch {
	case a.Watch != nil && a.Watch.Expired:
		return s.verb == "watch" && version != "" && version != "0" && !reads.Flag(s.query, "sendInitialEvents")
	case a.Watch != nil:
		return s.verb == "watch"
	case a.Stale != nil:
		return s.verb == "list" && (version == "" || version == "0") && s.query.Get("continue") == "" && !s.query.Has("at") && v.Newest() > max(v.Oldest(), 1)
	case a.Cut != "":
		return s.connected && (s.verb != "watch" || a.Cut == CutRequest)
	case a.Status != nil && a.Status.After:
		return s.verb != "watch"
	}
	return true
}

// fits tells whether one of the patterns describes one of the values. No pattern describes all.
func fits(patterns []string, values ...string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(values, func(value string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool {
			begin, open := strings.CutSuffix(pattern, "*")
			return value == pattern || open && strings.HasPrefix(value, begin)
		})
	})
}

// evaluate returns what an expression says of a request.
func (s *subject) evaluate(p cel.Program) (bool, error) {
	resource := ""
	if len(s.resources) > 0 {
		resource = s.resources[0]
	}
	value, _, err := p.Eval(map[string]any{"request": map[string]any{
		"user": s.user, "groups": s.groups, "userAgent": s.userAgent, "verb": s.verb, "resource": resource, "namespace": s.namespace, "name": s.name, "path": s.path, "query": map[string][]string(s.query),
	}})
	if err != nil {
		return false, err
	}
	is, ok := value.Value().(bool)
	if !ok {
		return false, errors.New("it's neither true nor false")
	}
	return is, nil
}
