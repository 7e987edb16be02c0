package access

import rbacv1 "k8s.io/api/rbac/v1"

// controller adds the ClusterRole of one of kube-controller-manager's controllers, bound to its ServiceAccount.
func (p *policy) controller(name string, rules ...rbacv1.PolicyRule) {
	p.role("system:controller:"+name, rules...)
	p.bind("system:controller:"+name, ofAccount(name))
}

// addControllers adds the roles of kube-controller-manager's controllers.
func (p *policy) addControllers() {
	p.addWorkloadControllers()
	p.addDeviceControllers()
	p.addClusterControllers()
	p.addStorageControllers()
}

func (p *policy) addWorkloadControllers() {
	both := "apps extensions"
	p.controller("cronjob-controller",
		rule(read+" update", "batch", "cronjobs"), rule(read+" create delete patch update", "batch", "jobs"),
		rule("update", "batch", "cronjobs/status"), rule("update", "batch", "cronjobs/finalizers"), rule("delete list watch", core, "pods"), onEvents())
	p.controller("daemon-set-controller",
		rule(read, both, "daemonsets"), rule("update", both, "daemonsets/status"), rule("update", both, "daemonsets/finalizers"),
		rule("list watch", core, "nodes"), rule("create delete list patch watch", core, "pods"), rule("create", core, "pods/binding"),
		rule(read+" create delete patch update", "apps", "controllerrevisions"), onEvents())
	p.controller("deployment-controller",
		rule(read+" update", both, "deployments"), rule("update", both, "deployments/status"), rule("update", both, "deployments/finalizers"),
		rule(read+" create delete patch update", both, "replicasets"), rule(read+" update", core, "pods"), onEvents())
	p.controller("disruption-controller",
		rule(read, both, "deployments"), rule(read, both, "replicasets"), rule(read, core, "replicationcontrollers"), rule(read, "policy", "poddisruptionbudgets"),
		rule(read, "apps", "statefulsets"), rule("update", "policy", "poddisruptionbudgets/status"), rule("patch update", core, "pods/status"),
		rule("get", "*", "*/scale"), onEvents())
	p.controller("horizontal-pod-autoscaler",
		rule(read, "autoscaling", "horizontalpodautoscalers"),
		rule("update", "autoscaling", "horizontalpodautoscalers/status"),
		rule("get update", "*", "*/scale"),
		rule("list watch", core, "pods"),
		rule("list watch", "metrics.k8s.io", "pods"),
		rule(read, "custom.metrics.k8s.io", "*"),
		rule(read, "external.metrics.k8s.io", "*"),
		onEvents())
	p.controller("job-controller",
		rule(read+" patch update", "batch", "jobs"), rule("update", "batch", "jobs/status"), rule("update", "batch", "jobs/finalizers"),
		rule("create delete list patch watch", core, "pods"), onEvents())
	p.controller("pod-garbage-collector",
		rule("delete list watch", core, "pods"), rule(read, core, "nodes"), rule("patch", core, "pods/status"))
	p.controller("replicaset-controller",
		rule(read+" update", both, "replicasets"), rule("update", both, "replicasets/status"), rule("update", both, "replicasets/finalizers"),
		rule("create delete list patch watch", core, "pods"), onEvents())
	p.controller("replication-controller",
		rule(read+" update", core, "replicationcontrollers"), rule("update", core, "replicationcontrollers/status"), rule("update", core, "replicationcontrollers/finalizers"),
		rule("create delete list patch watch", core, "pods"), onEvents())
	p.controller("statefulset-controller",
		rule("list watch", core, "pods"),
		rule(read, "apps", "statefulsets"),
		rule("update", "apps", "statefulsets/status"),
		rule("update", "apps", "statefulsets/finalizers"),
		rule("create delete get patch update", core, "pods"),
		rule(read+" create delete patch update", "apps", "controllerrevisions"),
		rule(read+" create", core, "persistentvolumeclaims"),
		rule("delete update", core, "persistentvolumeclaims"),
		rule("update", core, "pods/finalizers"),
		onEvents())
	p.controller("ttl-after-finished-controller", rule(read+" delete", "batch", "jobs"), onEvents())
}

func (p *policy) addDeviceControllers() {
	p.controller("resource-claim-controller",
		rule(read, core, "pods"),
		rule("update", core, "pods/finalizers"),
		rule(read+" create delete", resources, "resourceclaims"),
		rule("patch update", resources, "resourceclaims resourceclaims/status"),
		rule("patch update", core, "pods/status"),
		onEvents(),
		rule("patch update", resources, "resourceclaims/binding"))
	p.controller("device-taint-eviction-controller",
		rule(read+" delete", core, "pods"),
		rule("patch update", core, "pods/status"),
		rule(read, resources, "resourceclaims"),
		rule(read, resources, "resourceslices"),
		rule(read, resources, "deviceclasses"),
		onEvents(),
		rule("patch update", resources, "devicetaintrules/status"),
		rule(read, resources, "devicetaintrules"))
}

