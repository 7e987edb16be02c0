package builtin_test

import (
	"encoding/json"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fullPod is the spec of a pod with most of what one can have; kube-apiserver takes it.
const fullPod = `{"activeDeadlineSeconds":1000,"restartPolicy":"Always","automountServiceAccountToken":true,"enableServiceLinks":false,"hostAliases":[{"ip":"1.2.3.4","hostnames":["a","b"]}],"hostname":"h","subdomain":"s",
"dnsPolicy":"None","dnsConfig":{"nameservers":["1.1.1.1"],"searches":["a.b"],"options":[{"name":"ndots","value":"2"}]},"imagePullSecrets":[{"name":"pull"}],"shareProcessNamespace":true,"setHostnameAsFQDN":false,"preemptionPolicy":"PreemptLowerPriority","schedulerName":"mine","os":{"name":"linux"},
"readinessGates":[{"conditionType":"example.com/a"}],"terminationGracePeriodSeconds":5,"nodeSelector":{"disk":"ssd"},
"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}],"matchFields":[{"key":"metadata.name","operator":"In","values":["node"]}]}]},"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}}]},"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{"matchLabels":{"a":"b"}},"namespaces":["x"],"matchLabelKeys":["k"]}]},"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,"podAffinityTerm":{"topologyKey":"zone","labelSelector":{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]},"namespaceSelector":{}}}]}},
"tolerations":[{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":10},{"key":"b","value":"c","effect":"NoSchedule"}],
"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"a":"b"}},"minDomains":2,"nodeAffinityPolicy":"Honor","nodeTaintsPolicy":"Ignore"}],
"securityContext":{"runAsUser":1000,"runAsGroup":1000,"runAsNonRoot":true,"fsGroup":2000,"fsGroupChangePolicy":"Always","supplementalGroups":[1],"supplementalGroupsPolicy":"Merge","sysctls":[{"name":"kernel.shm_rmid_forced","value":"0"}],"seccompProfile":{"type":"RuntimeDefault"},"seLinuxOptions":{"level":"s0"},"appArmorProfile":{"type":"RuntimeDefault"}},
"volumes":[{"name":"config","configMap":{"name":"c","defaultMode":420,"items":[{"key":"a","path":"a","mode":256}],"optional":true}},{"name":"secret","secret":{"secretName":"s"}},{"name":"empty","emptyDir":{"medium":"Memory","sizeLimit":"1Gi"}},{"name":"down","downwardAPI":{"items":[{"path":"labels","fieldRef":{"fieldPath":"metadata.labels"}},{"path":"cpu","resourceFieldRef":{"containerName":"web","resource":"limits.cpu","divisor":"1m"}}]}},{"name":"host","hostPath":{"path":"/tmp","type":"Directory"}},{"name":"claim","persistentVolumeClaim":{"claimName":"c","readOnly":true}},{"name":"projected","projected":{"sources":[{"secret":{"name":"s"}},{"serviceAccountToken":{"audience":"a","expirationSeconds":3600,"path":"t"}},{"clusterTrustBundle":{"name":"b","path":"b"}}]}},{"name":"csi","csi":{"driver":"example.com","volumeAttributes":{"a":"b"}}},{"name":"ephemeral","ephemeral":{"volumeClaimTemplate":{"metadata":{"labels":{"a":"b"}},"spec":{"accessModes":["ReadWriteOnce"],
"resources":{"requests":{"storage":"1Gi"}}}}}},{"name":"nfs","nfs":{"server":"s","path":"/"}},{"name":"image","image":{"reference":"a","pullPolicy":"Always"}},{"name":"iscsi","iscsi":{"targetPortal":"1.2.3.4","iqn":"iqn.2001-04.com.example:a","lun":1}}],
"initContainers":[{"name":"init","image":"init:1","command":["sh"],"restartPolicy":"Always"},{"name":"once","image":"once"}],
"containers":[{"name":"web","image":"web","command":["run"],"args":["fast"],"workingDir":"/tmp","stdin":true,"tty":true,"terminationMessagePath":"/dev/log","terminationMessagePolicy":"FallbackToLogsOnError","ports":[{"name":"http","containerPort":80,"protocol":"TCP","hostPort":8080,"hostIP":"1.2.3.4"}],
"env":[{"name":"A","value":"b"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"C","valueFrom":{"secretKeyRef":{"name":"s","key":"k","optional":true}}},{"name":"D","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}}],"envFrom":[{"prefix":"P_","configMapRef":{"name":"c"}},{"secretRef":{"name":"s","optional":true}}],
"resources":{"limits":{"cpu":"1","memory":"1Gi","example.com/gpu":"1"},"requests":{"cpu":"500m"}},"resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}],
"volumeMounts":[{"name":"config","mountPath":"/config","readOnly":true},{"name":"empty","mountPath":"/empty","subPathExpr":"$(A)","mountPropagation":"None"}],
"livenessProbe":{"httpGet":{"path":"/","port":"http","scheme":"HTTP","host":"h","httpHeaders":[{"name":"a","value":"b"}]},"initialDelaySeconds":1,"periodSeconds":2,"timeoutSeconds":1,"successThreshold":1,"failureThreshold":4,"terminationGracePeriodSeconds":3},"readinessProbe":{"tcpSocket":{"port":80}},"startupProbe":{"grpc":{"port":80,"service":"s"}},
"lifecycle":{"preStop":{"exec":{"command":["a"]}},"postStart":{"httpGet":{"port":80}}},"imagePullPolicy":"IfNotPresent",
"securityContext":{"capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]},"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"privileged":false,"procMount":"Default","runAsUser":1}},{"name":"side","image":"side:latest","volumeDevices":[{"name":"claim","devicePath":"/dev/a"}]}],"serviceAccountName":"robot"}`

// fullJob is a Job's spec without its template.
const fullJob = `{"parallelism":2,"completions":3,"activeDeadlineSeconds":100,"backoffLimit":4,"ttlSecondsAfterFinished":10,"completionMode":"Indexed","backoffLimitPerIndex":1,"maxFailedIndexes":2,"suspend":true,
"podReplacementPolicy":"Failed","managedBy":"example.com/me","podFailurePolicy":{"rules":[{"action":"FailJob","onExitCodes":{"containerName":"web","operator":"In","values":[1,2]}},{"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget","status":"True"}]}]},
"successPolicy":{"rules":[{"succeededIndexes":"0-1","succeededCount":1}]}}`

// fitPod makes a filled spec one that's valid: a filled volume has sources of all kinds, and names of nothing.
func fitPod(s *corev1.PodSpec) {
	*s = corev1.PodSpec{}
	if err := json.Unmarshal([]byte(fullPod), s); err != nil {
		panic(err)
	}
	s.DeprecatedServiceAccount = s.ServiceAccountName
}

// fitTemplate is fitPod for the template of pods that run for ever.
func fitTemplate(t *corev1.PodTemplateSpec) {
	fitPod(&t.Spec)
	t.Spec.ActiveDeadlineSeconds = nil
}

// fitJob makes a filled Job's spec one that's valid.
func fitJob(s *batchv1.JobSpec) {
	labels := s.Template.ObjectMeta
	*s = batchv1.JobSpec{}
	if err := json.Unmarshal([]byte(fullJob), s); err != nil {
		panic(err)
	}
	s.Template.ObjectMeta = metav1.ObjectMeta{Labels: labels.Labels}
	fitPod(&s.Template.Spec)
	s.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	s.Template.Spec.Containers[0].ResizePolicy[0].RestartPolicy = corev1.NotRequired
}

// fitStatus makes what a kubelet reports agree with the pod.
func fitStatus(s *corev1.PodStatus) {
	s.QOSClass = corev1.PodQOSBurstable
	s.PodIP, s.PodIPs = "10.1.0.1", []corev1.PodIP{{IP: "10.1.0.1"}}
	s.HostIP, s.HostIPs = "10.1.0.2", []corev1.HostIP{{IP: "10.1.0.2"}}
	s.ResourceClaimStatuses, s.NodeAllocatableResourceClaimStatuses, s.VolumeHealth = nil, nil, nil
	s.ExtendedResourceClaimStatus.ResourceClaimName = "extended"
	s.ExtendedResourceClaimStatus.RequestMappings = []corev1.ContainerExtendedResourceRequest{{ContainerName: "web", ResourceName: "example.com/gpu", RequestName: "r"}}
	s.EphemeralContainerStatuses[0].AllocatedResourcesStatus = nil
	for _, statuses := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range statuses {
			for j := range statuses[i].VolumeMounts {
				statuses[i].VolumeMounts[j].VolumeStatus = nil
			}
			for _, a := range statuses[i].AllocatedResourcesStatus {
				for j := range a.Resources {
					a.Resources[j].Health = corev1.ResourceHealthStatusHealthy
				}
			}
		}
	}
}
