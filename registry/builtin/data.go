//lint:file-ignore SA1019 Endpoints are deprecated, and still served

package builtin

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// The groups.
const (
	appsGroup         = "apps"
	autoscalingGroup  = "autoscaling"
	batchGroup        = "batch"
	certificatesGroup = "certificates.k8s.io"
	discoveryGroup    = "discovery.k8s.io"
	flowcontrolGroup  = "flowcontrol.apiserver.k8s.io"
	networkingGroup   = "networking.k8s.io"
	nodeGroup         = "node.k8s.io"
	policyGroup       = "policy"
	registrationGroup = "apiregistration.k8s.io"
	resourceGroup     = "resource.k8s.io"
	schedulingGroup   = "scheduling.k8s.io"
	storageGroup      = "storage.k8s.io"
	migrationGroup    = "storagemigration.k8s.io"
)

// data are the kinds that are stored and shown, and that nothing acts on.
func data(o Options) []registry.Type {
	return slices.Concat(podsAndServices(o), workloads(o), volumes(), networks(), policiesOfPods(), others(o))
}

func podsAndServices(o Options) []registry.Type {
	return []registry.Type{
		{Names: inAll(names("", "v1", "Pod", "po")), New: of[corev1.Pod], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, ReturnDeleted: true, StatusResets: []string{"spec", "metadata.deletionTimestamp", "metadata.ownerReferences"}},
			Fields:   podFields, FalseFields: []string{"spec.hostNetwork"}, Columns: podColumns, Subresources: podParts, Absent: podStreams(),
			Default: set(defaultPod), Prepare: withoutGated(preparePod), Validate: validatePod, Warnings: warnPods, Grace: podGrace},
		{Names: names("", "v1", "Binding"), New: of[corev1.Binding], Forward: &registry.Forward{APIVersion: "v1", Kind: "Pod", Subresource: "binding"}},
		{Names: names("", "v1", "ComponentStatus", "cs"), New: of[corev1.ComponentStatus], ClusterScoped: true, Shown: components,
			Strategy: registry.Strategy{NoGeneration: true},
			Warning:  "v1 ComponentStatus is deprecated in v1.19+", Columns: componentColumns},
		{Names: inAll(names("", "v1", "Service", "svc")), New: of[corev1.Service], Status: true,
			Strategy: registry.Strategy{StoredAt: "services/specs", UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, ReturnDeleted: true, StatusResets: specOnly},
			Fields:   []string{"spec.clusterIP", "spec.type"}, Columns: serviceColumns, ValidName: validation.NameIsDNSLabel,
			Absent: onlyProxy(), Default: set(defaultServiceObject), Prepare: prepare(o.prepareService),
			Validate: parts(o.validateService, validateServiceStatus), Warnings: warnServices, Claim: claiming(o.allocator.claim)},
		{Names: registry.Names{Version: "v1", Kind: "Endpoints", ListKind: "EndpointsList", Plural: "endpoints", Singular: "endpoints", ShortNames: []string{"ep"}}, New: of[corev1.Endpoints], Columns: endpointsColumns, Default: set(defaultEndpoints),
			Validate: rules(validateEndpoints), Warnings: warnings(warnEndpoints), Warning: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
			Strategy: registry.Strategy{StoredAt: "services/endpoints", UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true}},
		{Names: names(discoveryGroup, "v1", "EndpointSlice"), New: of[discoveryv1.EndpointSlice],
			Strategy: registry.Strategy{UnconditionalUpdate: true},
			Columns:  endpointSliceColumns, Default: set(defaultEndpointSlice),
			Generation: counting(countSlice), Prepare: prepare(prepareEndpointSlice), Validate: rules(validateEndpointSlice), Warnings: warnings(warnEndpointSlice)},
		{Names: names("", "v1", "Node", "no"), New: of[corev1.Node], ClusterScoped: true, Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, CreatesStatus: true, NoGeneration: true, StatusResets: specOnly},
			Fields:   []string{"spec.unschedulable"}, FalseFields: []string{"spec.unschedulable"}, Columns: nodeColumns, Absent: onlyProxy(), Default: set(defaultNode),
			Prepare: prepare(prepareNode), Validate: parts(validateNode, validateNodeStatus), Warnings: warnings(warnNode)},
	}
}

