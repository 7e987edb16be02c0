package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	chain "k8s.io/apiserver/pkg/authorization/union"

	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/internal/callout"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Authorizer decides what users may do. It asks the authorizers of --authorization-mode, or of the file of --authorization-config, in their order:
// the first that allows or denies decides. Members of system:masters may do everything before anybody is asked. It's an
// authorizer.UnconditionalAuthorizer and an authorizer.RuleResolver.
type Authorizer struct {
	options Options
	log     *slog.Logger
	types   sets.Set[apiserver.AuthorizerType] // of the start, but for webhooks; files that are read again have the same
	rbac    *RBAC
	nodes   *nodeAuthorizer
	calls   *callout.Calls // of webhooks

	files   reload.Named
	first   *authorizers // what the files said at the start, until Attach
	current atomic.Pointer[decider]
}

// authorizers are those that flags and files name.
type authorizers struct {
	inOrder  []apiserver.AuthorizerConfiguration
	webhooks map[string]*webhookAuthorizer // by their names
	paths    []string                      // the files that say all this
}

// decider asks authorizers in their order.
type decider struct {
	authorizer.Authorizer
	rules authorizer.RuleResolver
	open  bool // see Open
}

// NewAuthorizer reads the flags and files that say who decides, and refuses what can't be used of them. It returns nil if everybody may do
// everything. Webhooks are reached by a way. It needs nothing of the server. Attach completes the Authorizer.
func NewAuthorizer(o Options, way egress.Dial, log *slog.Logger) (*Authorizer, error) {
	if o.open() {
		return nil, nil
	}
	a := &Authorizer{options: o, log: log, calls: callout.New(way)}
	a.files = reload.Named{Read: a.read, Refused: func(err error) {
		log.Error("who decides what users may do has changed, and can't be used; what was in effect stays", "error", err)
	}}
	if err := a.files.Open(); err != nil {
		a.Close()
		return nil, err
	}
	a.types = a.first.types()
	return a, nil
}

// RBAC tells whether the rules that are stored count. A nil Authorizer has none.
func (a *Authorizer) RBAC() bool { return a != nil && a.types.Has(typeRBAC) }

// Rules returns the rules that are stored; nil if they don't count.
func (a *Authorizer) Rules() *RBAC {
	if !a.RBAC() {
		return nil
	}
	return a.rbac
}

// Attach gives the Authorizer a registry before it's used. Roles and bindings are what the registry has.
func (a *Authorizer) Attach(r *registry.Registry) error {
	a.rbac, a.nodes = NewRBAC(r), newNodeAuthorizer(r)
	a.rbac.all = a
	return a.use(a.first)
}

// Run reads the files again when they change, until ctx ends. What can't be used is logged, and what they said before stays in effect.
func (a *Authorizer) Run(ctx context.Context) { a.files.Watch(ctx) }

// Close closes the connections to webhooks. Nobody may ask any more.
func (a *Authorizer) Close() {
	if a != nil {
		a.calls.Close()
	}
}

// Authorize decides about a request. The error, if the decision isn't to allow, is of an authorizer that couldn't tell.
func (a *Authorizer) Authorize(ctx context.Context, asks authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.current.Load().Authorize(ctx, asks)
}

// Open tells whether whoever is let in may do what nobody denies, because one of the authorizers is AlwaysAllow. A nil Authorizer is open.
func (a *Authorizer) Open() bool { return a == nil || a.current.Load().open }

// Allows tells whether a user may do something, as far as that's known.
func (a *Authorizer) Allows(ctx context.Context, asks authorizer.Attributes) bool {
	decision, _, _ := a.Authorize(ctx, asks)
	return decision == authorizer.DecisionAllow
}

// RulesFor returns what a user may do in a namespace. incomplete says that there's more, and the error why.
func (a *Authorizer) RulesFor(ctx context.Context, u user.Info, namespace string) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	return a.current.Load().rules.RulesFor(ctx, u, namespace)
}

