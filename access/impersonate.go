package access

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Impersonate returns who a request wants to be taken for, nil if it asks for nobody else. by is who it comes from, and
// must be allowed each part of it: the user, each group, the uid and each value of what is extra. With a nil authorizer
// everybody is. After it the request has none of the headers that ask. The error is a Status.
func Impersonate(r *http.Request, by user.Info, rules authorizer.UnconditionalAuthorizer) (user.Info, error) {
	if !asksImpersonation(r.Header) {
		return nil, nil
	}
	parts := partsOf(r.Header)
	if len(parts) == 0 { // its headers are empty
		return nil, nil
	}
	if parts[0].resource != "users" && parts[0].resource != "serviceaccounts" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %v without impersonating a user", parts))
	}
	for _, part := range parts {
		if err := mayBe(r.Context(), by, part, rules); err != nil {
			return nil, err
		}
	}
	for name := range r.Header {
		if isImpersonation(name) {
			delete(r.Header, name)
		}
	}
	return impersonated(parts), nil
}

// part is something that a request wants to be taken for, as the attributes by which it's allowed.
type part struct{ group, resource, subresource, namespace, name string }

func (p part) String() string { return p.resource + " " + p.name }

// partsOf returns the user first, if there is one.
func partsOf(h http.Header) (parts []part) {
	const group = authenticationv1.GroupName
	if name := h.Get(authenticationv1.ImpersonateUserHeader); name != "" {
		if namespace, account, err := serviceaccount.SplitUsername(name); err == nil {
			parts = append(parts, part{resource: "serviceaccounts", namespace: namespace, name: account})
		} else {
			parts = append(parts, part{resource: "users", name: name})
		}
	}
	for _, name := range h[authenticationv1.ImpersonateGroupHeader] {
		parts = append(parts, part{resource: "groups", name: name})
	}
	if uid := h.Get(authenticationv1.ImpersonateUIDHeader); uid != "" {
		parts = append(parts, part{group: group, resource: "uids", name: uid})
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		rest, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok {
			continue
		}
		for _, value := range h[name] {
			parts = append(parts, part{group: group, resource: "userextras", subresource: extraKey(rest), name: value})
		}
	}
	return parts
}

// mayBe returns a refusal unless by is allowed to be taken for a part.
func mayBe(ctx context.Context, by user.Info, p part, rules authorizer.UnconditionalAuthorizer) error {
	if rules == nil {
		return nil
	}
	a := authorizer.AttributesRecord{
		User: by, Verb: "impersonate", APIGroup: p.group, APIVersion: "v1", Resource: p.resource, Subresource: p.subresource,
		Namespace: p.namespace, Name: p.name, ResourceRequest: true,
	}
	decision, reason, err := rules.Authorize(ctx, a)
	if err != nil || decision != authorizer.DecisionAllow {
		return Forbidden(a, reason)
	}
	return nil
}

// impersonated makes the user of its parts. One who isn't said to be in a group is in those that it always is in.
func impersonated(parts []part) user.Info {
	u := &user.DefaultInfo{Name: parts[0].name, Groups: []string{}}
	for _, p := range parts[1:] {
		switch p.resource {
		case "groups":
			u.Groups = append(u.Groups, p.name)
		case "uids":
			u.UID = p.name
		case "userextras":
			if u.Extra == nil {
				u.Extra = map[string][]string{}
			}
			u.Extra[p.subresource] = append(u.Extra[p.subresource], p.name)
		}
	}
	if parts[0].resource == "serviceaccounts" {
		u.Name = serviceaccount.MakeUsername(parts[0].namespace, parts[0].name)
		if len(u.Groups) == 0 {
			u.Groups = serviceaccount.MakeGroupNames(parts[0].namespace)
		}
	}
	switch known := slices.Contains(u.Groups, user.AllUnauthenticated); {
	case known:
	case u.Name == user.Anonymous:
		u.Groups = append(u.Groups, user.AllUnauthenticated)
	case !slices.Contains(u.Groups, user.AllAuthenticated):
		u.Groups = append(u.Groups, user.AllAuthenticated)
	}
	return u
}

func asksImpersonation(h http.Header) bool {
	for name := range h {
		if isImpersonation(name) {
			return true
		}
	}
	return false
}

// isImpersonation tells whether a header asks to be taken for somebody else.
func isImpersonation(name string) bool {
	switch name {
	case authenticationv1.ImpersonateUserHeader, authenticationv1.ImpersonateGroupHeader, authenticationv1.ImpersonateUIDHeader:
		return true
	}
	return strings.HasPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
}
