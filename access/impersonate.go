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

// Impersonated is who a request is taken for.
type Impersonated struct {
	User user.Info
	// Constraint is the verb that allowed it, such as impersonate:user-info; "" for impersonate, which allows it for whatever
	// is asked for.
	Constraint string

	impersonationRequest
}

// impersonationRequest is what impersonation asks: whether a user may make a request as another one.
type impersonationRequest struct {
	asks   *authorizer.AttributesRecord // the request, by the user who makes it
	wanted *user.DefaultInfo
	rules  authorizer.UnconditionalAuthorizer // nil: everything is allowed
}

// Still returns an error, a Status, if the user who made the request may not make it as the other one any more.
func (i *Impersonated) Still(ctx context.Context) error {
	_, err := i.decide(ctx)
	return err
}

// By returns the user who is taken for another one.
func (i *Impersonated) By() user.Info { return i.asks.User }

// For is Impersonate for one more request of the same user, who asks for the same.
func (i *Impersonated) For(r *http.Request) (*Impersonated, error) {
	q := impersonationRequest{asks: AttributesOf(r), wanted: i.wanted, rules: i.rules}
	q.asks.User = i.By()
	return q.decide(r.Context())
}

// Impersonate returns who a request is to be taken for, nil if it asks for nobody else. by is who it comes from. It's allowed
// if it's allowed in one of the modes. With a nil authorizer everything is allowed. After it the request has none of the
// headers that ask. The error is a Status: if no mode allows it, that of the first one.
func Impersonate(r *http.Request, by user.Info, rules authorizer.UnconditionalAuthorizer) (*Impersonated, error) {
	if !asksImpersonation(r.Header) {
		return nil, nil
	}
	wanted, err := wantedOf(r.Header)
	if wanted == nil {
		return nil, err
	}
	q := impersonationRequest{asks: AttributesOf(r), wanted: wanted, rules: rules}
	q.asks.User = by
	as, err := q.decide(r.Context())
	if err == nil {
		forget(r.Header)
	}
	return as, err
}

// decide asks in one mode after the other. The error is that of the first one.
func (q impersonationRequest) decide(ctx context.Context) (*Impersonated, error) {
	var refused error
	for _, m := range modes {
		if m.fits != nil && !m.fits(q.wanted, q.asks.User) {
			continue
		}
		as, err := (&impersonation{mode: m.name, impersonationRequest: q}).decide(ctx)
		if err == nil {
			return as, nil
		}
		if refused == nil || Undecided(err) && !Undecided(refused) {
			refused = err
		}
	}
	return nil, refused
}

// wantedOf returns the user that headers ask for, nil if they ask for none.
func wantedOf(h http.Header) (*user.DefaultInfo, error) {
	u := &user.DefaultInfo{
		Name: h.Get(authenticationv1.ImpersonateUserHeader), UID: h.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: slices.Clone(h[authenticationv1.ImpersonateGroupHeader]),
	}
	more := u.UID != "" || len(u.Groups) > 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		rest, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok {
			continue
		}
		more = true
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		key := extraKey(rest)
		u.Extra[key] = append(u.Extra[key], h[name]...)
	}
	switch {
	case u.Name != "":
		return u, nil
	case more:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", u))
	}
	return nil, nil
}

// impersonation is a question in one mode.
type impersonation struct {
	mode string // "" for the verb impersonate alone
	impersonationRequest
}

// decide asks for a right to each part of the wanted user: its name, its uid, its groups and what is extra. A mode with a name
// asks for a right to do that for this request, too.
func (i *impersonation) decide(ctx context.Context) (*Impersonated, error) {
	as := *i.wanted
	constraint := ""
	if i.mode != "" {
		constraint = i.verb()
		on := *i.asks
		on.Verb = "impersonate-on:" + i.mode + ":" + on.Verb
		if err := i.allow(ctx, on); err != nil {
			return nil, err
		}
	}
	name, groups := i.named()
	if len(as.Groups) == 0 {
		as.Groups = groups
	}
	if err := i.allow(ctx, name); err != nil {
		return nil, err
	}
	if as.UID != "" {
		if err := i.allow(ctx, i.part("uids", "", as.UID)); err != nil {
			return nil, err
		}
	}
	if err := i.allowGroups(ctx); err != nil {
		return nil, err
	}
	if err := i.allowExtra(ctx); err != nil {
		return nil, err
	}
	as.Groups = knownGroups(&as)
	return &Impersonated{User: &as, Constraint: constraint, impersonationRequest: i.impersonationRequest}, nil
}

