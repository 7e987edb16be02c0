package gotype

import "strings"

// What Kubernetes's own types say in comments only (+listType, +listMapKey, +structType, +default, +optional), and
// server-side apply or the validation of kubectl 1.20 needs. The first four are what client-go's
// applyconfigurations/internal has for stable versions and tags don't say.

// kubernetes is what the names of its types begin with.
const kubernetes = "io.k8s.api."

// merging says how a list merges: by keys, as a set, or as one value.
type merging struct {
	kind string
	keys []any
}

var set, atomic = merging{kind: "set"}, merging{kind: "atomic"}

func keys(names ...any) merging { return merging{"map", names} }

// knownLists are lists by their type and field.
var knownLists = map[string]merging{
	"admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec.validationActions": set,
	"batch.v1.JobStatus.conditions":                                atomic,
	"batch.v1.PodFailurePolicyOnExitCodesRequirement.values":       set,
	"batch.v1.UncountedTerminatedPods.failed":                      set,
	"batch.v1.UncountedTerminatedPods.succeeded":                   set,
	"certificates.v1.CertificateSigningRequestStatus.conditions":   keys("type"),
	"core.v1.Container.ports":                                      keys("containerPort", "protocol"),
	"core.v1.ContainerRestartRuleOnExitCodes.values":               set,
	"core.v1.EphemeralContainer.ports":                             keys("containerPort", "protocol"),
	"core.v1.NodeAllocatableResourceClaimStatus.containers":        set,
	"core.v1.NodePodPreemptionPolicy.disableResizePreemption":      set,
	"core.v1.PodSpec.topologySpreadConstraints":                    keys("topologyKey", "whenUnsatisfiable"),
	"core.v1.PodStatus.hostIPs":                                    atomic,
	"core.v1.PodStatus.volumeHealth":                               keys("name"),
	"core.v1.PodVolumeHealth.healthConditions":                     keys("status", "reason"),
	"core.v1.ResourceRequirements.claims":                          keys("name"),
	"core.v1.ResourceStatus.resources":                             keys("resourceID"),
	"core.v1.ServiceSpec.ports":                                    keys("port", "protocol"),
	"core.v1.VolumeHealthStatus.healthConditions":                  keys("status", "reason"),
	"core.v1.VolumeMount.bindMountOptions":                         set,
	"discovery.v1.Endpoint.addresses":                              set,
	"flowcontrol.v1.NonResourcePolicyRule.nonResourceURLs":         set,
	"flowcontrol.v1.NonResourcePolicyRule.verbs":                   set,
	"flowcontrol.v1.ResourcePolicyRule.apiGroups":                  set,
	"flowcontrol.v1.ResourcePolicyRule.namespaces":                 set,
	"flowcontrol.v1.ResourcePolicyRule.resources":                  set,
	"flowcontrol.v1.ResourcePolicyRule.verbs":                      set,
	"resource.v1.DeviceRequestAllocationResult.skipNodeOperations": set,
	"resource.v1.ResourceClaimStatus.devices":                      keys("driver", "device", "pool", "shareID"),
	"resource.v1.ResourceSliceSpec.skipNodeOperations":             set,
	"storage.v1.CSIDriverSpec.volumeLifecycleModes":                set,
}

// knownValues are the types of structs that are one value.
var knownValues = map[string]bool{
	"admissionregistration.v1.MatchResources":          true,
	"admissionregistration.v1.NamedRuleWithOperations": true,
	"admissionregistration.v1.ParamKind":               true,
	"admissionregistration.v1.ParamRef":                true,
	"admissionregistration.v1.Variable":                true,
	"autoscaling.v1.CrossVersionObjectReference":       true,
	"core.v1.ConfigMapKeySelector":                     true,
	"core.v1.EndpointAddress":                          true,
	"core.v1.EndpointPort":                             true,
	"core.v1.EvictionResponder":                        true,
	"core.v1.FileKeySelector":                          true,
	"core.v1.LocalObjectReference":                     true,
	"core.v1.NodeSelector":                             true,
	"core.v1.NodeSelectorTerm":                         true,
	"core.v1.ObjectFieldSelector":                      true,
	"core.v1.ObjectReference":                          true,
	"core.v1.ResourceFieldSelector":                    true,
	"core.v1.ScopeSelector":                            true,
	"core.v1.SecretKeySelector":                        true,
	"core.v1.SecretReference":                          true,
	"core.v1.TopologySelectorTerm":                     true,
	"core.v1.TypedLocalObjectReference":                true,
	"discovery.v1.EndpointPort":                        true,
	"networking.v1.ServiceBackendPort":                 true,
	"rbac.v1.RoleRef":                                  true,
	"rbac.v1.Subject":                                  true,
}