func workloads(o Options) []registry.Type {
	replicas := &registry.Scale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", Selector: selectorText}
	return []registry.Type{
		{Names: inAll(names(appsGroup, "v1", "Deployment", "deploy")), New: of[appsv1.Deployment], Status: true, Scale: replicas,
			Strategy: registry.Strategy{UnconditionalUpdate: true, AnnotationsCount: true, StatusResets: []string{"spec", "metadata.labels"}},
			Columns:  deploymentColumns, Default: set(defaultDeployment), Prepare: withoutGated(nil), Validate: parts(validateDeployment, validateDeploymentStatus), Warnings: podWarnings},
		{Names: inAll(names(appsGroup, "v1", "StatefulSet", "sts")), New: of[appsv1.StatefulSet], Status: true, Scale: replicas,
			Strategy:  registry.Strategy{UnconditionalUpdate: true, StatusResets: specOnly},
			ValidName: validation.NameIsDNSLabel, Columns: statefulSetColumns, Default: set(defaultStatefulSet), Prepare: withoutGated(nil), Validate: parts(validateStatefulSet, validateStatefulSetStatus), Warnings: podWarnings},
		{Names: inAll(names(appsGroup, "v1", "DaemonSet", "ds")), New: of[appsv1.DaemonSet], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: specOnly, HiddenAnnotation: appsv1.DeprecatedTemplateGeneration},
			Columns:  daemonSetColumns, Default: set(defaultDaemonSet), Prepare: withoutGated(prepare(prepareDaemonSet)), Validate: parts(validateDaemonSet, validateDaemonSetStatus), Warnings: podWarnings},
		{Names: inAll(names(appsGroup, "v1", "ReplicaSet", "rs")), New: of[appsv1.ReplicaSet], Status: true, Scale: replicas,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: specOnly},
			Columns:  replicaSetColumns, Default: set(defaultReplicaSet), Prepare: withoutGated(nil), Validate: parts(validateReplicaSet, validateReplicaSetStatus), Warnings: podWarnings},
		{Names: names(appsGroup, "v1", "ControllerRevision"), New: of[appsv1.ControllerRevision],
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true},
			Columns:  revisionColumns, Validate: rules(validateRevision)},
		{Names: inAll(names("", "v1", "ReplicationController", "rc")), New: of[corev1.ReplicationController], Status: true, Scale: replicas,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: specOnly, Dependents: metav1.DeletePropagationOrphan},
			Fields:   []string{"status.replicas"}, ValidName: longName, Columns: replicationControllerColumns, Default: set(defaultReplicationController), Prepare: withoutGated(nil), Validate: parts(validateReplicationController, validateReplicationControllerStatus), Warnings: podWarnings},
		{Names: inAll(names(batchGroup, "v1", "Job")), New: of[batchv1.Job], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: specOnly, Dependents: metav1.DeletePropagationOrphan,
				DependentsWarning: "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"},
			Fields: []string{"status.successful"}, UnknownField: "field label %q not supported for Job", FieldAliases: map[string]string{"status.successful": "status.succeeded"}, Columns: jobColumns,
			Default: set(defaultJob), Prepare: withoutGated(prepare(prepareJob)), Validate: parts(validateJob, validateJobStatus), Warnings: podWarnings},
		{Names: inAll(names(batchGroup, "v1", "CronJob", "cj")), New: of[batchv1.CronJob], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: specOnly},
			Columns:  cronJobColumns, Default: set(defaultCronJob), Prepare: withoutGated(nil), Validate: rules(validateCronJob), Warnings: podWarnings},
		{Names: names("", "v1", "PodTemplate"), New: of[corev1.PodTemplate],
			Strategy: registry.Strategy{UnconditionalUpdate: true, ReturnDeleted: true},
			Columns:  podTemplateColumns, Default: set(defaultPodTemplate), Prepare: withoutGated(nil), Validate: rules(validatePodTemplate), Warnings: podWarnings},
	}
}