func (i *impersonation) verb() string {
	if i.mode == "" {
		return "impersonate"
	}
	return "impersonate:" + i.mode
}

// part returns the attributes of a right to a part of a user.
func (i *impersonation) part(resource, subresource, name string) authorizer.AttributesRecord {
	group := authenticationv1.GroupName
	if i.mode == "" && (resource == "users" || resource == "groups") {
		group = "" // where the verb impersonate has them
	}
	return authorizer.AttributesRecord{
		User: i.asks.User, Verb: i.verb(), APIGroup: group, APIVersion: "v1", Resource: resource, Subresource: subresource,
		Name: name, ResourceRequest: true,
	}
}

// named returns the attributes of a right to the wanted user's name, and the groups in which one of that name always is.
func (i *impersonation) named() (a authorizer.AttributesRecord, groups []string) {
	a = i.part("users", "", i.wanted.Name)
	if namespace, name, err := serviceaccount.SplitUsername(i.wanted.Name); err == nil {
		a.Resource, a.Namespace, a.Name = "serviceaccounts", namespace, name
		return a, serviceaccount.MakeGroupNames(namespace)
	}
	if node, ok := nodeOf(i.wanted.Name); ok && i.mode != "" {
		a.Resource, a.Name, groups = "nodes", node, []string{user.NodesGroup}
		if i.mode == ownNode { // a right to it is one to whichever node it is
			a.Name = "*"
		}
	}
	return a, groups
}

// manyParts is from how many groups, or values of what is extra, a mode with a name first asks for a right to all there are.
const manyParts = 4

func (i *impersonation) allowGroups(ctx context.Context) error {
	groups := i.wanted.Groups
	if i.mode != "" {
		for _, group := range groups {
			switch group {
			case "":
				return Forbidden(i.part("groups", "", ""), "impersonating the empty string group is not allowed")
			case user.SystemPrivilegedGroup:
				return Forbidden(i.part("groups", "", group), "impersonating the system:masters group is not allowed")
			}
		}
		if len(groups) >= manyParts && i.allow(ctx, i.part("groups", "", "*")) == nil {
			return nil
		}
	}
	for _, group := range groups {
		if err := i.allow(ctx, i.part("groups", "", group)); err != nil {
			return err
		}
	}
	return nil
}

func (i *impersonation) allowExtra(ctx context.Context) error {
	keys, values := slices.Sorted(maps.Keys(i.wanted.Extra)), 0
	if i.mode != "" {
		for _, key := range keys {
			values += len(i.wanted.Extra[key])
			if err := validExtra(key, i.wanted.Extra[key]); err != nil {
				return Forbidden(i.part("userextras", "", ""), err.Error())
			}
		}
		if values >= manyParts && i.allow(ctx, i.part("userextras", "*", "*")) == nil {
			return nil
		}
	}
	for _, key := range keys {
		for _, value := range i.wanted.Extra[key] {
			if err := i.allow(ctx, i.part("userextras", key, value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// allow returns a refusal unless the rules allow something.
func (i *impersonation) allow(ctx context.Context, a authorizer.AttributesRecord) error {
	if i.rules == nil {
		return nil
	}
	return ask(ctx, i.rules, a)
}

// knownGroups returns a user's groups with that of all who have shown who they are, or haven't.
func knownGroups(u *user.DefaultInfo) []string {
	group := user.AllAuthenticated
	switch {
	case u.Name == user.Anonymous:
		group = user.AllUnauthenticated
	case slices.Contains(u.Groups, user.AllUnauthenticated):
		return u.Groups
	}
	if slices.Contains(u.Groups, group) {
		return u.Groups
	}
	return append(slices.Clip(u.Groups), group)
}

// forget removes what asks for impersonation from headers.
func forget(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return isImpersonation(name) })
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
