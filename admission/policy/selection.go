package policy

import (
	"context"
	"errors"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
)

// selection says which requests a policy or a binding is about.
type selection struct {
	rules, exclude      []admissionregistrationv1.NamedRuleWithOperations // no rules: all requests
	policy              *admissionregistrationv1.MatchPolicyType
	namespaces, objects labels.Selector
	err                 error // what is wrong with a selector
}

// constraints returns the selection of a policy, which must have one. A policy without any can't be written, but an older
// server may have stored it: as in Kubernetes it can't be evaluated then, whatever the request.
func constraints(m *admissionregistrationv1.MatchResources) *selection {
	if m == nil {
		return &selection{err: errors.New("policy contained no match constraints, a required field")}
	}
	return newSelection(m)
}

// newSelection returns the selection of a binding, nil for none.
func newSelection(m *admissionregistrationv1.MatchResources) *selection {
	if m == nil {
		return nil
	}
	s := &selection{rules: m.ResourceRules, exclude: m.ExcludeResourceRules, policy: m.MatchPolicy}
	if s.namespaces, s.err = selector(m.NamespaceSelector); s.err == nil {
		s.objects, s.err = selector(m.ObjectSelector)
	}
	return s
}

// selector selects everything if there is none: the default of the field.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// place tells by which of its places the rules are about a request.
func (s *selection) place(p *match.Path) (match.Place, bool) {
	if _, ok := ruled(s.exclude, s.policy, p); ok {
		return match.Place{}, false
	}
	if len(s.rules) == 0 {
		return p.Places[0], true
	}
	return ruled(s.rules, s.policy, p)
}

// ruled returns the place by which one of the rules is about a request: the request's own, or if the policy is Equivalent
// another one of the same object.
func ruled(rules []admissionregistrationv1.NamedRuleWithOperations, policy *admissionregistrationv1.MatchPolicyType, p *match.Path) (match.Place, bool) {
	places := p.Places
	if policy != nil && *policy == admissionregistrationv1.Exact {
		places = places[:1]
	}
	for _, at := range places {
		for i := range rules {
			r := &rules[i]
			if (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, p.Name)) && match.Rule(&r.RuleWithOperations, p, at) {
				return at, true
			}
		}
	}
	return match.Place{}, false
}

// selects tells whether a request is selected, and by which of its places.
func (s *selection) selects(ctx context.Context, q *match.Request) (match.Place, bool, error) {
	at, ok := s.place(q.Path)
	if !ok || s.err != nil {
		return at, ok, s.err
	}
	ok, err := q.Selected(ctx, s.namespaces, s.objects)
	return at, ok, err
}
