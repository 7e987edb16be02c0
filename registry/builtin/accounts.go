package builtin

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// accountParts are what can be asked of a ServiceAccount.
func (o Options) accountParts() []registry.Subresource {
	return []registry.Subresource{{
		Name: "token", Verbs: []string{"create"}, Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		New: func() any { return &authenticationv1.TokenRequest{} }, Act: o.IssueToken,
	}}
}
