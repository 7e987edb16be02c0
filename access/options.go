package access

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Options say who is let in and what they may do. They are kube-apiserver's flags, and mean the same here. With the zero
// value nobody is asked: whoever reaches the server may do everything.
type Options struct {
	// ClientCAFile is a PEM file of the authorities whose client certificates are believed: the subject's common name is
	// the user, its organizations are the groups. It's read again when it changes. It needs HTTPS.
	ClientCAFile string

	// TokenAuthFile is a CSV file of bearer tokens: token, user, uid, and optionally the groups, as "a,b" in quotes. It's
	// read again when it changes.
	TokenAuthFile string

	// AuthenticationConfigFile is a file with an AuthenticationConfiguration of apiserver.config.k8s.io: issuers of JSON
	// Web Tokens (OIDC), and for which paths a request needs no credential. It's read
	// again when it changes; what can't be used is logged, and what it said before stays in effect.
	AuthenticationConfigFile string

	// OIDC is an issuer without such a file.
	OIDC OIDC

	// AuthenticationWebhook is asked about tokens that nobody here knows.
	AuthenticationWebhook AuthenticationWebhook

	// AnonymousAuth lets requests without a credential in, as system:anonymous. Defaults to true with RBAC. Without RBAC
	// it's always false once one of the other options asks for credentials, because everything would be open.
	AnonymousAuth *bool

	// APIAudiences are the audiences that a ServiceAccount's token may be for, one of them at least. Defaults to
	// ServiceAccountIssuers.
	APIAudiences []string

	// ServiceAccountIssuers are who may have issued ServiceAccounts' tokens. The first one issues them. Defaults to
	// https://kubernetes.default.svc.
	ServiceAccountIssuers []string

	// ServiceAccountKeyFiles are PEM files of RSA or ECDSA keys, public or private, that ServiceAccounts' tokens may be
	// signed with. Defaults to ServiceAccountSigningKeyFile.
	ServiceAccountKeyFiles []string

	// ServiceAccountSigningKeyFile is a PEM file with the private RSA or ECDSA key that signs ServiceAccounts' tokens.
	// Defaults to a key that the server makes and keeps in its data directory.
	ServiceAccountSigningKeyFile string

	// ServiceAccountJWKSURI is where /.well-known/openid-configuration says that the keys are. Defaults to the server's own
	// /openid/v1/jwks.
	ServiceAccountJWKSURI string

	// ServiceAccountMaxTokenExpiration is the longest life that a ServiceAccount's token can get. Zero sets no such limit.
	ServiceAccountMaxTokenExpiration time.Duration

	RequestHeader RequestHeader

	// AuthorizationMode has who decides what users may do, in their order, with commas between them: AlwaysAllow, AlwaysDeny, Node, with which nodes
	// may do what kubelets need, RBAC and Webhook. Defaults to AlwaysAllow.
	AuthorizationMode string

	// AuthorizationWebhook is whom the mode Webhook asks.
	AuthorizationWebhook AuthorizationWebhook

	// AuthorizationConfigFile is a file with an AuthorizationConfiguration of apiserver.config.k8s.io, instead of AuthorizationMode and
	// AuthorizationWebhook. It's read again when it changes, also the kubeconfigs that it names; what can't be used is logged, and what it said
	// before stays in effect.
	AuthorizationConfigFile string
}

