package hookclient

import (
	"bytes"
	"crypto/x509"
	"errors"
	"net/netip"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const urlForm = "; desired format: https://host[/path]"

// ValidateURL returns what is wrong with a webhook's URL, which is at path. The rules are Kubernetes', and one of this
// server: an address that the policy refuses is refused here already, if the URL has it literally. Errors don't repeat the
// user information: there may be a password in it.
func (p Policy) ValidateURL(s string, path *field.Path) (errs field.ErrorList) {
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
