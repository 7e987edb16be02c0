package quota_test

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry/quota"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// devices are what evaluators read in TestDevices besides a case's own objects.
var devices = []string{
	"{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: fast}, spec: {extendedResourceName: example.com/gpu}}",
	"{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: faster}, spec: {extendedResourceName: example.com/gpu}}",
	"{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: slow}, spec: {}}",
}

// cluster keeps objects as stores do, by resource.
type cluster map[schema.GroupResource][]*kube.Object

func (c cluster) add(t *testing.T, text string) {
	t.Helper()
	object := treeOf(t, text)
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	kind := object.GroupVersionKind()
	plural := strings.ToLower(kind.Kind) + "s"
	if kind.Kind == "DeviceClass" {
		plural = "deviceclasses"
	}
	key, err := storage.PrefixOf(kind.Group, plural).Key(object.GetNamespace(), object.GetName())
	if err != nil {
		t.Fatal(err)
	}
	of := schema.GroupResource{Group: kind.Group, Resource: plural}
	c[of] = append(c[of], kube.NewObject(key, raw, 1))
}

func (c cluster) read(of schema.GroupResource, namespace, name string) iter.Seq[*kube.Object] {
	return func(yield func(*kube.Object) bool) {
		for _, o := range c[of] {
			if o.Namespace() == namespace && (name == "" || o.Name() == name) && !yield(o) {
				return
			}
		}
	}
}

func treeOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return object
}

// claimOf is a claim for what requests it has, with a controller that's the pod p; more are members of its metadata.
func claimOf(name, second, more, requests string) string {
	return "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: a, name: " + name + ", uid: uid-of-" + name +
		", creationTimestamp: '2026-01-01T00:00:0" + second + "Z'" + more + "}, spec: {devices: {requests: [" + requests + "]}}}"
}

const (
	annotated = ", annotations: {resource.kubernetes.io/extended-resource-claim: 'true'}"
	ofPod     = ", ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: uid-of-p, controller: true}]"
	threeFast = "{name: r, exactly: {deviceClassName: fast, allocationMode: ExactCount, count: 3}}"
)

