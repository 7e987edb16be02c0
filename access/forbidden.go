package access

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// plainText keeps texts of clients from looking like HTML in an answer.
var plainText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Forbidden is the answer to a request that the user may not make, in Kubernetes' words. The reason may be empty.
func Forbidden(a authorizer.Attributes, reason string) *apierrors.StatusError {
	text := plainText.Replace(cannot(a))
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}, a.GetName(), errors.New(text))
}

func cannot(a authorizer.Attributes) string {
	name := ""
	if u := a.GetUser(); u != nil {
		name = u.GetName()
	}
	if !a.IsResourceRequest() {
		return fmt.Sprintf("User %q cannot %s path %q", name, a.GetVerb(), a.GetPath())
	}
	resource := a.GetResource()
	if part := a.GetSubresource(); part != "" {
		resource += "/" + part
	}
	where := "at the cluster scope"
	if namespace := a.GetNamespace(); namespace != "" {
		where = fmt.Sprintf("in the namespace %q", namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", name, a.GetVerb(), resource, a.GetAPIGroup(), where)
}

// ask returns nil for what the rules allow, and Forbidden for what they don't, with the reason or what kept it from being decided.
func ask(ctx context.Context, rules authorizer.UnconditionalAuthorizer, asks authorizer.Attributes) error {
	decision, reason, err := rules.Authorize(ctx, asks)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil && reason != "":
		reason = fmt.Sprintf("%v: %s", err, reason)
	case err != nil:
		reason = err.Error()
	}
	if err != nil {
		return undecided{Forbidden(asks, reason)}
	}
	return Forbidden(asks, reason)
}

// undecided is the answer to a request about which somebody who decides couldn't be asked.
type undecided struct{ *apierrors.StatusError }

func (u undecided) Unwrap() error { return u.StatusError }

// Undecided tells whether a request was refused only because nobody could tell whether it's allowed.
func Undecided(err error) bool { return errors.As(err, new(undecided)) }
