package access

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// The rules that every cluster of Kubernetes has, as of 1.37. They're facts about Kubernetes: its own components, and what
// is deployed into clusters, count on these names.

// Sets of verbs.
const (
	read      = "get list watch"
	write     = "create delete deletecollection patch update"
	readWrite = read + " " + write
)

// Groups; core's name is empty in rules.
const (
	core           = "core"
	authentication = "authentication.k8s.io"
	authorization  = "authorization.k8s.io"
	certificates   = "certificates.k8s.io"
	coordination   = "coordination.k8s.io"
	discovery      = "discovery.k8s.io"
	eventsGroup    = "events.k8s.io"
	networking     = "networking.k8s.io"
	resources      = "resource.k8s.io"
	storageGroup   = "storage.k8s.io"
)

// aggregateTo begins the labels of ClusterRoles that are part of another one: its name follows.
const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// rule makes a rule of words.
func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: words(verbs), APIGroups: words(groups), Resources: words(resources), ResourceNames: names}
	if i := slices.Index(r.APIGroups, core); i >= 0 {
		r.APIGroups[i] = ""
		slices.Sort(r.APIGroups)
	}
	return r
}

// onPaths makes a rule about paths that aren't resources.
func onPaths(verbs, paths string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: words(verbs), NonResourceURLs: words(paths)}
}

func words(s string) []string {
	all := strings.Fields(s)
	slices.Sort(all)
	return all
}

// onEvents lets a component report what happens.
func onEvents() rbacv1.PolicyRule {
	return rule("create patch update", core+" "+eventsGroup, "events")
}

// bootstrapPolicy returns all of them.
func bootstrapPolicy() *policy {
	p := &policy{}
	p.addForUsers()
	p.addForComponents()
	p.addForScheduler()
	p.addForNodes()
	p.addApprovers()
	p.addControllers()
	p.addInNamespaces()
	for _, r := range p.clusterRoles {
		mark(r)
	}
	for _, r := range p.roles {
		mark(r)
	}
	for _, b := range p.clusterBindings {
		mark(b)
	}
	for _, b := range p.bindings {
		mark(b)
	}
	return p
}

// mark gives an object the label by which the objects of the start are known, and the annotation that lets the next start
// mend them.
func mark(o metav1.Object) {
	labels := map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}
	for k, v := range o.GetLabels() {
		labels[k] = v
	}
	o.SetLabels(labels)
	o.SetAnnotations(map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"})
}

// role adds a ClusterRole.
func (p *policy) role(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	p.clusterRoles = append(p.clusterRoles, r)
	return r
}

// bind adds a ClusterRoleBinding to the ClusterRole of the same name.
func (p *policy) bind(name string, to ...rbacv1.Subject) {
	p.clusterBindings = append(p.clusterBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: to,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	})
}