// podWith is a pod that asks for two devices of example.com/gpu.
func podWith(uid, status string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: p, uid: " + uid + "}, spec: {containers: [{name: c, image: i, resources: " +
		"{limits: {example.com/gpu: 2}, requests: {example.com/gpu: 2}}}]}, status: {" + status + "}}"
}

// TestDevices: what a claim takes of the devices of its classes, and of the extended resources for which these stand.
func TestDevices(t *testing.T) {
	t.Parallel()
	const (
		gpu    = "requests.example.com/gpu"
		fast   = "requests.deviceclass.resource.kubernetes.io/fast"
		faster = "requests.deviceclass.resource.kubernetes.io/faster"
		slow   = "requests.deviceclass.resource.kubernetes.io/slow"
		none   = "requests.deviceclass.resource.kubernetes.io/none"
		direct = "fast.deviceclass.resource.k8s.io/devices"
	)
	all := map[string]string{gpu: "3", fast: "3", direct: "3"}
	lessPods := map[string]string{gpu: "1", fast: "3", direct: "3"}
	sixth := claimOf("six", "6", annotated+ofPod, threeFast)
	running := podWith("uid-of-p", "phase: Running")
	tests := []struct {
		name   string
		stored []string
		claim  string
		want   map[string]string
	}{
		{"nobody's claim", nil, claimOf("six", "6", "", threeFast), all},
		{"two requests", nil, claimOf("six", "6", "", threeFast+", "+strings.Replace(threeFast, "r", "s", 1)),
			map[string]string{gpu: "6", fast: "6", direct: "6"}},
		{"all devices", nil, claimOf("six", "6", "", "{name: r, exactly: {deviceClassName: fast, allocationMode: All}}"),
			map[string]string{gpu: "32", fast: "32", direct: "32"}},
		{"a mode of another version", nil, claimOf("six", "6", "", "{name: r, exactly: {deviceClassName: fast, allocationMode: Some, count: 3}}"),
			map[string]string{}},
		{"alternatives of one class", nil, claimOf("six", "6", "", "{name: r, firstAvailable: [{name: a, deviceClassName: fast, allocationMode: ExactCount, count: 1}, "+
			"{name: b, deviceClassName: fast, allocationMode: ExactCount, count: 4}, {name: c, deviceClassName: fast, allocationMode: ExactCount, count: 2}]}"),
			map[string]string{gpu: "4", fast: "4", direct: "4"}},
		{"two classes for one resource", nil, claimOf("six", "6", "", threeFast+", {name: s, exactly: {deviceClassName: faster, allocationMode: ExactCount, count: 5}}"),
			map[string]string{gpu: "5", fast: "3", faster: "5", direct: "3"}},
		{"a class for no resource", nil, claimOf("six", "6", "", "{name: s, exactly: {deviceClassName: slow, allocationMode: ExactCount, count: 5}}"),
			map[string]string{slow: "5"}},
		{"a class that isn't there", nil, claimOf("six", "6", "", "{name: s, exactly: {deviceClassName: none, allocationMode: ExactCount, count: 5}}"),
			map[string]string{none: "5"}},
		{"a pod's claim", []string{running}, sixth, lessPods},
		{"a pod's claim that is stored", []string{running, sixth}, sixth, lessPods},
		{"a pod that isn't there", nil, sixth, all},
		{"another pod of the name", []string{podWith("other", "phase: Running")}, sixth, all},
		{"a pod that has ended", []string{podWith("uid-of-p", "phase: Succeeded")}, sixth, all},
		{"a claim without the annotation", []string{running}, claimOf("six", "6", ofPod, threeFast), all},
		{"an annotation that says no", []string{running}, claimOf("six", "6", strings.Replace(annotated, "true", "false", 1)+ofPod, threeFast), all},
		{"an owner that doesn't control", []string{running}, claimOf("six", "6", annotated+strings.Replace(ofPod, "true", "false", 1), threeFast), all},
		{"an owner of another kind", []string{running}, claimOf("six", "6", annotated+strings.Replace(ofPod, "kind: Pod", "kind: Job", 1), threeFast), all},
		{"an owner of another version", []string{running}, claimOf("six", "6", annotated+strings.Replace(ofPod, "v1", "v2", 1), threeFast), all},
		{"a claim made before", []string{running, claimOf("nine", "5", annotated+ofPod, threeFast)}, sixth, all},
		{"a claim made after", []string{running, claimOf("five", "7", annotated+ofPod, threeFast)}, sixth, lessPods},
		{"of one second the lower name is first", []string{running, claimOf("five", "6", annotated+ofPod, threeFast)}, sixth, all},
		{"of one second the higher name isn't", []string{running, claimOf("ten", "6", annotated+ofPod, threeFast)}, sixth, lessPods},
		{"an earlier claim for something else", []string{running, claimOf("five", "5", ofPod, threeFast)}, sixth, lessPods},
		{"an earlier claim that another pod controls",
			[]string{running, claimOf("five", "5", annotated+strings.Replace(ofPod, "true}]", "false}, {apiVersion: v1, kind: Pod, name: q, uid: uid-of-q, controller: true}]", 1), threeFast)}, sixth, lessPods},
		{"an earlier claim of another pod", []string{running, claimOf("five", "5", annotated+strings.ReplaceAll(ofPod, "p", "q"), threeFast)}, sixth, lessPods},
		{"a pod that has this claim", []string{podWith("uid-of-p", "extendedResourceClaimStatus: {resourceClaimName: six}"), claimOf("five", "5", annotated+ofPod, threeFast)}, sixth, lessPods},
		{"a pod that has another", []string{podWith("uid-of-p", "extendedResourceClaimStatus: {resourceClaimName: five}")}, sixth, all},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stored := cluster{}
			for _, text := range append(slices.Clone(devices), tt.stored...) {
				stored.add(t, text)
			}
			hard := corev1.ResourceList{}
			for _, name := range []corev1.ResourceName{gpu, fast, faster, slow, none, direct} {
				hard[name] = resource.MustParse("9")
			}
			for range 20 { // in whatever order maps are
				usage, err := quota.NewEvaluator(stored.read, time.Now).Of(&corev1.ResourceQuota{}, hard, quota.Devices, treeOf(t, tt.claim))
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]string{}
				for name, q := range usage {
					got[string(name)] = q.String()
				}
				if !maps.Equal(got, tt.want) {
					t.Fatalf("the claim takes %v instead of %v", got, tt.want)
				}
			}
		})
	}
}

// TestRecounts: what a pod takes only its resize changes, so an update counts that makes it end by itself, or no longer.
func TestRecounts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		now, before string
		want        bool
	}{
		"the same":               {"activeDeadlineSeconds: 1", "activeDeadlineSeconds: 1", false},
		"an end":                 {"activeDeadlineSeconds: 0", "", true},
		"no end any more":        {"", "activeDeadlineSeconds: 1", true},
		"another end":            {"activeDeadlineSeconds: 2", "activeDeadlineSeconds: 1", false},
		"other resources":        {"containers: [{name: a, resources: {requests: {cpu: 2}}}]", "containers: [{name: a, resources: {requests: {cpu: 1}}}]", false},
		"what nobody can read":   {"activeDeadlineSeconds: x", "", false},
		"what nobody could read": {"activeDeadlineSeconds: 1", "activeDeadlineSeconds: x", false},
	} {
		if quota.Recounts(treeOf(t, "{spec: {"+tt.now+"}}"), treeOf(t, "{spec: {"+tt.before+"}}")) != tt.want {
			t.Errorf("%s: Recounts isn't %v", name, tt.want)
		}
	}
}
