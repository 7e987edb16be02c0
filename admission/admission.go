package admission

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/admission/plugins"
	"github.com/apiserver-lite/apiserver-lite/admission/policy"
	"github.com/apiserver-lite/apiserver-lite/admission/webhook"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
)

// Options say which plug-ins are on. The zero value has those on that do nothing until somebody writes a configuration for
// them: webhooks and policies.
type Options struct {
	Enable, Disable []string // names of plug-ins, as Kubernetes has them; none may be in both
	// Kubernetes has all plug-ins on that kube-apiserver has on by default, of those that this server has.
	Kubernetes bool
	// NotReadySeconds and UnreachableSeconds are how long a pod that doesn't say so stays on a node that isn't ready, or can't be
	// reached: what the plug-in DefaultTolerationSeconds sets. Nil is 300.
	NotReadySeconds, UnreachableSeconds *int64
	// ConfigFile is the path of an AdmissionConfiguration, which the plug-ins PodSecurity and EventRateLimit are configured by. ""
	// configures none.
	ConfigFile string
}

// AddFlags defines kube-apiserver's flags.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.StringSliceVar(&o.Enable, "enable-admission-plugins", o.Enable,
		"admission plug-ins to turn on besides the default ones, by Kubernetes' names")
	set.StringSliceVar(&o.Disable, "disable-admission-plugins", o.Disable,
		"admission plug-ins to turn off, also of the default ones")
	set.StringVar(&o.ConfigFile, "admission-control-config-file", o.ConfigFile,
		"YAML or JSON file with an AdmissionConfiguration, by which the plug-ins PodSecurity and EventRateLimit are configured")
	o.NotReadySeconds, o.UnreachableSeconds = new(int64), new(int64)
	set.Int64Var(o.NotReadySeconds, "default-not-ready-toleration-seconds", plugins.DefaultTolerationSeconds,
		"how long a pod stays on a node that isn't ready, unless it says so itself: what the plug-in DefaultTolerationSeconds sets")
	set.Int64Var(o.UnreachableSeconds, "default-unreachable-toleration-seconds", plugins.DefaultTolerationSeconds,
		"how long a pod stays on a node that can't be reached, unless it says so itself: what the plug-in DefaultTolerationSeconds sets")
}

// Validate returns what is wrong with the options, with the flag's name. A plug-in of Kubernetes' that this server doesn't
// have may be turned off, and on only if nothing would be otherwise with it. What the server always does can't be turned off.
func (o *Options) Validate() error {
	for _, name := range o.Enable {
		switch p := find(name); {
		case p == nil:
			return fmt.Errorf("--enable-admission-plugins %q isn't an admission plug-in", name)
		case p.make == nil && !p.noop && !p.builtIn:
			return fmt.Errorf("--enable-admission-plugins %q isn't an admission plug-in that this server has; it has %s", name, strings.Join(names(), ", "))
		}
	}
	for _, name := range o.Disable {
		switch p := find(name); {
		case p == nil:
			return fmt.Errorf("--disable-admission-plugins %q isn't an admission plug-in", name)
		case slices.Contains(o.Enable, name):
			return fmt.Errorf("--enable-admission-plugins and --disable-admission-plugins both name %q", name)
		case p.builtIn:
			return fmt.Errorf("--disable-admission-plugins %q can't be turned off here: nothing is stored in a namespace that is missing or being deleted", name)
		}
	}
	if _, err := o.readFile(); err != nil {
		return fmt.Errorf("--admission-control-config-file: %w", err)
	}
	return nil
}

// withoutEffect returns the names among those to turn on or off of plug-ins that this server doesn't have.
func (o *Options) withoutEffect() (list []string) {
	for _, name := range slices.Concat(o.Enable, o.Disable) {
		if p := find(name); p != nil && p.make == nil && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// has tells whether a plug-in is on.
func (o *Options) has(p *plugin) bool {
	switch {
	case p.make == nil:
		return false
	case slices.Contains(o.Enable, p.name):
		return true
	case slices.Contains(o.Disable, p.name):
		return false
	}
	return p.on == always || p.on == inKubernetes && o.Kubernetes
}

// Config is what a Chain is made of.
type Config struct {
	Options
	Registry *registry.Registry
	// Authorizer is whom plug-ins, and the variable authorizer of CEL expressions, ask what a user may do. Defaults to one
	// that allows everything.
	Authorizer authorizer.UnconditionalAuthorizer
	// Quotas is the ledger of the controller that counts what is used of quotas.
	Quotas *quota.Ledger
	Log    *slog.Logger // defaults to slog.Default()

	given     map[string][]byte // configurations from the file, by the names of the plug-ins
	metrics   *webhook.Metrics
	decisions *policy.Metrics
}

// webhooks is what webhooks are called with.
func (c *Config) webhooks() webhook.Config {
	return webhook.Config{Registry: c.Registry, Authorizer: c.Authorizer, Metrics: c.metrics, Log: c.Log}
}

// New makes the chain of those plug-ins that are on, and has the registry ask it. It's for the program's start, before the
// registry runs.
func New(c Config) (*Chain, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Authorizer == nil {
		c.Authorizer = allowAll{}
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Quotas == nil {
		c.Quotas = &quota.Ledger{}
	}
	if list := c.withoutEffect(); len(list) > 0 {
		c.Log.Info("admission plug-ins that have no effect here", "names", strings.Join(list, ","))
	}
	var err error
	if c.given, err = c.readFile(); err != nil { // which somebody has changed since Validate read it
		return nil, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	c.metrics, c.decisions = webhook.NewMetrics(), policy.NewMetrics()
	durations := newDurations()
	chain := &Chain{registry: c.Registry, collectors: slices.Concat([]prometheus.Collector{durations}, c.metrics.Collectors(), c.decisions.Collectors())}
	for i := range known {
		p := &known[i]
		if !c.has(p) || p.goesBy.Resource != "" && !c.Registry.Has(p.goesBy) {
			continue
		}
		m, err := p.make(&c)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("admission plug-in %s: %w", p.name, err), chain.Close())
		}
		chain.members = append(chain.members, memberOf(p.name, m, durations))
	}
	if len(chain.members) > 0 {
		c.Registry.Use(chain)
	}
	return chain, nil
}

// Collectors are the plug-ins' metrics.
func (c *Chain) Collectors() []prometheus.Collector { return c.collectors }

// Close ends what the plug-ins have open, and waits for it. The registry must have ended.
func (c *Chain) Close() error {
	var errs []error
	for _, m := range c.members {
		if closer, ok := m.plugin.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}
