package builtin

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// The paths of a pod that lead to its kubelet, of which there is none: what kube-apiserver itself refuses there.

// withoutKubelet is a path that leads to a kubelet.
func withoutKubelet(name string) registry.Absent {
	return registry.Absent{Why: "there is no kubelet: nothing runs on this server, so " + name + " isn't served"}
}

func onlyProxy() map[string]registry.Absent {
	return map[string]registry.Absent{"proxy": withoutKubelet("proxy")}
}

// podStreams are the paths that lead to a pod's kubelet.
func podStreams() map[string]registry.Absent {
	all := onlyProxy()
	for name, methods := range map[string][]string{"log": {"GET", "HEAD"}, "exec": {"GET", "POST"}, "attach": {"GET", "POST"}, "portforward": {"GET", "POST"}} {
		path := withoutKubelet(name)
		path.Methods, path.Creates = methods, name != "log"
		switch name {
		case "log":
			path.Asked = logOptions
		case "portforward":
			path.Asked = portOptions
		}
		path.Unreached = func(query url.Values, object []byte) error { return withoutHost(name, query, object) }
		all[name] = path
	}
	return all
}

// withoutHost is what kube-apiserver answers to who wants to get at a container of a pod that's on no node, or at one that the pod
// doesn't have. Ports are the whole pod's. Of a pod on no node the log is empty.
func withoutHost(part string, query url.Values, object []byte) error {
	var pod corev1.Pod
	if json.Unmarshal(object, &pod) != nil {
		return nil
	}
	var names []string
	eachContainer(&pod.Spec, nil, func(c *corev1.Container, _ *field.Path) { names = append(names, c.Name) })
	switch asked := query.Get("container"); {
	case part == "portforward":
	case asked != "" && !slices.Contains(names, asked):
		return apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", asked, pod.Name))
	case asked == "" && len(pod.Spec.Containers) > 1:
		return apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
	}
	switch {
	case pod.Spec.NodeName != "":
		return nil
	case part == "log":
		return registry.ErrNoContent
	}
	return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
}

// logOptions refuses what can't be asked of a log, whether there's a pod or not.
func logOptions(pod string, query url.Values) error {
	var since *metav1.Time
	numbers := map[string]*int64{}
	number := func(name string) (err error) {
		if values := query[name]; len(values) > 0 {
			var n *int64
			err = runtime.Convert_Slice_string_To_Pointer_int64(&values, &n, nil)
			numbers[name] = n
		}
		return err
	}
	errs := []error{number("sinceSeconds")}
	if values := query["sinceTime"]; len(values) > 0 {
		errs = append(errs, metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, &since, nil))
	}
	for _, err := range append(errs, number("tailLines"), number("limitBytes")) {
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	c, seconds := &check{}, numbers["sinceSeconds"]
	if n := numbers["tailLines"]; n != nil && *n < 0 {
		c.add(field.Invalid(field.NewPath("tailLines"), *n, "must be greater than or equal to 0"))
	}
	if n := numbers["limitBytes"]; n != nil && *n < 1 {
		c.add(field.Invalid(field.NewPath("limitBytes"), *n, "must be greater than 0"))
	}
	switch {
	case seconds != nil && since != nil:
		c.add(field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case seconds != nil && *seconds < 1:
		c.add(field.Invalid(field.NewPath("sinceSeconds"), *seconds, "must be greater than 0"))
	}
	c.forbid(query.Has("stream"), field.NewPath("stream"), "may not be specified") // it's of a feature that is off there
	if len(c.errs) > 0 {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), pod, c.errs)
	}
	return nil
}

// portOptions refuses ports that aren't.
func portOptions(_ string, query url.Values) error {
	ports := query["ports"]
	if err := metav1.Convert_Slice_string_To_Slice_int32(&ports, new([]int32), nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}
