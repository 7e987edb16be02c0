package access

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// OIDC is one issuer of JSON Web Tokens, as kube-apiserver's flags say it. A file of --authentication-config says more. The zero value is none.
type OIDC struct {
	// IssuerURL and ClientID are needed. ClientID is the audience of the tokens.
	IssuerURL, ClientID string
	// CAFile is a PEM file of the issuer's authorities. It's read again when it changes. Defaults to those of the system.
	CAFile string
	// UsernameClaim defaults to sub. UsernamePrefix defaults to the issuer and "#", but to nothing for the claim email; "-" is nothing.
	UsernameClaim, UsernamePrefix string
	// GroupsClaim is the claim with the groups. Without one, users have none.
	GroupsClaim, GroupsPrefix string
	// SigningAlgs are the algorithms that are believed. Defaults to RS256.
	SigningAlgs []string
	// RequiredClaims are claims that tokens must have, as claim=value.
	RequiredClaims []string
}

const defaultUsernameClaim = "sub"

var defaultSigningAlgs = []string{"RS256"}

func (o *OIDC) addFlags(set *pflag.FlagSet) {
	set.StringVar(&o.IssuerURL, "oidc-issuer-url", "", "URL of an issuer of JSON Web Tokens (OIDC), https only; --authentication-config can say more")
	set.StringVar(&o.ClientID, "oidc-client-id", "", "the audience of its tokens")
	set.StringVar(&o.CAFile, "oidc-ca-file", "", "PEM file of its authorities (default those that the machine trusts)")
	set.StringVar(&o.UsernameClaim, "oidc-username-claim", defaultUsernameClaim, "claim with the user")
	set.StringVar(&o.UsernamePrefix, "oidc-username-prefix", "", "what begins the names of its users (default the issuer and '#', but nothing for the claim email; '-' is nothing)")
	set.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim with the groups")
	set.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", "", "what begins the names of its groups")
	set.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", defaultSigningAlgs, "algorithms of its signatures that are believed")
	set.StringArrayVar(&o.RequiredClaims, "oidc-required-claim", nil, "claim=value that its tokens must have; may be given several times")
}

func (o *OIDC) on() bool { return o.IssuerURL != "" }

// given tells whether anything is set.
func (o *OIDC) given() bool {
	return o.on() || o.ClientID+o.CAFile+o.UsernamePrefix+o.GroupsClaim+o.GroupsPrefix != "" || len(o.RequiredClaims) > 0 ||
		cmp.Or(o.UsernameClaim, defaultUsernameClaim) != defaultUsernameClaim || len(o.SigningAlgs) > 0 && !slices.Equal(o.SigningAlgs, defaultSigningAlgs)
}

// validate has kube-apiserver's rules for flags. file is that of --authentication-config.
func (o *OIDC) validate(file string) error {
	switch {
	case !o.given():
		return nil
	case file != "":
		return errors.New("--authentication-config and --oidc-* flags are mutually exclusive")
	case o.IssuerURL == "" || o.ClientID == "":
		return errors.New("--oidc-issuer-url and --oidc-client-id must be specified together when any --oidc-* flags are set")
	}
	for _, claim := range o.RequiredClaims {
		if name, _, ok := strings.Cut(claim, "="); !ok || name == "" {
			return fmt.Errorf("--oidc-required-claim %q is no claim=value", claim)
		}
	}
	return nil
}

// algorithms are the ones of signatures that are believed.
func (o *OIDC) algorithms() []string {
	switch {
	case !o.on():
		return oidc.AllValidSigningAlgorithms()
	case len(o.SigningAlgs) == 0:
		return defaultSigningAlgs
	}
	return o.SigningAlgs
}

// configuration is what the flags mean. authorities is the text of CAFile, own are our own issuers.
func (o *OIDC) configuration(authorities string, own []string) (*apiserver.AuthenticationConfiguration, error) {
	if o.CAFile != "" && strings.TrimSpace(authorities) == "" { // without authorities the system's would count
		return nil, fmt.Errorf("--oidc-ca-file: %s is empty", o.CAFile)
	}
	claim := cmp.Or(o.UsernameClaim, defaultUsernameClaim)
	prefix := o.UsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && claim != "email":
		prefix = o.IssuerURL + "#"
	}
	j := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: o.IssuerURL, Audiences: []string{o.ClientID}, CertificateAuthority: authorities},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Prefix: &prefix, Claim: claim}},
	}
	if o.GroupsClaim != "" {
		j.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Prefix: &o.GroupsPrefix, Claim: o.GroupsClaim}
	}
	for _, required := range o.RequiredClaims {
		name, value, _ := strings.Cut(required, "=")
		j.ClaimValidationRules = append(j.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: name, RequiredValue: value})
	}
	c := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{j}}
	return c, validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), c, own).ToAggregate()
}