func volumes() []registry.Type {
	return []registry.Type{
		{Names: names("", "v1", "PersistentVolume", "pv"), New: of[corev1.PersistentVolume], ClusterScoped: true, Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, StatusResets: specOnly},
			Columns:  persistentVolumeColumns, Default: set(defaultPersistentVolume),
			Prepare: prepare(prepareVolume), Validate: rules(validatePersistentVolume), Warnings: warnings(warnVolume)},
		{Names: names("", "v1", "PersistentVolumeClaim", "pvc"), New: of[corev1.PersistentVolumeClaim], Status: true,
			Strategy: registry.Strategy{SettledByUpdate: true, UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, StatusResets: specOnly},
			Columns:  claimColumns, Default: set(defaultClaim), Prepare: prepare(prepareClaim),
			Validate: parts(validateClaim, validateClaimStatus), Warnings: warnings(warnClaim)},
		{Names: names(storageGroup, "v1", "StorageClass", "sc"), New: of[storagev1.StorageClass], ClusterScoped: true, Awaited: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true},
			Columns:  storageClassColumns, Default: set(defaultStorageClass), Validate: rules(validateStorageClass), Warnings: warnings(warnStorageClass)},
		{Names: names(storageGroup, "v1", "VolumeAttachment"), New: of[storagev1.VolumeAttachment], ClusterScoped: true, Status: true,
			Strategy: registry.Strategy{NoGeneration: true, ReturnDeleted: true},
			Columns:  volumeAttachmentColumns, Default: set(defaultVolumeAttachment), Validate: parts(validateVolumeAttachment, nil)},
		{Names: names(storageGroup, "v1", "CSIDriver"), New: of[storagev1.CSIDriver], ClusterScoped: true, Columns: csiDriverColumns, Default: set(defaultCSIDriver),
			Generation: counting(countCSIDriver), Validate: rules(validateCSIDriver), Warnings: warnings(warnCSIDriver),
			Strategy: registry.Strategy{NoGeneration: true, ReturnDeleted: true}},
		{Names: names(storageGroup, "v1", "CSINode"), New: of[storagev1.CSINode], ClusterScoped: true, Status: true, Columns: csiNodeColumns,
			Prepare: prepare(prepareCSINode), Validate: rules(validateCSINode),
			Strategy: registry.Strategy{NoGeneration: true, ReturnDeleted: true}},
		{Names: registry.Names{Group: storageGroup, Version: "v1", Kind: "CSIStorageCapacity", Plural: "csistoragecapacities"}, New: of[storagev1.CSIStorageCapacity],
			Strategy: registry.Strategy{NoGeneration: true},
			Columns:  created, Validate: rules(validateCSIStorageCapacity), Warnings: warnings(warnCSIStorageCapacity)},
		{Names: names(storageGroup, "v1", "VolumeAttributesClass", "vac"), New: of[storagev1.VolumeAttributesClass], ClusterScoped: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true},
			Columns:  attributesClassColumns, Validate: rules(validateAttributesClass)},
	}
}

func networks() []registry.Type {
	return []registry.Type{
		{Names: names(networkingGroup, "v1", "Ingress", "ing"), New: of[networkingv1.Ingress], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: specOnly},
			Columns:  ingressColumns, Validate: parts(validateIngress, validateIngressStatus), Warnings: warnIngress},
		{Names: names(networkingGroup, "v1", "IngressClass"), New: of[networkingv1.IngressClass], ClusterScoped: true, Awaited: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true},
			Columns:  ingressClassColumns, Default: set(defaultIngressClass), Validate: rules(validateIngressClass)},
		{Names: names(networkingGroup, "v1", "NetworkPolicy", "netpol"), New: of[networkingv1.NetworkPolicy],
			Strategy: registry.Strategy{UnconditionalUpdate: true},
			Columns:  networkPolicyColumns, Default: set(defaultNetworkPolicy), Validate: rules(validateNetworkPolicy), Warnings: warnings(warnNetworkPolicy)},
		{Names: registry.Names{Group: networkingGroup, Version: "v1", Kind: "IPAddress", Plural: "ipaddresses", ShortNames: []string{"ip"}}, New: of[networkingv1.IPAddress], ClusterScoped: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, PlainNames: true},
			Columns:  ipAddressColumns, ValidName: addressName, Validate: rules(validateIPAddress)},
		{Names: names(networkingGroup, "v1", "ServiceCIDR"), New: of[networkingv1.ServiceCIDR], ClusterScoped: true, Status: true, Columns: serviceCIDRColumns,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true}, Validate: rules(validateServiceCIDR)},
	}
}

