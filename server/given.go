package server

import (
	"crypto/tls"
	"errors"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/aggregator"
	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/secrets"
	"github.com/apiserver-lite/apiserver-lite/storage/seal"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// given is what the settings and files of a start say.
type given struct {
	tokens        *secrets.Tokens
	administrator string           // the token that the kubeconfig gets; "": one of tokens, or none
	certificate   *tls.Certificate // nil without TLS, or until the server has made one
	origins       guard.Origins
	proxy         *aggregator.Certificate // of the aggregator
	keys          *seal.Keys              // nil without encryption
	ways          egress.Ways
	tracing       *tracing.Config    // nil without traces
	may           *access.Authorizer // nil: everybody may do everything
}

// read returns what the settings and files say, or refuses them. It leaves nothing.
func (s *Server) read() (g given, err error) {
	if err = s.validate(); err != nil {
		return g, err
	}
	if g.tokens, err = secrets.ReadTokens(s.Token, s.TokenFile, s.log()); err != nil {
		return g, err
	}
	if s.Access.On() && s.Serving.KubeconfigFile != "" && !g.tokens.Any() { // there's no other token that its holder could use
		g.administrator = g.tokens.Add()
	}
	if g.certificate, err = s.TLS.Read(s.log()); err != nil {
		return g, err
	}
	if err = s.checkFiles(); err != nil {
		return g, err
	}
	if g.origins, err = guard.ReadOrigins(s.Serving.CORSAllowedOrigins); err != nil {
		return g, err
	}
	if g.proxy, err = aggregator.ReadCertificate(s.Aggregation, s.log()); err != nil {
		return g, err
	}
	if g.tracing, err = tracing.Read(s.Telemetry.Tracing); err != nil {
		return g, err
	}
	if g.ways, err = egress.Read(s.API.Egress); err != nil {
		return g, err
	}
	if g.may, err = access.NewAuthorizer(s.Access, g.ways.ControlPlane, s.log()); err != nil {
		return g, err
	}
	if g.may.RBAC() && s.API.Builtin == builtin.None {
		return g, errors.New("authorization by RBAC needs the kinds of its rules: set --builtin to core or all")
	}
	g.keys, err = seal.Open(s.Data.Encryption, s.log())
	return g, err
}