func ofUser(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func ofGroup(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

func ofAccount(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: name}
}

// addForUsers adds what people have: the administrator's role, what everybody may know, and admin, edit and view, which
// are bound in namespaces.
func (p *policy) addForUsers() {
	p.role("cluster-admin", rule("*", "*", "*"), onPaths("*", "*"))
	p.bind("cluster-admin", ofGroup(user.SystemPrivilegedGroup))
	p.role("system:discovery", onPaths("get", "/livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*"))
	p.bind("system:discovery", ofGroup(user.AllAuthenticated))
	p.role("system:basic-user",
		rule("create", authorization, "selfsubjectaccessreviews selfsubjectrulesreviews"),
		rule("create", authentication, "selfsubjectreviews"))
	p.bind("system:basic-user", ofGroup(user.AllAuthenticated))
	p.role("system:public-info-viewer", onPaths("get", "/livez /readyz /healthz /version /version/"))
	p.bind("system:public-info-viewer", ofGroup(user.AllAuthenticated), ofGroup(user.AllUnauthenticated))
	p.role("system:monitoring",
		onPaths("get", "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz"),
		rule("get", core, "nodes/metrics"))
	p.bind("system:monitoring", ofGroup(user.MonitoringGroup))
	p.role("system:service-account-issuer-discovery", onPaths("get", "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/"))
	p.bind("system:service-account-issuer-discovery", ofGroup("system:serviceaccounts"))
	p.role("system:cluster-trust-bundle-discovery", rule(read, certificates, "clustertrustbundles"))
	p.bind("system:cluster-trust-bundle-discovery", ofGroup("system:serviceaccounts"))

	p.aggregate("admin", "")
	p.aggregate("edit", "admin")
	p.aggregate("view", "edit")
	p.part("admin",
		rule("create", authorization, "localsubjectaccessreviews"),
		rule(readWrite, rbacv1.GroupName, "roles rolebindings"))
	p.part("edit",
		rule(read, core, "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
		rule("impersonate", core, "serviceaccounts"),
		rule(write, core, "pods pods/attach pods/exec pods/portforward pods/proxy"),
		rule("create", core, "pods/eviction"),
		rule(write, core, "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets serviceaccounts services services/proxy"),
		rule("create", core, "serviceaccounts/token"),
		rule(write, core+" "+eventsGroup, "events"),
		rule(write, "apps", "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"),
		rule(write, "autoscaling", "horizontalpodautoscalers"),
		rule(write, "batch", "cronjobs jobs"),
		rule(write, "extensions", "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets replicasets/scale replicationcontrollers/scale"),
		rule(write, "policy", "poddisruptionbudgets"),
		rule(write, networking, "ingresses networkpolicies"),
		rule(readWrite, coordination, "leases"),
		rule(write, resources, "resourceclaims resourceclaimtemplates"))
	p.part("view",
		rule(read, core, "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status"),
		rule(read, core, "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas resourcequotas/status"),
		rule(read, core, "namespaces"),
		rule(read, core+" "+eventsGroup, "events"),
		rule(read, discovery, "endpointslices"),
		rule(read, "apps", "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status"),
		rule(read, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
		rule(read, "batch", "cronjobs cronjobs/status jobs jobs/status"),
		rule(read, "extensions", "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale"),
		rule(read, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
		rule(read, networking, "ingresses ingresses/status networkpolicies"),
		rule(read, resources, "resourceclaims resourceclaims/status resourceclaimtemplates"))
}

// aggregate adds a ClusterRole that is put together from others, and is itself a part of one.
func (p *policy) aggregate(name, partOf string) {
	r := p.role(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregateTo + name: "true"}}}}
	if partOf != "" {
		r.Labels = map[string]string{aggregateTo + partOf: "true"}
	}
}

// part adds Kubernetes' own part of such a role.
func (p *policy) part(of string, rules ...rbacv1.PolicyRule) {
	p.role("system:aggregate-to-"+of, rules...).Labels = map[string]string{aggregateTo + of: "true"}
}

// addForComponents adds the roles of Kubernetes' processes besides the scheduler's and the nodes'.
func (p *policy) addForComponents() {
	reviews := []rbacv1.PolicyRule{rule("create", authentication, "tokenreviews"), rule("create", authorization, "subjectaccessreviews")}
	p.role("system:auth-delegator", reviews...)
	p.role("system:kube-aggregator", rule(read, core, "services endpoints"))
	p.role("system:heapster", rule(read, core, "events pods nodes namespaces"), rule(read, "extensions", "deployments"))
	p.role("system:kube-dns", rule("list watch", core, "endpoints services"))
	p.bind("system:kube-dns", ofAccount("kube-dns"))
	p.role("system:kube-controller-manager",
		onEvents(),
		rule("create", coordination, "leases"),
		rule("get update", coordination, "leases", "kube-controller-manager"),
		rule("create", core, "secrets serviceaccounts"),
		rule("delete", core, "secrets"),
		rule("get", core, "configmaps namespaces secrets serviceaccounts"),
		rule("update", core, "secrets serviceaccounts"),
		rule("create", authentication, "tokenreviews"),
		rule("create", authorization, "subjectaccessreviews"),
		rule("list watch", "*", "*"),
		rule("create", core, "serviceaccounts/token"))
	p.bind("system:kube-controller-manager", ofUser(user.KubeControllerManager))
}

// addForScheduler adds the roles of the scheduler, and of what makes volumes for the pods that it places.
func (p *policy) addForScheduler() {
	p.role("system:kube-scheduler",
		onEvents(),
		rule("create", coordination, "leases"),
		rule(read+" update", coordination, "leases", "kube-scheduler"),
		rule(readWrite, coordination, "leasecandidates"),
		rule(read, core, "nodes"),
		rule(read+" delete", core, "pods"),
		rule("create", core, "bindings pods/binding"),
		rule("patch update", core, "pods/status"),
		rule(read, core, "replicationcontrollers services"),
		rule(read, "apps extensions", "replicasets"),
		rule(read, "apps", "statefulsets"),
		rule(read, "policy", "poddisruptionbudgets"),
		rule(read, core, "persistentvolumeclaims persistentvolumes"),
		rule("create", authentication, "tokenreviews"),
		rule("create", authorization, "subjectaccessreviews"),
		rule(read, storageGroup, "csinodes"),
		rule(read, storageGroup, "volumeattachments"),
		rule(read, core, "namespaces"),
		rule(read, storageGroup, "csidrivers"),
		rule(read, storageGroup, "csistoragecapacities"),
		rule(read, resources, "deviceclasses"),
		rule(read+" patch update", resources, "resourceclaims"),
		rule(read+" patch update", resources, "resourceclaims/status"),
		rule("update", core, "pods/finalizers"),
		rule(read, resources, "resourceslices"),
		rule("create delete", resources, "resourceclaims"),
		rule(read, resources, "devicetaintrules"),
		rule("patch update", resources, "resourceclaims/binding"))
	p.bind("system:kube-scheduler", ofUser(user.KubeScheduler))
	p.role("system:volume-scheduler",
		rule(read+" patch update", core, "persistentvolumes"),
		rule(read, storageGroup, "storageclasses"),
		rule(read+" patch update", core, "persistentvolumeclaims"))
	p.bind("system:volume-scheduler", ofUser(user.KubeScheduler))
	p.role("system:persistent-volume-provisioner",
		rule("create delete "+read, core, "persistentvolumes"),
		rule(read+" update", core, "persistentvolumeclaims"),
		rule(read, storageGroup, "storageclasses"),
		rule("watch", core, "events"),
		onEvents())
}

// addForNodes adds the roles of what runs on nodes. The binding of system:node has no subjects: what nodes may do was
// Kubernetes' Node authorizer's to decide.
func (p *policy) addForNodes() {
	p.role("system:node",
		rule("create", authentication, "tokenreviews"),
		rule("create", authorization, "localsubjectaccessreviews subjectaccessreviews"),
		rule(read, core, "services"),
		rule(read+" create", core, "nodes"),
		rule("patch update", core, "nodes/status"),
		rule("patch update", core, "nodes"),
		onEvents(),
		rule(read, core, "pods"),
		rule("create delete", core, "pods"),
		rule("patch update", core, "pods/status"),
		rule("create", core, "pods/eviction"),
		rule(read, core, "configmaps secrets"),
		rule("get", core, "persistentvolumeclaims persistentvolumes"),
		rule("get", core, "endpoints"),
		rule(read+" create", certificates, "certificatesigningrequests"),
		rule("create delete get patch update", coordination, "leases"),
		rule("get", storageGroup, "volumeattachments"),
		rule("create", core, "serviceaccounts/token"),
		rule("get patch update", core, "persistentvolumeclaims/status"),
		rule(read, storageGroup, "csidrivers"),
		rule("create delete get patch update", storageGroup, "csinodes"),
		rule(read, "node.k8s.io", "runtimeclasses"),
		rule("get", resources, "resourceclaims"),
		rule("deletecollection", resources, "resourceslices"),
		rule(read, certificates, "clustertrustbundles"),
		rule("get", core, "serviceaccounts"),
		rule(read+" create", certificates, "podcertificaterequests"))
	p.bind("system:node")
	p.role("system:node-problem-detector", rule("get", core, "nodes"), rule("patch", core, "nodes/status"), onEvents())
	p.role("system:kubelet-api-admin",
		rule(read, core, "nodes"),
		rule("proxy", core, "nodes"),
		rule("*", core, "nodes/log nodes/metrics nodes/proxy nodes/stats"),
		rule("*", core, "nodes/configz nodes/healthz nodes/pods"))
	p.role("system:node-bootstrapper", rule("create get list watch", certificates, "certificatesigningrequests"))
	p.role("system:node-proxier",
		rule("list watch", core, "endpoints services"),
		rule(read, core, "nodes"),
		onEvents(),
		rule("list watch", networking, "servicecidrs"),
		rule("list watch", discovery, "endpointslices"))
	p.bind("system:node-proxier", ofUser(user.KubeProxy))
}

// The signers of certificates.
const (
	signerLegacy  = "kubernetes.io/legacy-unknown"
	signerServing = "kubernetes.io/kubelet-serving"
	signerClient  = "kubernetes.io/kube-apiserver-client"
	signerKubelet = "kubernetes.io/kube-apiserver-client-kubelet"
)

// addApprovers adds the roles of those who approve requests for certificates.
func (p *policy) addApprovers() {
	const prefix = "system:certificates.k8s.io:"
	for _, kind := range []string{"nodeclient", "selfnodeclient"} {
		p.role(prefix+"certificatesigningrequests:"+kind, rule("create", certificates, "certificatesigningrequests/"+kind))
	}
	for _, signer := range []string{signerLegacy, signerServing, signerClient, signerKubelet} {
		p.role(prefix+strings.TrimPrefix(signer, "kubernetes.io/")+"-approver", rule("approve", certificates, "signers", signer))
	}
}

// local adds a Role.
func (p *policy) local(namespace, name string, rules ...rbacv1.PolicyRule) {
	p.roles = append(p.roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules})
}

