package builtin

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// defaultTokenLife is how long a token is valid that says nothing of that, in seconds.
const defaultTokenLife int64 = 3600

// prepareAccount leaves of the Secrets that a ServiceAccount lists their names.
func prepareAccount(a, _ *corev1.ServiceAccount, _ string) {
	for i, secret := range a.Secrets {
		a.Secrets[i] = corev1.ObjectReference{Name: secret.Name}
	}
}

func accountColumns() []column { return []column{age()} }

// accountParts are what can be asked of a ServiceAccount.
func (o Options) accountParts() []registry.Subresource {
	return []registry.Subresource{{
		Name: "token", Verbs: []string{"create"}, Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		New: func() registry.Typed { return &authenticationv1.TokenRequest{} },
		Default: func(obj registry.Typed) {
			if spec := &obj.(*authenticationv1.TokenRequest).Spec; spec.ExpirationSeconds == nil {
				spec.ExpirationSeconds = new(defaultTokenLife)
			}
		},
		Prepare: o.PrepareToken, Act: o.IssueToken, AnswersSent: true,
	}}
}