// knownFields are fields that are one value, or that are not although their type is.
var knownFields = map[string]string{
	"core.v1.PersistentVolumeSpec.claimRef":      "granular",
	"core.v1.PodSpec.nodeSelector":               "atomic",
	"core.v1.ReplicationControllerSpec.selector": "atomic",
	"core.v1.ServiceSpec.selector":               "atomic",
	"node.v1.Scheduling.nodeSelector":            "atomic",
}

// knownDefaults are of fields by which lists merge and that may be left out.
var knownDefaults = map[string]any{
	"core.v1.ContainerPort.protocol": "TCP",
	"core.v1.ServicePort.protocol":   "TCP",
}

// knownOptional are fields that may be left out (+optional), although their tag doesn't say so.
var knownOptional = map[string]bool{
	"apps.v1.ControllerRevision.revision":                      true,
	"apps.v1.DaemonSetCondition.status":                        true,
	"apps.v1.DaemonSetCondition.type":                          true,
	"apps.v1.DeploymentCondition.status":                       true,
	"apps.v1.DeploymentCondition.type":                         true,
	"apps.v1.ReplicaSetCondition.status":                       true,
	"apps.v1.ReplicaSetCondition.type":                         true,
	"apps.v1.StatefulSetCondition.status":                      true,
	"apps.v1.StatefulSetCondition.type":                        true,
	"apps.v1.StatefulSetOrdinals.start":                        true,
	"apps.v1.StatefulSetSpec.serviceName":                      true,
	"apps.v1.StatefulSetStatus.availableReplicas":              true,
	"authentication.v1.TokenRequest.spec":                      true,
	"authentication.v1.TokenRequestSpec.audiences":             true,
	"authentication.v1.TokenRequestStatus.expirationTimestamp": true,
	"authentication.v1.TokenRequestStatus.token":               true,
	"batch.v1.PodFailurePolicyOnPodConditionsPattern.status":   true,
	"core.v1.ContainerImage.names":                             true,
	"core.v1.Event.reportingComponent":                         true,
	"core.v1.Event.reportingInstance":                          true,
	"core.v1.NodeRuntimeHandler.name":                          true,
	"core.v1.ProjectedVolumeSource.sources":                    true,
	"discovery.v1.EndpointSlice.endpoints":                     true,
	"discovery.v1.EndpointSlice.ports":                         true,
	"flowcontrol.v1.FlowSchemaSpec.matchingPrecedence":         true,
	"flowcontrol.v1.QueuingConfiguration.handSize":             true,
	"flowcontrol.v1.QueuingConfiguration.queueLengthLimit":     true,
	"flowcontrol.v1.QueuingConfiguration.queues":               true,
	"flowcontrol.v1.ResourcePolicyRule.namespaces":             true,
	"networking.v1.NetworkPolicySpec.podSelector":              true,
	"policy.v1.PodDisruptionBudgetStatus.currentHealthy":       true,
	"policy.v1.PodDisruptionBudgetStatus.desiredHealthy":       true,
	"policy.v1.PodDisruptionBudgetStatus.disruptionsAllowed":   true,
	"policy.v1.PodDisruptionBudgetStatus.expectedPods":         true,
	"rbac.v1.ClusterRole.rules":                                true,
	"rbac.v1.Role.rules":                                       true,
	"rbac.v1.RoleRef.apiGroup":                                 true,
	"resource.v1.AllocatedDeviceStatus.conditions":             true,
	"resource.v1.DeviceClaim.requests":                         true,
	"resource.v1.DeviceClass.spec":                             true,
	"resource.v1.ResourceClaim.spec":                           true,
	"resource.v1.ResourceClaimSpec.devices":                    true,
	"resource.v1.ResourceClaimTemplate.spec":                   true,
	"resource.v1.ResourceClaimTemplateSpec.spec":               true,
	"scheduling.v1.PriorityClass.value":                        true,
	"storage.v1.CSINodeDriver.topologyKeys":                    true,
}

// knownName is a type's name in these tables, "" for none.
func knownName(name string) string {
	short, ok := strings.CutPrefix(name, kubernetes)
	if !ok {
		return ""
	}
	return short
}
