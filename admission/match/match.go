// Package match tells which rules are about a request: rules of webhooks and of policies, their selectors and their match
// conditions. It shows a request's objects in the version that a rule was written for.
//
// A rule is matched in three steps, the cheap ones first. The first needs no object (Path and Rule): operation, resource,
// scope, and with the match policy Equivalent other versions of the same resource. The second looks at labels
// (Request.Selected). The third evaluates CEL (package expression) with the objects in the rule's version (Request.Input).
//
// The package starts no goroutine. A Request belongs to one goroutine, unless its methods say otherwise. Request.mu is held while
// the request's objects are converted, which may call a conversion webhook with the request's own context: only goroutines of
// the same request wait for it, and all of them need the outcome.
package match

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Place is where an object is found: at a version of its resource.
type Place struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind // of what is written there, so Scale at the subresource scale
}

// Path is what rules look at of a request.
type Path struct {
	Operation   registry.Operation
	Subresource string
	Name        string // "" if the path doesn't say it, as that of a collection
	Namespaced  bool   // the object lies in a namespace; a Namespace itself doesn't
	// Places are where the object is found: first the request's own place, then the other served versions.
	Places []Place
}

// scaleKind is the kind at the subresource scale of whatever resource.
var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// PathOf returns what rules look at of a request. c is what is served.
func PathOf(a *registry.Attributes, c *registry.Catalog) *Path {
	p := &Path{Operation: a.Operation, Subresource: a.Subresource, Name: a.Name, Namespaced: a.Namespace != ""}
	if a.Listed {
		p.Name = ""
	}
	kind := a.Kind
	if a.Subresource == "scale" {
		kind = scaleKind
	}
	p.Places = []Place{{a.Resource, kind}}
	e := c.Endpoint(a.Resource)
	if e == nil {
		return p
	}
	for _, other := range e.Equivalents() {
		if other != e && (a.Subresource == "" || slices.Contains(other.Subresources, a.Subresource)) {
			p.Places = append(p.Places, Place{other.Path(), other.SubresourceKind(a.Subresource)})
		}
	}
	return p
}

// Rules returns the place by which one of the rules is about a request: the request's own, or if the policy is Equivalent
// another one of the same object.
func Rules(rules []admissionregistrationv1.RuleWithOperations, policy *admissionregistrationv1.MatchPolicyType, p *Path) (Place, bool) {
	for i := range rules {
		if Rule(&rules[i], p, p.Places[0]) {
			return p.Places[0], true
		}
	}
	if policy != nil && *policy != admissionregistrationv1.Equivalent {
		return Place{}, false
	}
	for i := range rules {
		for _, other := range p.Places[1:] {
			if Rule(&rules[i], p, other) {
				return other, true
			}
		}
	}
	return Place{}, false
}

// Rule tells whether a rule is about a request at one of its places.
func Rule(r *admissionregistrationv1.RuleWithOperations, p *Path, at Place) bool {
	return oneOrAll(r.APIGroups, at.Resource.Group) && oneOrAll(r.APIVersions, at.Resource.Version) && operates(r, p.Operation) &&
		inScope(r.Scope, p.Namespaced) && names(r.Resources, at.Resource.Resource, p.Subresource)
}

func oneOrAll(list []string, one string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, one)
}

func operates(r *admissionregistrationv1.RuleWithOperations, op registry.Operation) bool {
	return slices.Contains(r.Operations, admissionregistrationv1.OperationAll) || slices.Contains(r.Operations, admissionregistrationv1.OperationType(op))
}

func inScope(scope *admissionregistrationv1.ScopeType, namespaced bool) bool {
	if scope == nil {
		return true
	}
	switch *scope {
	case admissionregistrationv1.AllScopes:
		return true
	case admissionregistrationv1.NamespacedScope:
		return namespaced
	case admissionregistrationv1.ClusterScope:
		return !namespaced
	}
	return false
}

// names tells whether one of a rule's resources, such as pods, pods/status, pods/*, */scale or */*, is a resource with a
// subresource.
func names(list []string, resource, subresource string) bool {
	for _, s := range list {
		wantResource, wantSub, _ := strings.Cut(s, "/")
		if (wantResource == "*" || wantResource == resource) && (wantSub == "*" || wantSub == subresource) {
			return true
		}
	}
	return false
}

// Exempt tells whether a request writes what configures admission. Such writes go to neither webhooks nor policies:
// otherwise nobody could mend one that refuses everything.
func Exempt(a *registry.Attributes) bool {
	if a.Resource.Group != admissionregistrationv1.GroupName {
		return false
	}
	switch a.Resource.Resource {
	case "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
		return true
	}
	return false
}