// MayGrant is RBAC.MayGrant.
func (a *Authorizer) MayGrant(ctx context.Context, obj, old registry.Typed) error {
	return a.rbac.MayGrant(ctx, obj, old)
}

// Ask returns nil for what a user may do, and Forbidden for what he mayn't.
func (a *Authorizer) Ask(ctx context.Context, asks authorizer.Attributes) error {
	return ask(ctx, a, asks)
}

// The types of authorizers, as files name them.
const (
	typeNode        apiserver.AuthorizerType = node
	typeRBAC        apiserver.AuthorizerType = rbac
	typeAlwaysAllow apiserver.AuthorizerType = alwaysAllow
	typeAlwaysDeny  apiserver.AuthorizerType = alwaysDeny
)

// privilegedGroup is the name of the authorizer that comes before all others; kube-apiserver's.
const privilegedGroup = "kubernetes.io/system-privileged-group"

// use has authorizers decide from now on.
func (a *Authorizer) use(next *authorizers) error {
	all := []chain.NamedAuthorizer{{AuthorizerName: privilegedGroup, Authorizer: allowsMasters}}
	var rules []authorizer.RuleResolver
	for _, c := range next.inOrder {
		one := a.made(c, next.webhooks)
		all = append(all, chain.NamedAuthorizer{AuthorizerName: c.Name, Authorizer: one})
		rules = append(rules, one)
	}
	joined, err := chain.New(all...)
	if err == nil {
		open := slices.ContainsFunc(next.inOrder, func(c apiserver.AuthorizerConfiguration) bool { return c.Type == typeAlwaysAllow })
		a.current.Store(&decider{joined, chain.NewRuleResolvers(rules...), open})
	}
	return err
}

func (a *Authorizer) made(c apiserver.AuthorizerConfiguration, webhooks map[string]*webhookAuthorizer) oneAuthorizer {
	switch c.Type {
	case typeNode:
		return a.nodes
	case typeRBAC:
		return a.rbac
	case typeAlwaysAllow:
		return allowsAll
	case typeAlwaysDeny:
		return deniesAll
	default:
		return webhooks[c.Name]
	}
}

func (s *authorizers) types() sets.Set[apiserver.AuthorizerType] {
	all := sets.New[apiserver.AuthorizerType]()
	for _, c := range s.inOrder {
		if c.Type != apiserver.TypeWebhook {
			all.Insert(c.Type)
		}
	}
	return all
}

// read has the files take effect; those of the start when there is a registry.
func (a *Authorizer) read() ([]string, error) {
	s, err := a.readFiles()
	if err != nil {
		return nil, err
	}
	if a.rbac == nil {
		a.first = s
		return s.paths, nil
	}
	a.log.Info("who decides what users may do has changed, and is in effect", "files", strings.Join(s.paths, ","))
	return s.paths, a.use(s)
}

// readFiles reads what flags and files say. It leaves nothing.
func (a *Authorizer) readFiles() (*authorizers, error) {
	s := &authorizers{webhooks: map[string]*webhookAuthorizer{}}
	file, flag := a.options.AuthorizationConfigFile, "--authorization-webhook-config-file"
	var compiler authorizationcel.Compiler
	if file == "" {
		s.inOrder = a.options.byModes()
	} else {
		flag, compiler = "--authorization-config: "+file, authorizationcel.NewDefaultCompiler()
		s.paths = append(s.paths, file)
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--authorization-config: %w", err)
		}
		if s.inOrder, err = parseAuthorizers(text, compiler, a.types); err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
	}
	for _, c := range s.inOrder {
		if c.Type != apiserver.TypeWebhook {
			continue
		}
		made, paths, err := a.webhook(c, compiler)
		s.paths = append(s.paths, paths...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		s.webhooks[c.Name] = made
	}
	return s, nil
}

// knownTypes are those that a file may name.
var knownTypes = sets.New(alwaysAllow, alwaysDeny, node, rbac, webhookMode)

