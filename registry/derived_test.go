package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// TestDecoded: what is given again isn't decoded again, what can't be decoded is told of each time, and what is gone is forgotten.
func TestDecoded(t *testing.T) {
	object := func(name string, rev storage.Revision, kind string) *kube.Object {
		return kube.NewObject("/registry/namespaces/"+name, fmt.Appendf(nil, `{"apiVersion":"v1","kind":%s,"metadata":{"name":%q}}`, kind, name), rev)
	}
	const good, bad = `"Namespace"`, `7`
	a, b, c, d := object("a", 1, good), object("b", 2, bad), object("c", 3, good), object("d", 4, good)
	var decoded Decoded[corev1.Namespace]
	known := map[string]*corev1.Namespace{}
	again, withBad := []*kube.Object{a, c}, []*kube.Object{a, b}
	for _, step := range []struct {
		objects        []*kube.Object
		all, bad, anew string
	}{
		{[]*kube.Object{a, b, d}, "a d", "b", "a d"},
		{[]*kube.Object{a, b, c, d}, "a c d", "b", "c"},
		{[]*kube.Object{b, c, d}, "c d", "b", ""},
		{[]*kube.Object{a, object("b", 5, good), c.At(3), d.At(6)}, "a b c d", "", "a b d"},
		{nil, "", "", ""},
		{again, "a c", "", "a c"},
		{again, "a c", "", ""},
		{withBad, "a", "b", ""},
		{withBad, "a", "b", ""},
		{[]*kube.Object{d, a}, "d a", "", "d a"},
	} {
		var all, unread, anew []string
		values := decoded.All(step.objects, func(o *kube.Object, err error) {
			unread = append(unread, strings.TrimPrefix(o.Key, "/registry/namespaces/"))
		})
		for _, v := range values {
			if all = append(all, v.Name); known[v.Name] != v {
				anew = append(anew, v.Name)
			}
			known[v.Name] = v
		}
		if got := []string{strings.Join(all, " "), strings.Join(unread, " "), strings.Join(anew, " ")}; !slices.Equal(got, []string{step.all, step.bad, step.anew}) {
			t.Errorf("all, bad, anew: %q; want %q, %q, %q", got, step.all, step.bad, step.anew)
		}
	}
}
