package admission

import (
	"slices"

	"github.com/apiserver-lite/apiserver-lite/admission/policy"
	"github.com/apiserver-lite/apiserver-lite/admission/webhook"
)

// plugin is an admission plug-in of Kubernetes'.
type plugin struct {
	name string
	on   when
	make func(*Config) (Member, error) // nil: this server doesn't have it
}

// when says when a plug-in is on without anybody asking for it.
type when int

const (
	never        when = iota
	inKubernetes      // with Options.Kubernetes
	always
)

// plugins are in the order in which they're asked, which is Kubernetes'.
var plugins = []plugin{
	{name: "AlwaysAdmit"},
	{name: "NamespaceAutoProvision"},
	{name: "NamespaceLifecycle"},
	{name: "NamespaceExists"},
	{name: "LimitPodHardAntiAffinityTopology"},
	{name: "LimitRanger", on: inKubernetes},
	{name: "ServiceAccount", on: inKubernetes},
	{name: "NodeRestriction"},
	{name: "TaintNodesByCondition"},
	{name: "AlwaysPullImages"},
	{name: "ImagePolicyWebhook"},
	{name: "PodSecurity"},
	{name: "PodNodeSelector"},
	{name: "Priority", on: inKubernetes},
	{name: "DefaultTolerationSeconds"},
	{name: "PodTolerationRestriction"},
	{name: "EventRateLimit"},
	{name: "ExtendedResourceToleration"},
	{name: "DefaultStorageClass", on: inKubernetes},
	{name: "StorageObjectInUseProtection"},
	{name: "OwnerReferencesPermissionEnforcement"},
	{name: "PersistentVolumeClaimResize"},
	{name: "RuntimeClass"},
	{name: "CertificateApproval"},
	{name: "CertificateSigning"},
	{name: "ClusterTrustBundleAttest"},
	{name: "CertificateSubjectRestriction"},
	{name: "DefaultIngressClass"},
	{name: "DenyServiceExternalIPs"},
	{name: "PodTopologyLabels"},
	{name: "NodeDeclaredFeatureValidator"},
	{name: "MutatingAdmissionPolicy", on: always, make: func(c *Config) (Member, error) { return policy.NewMutating(c.policies()), nil }},
	{name: "MutatingAdmissionWebhook", on: always, make: func(c *Config) (Member, error) { return webhook.NewMutating(c.webhooks()), nil }},
	{name: "ValidatingAdmissionPolicy", on: always, make: func(c *Config) (Member, error) { return policy.NewValidating(c.policies()), nil }},
	{name: "ValidatingAdmissionWebhook", on: always, make: func(c *Config) (Member, error) { return webhook.NewValidating(c.webhooks()), nil }},
	{name: "ResourceQuota", on: inKubernetes},
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
	return policy.Config{Registry: c.Registry, Authorizer: c.Authorizer, Log: c.Log}
}
