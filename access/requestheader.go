package access

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// proxies are those that are believed when they say whom a request comes from.
type proxies struct {
	authorities                 *authorities
	names                       []string // of their certificates; empty: any
	users, uids, groups, extras []string // headers, and what begins them
}

// newProxies returns nil if no proxy is believed.
func newProxies(o RequestHeader, a *authorities) *proxies {
	if a == nil {
		return nil
	}
	p := &proxies{
		authorities: a, names: o.AllowedNames,
		users: orOne(o.UsernameHeaders, defaultUsernameHeader), uids: orOne(o.UIDHeaders, defaultUIDHeader),
		groups: orOne(o.GroupHeaders, defaultGroupHeader), extras: orOne(o.ExtraHeaderPrefixes, defaultExtraPrefix),
	}
	for _, list := range [][]string{p.users, p.uids, p.groups, p.extras} {
		for i, name := range list {
			list[i] = strings.TrimSpace(name)
		}
	}
	return p
}

func orOne(given []string, otherwise string) []string {
	if len(given) == 0 {
		return []string{otherwise}
	}
	return slices.Clone(given)
}

// authenticate returns whom a proxy has named, nil if the request comes from no proxy or names nobody.
func (p *proxies) authenticate(r *http.Request) (user.Info, error) {
	if p == nil {
		return nil, nil
	}
	cert, err := p.authorities.verify(shownBy(r))
	switch {
	case err != nil:
		return nil, err
	case cert == nil:
		return nil, nil
	case len(p.names) > 0 && !slices.Contains(p.names, cert.Subject.CommonName):
		return nil, fmt.Errorf("the certificate %s is none of --requestheader-allowed-names", serial(cert))
	}
	return p.named(r.Header), nil
}

// named returns the user whom headers name, nil if they name none.
func (p *proxies) named(h http.Header) user.Info {
	u := &user.DefaultInfo{Name: first(h, p.users), UID: first(h, p.uids)}
	for _, name := range p.groups {
		u.Groups = append(u.Groups, h.Values(name)...)
	}
	u.Groups = slices.DeleteFunc(u.Groups, func(group string) bool { return group == "" })
	for _, prefix := range p.extras {
		addExtra(u, h, prefix)
	}
	if u.Name == "" {
		return nil
	}
	return u
}

// drop takes the headers out that name a user, whoever has sent them: an aggregated API server would believe them of this one.
func (p *proxies) drop(h http.Header) {
	if p != nil {
		maps.DeleteFunc(h, func(name string, _ []string) bool { return p.owns(name) })
	}
}

// first returns the first value that isn't empty.
func first(h http.Header, names []string) string {
	var values []string
	for _, name := range names {
		values = append(values, h.Get(name))
	}
	return cmp.Or(values...)
}

// owns tells whether a header is one of those by which proxies name users.
func (p *proxies) owns(name string) bool {
	is := func(other string) bool { return strings.EqualFold(name, other) }
	begins := func(prefix string) bool { return hasPrefixFold(name, prefix) }
	return slices.ContainsFunc(p.users, is) || slices.ContainsFunc(p.uids, is) || slices.ContainsFunc(p.groups, is) || slices.ContainsFunc(p.extras, begins)
}

// addExtra adds what headers with a prefix say about a user: under the rest of their names, in lower case.
func addExtra(u *user.DefaultInfo, h http.Header, prefix string) {
	for name, values := range h {
		if !hasPrefixFold(name, prefix) {
			continue
		}
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		key := extraKey(name[len(prefix):])
		u.Extra[key] = append(u.Extra[key], values...)
	}
}

// extraKey is the key that the rest of a header's name stands for: escaped as in a path, because names of headers can't
// have all characters. What isn't escaped well stands for itself.
func extraKey(rest string) string {
	rest = strings.ToLower(rest)
	if key, err := url.PathUnescape(rest); err == nil {
		return key
	}
	return rest
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
