package system

import (
	"context"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiservicehelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// The label of APIServices that kube-apiserver makes, and what it says: made at the start, or kept always.
const (
	automanaged = "kube-aggregator.kubernetes.io/automanaged"
	onStart     = "onstart"
	always      = "true"
)

// priority is where a group and a version stand among others: the higher the earlier.
type priority struct{ group, version int32 }

// builtinPriorities are kube-apiserver's, of the versions that are served here.
var builtinPriorities = map[schema.GroupVersion]priority{
	{Version: "v1"}:                                        {18000, 1},
	{Group: "apps", Version: "v1"}:                         {17800, 15},
	{Group: "events.k8s.io", Version: "v1"}:                {17750, 15},
	{Group: "authentication.k8s.io", Version: "v1"}:        {17700, 15},
	{Group: "authorization.k8s.io", Version: "v1"}:         {17600, 15},
	{Group: "autoscaling", Version: "v1"}:                  {17500, 15},
	{Group: "autoscaling", Version: "v2"}:                  {17500, 30},
	{Group: "batch", Version: "v1"}:                        {17400, 15},
	{Group: "certificates.k8s.io", Version: "v1"}:          {17300, 15},
	{Group: "networking.k8s.io", Version: "v1"}:            {17200, 15},
	{Group: "policy", Version: "v1"}:                       {17100, 15},
	{Group: "rbac.authorization.k8s.io", Version: "v1"}:    {17000, 15},
	{Group: "storage.k8s.io", Version: "v1"}:               {16800, 15},
	{Group: "apiextensions.k8s.io", Version: "v1"}:         {16700, 15},
	{Group: "admissionregistration.k8s.io", Version: "v1"}: {16700, 15},
	{Group: "scheduling.k8s.io", Version: "v1"}:            {16600, 15},
	{Group: "coordination.k8s.io", Version: "v1"}:          {16500, 15},
	{Group: "node.k8s.io", Version: "v1"}:                  {16300, 15},
	{Group: "discovery.k8s.io", Version: "v1"}:             {16200, 15},
	{Group: "resource.k8s.io", Version: "v1"}:              {16200, 21},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}: {16100, 21},
	{Group: "storagemigration.k8s.io", Version: "v1"}:      {15800, 15},
}

// Priority returns where the APIService of a built-in version stands in its group, and the group among others. ok is false for
// a version that kube-apiserver makes none for.
func Priority(gv schema.GroupVersion) (group, version int32, ok bool) {
	p, ok := builtinPriorities[gv]
	return p.group, p.version, ok
}

// definedPriority is that of definitions' versions.
var definedPriority = priority{1000, 100}

// atStart is before the name of an APIService in the key of what is done with it at the start alone.
const atStart = "start/"

// builtinServices are the keys of the start.
func builtinServices() (keys []string) {
	for gv := range builtinPriorities {
		keys = append(keys, atStart+serviceName(gv))
	}
	slices.Sort(keys)
	return keys
}

func serviceName(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

var (
	apiServicesPrefix = storage.PrefixOf(apiregistrationv1.GroupName, "apiservices")
	definitionsPrefix = storage.PrefixOf(apiextensionsv1.GroupName, "customresourcedefinitions")
)

// apiServicesOf returns the names of APIServices that a change concerns.
func apiServicesOf(e *cacher.Event) (names []string) {
	switch e.Prefix {
	case apiServicesPrefix:
		return []string{e.Object().Name()}
	case definitionsPrefix:
		type definition struct {
			Spec struct {
				Group    string
				Versions []struct{ Name string }
			}
		}
		for _, o := range []*kube.Object{e.Prev, e.Cur} {
			if d := decoded[definition](o); d != nil {
				for _, v := range d.Spec.Versions {
					names = append(names, v.Name+"."+d.Spec.Group)
				}
			}
		}
	}
	return names
}

// apiService keeps one APIService. Those of built-in groups are made and mended at the start; those of definitions are kept
// always. One without the label is somebody's own. One that names no Service is available: that's what is served here.
func (m *maker) apiService(ctx context.Context, served *registry.Catalog, key string) (storage.Revision, error) {
	e := served.Kind("apiregistration.k8s.io/v1", "APIService")
	if e == nil {
		return 0, nil
	}
	name, starts := strings.CutPrefix(key, atStart)
	version, group, _ := strings.Cut(name, ".")
	gv := schema.GroupVersion{Group: group, Version: version}
	have, want := cached[apiregistrationv1.APIService](e, "", name), wanted(served, gv)
	builtin := want != nil && want.Labels[automanaged] == onStart
	label := ""
	if have != nil {
		label = have.Labels[automanaged]
	}
	switch {
	case have == nil && (want == nil || builtin && !starts):
		return 0, nil
	case have == nil:
		setAvailable(want)
		return create(ctx, e, want, "")
	case label == "", label == onStart && !starts, builtin && !starts: // nothing to do but for the condition
	case want == nil && (label == always || starts):
		return remove(ctx, e, have)
	case want != nil && !equality.Semantic.DeepEqual(have.Spec, want.Spec):
		return amend(ctx, e, have, "", func(s *apiregistrationv1.APIService) { s.Spec = want.Spec })
	}
	if have.Spec.Service != nil || isAvailable(have) {
		return 0, nil
	}
	return amend(ctx, e, have, "", setAvailable)
}

// wanted returns the APIService of a version that is served; nil of one that isn't.
func wanted(served *registry.Catalog, gv schema.GroupVersion) *apiregistrationv1.APIService {
	if !serves(served, gv) {
		return nil
	}
	p, builtin := builtinPriorities[gv]
	label := onStart
	if !builtin {
		p, label = definedPriority, always
	}
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName(gv), Labels: map[string]string{automanaged: label}},
		Spec:       apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.group, VersionPriority: p.version},
	}
}

func serves(served *registry.Catalog, gv schema.GroupVersion) bool {
	i, found := slices.BinarySearchFunc(served.Groups, gv.Group, func(g registry.Group, name string) int { return strings.Compare(g.Name, name) })
	return found && slices.ContainsFunc(served.Groups[i].Versions, func(v registry.Version) bool { return v.Name == gv.Version })
}

// isAvailable tells whether an APIService has the condition of one without a Service.
func isAvailable(s *apiregistrationv1.APIService) bool {
	want := apiservicehelper.NewLocalAvailableAPIServiceCondition()
	have := apiservicehelper.GetAPIServiceConditionByType(s, want.Type)
	return have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message
}

// setAvailable gives it that condition.
func setAvailable(s *apiregistrationv1.APIService) {
	apiservicehelper.SetAPIServiceCondition(s, apiservicehelper.NewLocalAvailableAPIServiceCondition())
}
