package registry

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Everyone is who asks where nobody was told to say who they are: whoever reaches such a server may do everything.
var Everyone user.Info = &user.DefaultInfo{Name: "system:admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

type userKey struct{}

// WithUser returns a context for what u asks.
func WithUser(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserFrom returns who asks: whom WithUser has put into the context, or Everyone.
func UserFrom(ctx context.Context) user.Info {
	if u, ok := ctx.Value(userKey{}).(user.Info); ok {
		return u
	}
	return Everyone
}

// UserInfo is a user as Kubernetes' types show it.
func UserInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// Authored returns a context whose writes note the user who asks for them, if that is wanted. What the server does by itself has none.
func (r *Registry) Authored(ctx context.Context) context.Context {
	if !r.HistoryUsers {
		return ctx
	}
	u, ok := ctx.Value(userKey{}).(user.Info)
	if !ok {
		return ctx
	}
	return storage.WithAuthor(ctx, u.GetName())
}

type unlabelledKey struct{}

// WithoutLabels returns a context for a new object of which the client says no labels.
func WithoutLabels(ctx context.Context) context.Context {
	return context.WithValue(ctx, unlabelledKey{}, true)
}

// Unlabelled tells a Prepare that the labels of a new object are its defaults, unless a hook has given it others.
func Unlabelled(ctx context.Context) bool { return ctx.Value(unlabelledKey{}) != nil }

type verbKey struct{}

// WithVerb returns a context for a write of a part of an object, or for the POST of one.
func WithVerb(ctx context.Context, verb string) context.Context {
	return context.WithValue(ctx, verbKey{}, verb)
}

// VerbFrom returns the verb by which a user writes a part of an object, "update" or "patch", for the rules that ask whether he may, or "create" for the
// POST of an object.
func VerbFrom(ctx context.Context) string {
	verb, _ := ctx.Value(verbKey{}).(string)
	return verb
}
