package plugins

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
)

// DefaultTolerations is the plug-in DefaultTolerationSeconds: a pod that doesn't say how long it stays on a node that isn't ready or
// can't be reached stays for some seconds.
type DefaultTolerations struct {
	NotReady, Unreachable int64 // seconds
}

// DefaultTolerationSeconds is how long a pod stays unless a flag says something else.
const DefaultTolerationSeconds = 300

// Concerns is about new pods and updates of pods.
func (DefaultTolerations) Concerns(a *registry.Attributes) bool {
	return writesPods(a, registry.Create, registry.Update)
}

// Admit adds the tolerations.
func (d DefaultTolerations) Admit(_ context.Context, r *request) (pass registry.Verdict, err error) {
	spec := specOf(r.Object)
	tolerations := items(spec["tolerations"])
	given := len(tolerations)
	for _, taint := range []struct {
		key     string
		seconds int64
	}{{corev1.TaintNodeNotReady, d.NotReady}, {corev1.TaintNodeUnreachable, d.Unreachable}} {
		tolerated := slices.ContainsFunc(tolerations[:given], func(t any) bool {
			key, effect := textOf(t, "key"), textOf(t, "effect")
			return (key == taint.key || key == "") && (effect == string(corev1.TaintEffectNoExecute) || effect == "")
		})
		if !tolerated {
			tolerations = append(tolerations, map[string]any{
				"key": taint.key, "operator": string(corev1.TolerationOpExists), "effect": string(corev1.TaintEffectNoExecute), "tolerationSeconds": taint.seconds,
			})
		}
	}
	if len(tolerations) > given {
		spec["tolerations"] = tolerations
	}
	return pass, nil
}

// ExtendedResourceToleration lets a pod that requests a resource of a device onto the nodes that are kept for such pods by a taint
// of the resource's name.
type ExtendedResourceToleration struct{}

// Concerns is about new pods and updates of pods.
func (ExtendedResourceToleration) Concerns(a *registry.Attributes) bool {
	return writesPods(a, registry.Create, registry.Update)
}

// Admit adds a toleration for each extended resource, in the order of their names.
func (ExtendedResourceToleration) Admit(_ context.Context, r *request) (pass registry.Verdict, err error) {
	spec := specOf(r.Object)
	var names []string
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range items(spec[list]) {
			container, _ := c.(map[string]any)
			resources, _ := container["resources"].(map[string]any)
			requests, _ := resources["requests"].(map[string]any)
			for name := range requests {
				if quota.IsExtended(corev1.ResourceName(name)) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		spec["tolerations"] = withToleration(items(spec["tolerations"]), map[string]any{
			"key": name, "operator": string(corev1.TolerationOpExists), "effect": string(corev1.TaintEffectNoSchedule),
		})
	}
	return pass, nil
}

// withToleration returns a list with a toleration. It takes the place of each one that is about the same taint.
func withToleration(list []any, t map[string]any) []any {
	replaced := false
	next := make([]any, 0, len(list)+1)
	for _, old := range list {
		if textOf(old, "value") == "" && slices.IndexFunc([]string{"key", "operator", "effect"}, func(f string) bool { return textOf(old, f) != textOf(t, f) }) < 0 {
			old, replaced = t, true
		}
		next = append(next, old)
	}
	if !replaced {
		next = append(next, t)
	}
	return next
}
