package conversion

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

// Policy says at which addresses webhooks may be called.
type Policy = hookclient.Policy

// Validate returns what is wrong with the webhook of a definition's spec.conversion, which is at path. The rules are
// those of Kubernetes, whose errors name the fields of its internal type, and one of this server: an address that p
// refuses is refused here already, if the URL has it literally. What caBundle holds is no error here, because Kubernetes
// takes a definition before its bundle is there; New refuses it.
func Validate(c *apiextensionsv1.WebhookConversion, path *field.Path, p Policy) field.ErrorList {
	if c == nil {
		return field.ErrorList{field.Required(path.Child("webhookClientConfig"), "required when strategy is set to Webhook")}
	}
	errs := validateClient(c.ClientConfig, path.Child("webhookClientConfig"), p)
	return append(errs, validateVersions(c.ConversionReviewVersions, path.Child("conversionReviewVersions"))...)
}

func validateClient(c *apiextensionsv1.WebhookClientConfig, path *field.Path, p Policy) field.ErrorList {
	switch {
	case c == nil:
		return field.ErrorList{field.Required(path, "required when strategy is set to Webhook")}
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.Service != nil:
		return validateService(c.Service, path.Child("service"))
	}
	return p.ValidateURL(*c.URL, path.Child("url"))
}

// validateService takes the port as it's defaulted.
func validateService(s *apiextensionsv1.ServiceReference, path *field.Path) field.ErrorList {
	return webhook.ValidateWebhookService(path, s.Name, s.Namespace, s.Path, ptr.Deref(s.Port, hookclient.ServicePort)) // the wrong way round, as in Kubernetes
}

func validateVersions(versions []string, path *field.Path) (errs field.ErrorList) {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	seen := make(map[string]bool, len(versions))
	for i, v := range versions {
		if seen[v] {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		seen[v] = true
		for _, problem := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, problem))
		}
	}
	if hookclient.ReviewVersion(versions) == "" {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of v1, v1beta1"))
	}
	return errs
}