// bindLocal adds a RoleBinding to the Role of the same name.
func (p *policy) bindLocal(namespace, name string, to ...rbacv1.Subject) {
	p.bindings = append(p.bindings, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: to,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	})
}

// addInNamespaces adds what components may do in kube-system and kube-public alone.
func (p *policy) addInNamespaces() {
	const system, public = metav1.NamespaceSystem, metav1.NamespacePublic
	const reader = "extension-apiserver-authentication-reader"
	p.local(system, reader, rule(read, core, "configmaps", "extension-apiserver-authentication"))
	p.bindLocal(system, reader, ofUser(user.KubeControllerManager), ofUser(user.KubeScheduler))
	p.bindings[len(p.bindings)-1].Name = "system::" + reader

	const signer, cloud, cleaner = "system:controller:bootstrap-signer", "system:controller:cloud-provider", "system:controller:token-cleaner"
	p.local(system, signer, rule(read, core, "secrets"))
	p.bindLocal(system, signer, ofAccount("bootstrap-signer"))
	p.local(public, signer, rule(read, core, "configmaps"), rule("update", core, "configmaps", "cluster-info"), onEvents())
	p.bindLocal(public, signer, ofAccount("bootstrap-signer"))
	p.local(system, cloud, rule("create "+read, core, "configmaps"))
	p.bindLocal(system, cloud, ofAccount("cloud-provider"))
	p.local(system, cleaner, rule("delete "+read, core, "secrets"), onEvents())
	p.bindLocal(system, cleaner, ofAccount("token-cleaner"))
	p.addLock(ofUser(user.KubeControllerManager), ofAccount("kube-controller-manager"), ofAccount("leader-election-controller"))
	p.addLock(ofUser(user.KubeScheduler), ofAccount("kube-scheduler"))
}

// addLock lets a component, and accounts that may stand for it, elect the leader among its copies.
func (p *policy) addLock(component rbacv1.Subject, accounts ...rbacv1.Subject) {
	name := "system::leader-locking-" + strings.TrimPrefix(component.Name, "system:")
	p.local(metav1.NamespaceSystem, name, rule("create "+read+" update", coordination, "leases"), rule("create "+read+" update", coordination, "leasecandidates"))
	p.bindLocal(metav1.NamespaceSystem, name, append([]rbacv1.Subject{component}, accounts...)...)
}
