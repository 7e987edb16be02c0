package devices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules of the group resource.k8s.io, in the order in which Kubernetes asks them. What it says by declaration stands in
// declared.go.

// maxAttributeKey is the length up to which the key of an attribute is told whole: a domain, a slash and a name.
const maxAttributeKey = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength

// maxCapacityValues is how many values of a capacity can be said to be asked for.
const maxCapacityValues = 10

// prepareClaimSpec drops what is of features that are off there.
func prepareClaimSpec(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			r.Exactly.DerivedAttributes = nil
		}
		for j := range r.FirstAvailable {
			r.FirstAvailable[j].DerivedAttributes = nil
		}
	}
}

func prepareResourceClaim(c, old *resourcev1.ResourceClaim, subresource string) {
	if subresource == "" {
		prepareClaimSpec(&c.Spec)
		return
	}
	if c.Status.Allocation != nil {
		for i := range c.Status.Allocation.Devices.Results {
			c.Status.Allocation.Devices.Results[i].SkipNodeOperations = nil
		}
	}
	gone := allocated(old).Difference(allocated(c)) // what drivers said of these goes, too
	c.Status.Devices = slices.DeleteFunc(c.Status.Devices, func(d resourcev1.AllocatedDeviceStatus) bool { return gone.Has(idOf(d)) })
	if len(c.Status.Devices) == 0 {
		c.Status.Devices = nil
	}
}

func prepareClaimTemplate(t, _ *resourcev1.ResourceClaimTemplate, _ string) {
	prepareClaimSpec(&t.Spec.Spec)
}

// deviceID names a device, or a share of one, as Kubernetes' refusals have it.
type deviceID struct{ Driver, Pool, Device, ShareID string }

func idOf(d resourcev1.AllocatedDeviceStatus) deviceID {
	return deviceID{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
}

// allocated are the devices that a claim has.
func allocated(c *resourcev1.ResourceClaim) sets.Set[deviceID] {
	all := sets.New[deviceID]()
	if c == nil || c.Status.Allocation == nil {
		return all
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		all.Insert(deviceID{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, ""))})
	}
	return all
}

// claimNames are the requests of a claim, each with the names of its alternatives.
type claimNames map[string]sets.Set[string]

func claimRequests(d *resourcev1.DeviceClaim) claimNames {
	names := claimNames{}
	for _, r := range d.Requests {
		names[r.Name] = sets.New[string]()
		for _, sub := range r.FirstAvailable {
			names[r.Name].Insert(sub.Name)
		}
	}
	return names
}

func (n claimNames) has(ref string) bool {
	name, sub, nested := strings.Cut(ref, "/")
	subs, ok := n[name]
	return ok && (!nested || subs.Has(sub))
}

// check collects what is wrong with what has devices, or gets them.
type check struct{ rules.Check }

// judge knows what objects alone don't tell.
type judge struct {
	registry   *registry.Registry
	authorizer asker // nil: everybody may do everything
}

// asker tells what users may do.
type asker interface {
	// Ask returns nil for what a user may do, and a Status error for what he mayn't.
	Ask(ctx context.Context, a authorizer.Attributes) error
}

// administers refuses access to devices in use in a namespace whose label doesn't allow it.
func (o judge) administers(ctx context.Context, c *check, namespace string, at *field.Path) {
	labels, err := o.registry.NamespaceLabels(ctx, namespace)
	switch {
	case err != nil:
		c.Add(field.InternalError(at, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err)))
	case labels[resourcev1.DRAAdminNamespaceLabelKey] != "true":
		c.Add(field.Forbidden(at, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey)))
	}
}

