package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/admission/plugins"
	"github.com/apiserver-lite/apiserver-lite/admission/policy"
	"github.com/apiserver-lite/apiserver-lite/admission/webhook"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// plugin is an admission plug-in of Kubernetes'.
type plugin struct {
	name string
	on   when
	// goesBy is the built-in kind that the plug-in is about. It isn't made where that kind isn't served.
	goesBy schema.GroupResource
	// make returns what has some of Concerns, Admit or Complete, Validate or Check, and Close. Nil: this server doesn't have it.
	make func(*Config) (any, error)
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
	inKubernetes      // with Options.Kubernetes: what changes every object of a kind, for the sake of parts of a cluster that may not be here
	always            // what does nothing until an object asks for it, or only refuses
)

// Kinds that several plug-ins are about.
var (
	pods   = schema.GroupResource{Resource: "pods"}
	nodes  = schema.GroupResource{Resource: "nodes"}
	claims = schema.GroupResource{Resource: "persistentvolumeclaims"}

	signingRequests = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
)

// known are all plug-ins, in the order in which they're asked, which is Kubernetes'.
var known = []plugin{
	{name: "AlwaysAdmit", noop: true},
	{name: "NamespaceAutoProvision"},
	{name: "NamespaceLifecycle", builtIn: true},
	{name: "NamespaceExists", builtIn: true},
	{name: "LimitPodHardAntiAffinityTopology"},
	{name: "LimitRanger", on: always, goesBy: schema.GroupResource{Resource: "limitranges"}, make: func(c *Config) (any, error) {
		return plugins.NewLimitRanger(c.Registry, c.unreadable("LimitRange")), nil
	}},
	{name: "ServiceAccount", on: inKubernetes, make: func(c *Config) (any, error) { return plugins.NewServiceAccount(c.Registry), nil }},
	{name: "NodeRestriction", goesBy: nodes, make: func(c *Config) (any, error) { return plugins.NewNodeRestriction(c.Registry, c.Authorizer), nil }},
	{name: "TaintNodesByCondition", on: inKubernetes, goesBy: nodes, make: func(*Config) (any, error) { return plugins.TaintNodes{}, nil }},
	{name: "AlwaysPullImages", goesBy: pods, make: func(*Config) (any, error) { return plugins.AlwaysPullImages{}, nil }},
	{name: "ImagePolicyWebhook"},
	{name: "PodSecurity", on: always, goesBy: pods, make: func(c *Config) (any, error) {
		return plugins.NewPodSecurity(c.Registry, c.given["PodSecurity"], c.unreadable("Pod"))
	}},
	{name: "PodNodeSelector"},
	{name: "Priority", on: inKubernetes, make: func(c *Config) (any, error) {
		return plugins.NewPriority(c.Registry, c.unreadable("PriorityClass")), nil
	}},
	{name: "DefaultTolerationSeconds", on: inKubernetes, goesBy: pods, make: func(c *Config) (any, error) {
		return plugins.DefaultTolerations{NotReady: orDefault(c.NotReadySeconds), Unreachable: orDefault(c.UnreachableSeconds)}, nil
	}},
	{name: "PodTolerationRestriction"},
	{name: "EventRateLimit", make: func(c *Config) (any, error) { return plugins.NewEventRateLimit(c.given["EventRateLimit"]) }},
	{name: "ExtendedResourceToleration", goesBy: pods, make: func(*Config) (any, error) { return plugins.ExtendedResourceToleration{}, nil }},
	{name: "DefaultStorageClass", on: always, goesBy: schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}, make: func(c *Config) (any, error) {
		return plugins.NewDefaultStorageClass(c.Registry, c.unreadable("StorageClass")), nil
	}},
	{name: "StorageObjectInUseProtection", on: inKubernetes, goesBy: claims, make: func(*Config) (any, error) { return plugins.StorageInUse{}, nil }},
	{name: "PodGroupProtection", noop: true}, // PodGroups are behind a feature gate that is off
	{name: "OwnerReferencesPermissionEnforcement", make: func(c *Config) (any, error) { return plugins.NewOwnerReferences(c.Registry, c.Authorizer), nil }},
	{name: "PersistentVolumeClaimResize", on: always, goesBy: claims, make: func(c *Config) (any, error) {
		return plugins.NewClaimResize(c.Registry, c.unreadable("StorageClass")), nil
	}},
	{name: "RuntimeClass", on: always, goesBy: schema.GroupResource{Group: "node.k8s.io", Resource: "runtimeclasses"}, make: func(c *Config) (any, error) {
		return plugins.NewRuntimeClass(c.Registry, c.unreadable("RuntimeClass")), nil
	}},
	{name: "CertificateApproval", on: always, goesBy: signingRequests, make: func(c *Config) (any, error) { return plugins.NewCertificateApproval(c.Authorizer), nil }},
	{name: "CertificateSigning", on: always, goesBy: signingRequests, make: func(c *Config) (any, error) { return plugins.NewCertificateSigning(c.Authorizer), nil }},
	{name: "ClusterTrustBundleAttest", on: always, goesBy: schema.GroupResource{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}, make: func(c *Config) (any, error) {
		return plugins.NewClusterTrustBundleAttest(c.Authorizer), nil
	}},
	{name: "CertificateSubjectRestriction", on: always, goesBy: signingRequests, make: func(c *Config) (any, error) { return plugins.CertificateSubjectRestriction{}, nil }},
	{name: "DefaultIngressClass", on: always, goesBy: schema.GroupResource{Group: "networking.k8s.io", Resource: "ingressclasses"}, make: func(c *Config) (any, error) {
		return plugins.NewDefaultIngressClass(c.Registry, c.unreadable("IngressClass")), nil
	}},
	{name: "DenyServiceExternalIPs"},
	{name: "PodTopologyLabels", on: always, goesBy: nodes, make: func(c *Config) (any, error) { return plugins.NewTopologyLabels(c.Registry), nil }},
	{name: "NodeDeclaredFeatureValidator", on: always, goesBy: nodes, make: func(c *Config) (any, error) { return plugins.NewDeclaredFeatures(c.Registry), nil }},
	{name: "PodResizeValidator", on: always, goesBy: nodes, make: func(c *Config) (any, error) { return plugins.NewPodResize(c.Registry), nil }},
	{name: "MutatingAdmissionPolicy", on: always, make: func(c *Config) (any, error) { return policy.NewMutating(c.policies()), nil }},
	{name: "MutatingAdmissionWebhook", on: always, make: func(c *Config) (any, error) { return webhook.NewMutating(c.webhooks()), nil }},
	{name: "ValidatingAdmissionPolicy", on: always, make: func(c *Config) (any, error) { return policy.NewValidating(c.policies()), nil }},
	{name: "ValidatingAdmissionWebhook", on: always, make: func(c *Config) (any, error) { return webhook.NewValidating(c.webhooks()), nil }},
	{name: "ResourceQuota", on: always, goesBy: schema.GroupResource{Resource: "resourcequotas"}, make: func(c *Config) (any, error) {
		return plugins.NewResourceQuota(c.Registry, c.Quotas), nil
	}},
	{name: "AlwaysDeny"},
}

// orDefault returns the seconds of a flag.
func orDefault(seconds *int64) int64 {
	if seconds == nil {
		return plugins.DefaultTolerationSeconds
	}
	return *seconds
}

// find returns the plug-in of a name; nil if Kubernetes has none.
func find(name string) *plugin {
	i := slices.IndexFunc(known, func(p plugin) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &known[i]
}

// unreadable logs that a plug-in leaves out an object which can't be read.
func (c *Config) unreadable(kind string) func(*kube.Object, error) {
	return func(o *kube.Object, err error) {
		c.Log.Warn("an admission plug-in leaves out an object that can't be read", "kind", kind, "namespace", o.Namespace(), "name", o.Name(), "error", err)
	}
}

// names are those of the plug-ins that this server has.
func names() (list []string) {
	for _, p := range known {
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
