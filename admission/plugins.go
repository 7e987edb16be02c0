package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	builtin "github.com/apiserver-lite/apiserver-lite/admission/plugins"
	"github.com/apiserver-lite/apiserver-lite/admission/policy"
	"github.com/apiserver-lite/apiserver-lite/admission/webhook"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// plugin is an admission plug-in of Kubernetes'.
type plugin struct {
	name string
	on   when
	// goesBy is the built-in kind that the plug-in is about. It isn't made where that kind isn't served.
	goesBy schema.GroupResource
	make   func(*Config) (Member, error) // nil: this server doesn't have it
	// noop tells of a plug-in that this server doesn't have that it may be turned on all the same: it's about parts of a
	// cluster that aren't here, or nothing would be otherwise with it.
	noop bool
	// builtIn tells that this server always does what the plug-in does.
	builtIn bool
}

// when says when a plug-in is on without anybody asking for it.
type when int

const (
	never        when = iota
	inKubernetes      // with Options.Kubernetes: what changes every pod
	always            // what does nothing until somebody writes an object that it's about
)

// plugins are in the order in which they're asked, which is Kubernetes'.
var plugins = []plugin{
	{name: "AlwaysAdmit", noop: true},
	{name: "NamespaceAutoProvision"},
	{name: "NamespaceLifecycle", builtIn: true},
	{name: "NamespaceExists", builtIn: true},
	{name: "LimitPodHardAntiAffinityTopology"},
	{name: "LimitRanger", on: always, goesBy: schema.GroupResource{Resource: "limitranges"}, make: func(c *Config) (Member, error) {
		return builtin.NewLimitRanger(c.Registry, c.unreadable("LimitRange")), nil
	}},
	{name: "ServiceAccount", on: inKubernetes, make: func(c *Config) (Member, error) {
		return builtin.NewServiceAccount(c.Registry), nil
	}},
	{name: "NodeRestriction", noop: true},
	{name: "TaintNodesByCondition", noop: true},
	{name: "AlwaysPullImages"},
	{name: "ImagePolicyWebhook"},
	{name: "PodSecurity"},
	{name: "PodNodeSelector"},
	{name: "Priority", on: inKubernetes, make: func(c *Config) (Member, error) {
		return builtin.NewPriority(c.Registry, c.unreadable("PriorityClass")), nil
	}},
	{name: "DefaultTolerationSeconds", noop: true},
	{name: "PodTolerationRestriction"},
	{name: "EventRateLimit"},
	{name: "ExtendedResourceToleration", noop: true},
	{name: "DefaultStorageClass", on: always, goesBy: schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}, make: func(c *Config) (Member, error) {
		return builtin.NewDefaultStorageClass(c.Registry, c.unreadable("StorageClass")), nil
	}},
	{name: "StorageObjectInUseProtection", noop: true},
	{name: "PodGroupProtection", noop: true},
	{name: "OwnerReferencesPermissionEnforcement", make: func(c *Config) (Member, error) {
		return builtin.NewOwnerReferences(c.Registry, c.Authorizer), nil
	}},
	{name: "PersistentVolumeClaimResize", noop: true},
	{name: "RuntimeClass", noop: true},
	{name: "CertificateApproval", on: always, goesBy: schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}, make: func(c *Config) (Member, error) {
		return builtin.NewCertificateApproval(c.Authorizer), nil
	}},
	{name: "CertificateSigning", on: always, goesBy: schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}, make: func(c *Config) (Member, error) {
		return builtin.NewCertificateSigning(c.Authorizer), nil
	}},
	{name: "ClusterTrustBundleAttest", on: always, goesBy: schema.GroupResource{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}, make: func(c *Config) (Member, error) {
		return builtin.NewClusterTrustBundleAttest(c.Authorizer), nil
	}},
	{name: "CertificateSubjectRestriction", on: always, goesBy: schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}, make: func(c *Config) (Member, error) {
		return builtin.CertificateSubjectRestriction{}, nil
	}},
	{name: "DefaultIngressClass", noop: true},
	{name: "DenyServiceExternalIPs"},
	{name: "PodTopologyLabels", noop: true},
	{name: "NodeDeclaredFeatureValidator", noop: true},
	{name: "PodResizeValidator", noop: true},
	{name: "MutatingAdmissionPolicy", on: always, make: func(c *Config) (Member, error) { return policy.NewMutating(c.policies()), nil }},
	{name: "MutatingAdmissionWebhook", on: always, make: func(c *Config) (Member, error) { return webhook.NewMutating(c.webhooks()), nil }},
	{name: "ValidatingAdmissionPolicy", on: always, make: func(c *Config) (Member, error) { return policy.NewValidating(c.policies()), nil }},
	{name: "ValidatingAdmissionWebhook", on: always, make: func(c *Config) (Member, error) { return webhook.NewValidating(c.webhooks()), nil }},
	{name: "ResourceQuota", on: always, goesBy: schema.GroupResource{Resource: "resourcequotas"}, make: func(c *Config) (Member, error) {
		return builtin.NewResourceQuota(c.Registry, c.Quotas), nil
	}},
	{name: "AlwaysDeny"},
}

// find returns the plug-in of a name; nil if Kubernetes has none.
func find(name string) *plugin {
	i := slices.IndexFunc(plugins, func(p plugin) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &plugins[i]
}

// unreadable logs that a plug-in leaves out an object which can't be read.
func (c *Config) unreadable(kind string) func(*cacher.Object, error) {
	return func(o *cacher.Object, err error) {
		c.Log.Warn("an admission plug-in leaves out an object that can't be read", "kind", kind, "namespace", o.Namespace(), "name", o.Name(), "error", err)
	}
}

// names are those of the plug-ins that this server has.
func names() (list []string) {
	for _, p := range plugins {
		if p.make != nil {
			list = append(list, p.name)
		}
	}
	return list
}

// policies is what policies are evaluated with.
func (c *Config) policies() policy.Config {
	return policy.Config{Registry: c.Registry, Authorizer: c.Authorizer, Metrics: c.decisions, Log: c.Log}
}
