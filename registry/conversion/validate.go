package conversion

import (
	"bytes"
	"crypto/x509"
	"errors"
	"net/netip"
	"net/url"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
)

const urlForm = "; desired format: https://host[/path]"

// Validate returns what is wrong with a definition's spec.conversion.webhook, which is at path. The rules are
// those of Kubernetes, and one of this server: an address that p refuses is refused here already, if the URL has it
// literally. A service, which this server can't call, and what caBundle holds are no errors here, because a
// definition must be storable as it is in Kubernetes, which takes it before its bundle is there; New refuses both.
func Validate(c *apiextensionsv1.WebhookConversion, path *field.Path, p Policy) field.ErrorList {
	if c == nil {
		return field.ErrorList{field.Required(path, "required when strategy is set to Webhook")}
	}
	errs := validateClient(c.ClientConfig, path.Child("clientConfig"), p)
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
	return validateURL(*c.URL, path.Child("url"), p)
}

// validateService takes the port as it's defaulted.
func validateService(s *apiextensionsv1.ServiceReference, path *field.Path) field.ErrorList {
	port := int32(443)
	if s.Port != nil {
		port = *s.Port
	}
	return webhook.ValidateWebhookService(path, s.Namespace, s.Name, s.Path, port)
}

// validateURL doesn't repeat the user information in its errors: there may be a password in it.
func validateURL(s string, path *field.Path, p Policy) (errs field.ErrorList) {
	u, err := url.Parse(s)
	if err != nil {
		var wrong *url.Error
		if errors.As(err, &wrong) {
			err = wrong.Err // without the URL
		}
		return field.ErrorList{field.Required(path, "url must be a valid URL: "+err.Error()+urlForm)}
	}
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(path, u.Scheme, "'https' is the only allowed URL scheme"+urlForm))
	}
	if u.Hostname() == "" {
		errs = append(errs, field.Invalid(path, u.Host, "host must be specified"+urlForm))
	}
	if u.User != nil {
		errs = append(errs, field.Forbidden(path, "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(path, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(path, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	if host := u.Hostname(); p.refusesHost(host) {
		errs = append(errs, field.Invalid(path, host, refusal(host)))
	}
	return errs
}

// refusesHost tells whether a host is known without a resolver to be refused: literal addresses, and
// localhost, which resolves to loopback addresses everywhere (RFC 6761).
func (p Policy) refusesHost(host string) bool {
	if name := strings.ToLower(strings.TrimSuffix(host, ".")); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return !p.allows(netip.AddrFrom4([4]byte{127, 0, 0, 1})) && !p.allows(netip.IPv6Loopback())
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && !p.allows(addr)
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
	if reviewVersion(versions) == "" {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of v1, v1beta1"))
	}
	return errs
}

// reviewVersion returns the first version of ConversionReview that this package knows, or "".
func reviewVersion(versions []string) string {
	for _, v := range versions {
		if v == "v1" || v == "v1beta1" {
			return v
		}
	}
	return ""
}

// roots returns the certificates of a bundle in PEM, nil (the system's) if it's empty. Space alone counts as
// empty: tools that put a bundle in later begin with that.
func roots(bundle []byte) (*x509.CertPool, error) {
	if len(bytes.TrimSpace(bundle)) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, errors.New("clientConfig.caBundle has no certificate in PEM that can be read")
	}
	return pool, nil
}