// parseAuthorizers reads the text of a file of --authorization-config. types are those that it must have besides webhooks; nil: any. The rules, also
// for names, are kube-apiserver's.
func parseAuthorizers(text []byte, compiler authorizationcel.Compiler, types sets.Set[apiserver.AuthorizerType]) ([]apiserver.AuthorizerConfiguration, error) {
	if len(text) > maxConfiguration {
		return nil, fmt.Errorf("the file has more than %d bytes", maxConfiguration)
	}
	c, err := load.LoadFromData(text)
	if err != nil {
		return nil, oneLine(err)
	}
	if err := validation.ValidateAuthorizationConfiguration(compiler, nil, c, knownTypes, sets.New(webhookMode)).ToAggregate(); err != nil {
		return nil, oneLine(err)
	}
	s := &authorizers{inOrder: c.Authorizers}
	for _, one := range c.Authorizers {
		if wanted := strings.ToLower(string(one.Type)); one.Type != apiserver.TypeWebhook && one.Name != wanted {
			return nil, fmt.Errorf("expected name %s for authorizer %s instead of %s", wanted, one.Type, one.Name)
		}
	}
	if types == nil {
		return c.Authorizers, nil
	}
	if missing := types.Difference(s.types()); missing.Len() > 0 {
		return nil, fmt.Errorf("missing required types: %v", sets.List(missing))
	}
	if late := s.types().Difference(types).Intersection(sets.New(typeNode, typeRBAC)); late.Len() > 0 {
		return nil, fmt.Errorf("authorizer type %s is not allowed if it was not enabled at initial server startup", sets.List(late)[0])
	}
	return c.Authorizers, nil
}

// oneLine puts an error of a library into one line.
func oneLine(err error) error {
	return errors.New(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; "))
}

// webhook makes the authorizer of a webhook, and returns the files that say where it is.
func (a *Authorizer) webhook(c apiserver.AuthorizerConfiguration, compiler authorizationcel.Compiler) (*webhookAuthorizer, []string, error) {
	w := c.Webhook
	if w.ConnectionInfo.KubeConfigFile == nil { // InClusterConfig, which asks the server itself
		return nil, nil, fmt.Errorf("authorizer %s: connectionInfo.type %s can't be used here: name a kubeconfig", c.Name, w.ConnectionInfo.Type)
	}
	config, paths, err := a.calls.Read(*w.ConnectionInfo.KubeConfigFile)
	if err != nil {
		return nil, paths, err
	}
	if w.Timeout.Duration != 0 {
		config.Timeout = w.Timeout.Duration
	}
	made, err := newWebhookAuthorizer(c, config, compiler)
	return made, paths, err
}

// defaultWebhookName is what the webhook of --authorization-webhook-config-file is called in answers; kube-apiserver's name.
const defaultWebhookName = "default"

// byModes are the authorizers of --authorization-mode.
func (o *Options) byModes() (all []apiserver.AuthorizerConfiguration) {
	for _, mode := range o.modes() {
		c := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: strings.ToLower(mode)}
		if mode == webhookMode {
			w := o.AuthorizationWebhook.withDefaults()
			c.Name = defaultWebhookName
			c.Webhook = &apiserver.WebhookConfiguration{
				AuthorizedTTL: metav1.Duration{Duration: w.AuthorizedTTL}, CacheAuthorizedRequests: w.AuthorizedTTL != 0,
				UnauthorizedTTL: metav1.Duration{Duration: w.UnauthorizedTTL}, CacheUnauthorizedRequests: w.UnauthorizedTTL != 0,
				FailurePolicy: apiserver.FailurePolicyNoOpinion, SubjectAccessReviewVersion: w.Version,
				ConnectionInfo: apiserver.WebhookConnectionInfo{Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &w.ConfigFile},
			}
		}
		all = append(all, c)
	}
	return all
}

// open tells whether everybody may do everything.
func (o *Options) open() bool {
	return o.AuthorizationConfigFile == "" && !slices.ContainsFunc(o.modes(), func(mode string) bool { return mode != alwaysAllow })
}