// policiesOfPods are about how many there are, what they may use, and which come first.
func policiesOfPods() []registry.Type {
	return []registry.Type{
		{Names: inAll(names(autoscalingGroup, "v2", "HorizontalPodAutoscaler", "hpa")), New: of[autoscalingv2.HorizontalPodAutoscaler], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: specOnly},
			Columns:  autoscalerColumns, Default: set(defaultAutoscaler), Validate: parts(validateAutoscaler, validateAutoscalerStatus)},
		{Names: inAll(names(autoscalingGroup, "v1", "HorizontalPodAutoscaler", "hpa")), New: of[autoscalingv1.HorizontalPodAutoscaler], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: specOnly},
			Columns:  autoscalerV1Columns, Default: set(defaultAutoscalerV1), Generation: counting(countAutoscalerV1), Prepare: prepare(prepareAutoscalerV1), Validate: parts(validateAutoscalerV1, validateAutoscalerV1Status), ToStored: autoscalerToV2, FromStored: autoscalerFromV2},
		{Names: names(policyGroup, "v1", "PodDisruptionBudget", "pdb"), New: of[policyv1.PodDisruptionBudget], Status: true,
			Strategy: registry.Strategy{StatusResets: specOnly},
			Columns:  budgetColumns, ValidName: pathSegment, Prepare: prepare(prepareBudget), Validate: parts(validateBudget, validateBudgetStatus)},
		{Names: names("", "v1", "ResourceQuota", "quota"), New: of[corev1.ResourceQuota], Awaited: true, Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, StatusResets: specOnly},
			Columns:  quotaColumns, Default: set(defaultQuota), Validate: validateQuota},
		{Names: names("", "v1", "LimitRange", "limits"), New: of[corev1.LimitRange], Awaited: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, NamesNew: true},
			Columns:  limitRangeColumns, Default: set(defaultLimitRange), Validate: rules(validateLimitRange)},
		{Names: names(schedulingGroup, "v1", "PriorityClass", "pc"), New: of[schedulingv1.PriorityClass], ClusterScoped: true, Awaited: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true}, Generation: counting(func(_, old *schedulingv1.PriorityClass) int64 { return firstOr(old) }),
			Columns: priorityClassColumns, Default: set(defaultPriorityClass), Validate: rules(validatePriorityClass)},
		{Names: names(nodeGroup, "v1", "RuntimeClass"), New: of[nodev1.RuntimeClass], ClusterScoped: true, Awaited: true, Columns: runtimeClassColumns, Validate: rules(validateRuntimeClass), Warnings: warnings(warnRuntimeClass),
			Strategy: registry.Strategy{CreateOnUpdate: true, NoGeneration: true}},
	}
}

