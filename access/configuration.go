package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"github.com/apiserver-lite/apiserver-lite/egress"
)

const (
	// maxConfiguration is how long a file of --authentication-config may be, in bytes.
	maxConfiguration = 1 << 20
	// issuerTimeout is for each request to an issuer, which tells where its keys are and which there are.
	issuerTimeout = 30 * time.Second
)

// parseConfiguration reads and checks a file of --authentication-config. disallowed are issuers that it may not name, because
// they are our own.
func parseConfiguration(data []byte, disallowed []string) (*apiserver.AuthenticationConfiguration, error) {
	if len(data) == 0 {
		return nil, errors.New("the file is empty")
	}
	if len(data) > maxConfiguration {
		return nil, fmt.Errorf("the file has more than %d bytes", maxConfiguration)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	obj, err := runtime.Decode(codecs.UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	c, ok := obj.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is no AuthenticationConfiguration but %T", obj)
	}
	if err := validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), c, disallowed).ToAggregate(); err != nil {
		return nil, err
	}
	return c, nil
}

// issuers are those of other JSON Web Tokens than ServiceAccounts': OIDC.
type issuers struct {
	all        []oidc.AuthenticatorTokenWithHealthCheck
	transports []*http.Transport
	stop       context.CancelFunc
}

// newIssuers begins to ask the issuers of a configuration for their keys, whose signatures are believed with these algorithms. Until one has answered, its tokens are believed
// to nobody. Each has a goroutine until it has answered, or close.
func newIssuers(ctx context.Context, c *apiserver.AuthenticationConfiguration, algorithms, disallowed []string, ways egress.Ways) (*issuers, error) {
	ctx, stop := context.WithCancel(ctx)
	s := &issuers{stop: stop}
	for i, j := range c.JWT {
		transport, err := issuerTransport(j.Issuer.CertificateAuthority)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("jwt[%d].issuer.certificateAuthority: %w", i, err)
		}
		if name := j.Issuer.EgressSelectorType; name != "" {
			way, ok := ways.Named(string(name))
			if !ok {
				s.close()
				return nil, fmt.Errorf("jwt[%d].issuer.egressSelectorType: the file of --egress-selector-config-file names no %q", i, name)
			}
			if way != nil {
				transport.DialContext = way
			}
		}
		s.transports = append(s.transports, transport)
		a, err := oidc.New(ctx, oidc.Options{
			JWTAuthenticator: j, SupportedSigningAlgs: algorithms, DisallowedIssuers: disallowed,
			Client: &http.Client{Transport: transport, Timeout: issuerTimeout},
		})
		if err != nil {
			s.close()
			return nil, fmt.Errorf("jwt[%d]: %w", i, err)
		}
		s.all = append(s.all, a)
	}
	return s, nil
}

// issuerTransport trusts the authorities of a PEM text, or the system's without one.
func issuerTransport(authorities string) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 1
	if authorities != "" {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(authorities)) {
			return nil, errors.New("no certificate as PEM")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return t, nil
}

func (s *issuers) close() {
	if s == nil {
		return
	}
	s.stop()
	for _, t := range s.transports {
		t.CloseIdleConnections()
	}
}

// authenticate returns whose token it is by one of the issuers, nil if none knows it. The error is why one of them doesn't
// believe it.
func (s *issuers) authenticate(ctx context.Context, token string) (user.Info, error) {
	if s == nil {
		return nil, nil
	}
	var errs []error
	for _, a := range s.all {
		answer, ok, err := a.AuthenticateToken(ctx, token)
		if ok && err == nil {
			return answer.User, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