// administersRequest does so for the first request that asks for such access.
func (o judge) administersRequest(ctx context.Context, c *check, namespace string, requests []resourcev1.DeviceRequest) {
	for i, r := range requests {
		if r.Exactly != nil && ptr.Deref(r.Exactly.AdminAccess, false) {
			o.administers(ctx, c, namespace, field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"))
			return
		}
	}
}

func administered(c *resourcev1.ResourceClaim) int {
	if c == nil || c.Status.Allocation == nil {
		return -1
	}
	return slices.IndexFunc(c.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool { return ptr.Deref(r.AdminAccess, false) })
}

func (o judge) validateResourceClaim(ctx context.Context, obj, before registry.Typed, subresource string) field.ErrorList {
	claim := obj.(*resourcev1.ResourceClaim)
	old, _ := before.(*resourcev1.ResourceClaim)
	c, spec := &check{}, field.NewPath("spec")
	switch {
	case old == nil:
		o.administersRequest(ctx, c, claim.Namespace, claim.Spec.Devices.Requests)
		c.deviceClaim(&claim.Spec.Devices, spec.Child("devices"))
		c.declareDevices(&claim.Spec.Devices, &resourcev1.DeviceClaim{}, spec.Child("devices"))
	case subresource == "":
		c.DeclareImmutable(spec, claim.Spec, old.Spec)
	default:
		if i := administered(claim); i >= 0 && administered(old) < 0 {
			o.administers(ctx, c, claim.Namespace, field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess"))
		}
		o.mayWriteClaimStatus(ctx, c, claim, old)
		c.claimStatus(claim, old, field.NewPath("status"))
		c.declareClaimStatus(&claim.Status, &old.Status, field.NewPath("status"))
	}
	return c.All()
}

func (o judge) validateClaimTemplate(ctx context.Context, obj, before registry.Typed, _ string) field.ErrorList {
	t := obj.(*resourcev1.ResourceClaimTemplate)
	old, _ := before.(*resourcev1.ResourceClaimTemplate)
	c, spec := &check{}, field.NewPath("spec")
	if old == nil {
		o.administersRequest(ctx, c, t.Namespace, t.Spec.Spec.Devices.Requests)
	}
	c.ClaimTemplateMeta(&t.Spec.ObjectMeta, spec.Child("metadata"))
	devices := spec.Child("spec", "devices")
	c.deviceClaim(&t.Spec.Spec.Devices, devices)
	c.Refuse(old != nil && !equality.Semantic.DeepEqual(t.Spec, old.Spec), spec, rules.Untagged(t.Spec), "field is immutable")
	c.declareDevices(&t.Spec.Spec.Devices, &rules.OrEmpty(old).Spec.Spec.Devices, devices)
	return c.All()
}

// eachOf checks each item of a list, unless there are too many, which is said elsewhere.
func eachOf[T any](list []T, most int, at *field.Path, fn func(item *T, at *field.Path)) {
	if len(list) > most {
		return
	}
	for i := range list {
		fn(&list[i], at.Index(i))
	}
}

func (c *check) deviceClaim(d *resourcev1.DeviceClaim, at *field.Path) {
	names := claimRequests(d)
	eachOf(d.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), c.deviceRequest)
	eachOf(d.Constraints, resourcev1.DeviceConstraintsMaxSize, at.Child("constraints"), func(d *resourcev1.DeviceConstraint, at *field.Path) {
		c.requestRefs(d.Requests, names, at)
		c.Lack(d.MatchAttribute == nil && d.DistinctAttribute == nil, at, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`)
	})
	eachOf(d.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"), func(d *resourcev1.DeviceClaimConfiguration, at *field.Path) {
		c.requestRefs(d.Requests, names, at)
		c.deviceConfig(&d.DeviceConfiguration, false, at)
	})
}

func (c *check) deviceRequest(r *resourcev1.DeviceRequest, at *field.Path) {
	c.Label(at.Child("name"), r.Name)
	alternatives := len(r.FirstAvailable) > 0
	switch {
	case r.Exactly == nil && !alternatives:
		c.Add(field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
	case r.Exactly != nil && alternatives:
		c.Add(field.Invalid(at, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case alternatives:
		eachOf(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, at.Child("firstAvailable"), func(r *resourcev1.DeviceSubRequest, at *field.Path) {
			c.Label(at.Child("name"), r.Name)
			c.deviceSelectors(r.Selectors, at.Child("selectors"))
			c.deviceCount(r.AllocationMode, r.Count, at)
			c.deviceTolerations(r.Tolerations, at)
		})
	default:
		r, at := r.Exactly, at.Child("exactly")
		if class := at.Child("deviceClassName"); c.Required(class, r.DeviceClassName) {
			c.Subdomain(class, r.DeviceClassName)
		}
		c.deviceSelectors(r.Selectors, at.Child("selectors"))
		c.deviceCount(r.AllocationMode, r.Count, at)
		c.deviceTolerations(r.Tolerations, at)
	}
}

func (c *check) deviceCount(mode resourcev1.DeviceAllocationMode, count int64, of *field.Path) {
	at := of.Child("count")
	c.Refuse(mode == resourcev1.DeviceAllocationModeAll && count != 0, at, count, "must not be specified when allocationMode is 'All'")
	c.Refuse(mode == resourcev1.DeviceAllocationModeExactCount && count <= 0, at, count, "must be greater than zero")
}

func (c *check) deviceTolerations(tolerations []resourcev1.DeviceToleration, of *field.Path) {
	for i, t := range tolerations {
		at := of.Child("tolerations").Index(i).Child("value")
		switch t.Operator {
		case resourcev1.DeviceTolerationOpExists:
			c.Refuse(t.Value != "", at, t.Value, "must be empty for operator `Exists`")
		case resourcev1.DeviceTolerationOpEqual:
			c.Texts(at, t.Value, validation.IsValidLabelValue(t.Value))
		}
	}
}

func (c *check) deviceSelectors(selectors []resourcev1.DeviceSelector, at *field.Path) {
	eachOf(selectors, resourcev1.DeviceSelectorsMaxSize, at, func(s *resourcev1.DeviceSelector, at *field.Path) {
		at = at.Child("cel")
		if s.CEL == nil {
			c.Add(field.Required(at, ""))
			return
		}
		c.deviceExpression(s.CEL.Expression, at.Child("expression"))
	})
}

func (c *check) deviceExpression(expression string, at *field.Path) {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		c.Add(field.TooLong(at, "", resourcev1.CELSelectorExpressionMaxLength))
		return
	}
	fresh := environment.NewExpressions
	result := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, dracel.Options{EnvType: &fresh})
	var failed *cel.Error
	switch {
	case result.Error == nil:
		c.Forbid(result.MaxCost > resourcev1.CELSelectorExpressionMaxCost, at, "too complex, exceeds cost limit")
	case errors.As(result.Error, &failed) && failed.Type == cel.ErrorTypeRequired:
		c.Add(field.Required(at, failed.Detail))
	case failed != nil && failed.Type == cel.ErrorTypeInvalid:
		c.Add(field.Invalid(at, expression, failed.Detail))
	case failed != nil && failed.Type == cel.ErrorTypeInternal:
		c.Add(field.InternalError(at, failed))
	default:
		c.Add(field.InternalError(at, fmt.Errorf("unsupported error type: %w", result.Error)))
	}
}

func (c *check) requestRefs(refs []string, names claimNames, of *field.Path) {
	eachOf(refs, resourcev1.DeviceRequestsMaxSize, of.Child("requests"), func(ref *string, at *field.Path) { c.requestRef(*ref, names, at) })
}

func (c *check) requestRef(ref string, names claimNames, at *field.Path) {
	const unknown = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	segments := strings.Split(ref, "/")
	if len(segments) <= 2 {
		for _, s := range segments {
			c.Label(at, s)
		}
	}
	c.Refuse(len(segments) > 2 || !names.has(ref), at, ref, unknown)
}

// deviceConfig checks a configuration. One that is stored may be longer than a new one.
func (c *check) deviceConfig(d *resourcev1.DeviceConfiguration, stored bool, at *field.Path) {
	at = at.Child("opaque")
	switch {
	case d.Opaque == nil:
		c.Add(field.Required(at, ""))
	case stored:
		c.rawObject(d.Opaque.Parameters, at.Child("parameters"), math.MaxInt)
	default:
		c.rawObject(d.Opaque.Parameters, at.Child("parameters"), resourcev1.OpaqueParametersMaxLength)
	}
}

// rawObject wants an object of JSON.
func (c *check) rawObject(raw runtime.RawExtension, at *field.Path, most int) {
	const omitted = "<value omitted>"
	var v any
	switch {
	case len(raw.Raw) == 0:
		c.Add(field.Required(at, ""))
		return
	case len(raw.Raw) > most:
		c.Add(field.TooLong(at, "", most))
		return
	}
	if err := json.Unmarshal(raw.Raw, &v); err != nil {
		c.Add(field.Invalid(at, omitted, fmt.Sprintf("error parsing data as JSON: %v", err)))
	} else if v == nil {
		c.Add(field.Required(at, ""))
	} else if _, ok := v.(map[string]any); !ok {
		c.Add(field.Invalid(at, omitted, "must be a valid JSON object"))
	}
}

func (c *check) claimStatus(claim, old *resourcev1.ResourceClaim, at *field.Path) {
	s, names := &claim.Status, claimRequests(&claim.Spec.Devices)
	eachOf(s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, at.Child("reservedFor"), func(r *resourcev1.ResourceClaimConsumerReference, at *field.Path) {
		c.Required(at.Child("resource"), r.Resource)
		c.Required(at.Child("name"), r.Name)
		c.Required(at.Child("uid"), string(r.UID))
	})
	has := allocated(claim)
	eachOf(s.Devices, math.MaxInt, at.Child("devices"), func(d *resourcev1.AllocatedDeviceStatus, at *field.Path) {
		c.deviceStatus(d, has, at)
	})
	if reserved := at.Child("reservedFor"); len(s.ReservedFor) > 0 {
		added := sets.New(s.ReservedFor...).Difference(sets.New(old.Status.ReservedFor...))
		c.Forbid(s.Allocation == nil, reserved, "may not be specified when `allocated` is not set")
		c.Forbid(s.Allocation != nil && claim.DeletionTimestamp != nil && len(added) > 0, reserved,
			"new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
	}
	if s.Allocation == nil || old.Status.Allocation != nil {
		return
	}
	at = at.Child("allocation")
	devices := at.Child("devices")
	eachOf(s.Allocation.Devices.Results, resourcev1.AllocationResultsMaxSize, devices.Child("results"), func(r *resourcev1.DeviceRequestAllocationResult, at *field.Path) {
		c.requestRef(r.Request, names, at.Child("request"))
		c.Label(at.Child("device"), r.Device)
		c.bindingConditions(r.BindingConditions, r.BindingFailureConditions, at)
		c.deviceTolerations(r.Tolerations, at)
	})
	eachOf(s.Allocation.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, devices.Child("config"), func(d *resourcev1.DeviceAllocationConfiguration, at *field.Path) {
		c.requestRefs(d.Requests, names, at)
		c.deviceConfig(&d.DeviceConfiguration, false, at)
	})
	if s.Allocation.NodeSelector != nil {
		c.NodeSelector(s.Allocation.NodeSelector, at.Child("nodeSelector"))
	}
}

func (c *check) deviceStatus(d *resourcev1.AllocatedDeviceStatus, has sets.Set[deviceID], at *field.Path) {
	c.DriverName(at.Child("driver"), d.Driver)
	c.poolName(d.Pool, at.Child("pool"))
	c.Label(at.Child("device"), d.Device)
	if id := idOf(*d); !has.Has(id) {
		c.Add(field.Invalid(at, id, "must be an allocated device in the claim"))
	}
	c.deviceConditions(d.Conditions, resourcev1.AllocatedDeviceStatusMaxConditions, at.Child("conditions"), true)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		c.rawObject(*d.Data, at.Child("data"), resourcev1.AllocatedDeviceStatusDataMaxLength)
	}
	if d.NetworkData != nil {
		eachOf(d.NetworkData.IPs, resourcev1.NetworkDeviceDataMaxIPs, at.Child("networkData", "ips"), func(ip *string, at *field.Path) {
			c.Add(validation.IsValidInterfaceAddress(at, *ip)...)
		})
	}
}

// deviceConditions checks conditions and their number, which Kubernetes asks about first or last.
func (c *check) deviceConditions(conditions []metav1.Condition, most int, at *field.Path, numberFirst bool) {
	errs := rules.Conditions(conditions, at)
	if len(conditions) > most {
		place := len(errs)
		if numberFirst {
			place = 0
		}
		errs = slices.Insert(errs, place, field.TooMany(at, len(conditions), most))
	}
	c.Add(errs...)
}

func (c *check) poolName(name string, at *field.Path) {
	if !c.Required(at, name) {
		return
	}
	c.NoLonger(at, len(name), resourcev1.PoolNameMaxLength)
	for part := range strings.SplitSeq(name, "/") {
		c.Subdomain(at, part)
	}
}

func (c *check) bindingConditions(conditions, failures []string, of *field.Path) {
	bindings, failing := of.Child("bindingConditions"), of.Child("bindingFailureConditions")
	labels := func(list []string, most int, at *field.Path) {
		eachOf(list, most, at, func(name *string, at *field.Path) { c.Add(metavalidation.ValidateLabelName(*name, at)...) })
	}
	labels(conditions, resourcev1.BindingConditionsMaxSize, bindings)
	labels(failures, resourcev1.BindingFailureConditionsMaxSize, failing)
	binds, fails := rules.Earlier[string]{}, rules.Earlier[string]{}
	for i, name := range conditions {
		c.Twice(binds.Had(name), bindings.Index(i), name)
	}
	for i, name := range failures {
		c.Twice(fails.Had(name), failing.Index(i), name)
		c.Refuse(binds[name], failing.Index(i), name, "bindingFailureConditions must not overlap with bindingConditions")
	}
	c.Refuse(len(conditions) == 0 && len(failures) > 0, bindings, conditions, "bindingConditions are required to use bindingFailureConditions")
	c.Refuse(len(failures) == 0 && len(conditions) > 0, failing, failures, "bindingFailureConditions are required to use bindingConditions")
}