func others(o Options) []registry.Type {
	return []registry.Type{
		{Names: names(certificatesGroup, "v1", "CertificateSigningRequest", "csr"), New: of[certificatesv1.CertificateSigningRequest], ClusterScoped: true, Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, Resets: []string{"spec"}, StatusResets: []string{"spec", "status.conditions"}},
			Fields:   []string{"spec.signerName"}, Columns: requestColumns, Subresources: requestParts, ValidName: pathSegment,
			Prepare: prepareRequest, Validate: validateRequest},
		{Names: names(certificatesGroup, "v1", "ClusterTrustBundle"), New: of[certificatesv1.ClusterTrustBundle], ClusterScoped: true,
			Strategy: registry.Strategy{StoredIn: "v1beta1", NoGeneration: true},
			Fields:   []string{"spec.signerName"}, ValidName: judgedLater, Columns: trustBundleColumns, Validate: rules(validateTrustBundle)},
		{Names: names(certificatesGroup, "v1", "PodCertificateRequest"), New: of[certificatesv1.PodCertificateRequest], Status: true,
			Strategy: registry.Strategy{StoredIn: "v1beta1", NoGeneration: true},
			Fields:   []string{"spec.signerName", "spec.podName", "spec.nodeName"}, NoNamespaceField: true, Columns: podCertificateColumns, Default: set(defaultPodCertificateRequest), Validate: o.validatePodCertificate},
		{Names: names(flowcontrolGroup, "v1", "FlowSchema"), New: of[flowcontrolv1.FlowSchema], ClusterScoped: true, Awaited: true, Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true},
			Columns:  flowSchemaColumns, RowOrder: byPrecedence, Default: set(defaultFlowSchema), Validate: parts(validateFlowSchema, validateFlowSchemaStatus)},
		{Names: names(flowcontrolGroup, "v1", "PriorityLevelConfiguration"), New: of[flowcontrolv1.PriorityLevelConfiguration], ClusterScoped: true, Awaited: true, Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true},
			Columns:  priorityLevelColumns, Default: set(defaultPriorityLevel), Validate: parts(validatePriorityLevel, validatePriorityLevelStatus)},
		{Names: names(resourceGroup, "v1", "ResourceClaim"), New: of[resourcev1.ResourceClaim], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, NoStatusTable: true},
			Columns:  resourceClaimColumns, Default: set(defaultResourceClaim), Prepare: prepare(prepareResourceClaim), Validate: o.validateResourceClaim},
		{Names: names(resourceGroup, "v1", "ResourceClaimTemplate"), New: of[resourcev1.ResourceClaimTemplate], Columns: textAge, Default: set(defaultResourceClaimTemplate),
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true},
			Prepare:  prepare(prepareClaimTemplate), Validate: o.validateClaimTemplate},
		{Names: names(resourceGroup, "v1", "ResourceSlice"), New: of[resourcev1.ResourceSlice], ClusterScoped: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, ReturnDeleted: true}, Generation: counting(countResourceSlice),
			Fields: []string{"spec.nodeName", "spec.driver", "spec.pool.name"}, UnknownField: "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %s", Columns: resourceSliceColumns, Default: set(defaultResourceSlice),
			Prepare: prepare(prepareSlice), Validate: rules(validateResourceSlice), Warnings: warnings(warnResourceSlice)},
		{Names: names(resourceGroup, "v1", "DeviceClass"), New: of[resourcev1.DeviceClass], ClusterScoped: true, Columns: textAge, ValidName: longName,
			Strategy: registry.Strategy{UnconditionalUpdate: true, ReturnDeleted: true}, Validate: rules(validateDeviceClass)},
		{Names: names(resourceGroup, "v1", "DeviceTaintRule"), New: of[resourcev1.DeviceTaintRule], ClusterScoped: true, Status: true, Columns: taintRuleColumns, Default: set(defaultTaintRule),
			Prepare: prepare(prepareTaintRule), Validate: parts(validateTaintRule, validateTaintRuleStatus),
			Strategy: registry.Strategy{StoredIn: "v1beta2", NoStatusTable: true}},
		{Names: inAPIExtensions(names(registrationGroup, "v1", "APIService")), New: of[apiregistrationv1.APIService], ClusterScoped: true, Status: true, ValidName: pathSegment,
			Strategy: registry.Strategy{NoGeneration: true, NoStatusTable: true},
			Columns:  apiServiceColumns, Default: set(defaultAPIService), Prepare: prepare(prepareAPIService), Validate: parts(validateAPIService, validateAPIServiceStatus)},
		{Names: names(migrationGroup, "v1", "StorageVersionMigration"), New: of[storagemigrationv1.StorageVersionMigration], ClusterScoped: true, Status: true, Columns: migrationColumns,
			Strategy: registry.Strategy{StoredIn: "v1beta1", NoGeneration: true}, Validate: parts(validateMigration, validateMigrationStatus)},
	}
}