// AuthorizationWebhook is a server that is asked by SubjectAccessReviews what users may do.
type AuthorizationWebhook struct {
	// ConfigFile is a kubeconfig that says where it is. It's read again when it changes.
	ConfigFile string
	// Version is that of the SubjectAccessReviews, v1 or v1beta1. Defaults to v1beta1, as kube-apiserver.
	Version string
	// AuthorizedTTL and UnauthorizedTTL are how long answers are kept that allow, and others. Default to 5 minutes and 30 seconds by the flags. Zero
	// keeps none.
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

func (w AuthorizationWebhook) withDefaults() AuthorizationWebhook {
	w.Version = cmp.Or(w.Version, defaultReviewVersion)
	return w
}

// RequestHeader says which proxies are believed when they say in headers whom a request comes from.
type RequestHeader struct {
	// ClientCAFile is a PEM file of the authorities whose client certificates such proxies have. It's read again when it
	// changes. It needs HTTPS. Empty: no proxy is believed.
	ClientCAFile string
	// AllowedNames are the common names that such a certificate may have. Defaults to any.
	AllowedNames []string
	// The headers; of UsernameHeaders and UIDHeaders the first that isn't empty counts. They default to X-Remote-User,
	// X-Remote-Uid, X-Remote-Group and X-Remote-Extra-.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
}

// What AuthorizationMode may have.
const (
	alwaysAllow = "AlwaysAllow"
	alwaysDeny  = "AlwaysDeny"
	rbac        = "RBAC"
	node        = "Node"
	webhookMode = "Webhook"
)

// AddFlags adds kube-apiserver's flags for the options.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&o.ClientCAFile, "client-ca-file", "", "PEM file of authorities whose client certificates are believed: the common name is the user, organizations are groups")
	set.StringVar(&o.TokenAuthFile, "token-auth-file", "", "CSV file of bearer tokens: token,user,uid,\"group1,group2\"")
	set.StringVar(&o.AuthenticationConfigFile, "authentication-config", "", "file with an AuthenticationConfiguration: OIDC issuers, and what needs no credential")
	set.Var(optionalBool{&o.AnonymousAuth}, "anonymous-auth", "let requests without a credential in as system:anonymous (default true with RBAC)")
	set.Lookup("anonymous-auth").NoOptDefVal = "true"
	set.StringSliceVar(&o.APIAudiences, "api-audiences", nil, "audiences of ServiceAccounts' tokens that are believed (default: the issuers)")
	set.StringArrayVar(&o.ServiceAccountIssuers, "service-account-issuer", nil, "who issues ServiceAccounts' tokens; further ones are believed, too (default "+defaultIssuer+")")
	set.StringArrayVar(&o.ServiceAccountKeyFiles, "service-account-key-file", nil, "PEM file of keys that ServiceAccounts' tokens may be signed with (default: the signing key)")
	set.StringVar(&o.ServiceAccountSigningKeyFile, "service-account-signing-key-file", "", "PEM file with the key that signs ServiceAccounts' tokens (default: one that is kept in the data directory)")
	set.StringVar(&o.ServiceAccountJWKSURI, "service-account-jwks-uri", "", "where /.well-known/openid-configuration says that the keys are (default: here)")
	set.DurationVar(&o.ServiceAccountMaxTokenExpiration, "service-account-max-token-expiration", 0, "the longest life of a ServiceAccount's token")
	h := &o.RequestHeader
	set.StringVar(&h.ClientCAFile, "requestheader-client-ca-file", "", "PEM file of authorities of the proxies that may say in headers who the user is")
	set.StringSliceVar(&h.AllowedNames, "requestheader-allowed-names", nil, "common names that certificates of such proxies may have (default any)")
	set.StringSliceVar(&h.UsernameHeaders, "requestheader-username-headers", nil, "headers with the user (default "+defaultUsernameHeader+")")
	set.StringSliceVar(&h.UIDHeaders, "requestheader-uid-headers", nil, "headers with the user's uid (default "+defaultUIDHeader+")")
	set.StringSliceVar(&h.GroupHeaders, "requestheader-group-headers", nil, "headers with the groups (default "+defaultGroupHeader+")")
	set.StringSliceVar(&h.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil, "what begins headers with more about the user (default "+defaultExtraPrefix+")")
	set.StringVar(&o.AuthorizationMode, "authorization-mode", "", "who decides what users may do, in this order: some of AlwaysAllow (everything), AlwaysDeny, Node (what kubelets need), RBAC and Webhook, with commas between them (default "+alwaysAllow+")")
	o.OIDC.addFlags(set)
	t := &o.AuthenticationWebhook
	set.StringVar(&t.ConfigFile, "authentication-token-webhook-config-file", "", "kubeconfig of the server that is asked about bearer tokens that nobody here knows; read again when it changes")
	set.StringVar(&t.Version, "authentication-token-webhook-version", defaultReviewVersion, "version of the TokenReviews that it's asked with: v1 or v1beta1")
	set.DurationVar(&t.CacheTTL, "authentication-token-webhook-cache-ttl", defaultTokenTTL, "how long its answers are kept")
	w := &o.AuthorizationWebhook
	set.StringVar(&w.ConfigFile, "authorization-webhook-config-file", "", "kubeconfig of the server that is asked what users may do, with --authorization-mode=Webhook; read again when it changes")
	set.StringVar(&w.Version, "authorization-webhook-version", defaultReviewVersion, "version of the SubjectAccessReviews that it's asked with: v1 or v1beta1")
	set.DurationVar(&w.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", defaultAuthorizedTTL, "how long its answers are kept that allow")
	set.DurationVar(&w.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", defaultUnauthorizedTTL, "how long its other answers are kept")
	set.StringVar(&o.AuthorizationConfigFile, "authorization-config", "", "file with an AuthorizationConfiguration: several authorizers in their order, instead of --authorization-mode; read again when it changes")
}

// The defaults.
const (
	defaultReviewVersion   = "v1beta1" // of reviews that webhooks are asked with
	defaultAuthorizedTTL   = 5 * time.Minute
	defaultUnauthorizedTTL = 30 * time.Second
	defaultTokenTTL        = 2 * time.Minute

	defaultIssuer         = "https://kubernetes.default.svc"
	defaultUsernameHeader = "X-Remote-User"
	defaultUIDHeader      = "X-Remote-Uid"
	defaultGroupHeader    = "X-Remote-Group"
	defaultExtraPrefix    = "X-Remote-Extra-"
)

// On tells whether requests are asked who they come from. Otherwise everyone is system:masters.
func (o *Options) On() bool {
	return !o.open() || o.NeedsTLS() || o.TokenAuthFile != "" || o.AuthenticationConfigFile != "" || o.OIDC.on() || o.AuthenticationWebhook.ConfigFile != "" ||
		o.AnonymousAuth != nil && !*o.AnonymousAuth
}

// NeedsTLS tells whether client certificates are asked for.
func (o *Options) NeedsTLS() bool { return o.ClientCAFile != "" || o.RequestHeader.ClientCAFile != "" }

func (o *Options) modes() []string {
	if o.AuthorizationMode == "" {
		return nil
	}
	return strings.Split(o.AuthorizationMode, ",")
}

// Validate tells the first option that can't work, or that kube-apiserver refuses, by the name of its flag. It reads no file:
// what a file has is checked when it's read.
func (o *Options) Validate() error {
	if err := o.validateAuthorization(); err != nil {
		return err
	}
	switch {
	case o.ServiceAccountMaxTokenExpiration != 0 && (o.ServiceAccountMaxTokenExpiration < time.Hour || o.ServiceAccountMaxTokenExpiration > time.Duration(maxTokenLife)*time.Second):
		return fmt.Errorf("--service-account-max-token-expiration must be between 1 hour and 2^32 seconds: %v", o.ServiceAccountMaxTokenExpiration)
	case len(o.ServiceAccountKeyFiles) > 0 && o.ServiceAccountSigningKeyFile == "":
		return fmt.Errorf("--service-account-key-file needs --service-account-signing-key-file: tokens of the server's own key would not be believed")
	case o.RequestHeader.ClientCAFile == "" && o.RequestHeader.any():
		return fmt.Errorf("--requestheader-* flags need --requestheader-client-ca-file: anybody can send headers")
	}
	if o.AuthenticationWebhook.CacheTTL < 0 {
		return errors.New("--authentication-token-webhook-cache-ttl must not be negative")
	}
	return cmp.Or(o.validateIssuers(), o.OIDC.validate(o.AuthenticationConfigFile), o.RequestHeader.validate())
}

// validateAuthorization has kube-apiserver's rules for who decides.
func (o *Options) validateAuthorization() error {
	w := o.AuthorizationWebhook.withDefaults()
	if o.AuthorizationConfigFile != "" {
		if o.AuthorizationMode != "" || w.ConfigFile != "" || w.Version != defaultReviewVersion ||
			w.AuthorizedTTL != 0 && w.AuthorizedTTL != defaultAuthorizedTTL || w.UnauthorizedTTL != 0 && w.UnauthorizedTTL != defaultUnauthorizedTTL {
			return errors.New("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined")
		}
		return nil
	}
	if repeated(o.modes()) != "" {
		return fmt.Errorf("--authorization-mode %q has mode specified more than once", o.modes())
	}
	for _, mode := range o.modes() {
		switch {
		case mode == "ABAC":
			return errors.New("--authorization-mode: there is no ABAC here: use RBAC, or Webhook")
		case !knownTypes.Has(mode):
			return fmt.Errorf("--authorization-mode %q is not a valid mode: it may have %s", mode, strings.Join(sets.List(knownTypes), ", "))
		case mode == webhookMode && w.ConfigFile == "":
			return errors.New("--authorization-mode Webhook's --authorization-webhook-config-file isn't given")
		}
	}
	switch {
	case w.ConfigFile != "" && !slices.Contains(o.modes(), webhookMode):
		return errors.New("cannot specify --authorization-webhook-config-file without mode Webhook")
	case w.AuthorizedTTL < 0 || w.UnauthorizedTTL < 0:
		return errors.New("--authorization-webhook-cache-authorized-ttl and --authorization-webhook-cache-unauthorized-ttl must not be negative")
	}
	return nil
}

// validateIssuers has kube-apiserver's rules for what names ServiceAccounts' issuers.
func (o *Options) validateIssuers() error {
	for _, issuer := range o.ServiceAccountIssuers {
		if issuer == "" {
			return errors.New("--service-account-issuer should not be an empty string")
		}
		if strings.Contains(issuer, ":") {
			if _, err := url.Parse(issuer); err != nil {
				return fmt.Errorf("--service-account-issuer %q contained a ':' but was not a valid URL: %w", issuer, err)
			}
		}
	}
	if twice := repeated(o.ServiceAccountIssuers); twice != "" {
		return fmt.Errorf("--service-account-issuer %q is already specified", twice)
	}
	if o.ServiceAccountJWKSURI == "" {
		return nil
	}
	u, err := url.Parse(o.ServiceAccountJWKSURI)
	switch {
	case err != nil:
		return fmt.Errorf("--service-account-jwks-uri must be a valid URL: %w", err)
	case u.Scheme != "https":
		return fmt.Errorf("--service-account-jwks-uri requires https scheme, parsed as: %v", u)
	}
	return nil
}

// repeated returns what a list has twice, "" for nothing.
func repeated(list []string) string {
	for i, s := range list {
		if slices.Contains(list[:i], s) {
			return s
		}
	}
	return ""
}

// validate has kube-apiserver's rules for what proxies send.
func (h *RequestHeader) validate() error {
	for flag, names := range map[string][]string{
		"username-headers": h.UsernameHeaders, "uid-headers": h.UIDHeaders, "group-headers": h.GroupHeaders,
		"extra-headers-prefix": h.ExtraHeaderPrefixes, "allowed-names": h.AllowedNames,
	} {
		if slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == "" }) {
			return fmt.Errorf("empty value in --requestheader-%s", flag)
		}
	}
	if len(h.UIDHeaders) > 0 && !slices.ContainsFunc(h.UIDHeaders, func(name string) bool { return strings.EqualFold(name, defaultUIDHeader) }) {
		return errors.New("--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header")
	}
	return nil
}

func (h *RequestHeader) any() bool {
	return len(h.AllowedNames)+len(h.UsernameHeaders)+len(h.UIDHeaders)+len(h.GroupHeaders)+len(h.ExtraHeaderPrefixes) > 0
}

// optionalBool is a flag that knows whether it was given.
type optionalBool struct{ to **bool }

func (b optionalBool) Set(s string) error {
	value, err := strconv.ParseBool(s)
	if err == nil {
		*b.to = &value
	}
	return err
}

func (b optionalBool) String() string {
	if b.to == nil || *b.to == nil {
		return ""
	}
	return strconv.FormatBool(**b.to)
}

func (b optionalBool) Type() string { return "bool" }
