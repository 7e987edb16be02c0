package policy

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/expression"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Config is what policies are evaluated with.
type Config struct {
	Registry *registry.Registry
	// Authorizer answers what expressions ask of `authorizer`.
	Authorizer authorizer.UnconditionalAuthorizer
	Metrics    *Metrics
	Log        *slog.Logger
}

// policy is what policies of both kinds have. E is what its own expressions are compiled to.
type policy[E any] struct {
	name       string
	lenient    bool // an error admits: failurePolicy is Ignore
	params     *admissionregistrationv1.ParamKind
	selection  *selection
	compiled   func() *compiled[E] // compiles at its first call
	conditions []admissionregistrationv1.MatchCondition
	variables  []admissionregistrationv1.Variable
}

// compiled is a policy's expressions.
type compiled[E any] struct {
	set        *expression.Set
	conditions match.Conditions
	own        E
}

// lazily has the policy compiled at its first use; own compiles its own expressions. An expression that doesn't compile fails
// when it's evaluated: writes refuse such a policy, but one may be stored that an older server took.
func (p *policy[E]) lazily(own func(*expression.Set) E) {
	p.compiled = sync.OnceValue(func() *compiled[E] {
		set := expression.New(p.params != nil)
		for _, v := range p.variables {
			_ = set.Define(v.Name, v.Expression)
		}
		return &compiled[E]{set, match.CompileConditions(set, p.conditions), own(set)}
	})
}

func program(set *expression.Set, text string, use expression.Use) *expression.Program {
	p, _ := set.Compile(text, use)
	return p
}

// binding puts a policy to use.
type binding struct {
	name      string
	params    *admissionregistrationv1.ParamRef
	selection *selection // nil: whatever the policy selects
	actions   []admissionregistrationv1.ValidationAction
}

// bound is a policy with its bindings.
type bound[E any] struct {
	*policy[E]
	bindings []*binding
}

// kind is how policies of a kind are read. P and B are the Go types of policies and bindings.
type kind[P, B, E any] struct {
	policies, bindings string // plurals
	policy             func(*P) *policy[E]
	binding            func(*B) (policy string, b *binding)
}

// policies are those of a kind that have bindings.
type policies[E any] struct {
	all      []bound[E]                    // by name
	named    map[schema.GroupResource]bool // what their rules name
	wildcard bool                          // a rule may be about any resource
}

// derive returns the policies of a kind.
func derive[P, B, E any](c Config, counts *checks, k kind[P, B, E]) *registry.Derived[*policies[E]] {
	ofPolicies := storage.PrefixOf(admissionregistrationv1.GroupName, k.policies)
	ofBindings := storage.PrefixOf(admissionregistrationv1.GroupName, k.bindings)
	bad := func(o *kube.Object, err error) {
		c.Log.Error("an admission policy or a binding can't be read, so it isn't enforced", "key", o.Key, "error", err)
	}
	var readPolicies registry.Decoded[P]
	var readBindings registry.Decoded[B]
	known := map[*P]*policy[E]{} // those that haven't changed stay compiled
	return registry.Derive(c.Registry, func(of func(storage.Prefix) []*kube.Object) *policies[E] {
		to := map[string][]*binding{}
		for _, b := range readBindings.All(of(ofBindings), bad) {
			name, bound := k.binding(b)
			to[name] = append(to[name], bound)
		}
		now, next := &policies[E]{named: map[schema.GroupResource]bool{}}, map[*P]*policy[E]{}
		for _, stored := range readPolicies.All(of(ofPolicies), bad) {
			p := known[stored]
			if p == nil {
				p = k.policy(stored)
			}
			next[stored] = p
			if len(to[p.name]) > 0 {
				now.add(bound[E]{p, to[p.name]})
			}
		}
		known = next
		counts.keep(now.names())
		return now
	}, ofPolicies, ofBindings)
}

func (p *policies[E]) names() (names []string) {
	for _, b := range p.all {
		names = append(names, b.name)
	}
	return names
}

// add adds a policy after those that are there.
func (p *policies[E]) add(b bound[E]) {
	p.all = append(p.all, b)
	for i := range b.selection.rules {
		r := &b.selection.rules[i]
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				resource, _, _ = strings.Cut(resource, "/")
				p.named[schema.GroupResource{Group: group, Resource: resource}] = true
				p.wildcard = p.wildcard || group == "*" || resource == "*"
			}
		}
	}
	p.wildcard = p.wildcard || len(b.selection.rules) == 0
}

// concern tells whether one of the policies may be about a request, without its object. Most requests are of resources that
// no rule names, and cost no look at the rules.
func (p *policies[E]) concern(a *registry.Attributes, r *registry.Registry) bool {
	if len(p.all) == 0 || match.Exempt(a) {
		return false
	}
	path := match.PathOf(a, r.Catalog())
	if !p.wildcard && !slices.ContainsFunc(path.Places, func(at match.Place) bool { return p.named[at.Resource.GroupResource()] }) {
		return false
	}
	return slices.ContainsFunc(p.all, func(b bound[E]) bool {
		_, ok := b.selection.place(path)
		return ok
	})
}
