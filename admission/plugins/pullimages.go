package plugins

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// AlwaysPullImages has every container of a pod, and every volume that is an image, pulled anew. So no pod gets at a private image only
// because it's on the node already.
type AlwaysPullImages struct{}

// Concerns is about new pods, and updates of pods.
func (AlwaysPullImages) Concerns(a *registry.Attributes) bool {
	return writesPods(a, registry.Create, registry.Update)
}

// pulled is something of a pod that has an image.
type pulled struct {
	of    map[string]any
	field string // the policy's
	path  string // its place in the spec
}

// containersOf returns the containers of all sorts.
func containersOf(r map[string]any) (all []pulled) {
	spec, _ := r["spec"].(map[string]any)
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for i, c := range items(spec[list]) {
			if container, ok := c.(map[string]any); ok {
				all = append(all, pulled{container, "imagePullPolicy", fmt.Sprintf("spec.%s[%d].imagePullPolicy", list, i)})
			}
		}
	}
	return all
}

// withVolumes returns the containers, and the volumes that are images.
func withVolumes(r map[string]any) []pulled {
	all := containersOf(r)
	spec, _ := r["spec"].(map[string]any)
	for i, v := range items(spec["volumes"]) {
		volume, _ := v.(map[string]any)
		if image, ok := volume["image"].(map[string]any); ok {
			all = append(all, pulled{image, "pullPolicy", fmt.Sprintf("spec.volumes[%d].image.pullPolicy", i)})
		}
	}
	return all
}

// ignores tells of an update that brings no image into the pod's containers.
func (AlwaysPullImages) ignores(r *request) bool {
	if r.Operation != registry.Update {
		return false
	}
	known := map[string]bool{}
	for _, c := range containersOf(r.Old.Object) {
		known[textOf(c.of, "image")] = true
	}
	for _, c := range containersOf(r.Object.Object) {
		if !known[textOf(c.of, "image")] {
			return false
		}
	}
	return true
}

// Admit sets the policies.
func (p AlwaysPullImages) Admit(_ context.Context, r *request) (pass registry.Verdict, err error) {
	if p.ignores(r) {
		return pass, nil
	}
	for _, c := range withVolumes(r.Object.Object) {
		c.of[c.field] = string(corev1.PullAlways)
	}
	return pass, nil
}

// Validate refuses what a webhook or a policy has set instead.
func (p AlwaysPullImages) Validate(_ context.Context, r *request) (pass registry.Verdict, err error) {
	if p.ignores(r) {
		return pass, nil
	}
	var errs []error
	for _, c := range withVolumes(r.Object.Object) {
		if policy := corev1.PullPolicy(textOf(c.of, c.field)); policy != corev1.PullAlways {
			why := field.NotSupported(field.NewPath(c.path), policy, []string{string(corev1.PullAlways)})
			errs = append(errs, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, r.Name, why))
		}
	}
	if len(errs) == 0 {
		return pass, nil
	}
	return registry.Refuse(answerless(utilerrors.NewAggregate(errs))), nil
}

// answerless is the answer to an error that is no Status: kube-apiserver answers what some of its plug-ins say so, too.
func answerless(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
}