func (p *policy) addClusterControllers() {
	p.controller("certificate-controller",
		rule(read+" delete", certificates, "certificatesigningrequests"), rule("update", certificates, "certificatesigningrequests/status certificatesigningrequests/approval"),
		rule("approve", certificates, "signers", signerKubelet), rule("sign", certificates, "signers", signerClient, signerKubelet, signerServing, signerLegacy),
		rule("create", authorization, "subjectaccessreviews"), onEvents())
	p.controller("clusterrole-aggregation-controller", rule("escalate get list patch update watch", rbacv1.GroupName, "clusterroles"))
	p.controller("endpoint-controller",
		rule(read, core, "services pods"), rule(read+" create delete update", core, "endpoints"), rule("create", core, "endpoints/restricted"), onEvents())
	p.controller("endpointslice-controller",
		rule(read, core, "services pods nodes"), rule("update", core, "services/finalizers"),
		rule(read+" create delete update", discovery, "endpointslices"), onEvents())
	p.controller("endpointslicemirroring-controller",
		rule(read, core, "services endpoints"), rule("update", core, "services/finalizers"), rule("update", core, "endpoints/finalizers"),
		rule(read+" create delete update", discovery, "endpointslices"), onEvents())
	p.controller("generic-garbage-collector", rule("delete get list patch update watch", "*", "*"), onEvents())
	p.controller("legacy-service-account-token-cleaner",
		rule("get", core, "configmaps", "kube-apiserver-legacy-service-account-token-tracking"), rule("delete patch", core, "secrets"))
	p.controller("namespace-controller",
		rule(read+" delete", core, "namespaces"), rule("update", core, "namespaces/finalize namespaces/status"), rule(read+" delete deletecollection", "*", "*"))
	p.controller("node-controller",
		rule(read+" delete patch update", core, "nodes"), rule("patch update", core, "nodes/status"), rule("patch update", core, "pods/status"),
		rule(read+" delete", core, "pods"), rule(read, coordination, "leases"), onEvents())
	p.controller("resourcequota-controller", rule("list watch", "*", "*"), rule("update", core, "resourcequotas/status"), onEvents())
	p.controller("root-ca-cert-publisher", rule("create update", core, "configmaps"), onEvents())
	p.controller("route-controller", rule("list watch", core, "nodes"), rule("patch", core, "nodes/status"), onEvents())
	p.controller("service-account-controller", rule("create", core, "serviceaccounts"), onEvents())
	p.controller("service-cidrs-controller",
		rule(read+" patch update", networking, "servicecidrs"), rule("patch update", networking, "servicecidrs/finalizers"), rule("patch update", networking, "servicecidrs/status"),
		rule(read, networking, "ipaddresses"), onEvents())
	p.controller("service-controller",
		rule(read, core, "services"), rule("patch update", core, "services/status"), rule("list watch", core, "nodes"), onEvents())
	p.controller("storage-version-migrator-controller",
		rule("list patch", "*", "*"),
		rule("get", "apiextensions.k8s.io", "customresourcedefinitions"),
		rule("patch", "apiextensions.k8s.io", "customresourcedefinitions/status"),
		rule("update", "storagemigration.k8s.io", "storageversionmigrations/status"))
	p.controller("kube-apiserver-serving-clustertrustbundle-publisher",
		rule("attest", certificates, "signers", "kubernetes.io/kube-apiserver-serving"), rule("create delete list update watch", certificates, "clustertrustbundles"), onEvents())
	p.controller("podcertificaterequestcleaner", rule(read+" delete", certificates, "podcertificaterequests"))
	p.controller("ttl-controller", rule("list patch update watch", core, "nodes"), onEvents())
	p.controller("validatingadmissionpolicy-status-controller",
		rule(read, "admissionregistration.k8s.io", "validatingadmissionpolicies"), rule("get patch update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"), onEvents())
}

func (p *policy) addStorageControllers() {
	p.controller("attachdetach-controller",
		rule("list watch", core, "persistentvolumes persistentvolumeclaims"), rule(read, core, "nodes"), rule("patch update", core, "nodes/status"), rule("list watch", core, "pods"),
		onEvents(), rule("create delete get list watch", storageGroup, "volumeattachments"), rule(read, storageGroup, "csidrivers"), rule(read, storageGroup, "csinodes"))
	p.controller("ephemeral-volume-controller",
		rule(read, core, "pods"), rule("update", core, "pods/finalizers"), rule(read+" create", core, "persistentvolumeclaims"), onEvents())
	p.controller("expand-controller",
		rule(read+" patch update", core, "persistentvolumes"), rule("patch update", core, "persistentvolumeclaims/status"), rule(read, core, "persistentvolumeclaims"), onEvents())
	p.controller("persistent-volume-binder",
		rule(read+" create delete update", core, "persistentvolumes"),
		rule("update", core, "persistentvolumes/status"),
		rule(read+" update", core, "persistentvolumeclaims"),
		rule("update", core, "persistentvolumeclaims/status"),
		rule(read+" create delete", core, "pods"),
		rule(read, storageGroup, "storageclasses"),
		rule("list watch", core, "nodes"),
		onEvents(),
		rule("watch", core, "events"))
	p.controller("pv-protection-controller", rule(read+" update", core, "persistentvolumes"), onEvents())
	p.controller("pvc-protection-controller", rule(read+" update", core, "persistentvolumeclaims"), rule("update", core, "persistentvolumeclaims/status"), rule(read, core, "pods"), onEvents())
	p.controller("selinux-warning-controller",
		onEvents(),
		rule(read, core, "persistentvolumes"),
		rule(read, core, "persistentvolumeclaims"),
		rule(read, core, "pods"),
		rule(read, storageGroup, "csidrivers"))
	p.controller("volumeattributesclass-protection-controller",
		rule(read, core, "persistentvolumeclaims"), rule(read, core, "persistentvolumes"), rule(read+" update", storageGroup, "volumeattributesclasses"), onEvents())
}
