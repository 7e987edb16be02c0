package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// The rules of the group resource.k8s.io, in the order in which Kubernetes asks them. What it says by declaration stands in
// devicesdeclared.go.

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

func prepareSlice(s, _ *resourcev1.ResourceSlice, _ string) {
	s.Spec.PartitionTypeAttribute, s.Spec.SkipNodeOperations = nil, nil
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		d.NodeAllocatableResources = nil
		for j := range d.ConsumesCounters {
			d.ConsumesCounters[j].CompatibilityGroups = nil
		}
		for name, a := range d.Attributes {
			a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			d.Attributes[name] = a
		}
	}
}

// countResourceSlice counts what is asked for, also what is dropped then.
func countResourceSlice(s, old *resourcev1.ResourceSlice) int64 {
	switch {
	case old == nil:
		return 1
	case equality.Semantic.DeepEqual(s.Spec, old.Spec):
		return old.Generation
	}
	return old.Generation + 1
}

// prepareTaintRule dates a taint anew whose effect has changed.
func prepareTaintRule(r, old *resourcev1.DeviceTaintRule, subresource string) {
	if old == nil || subresource != "" {
		return
	}
	is, was := &r.Spec.Taint, &old.Spec.Taint
	if is.Effect != was.Effect && is.TimeAdded.Equal(was.TimeAdded) {
		is.TimeAdded = now()
	}
}

// deviceID names a device, or a share of one, as Kubernetes' refusals have it.
type deviceID struct{ Driver, Pool, Device, ShareID string }

func idOf(d resourcev1.AllocatedDeviceStatus) deviceID {
	id := deviceID{d.Driver, d.Pool, d.Device, ""}
	if d.ShareID != nil {
		id.ShareID = *d.ShareID
	}
	return id
}

// allocated are the devices that a claim has.
func allocated(c *resourcev1.ResourceClaim) sets.Set[deviceID] {
	all := sets.New[deviceID]()
	if c == nil || c.Status.Allocation == nil {
		return all
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		id := deviceID{r.Driver, r.Pool, r.Device, ""}
		if r.ShareID != nil {
			id.ShareID = string(*r.ShareID)
		}
		all.Insert(id)
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

// administers refuses access to devices in use in a namespace whose label doesn't allow it.
func (o Options) administers(ctx context.Context, c *check, namespace string, at *field.Path) {
	labels, err := o.registry.NamespaceLabels(ctx, namespace)
	switch {
	case err != nil:
		c.add(field.InternalError(at, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err)))
	case labels[resourcev1.DRAAdminNamespaceLabelKey] != "true":
		c.add(field.Forbidden(at, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey)))
	}
}

// administersRequest does so for the first request that asks for such access.
func (o Options) administersRequest(ctx context.Context, c *check, namespace string, requests []resourcev1.DeviceRequest) {
	for i, r := range requests {
		if r.Exactly != nil && isTrue(r.Exactly.AdminAccess) {
			o.administers(ctx, c, namespace, field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"))
			return
		}
	}
}

func administered(c *resourcev1.ResourceClaim) int {
	if c == nil || c.Status.Allocation == nil {
		return -1
	}
	return slices.IndexFunc(c.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool { return isTrue(r.AdminAccess) })
}

func (o Options) validateResourceClaim(ctx context.Context, obj, before registry.Typed, subresource string) field.ErrorList {
	claim := obj.(*resourcev1.ResourceClaim)
	old, _ := before.(*resourcev1.ResourceClaim)
	c, spec := &check{}, field.NewPath("spec")
	switch {
	case old == nil:
		o.administersRequest(ctx, c, claim.Namespace, claim.Spec.Devices.Requests)
		c.deviceClaim(&claim.Spec.Devices, spec.Child("devices"))
		c.declareDevices(&claim.Spec.Devices, &resourcev1.DeviceClaim{}, spec.Child("devices"))
	case subresource == "":
		c.declareImmutable(spec, claim.Spec, old.Spec)
	default:
		if i := administered(claim); i >= 0 && administered(old) < 0 {
			o.administers(ctx, c, claim.Namespace, field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess"))
		}
		o.mayWriteClaimStatus(ctx, c, claim, old)
		c.claimStatus(claim, old, field.NewPath("status"))
		c.declareClaimStatus(&claim.Status, &old.Status, field.NewPath("status"))
	}
	return c.all()
}

func (o Options) validateClaimTemplate(ctx context.Context, obj, before registry.Typed, _ string) field.ErrorList {
	t := obj.(*resourcev1.ResourceClaimTemplate)
	old, _ := before.(*resourcev1.ResourceClaimTemplate)
	c, spec := &check{}, field.NewPath("spec")
	if old == nil {
		o.administersRequest(ctx, c, t.Namespace, t.Spec.Spec.Devices.Requests)
	}
	c.claimTemplateMeta(&t.Spec.ObjectMeta, spec.Child("metadata"))
	devices := spec.Child("spec", "devices")
	c.deviceClaim(&t.Spec.Spec.Devices, devices)
	if old != nil && !equality.Semantic.DeepEqual(t.Spec, old.Spec) {
		c.add(field.Invalid(spec, untagged{t.Spec}, "field is immutable"))
	}
	c.declareDevices(&t.Spec.Spec.Devices, &orEmpty(old).Spec.Spec.Devices, devices)
	return c.all()
}

// claimTemplateMeta checks the metadata that claims get of a template, which has labels and annotations alone.
func (c *check) claimTemplateMeta(m *metav1.ObjectMeta, at *field.Path) {
	c.add(apivalidation.ValidateAnnotations(m.Annotations, at.Child("annotations"))...)
	c.add(metavalidation.ValidateLabels(m.Labels, at.Child("labels"))...)
	v := reflect.ValueOf(*m)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Labels" && name != "Annotations" {
			c.forbid(!v.Field(i).IsZero(), at.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set")
		}
	}
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
		if d.MatchAttribute == nil && d.DistinctAttribute == nil {
			c.add(field.Required(at, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
		}
	})
	eachOf(d.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"), func(d *resourcev1.DeviceClaimConfiguration, at *field.Path) {
		c.requestRefs(d.Requests, names, at)
		c.deviceConfig(&d.DeviceConfiguration, false, at)
	})
}

func (c *check) deviceRequest(r *resourcev1.DeviceRequest, at *field.Path) {
	c.label(at.Child("name"), r.Name)
	alternatives := len(r.FirstAvailable) > 0
	switch {
	case r.Exactly == nil && !alternatives:
		c.add(field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
	case r.Exactly != nil && alternatives:
		c.add(field.Invalid(at, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case alternatives:
		eachOf(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, at.Child("firstAvailable"), func(r *resourcev1.DeviceSubRequest, at *field.Path) {
			c.label(at.Child("name"), r.Name)
			c.deviceSelectors(r.Selectors, at.Child("selectors"))
			c.deviceCount(r.AllocationMode, r.Count, at)
			c.deviceTolerations(r.Tolerations, at)
		})
	default:
		r, at := r.Exactly, at.Child("exactly")
		if class := at.Child("deviceClassName"); c.required(class, r.DeviceClassName) {
			c.subdomain(class, r.DeviceClassName)
		}
		c.deviceSelectors(r.Selectors, at.Child("selectors"))
		c.deviceCount(r.AllocationMode, r.Count, at)
		c.deviceTolerations(r.Tolerations, at)
	}
}

func (c *check) deviceCount(mode resourcev1.DeviceAllocationMode, count int64, of *field.Path) {
	at := of.Child("count")
	if mode == resourcev1.DeviceAllocationModeAll && count != 0 {
		c.add(field.Invalid(at, count, "must not be specified when allocationMode is 'All'"))
	}
	if mode == resourcev1.DeviceAllocationModeExactCount && count <= 0 {
		c.add(field.Invalid(at, count, "must be greater than zero"))
	}
}

func (c *check) deviceTolerations(tolerations []resourcev1.DeviceToleration, of *field.Path) {
	for i, t := range tolerations {
		at := of.Child("tolerations").Index(i).Child("value")
		switch t.Operator {
		case resourcev1.DeviceTolerationOpExists:
			if t.Value != "" {
				c.add(field.Invalid(at, t.Value, "must be empty for operator `Exists`"))
			}
		case resourcev1.DeviceTolerationOpEqual:
			c.texts(at, t.Value, validation.IsValidLabelValue(t.Value))
		}
	}
}

func (c *check) deviceSelectors(selectors []resourcev1.DeviceSelector, at *field.Path) {
	eachOf(selectors, resourcev1.DeviceSelectorsMaxSize, at, func(s *resourcev1.DeviceSelector, at *field.Path) {
		at = at.Child("cel")
		if s.CEL == nil {
			c.add(field.Required(at, ""))
			return
		}
		c.deviceExpression(s.CEL.Expression, at.Child("expression"))
	})
}

func (c *check) deviceExpression(expression string, at *field.Path) {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		c.add(field.TooLong(at, "", resourcev1.CELSelectorExpressionMaxLength))
		return
	}
	fresh := environment.NewExpressions
	result := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, dracel.Options{EnvType: &fresh})
	var failed *cel.Error
	switch {
	case result.Error == nil:
		c.forbid(result.MaxCost > resourcev1.CELSelectorExpressionMaxCost, at, "too complex, exceeds cost limit")
	case errors.As(result.Error, &failed) && failed.Type == cel.ErrorTypeRequired:
		c.add(field.Required(at, failed.Detail))
	case failed != nil && failed.Type == cel.ErrorTypeInvalid:
		c.add(field.Invalid(at, expression, failed.Detail))
	case failed != nil && failed.Type == cel.ErrorTypeInternal:
		c.add(field.InternalError(at, failed))
	default:
		c.add(field.InternalError(at, fmt.Errorf("unsupported error type: %w", result.Error)))
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
			c.label(at, s)
		}
	}
	if len(segments) > 2 || !names.has(ref) {
		c.add(field.Invalid(at, ref, unknown))
	}
}

// deviceConfig checks a configuration. One that is stored may be longer than a new one.
func (c *check) deviceConfig(d *resourcev1.DeviceConfiguration, stored bool, at *field.Path) {
	at = at.Child("opaque")
	switch {
	case d.Opaque == nil:
		c.add(field.Required(at, ""))
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
		c.add(field.Required(at, ""))
		return
	case len(raw.Raw) > most:
		c.add(field.TooLong(at, "", most))
		return
	}
	if err := json.Unmarshal(raw.Raw, &v); err != nil {
		c.add(field.Invalid(at, omitted, fmt.Sprintf("error parsing data as JSON: %v", err)))
	} else if v == nil {
		c.add(field.Required(at, ""))
	} else if _, ok := v.(map[string]any); !ok {
		c.add(field.Invalid(at, omitted, "must be a valid JSON object"))
	}
}

func (c *check) claimStatus(claim, old *resourcev1.ResourceClaim, at *field.Path) {
	s, names := &claim.Status, claimRequests(&claim.Spec.Devices)
	eachOf(s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, at.Child("reservedFor"), func(r *resourcev1.ResourceClaimConsumerReference, at *field.Path) {
		c.required(at.Child("resource"), r.Resource)
		c.required(at.Child("name"), r.Name)
		c.required(at.Child("uid"), string(r.UID))
	})
	has := allocated(claim)
	eachOf(s.Devices, math.MaxInt, at.Child("devices"), func(d *resourcev1.AllocatedDeviceStatus, at *field.Path) {
		c.deviceStatus(d, has, at)
	})
	if reserved := at.Child("reservedFor"); len(s.ReservedFor) > 0 {
		added := sets.New(s.ReservedFor...).Difference(sets.New(old.Status.ReservedFor...))
		c.forbid(s.Allocation == nil, reserved, "may not be specified when `allocated` is not set")
		c.forbid(s.Allocation != nil && claim.DeletionTimestamp != nil && len(added) > 0, reserved,
			"new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
	}
	if s.Allocation == nil || old.Status.Allocation != nil {
		return
	}
	at = at.Child("allocation")
	devices := at.Child("devices")
	eachOf(s.Allocation.Devices.Results, resourcev1.AllocationResultsMaxSize, devices.Child("results"), func(r *resourcev1.DeviceRequestAllocationResult, at *field.Path) {
		c.requestRef(r.Request, names, at.Child("request"))
		c.label(at.Child("device"), r.Device)
		c.bindingConditions(r.BindingConditions, r.BindingFailureConditions, at)
		c.deviceTolerations(r.Tolerations, at)
	})
	eachOf(s.Allocation.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, devices.Child("config"), func(d *resourcev1.DeviceAllocationConfiguration, at *field.Path) {
		c.requestRefs(d.Requests, names, at)
		c.deviceConfig(&d.DeviceConfiguration, false, at)
	})
	if s.Allocation.NodeSelector != nil {
		c.nodeSelector(s.Allocation.NodeSelector, at.Child("nodeSelector"))
	}
}

func (c *check) deviceStatus(d *resourcev1.AllocatedDeviceStatus, has sets.Set[deviceID], at *field.Path) {
	c.driverName(at.Child("driver"), d.Driver)
	c.poolName(d.Pool, at.Child("pool"))
	c.label(at.Child("device"), d.Device)
	if id := idOf(*d); !has.Has(id) {
		c.add(field.Invalid(at, id, "must be an allocated device in the claim"))
	}
	c.deviceConditions(d.Conditions, resourcev1.AllocatedDeviceStatusMaxConditions, at.Child("conditions"), true)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		c.rawObject(*d.Data, at.Child("data"), resourcev1.AllocatedDeviceStatusDataMaxLength)
	}
	if d.NetworkData != nil {
		eachOf(d.NetworkData.IPs, resourcev1.NetworkDeviceDataMaxIPs, at.Child("networkData", "ips"), func(ip *string, at *field.Path) {
			c.add(validation.IsValidInterfaceAddress(at, *ip)...)
		})
	}
}

// deviceConditions checks conditions and their number, which Kubernetes asks about first or last.
func (c *check) deviceConditions(conditions []metav1.Condition, most int, at *field.Path, numberFirst bool) {
	errs := metavalidation.ValidateConditions(conditions, at)
	if len(conditions) > most {
		place := len(errs)
		if numberFirst {
			place = 0
		}
		errs = slices.Insert(errs, place, field.TooMany(at, len(conditions), most))
	}
	c.add(errs...)
}

func (c *check) poolName(name string, at *field.Path) {
	if !c.required(at, name) {
		return
	}
	if len(name) > resourcev1.PoolNameMaxLength {
		c.add(field.TooLong(at, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		c.subdomain(at, part)
	}
}

func (c *check) bindingConditions(conditions, failures []string, of *field.Path) {
	bindings, failing := of.Child("bindingConditions"), of.Child("bindingFailureConditions")
	labels := func(list []string, most int, at *field.Path) {
		eachOf(list, most, at, func(name *string, at *field.Path) { c.add(metavalidation.ValidateLabelName(*name, at)...) })
	}
	labels(conditions, resourcev1.BindingConditionsMaxSize, bindings)
	labels(failures, resourcev1.BindingFailureConditionsMaxSize, failing)
	binds, fails := earlier[string]{}, earlier[string]{}
	for i, name := range conditions {
		if binds.had(name) {
			c.add(field.Duplicate(bindings.Index(i), name))
		}
	}
	for i, name := range failures {
		if fails.had(name) {
			c.add(field.Duplicate(failing.Index(i), name))
		}
		if binds[name] {
			c.add(field.Invalid(failing.Index(i), name, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	if len(conditions) == 0 && len(failures) > 0 {
		c.add(field.Invalid(bindings, conditions, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(failures) == 0 && len(conditions) > 0 {
		c.add(field.Invalid(failing, failures, "bindingFailureConditions are required to use bindingConditions"))
	}
}

func validateDeviceClass(class, old *resourcev1.DeviceClass) field.ErrorList {
	c, at := &check{}, field.NewPath("spec")
	if old == nil || !equality.Semantic.DeepEqual(class.Spec.Selectors, old.Spec.Selectors) {
		c.deviceSelectors(class.Spec.Selectors, at.Child("selectors"))
	}
	eachOf(class.Spec.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"), func(d *resourcev1.DeviceClassConfiguration, at *field.Path) {
		c.deviceConfig(&d.DeviceConfiguration, old != nil && equality.Semantic.DeepEqual(class.Spec.Config, old.Spec.Config), at)
	})
	c.declareDeviceClass(&class.Spec, &orEmpty(old).Spec, at)
	return c.all()
}

func warnResourceSlice(s, _ *resourcev1.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
}

func validateResourceSlice(slice, old *resourcev1.ResourceSlice) field.ErrorList {
	c, at, s := &check{}, field.NewPath("spec"), &slice.Spec
	c.driverName(at.Child("driver"), s.Driver)
	pool := at.Child("pool")
	c.poolName(s.Pool.Name, pool.Child("name"))
	if s.Pool.ResourceSliceCount <= 0 {
		c.add(field.Invalid(pool.Child("resourceSliceCount"), s.Pool.ResourceSliceCount, "must be greater than zero"))
	}
	if s.Pool.Generation < 0 {
		c.add(field.Invalid(pool.Child("generation"), s.Pool.Generation, "must be greater than or equal to zero"))
	}
	if old != nil {
		c.immutable(pool.Child("name"), s.Pool.Name, old.Spec.Pool.Name)
		c.immutable(at.Child("driver"), s.Driver, old.Spec.Driver)
		c.immutable(at.Child("nodeName"), s.NodeName, old.Spec.NodeName)
	}
	c.sliceNodes(s, at)
	if s.SharedCounters != nil && s.Devices != nil {
		c.add(field.Invalid(at, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	c.sliceDevices(s, old, at.Child("devices"))
	eachOf(s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, at.Child("sharedCounters"), func(s *resourcev1.CounterSet, at *field.Path) {
		c.counters(s.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, at)
	})
	c.declareSlice(s, &orEmpty(old).Spec, at)
	return c.all()
}

// chosen wants one of several ways to say where devices are. set are those that were used, choices all of them.
func (c *check) chosen(set []string, at *field.Path, none, several string) {
	switch len(set) {
	case 0:
		c.add(field.Required(at, none))
	case 1:
	default:
		c.add(field.Invalid(at, "{"+strings.Join(set, ", ")+"}", several))
	}
}

// made tells whether a choice was made, which is true or absent.
func (c *check) made(choice *bool, at *field.Path) bool {
	if choice != nil && !*choice {
		c.add(field.Invalid(at, false, "must be either unset or set to true"))
	}
	return isTrue(choice)
}

func (c *check) sliceNodes(s *resourcev1.ResourceSliceSpec, at *field.Path) {
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	var set []string
	if s.NodeName != nil {
		if *s.NodeName == "" {
			c.add(field.Invalid(at.Child("nodeName"), "", "must be either unset or set to a non-empty string"))
		} else {
			set = append(set, "`nodeName`")
			c.subdomain(at.Child("nodeName"), *s.NodeName)
		}
	}
	if s.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		c.nodeSelector(s.NodeSelector, at.Child("nodeSelector"))
		if terms := s.NodeSelector.NodeSelectorTerms; len(terms) != 1 {
			c.add(field.Invalid(at.Child("nodeSelector", "nodeSelectorTerms"), untagged{terms}, "must have exactly one node selector term"))
		}
	}
	if c.made(s.AllNodes, at.Child("allNodes")) {
		set = append(set, "`allNodes`")
	}
	if c.made(s.PerDeviceNodeSelection, at.Child("perDeviceNodeSelection")) {
		set = append(set, "`perDeviceNodeSelection`")
	}
	c.chosen(set, at, one, one+", but multiple fields are set")
}

func (c *check) sliceDevices(s *resourcev1.ResourceSliceSpec, old *resourcev1.ResourceSlice, at *field.Path) {
	most := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(s.Devices, func(d resourcev1.Device) bool { return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 }) {
		most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	if len(s.Devices) > most {
		c.add(field.TooMany(at, len(s.Devices), most))
		return
	}
	before := map[string]*resourcev1.Device{}
	if old != nil {
		for i := range old.Spec.Devices {
			before[old.Spec.Devices[i].Name] = &old.Spec.Devices[i]
		}
	}
	for i := range s.Devices {
		c.device(&s.Devices[i], before[s.Devices[i].Name], isTrue(s.PerDeviceNodeSelection), at.Index(i))
	}
	seen := sets.New[string]()
	for i, d := range s.Devices {
		if seen.Has(d.Name) {
			c.add(field.Duplicate(at.Index(i), d.Name))
		}
		seen.Insert(d.Name)
	}
}

func (c *check) device(d, old *resourcev1.Device, choosesNodes bool, at *field.Path) {
	c.label(at.Child("name"), d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		c.add(field.Invalid(at, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	if n := len(d.Attributes); n > resourcev1.ResourceSliceMaxAttributeValuesPerDevice {
		c.add(field.Invalid(at, n, fmt.Sprintf("the total number of attribute values must not exceed %d", resourcev1.ResourceSliceMaxAttributeValuesPerDevice)))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		c.attributeName(string(name), at.Child("attributes"))
		c.attribute(d.Attributes[name], at.Child("attributes").Key(shortKey(string(name))))
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
			c.attributeName(string(name), at.Child("capacity"))
			capacity := d.Capacity[name]
			if capacity.RequestPolicy == nil {
				continue
			}
			policy := at.Child("capacity").Key(shortKey(string(name))).Child("requestPolicy")
			if isTrue(d.AllowMultipleAllocations) {
				c.capacityPolicy(capacity.Value, capacity.RequestPolicy, policy)
			} else {
				c.add(field.Forbidden(policy, "allowMultipleAllocations must be true"))
			}
		}
	}
	if taints := at.Child("taints"); old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		if len(d.Taints) > resourcev1.DeviceTaintsMaxLength {
			c.add(field.TooMany(taints, len(d.Taints), resourcev1.DeviceTaintsMaxLength))
		}
		eachOf(d.Taints, resourcev1.DeviceTaintsMaxLength, taints, c.deviceTaint)
	}
	eachOf(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, at.Child("consumesCounters"), func(u *resourcev1.DeviceCounterConsumption, at *field.Path) {
		c.counters(u.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, at)
	})
	c.deviceNodes(d, choosesNodes, at)
	c.bindingConditions(d.BindingConditions, d.BindingFailureConditions, at)
}

func (c *check) counters(counters map[string]resourcev1.Counter, most int, of *field.Path) {
	if len(counters) > most {
		c.add(field.TooMany(of.Child("counters"), len(counters), most))
	}
}

func (c *check) deviceNodes(d *resourcev1.Device, chooses bool, at *field.Path) {
	const per = "if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	if !chooses {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			c.add(field.Invalid(at, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set "+per))
		}
		return
	}
	var set []string
	if d.NodeName != nil {
		if *d.NodeName == "" {
			c.add(field.Invalid(at.Child("nodeName"), "", "must not be empty"))
		} else {
			set = append(set, "`nodeName`")
			c.subdomain(at.Child("nodeName"), *d.NodeName)
		}
	}
	if d.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		c.nodeSelector(d.NodeSelector, at.Child("nodeSelector"))
	}
	if c.made(d.AllNodes, at.Child("allNodes")) {
		set = append(set, "`allNodes`")
	}
	c.chosen(set, at, one, one)
}

// shortKey is a key as paths have it: what is too long is left out in its middle.
func shortKey(key string) string {
	const dots = "..."
	if len(key) <= maxAttributeKey {
		return key
	}
	rest := maxAttributeKey - len(dots)
	return key[:(rest+1)/2] + dots + key[len(key)-rest/2:]
}

func (c *check) attributeName(name string, at *field.Path) {
	identifier := func(id string) {
		if len(id) > resourcev1.DeviceMaxIDLength {
			c.add(field.TooLong(at, "", resourcev1.DeviceMaxIDLength))
		}
		c.texts(at, id, content.IsCIdentifier(id))
	}
	switch parts := strings.Split(name, "/"); len(parts) {
	case 1:
		identifier(name)
	case 2:
		if parts[0] == "" {
			c.add(field.Invalid(at, "", "the domain must not be empty"))
		} else {
			c.driverName(at, parts[0])
		}
		if parts[1] == "" {
			c.add(field.Invalid(at, "", "the name must not be empty"))
		} else {
			identifier(parts[1])
		}
	}
}

// versions are those of semver.org.
var versions = regexp.MustCompile(`^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][\da-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][\da-zA-Z-]*))*)?` +
	`(\+[\da-zA-Z-]+(\.[\da-zA-Z-]+)*)?$`)

func (c *check) attribute(a resourcev1.DeviceAttribute, at *field.Path) {
	const most = resourcev1.DeviceAttributeMaxValueLength
	if s := a.StringValue; s != nil && len(*s) > most {
		c.add(field.TooLong(at.Child("string"), "", most))
	}
	if v := a.VersionValue; v != nil {
		if !versions.MatchString(*v) {
			c.add(field.Invalid(at.Child("version"), *v, "must be a string compatible with semver.org spec 2.0.0"))
		}
		if len(*v) > most {
			c.add(field.TooLong(at.Child("version"), "", most))
		}
	}
}

// capacityPolicy checks how much of a capacity can be asked for.
func (c *check) capacityPolicy(most resource.Quantity, p *resourcev1.CapacityRequestPolicy, at *field.Path) {
	values, within := len(p.ValidValues) > 0, p.ValidRange != nil
	switch {
	case values && within:
		c.add(field.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`))
	case p.Default == nil && values:
		c.add(field.Required(at.Child("default"), "required when validValues is defined"))
	case p.Default == nil && within:
		c.add(field.Required(at.Child("default"), "required when validRange is defined"))
	case values:
		c.capacityValues(*p.Default, most, p.ValidValues, at.Child("validValues"))
	case within:
		c.capacityRange(*p.Default, most, p.ValidRange, at.Child("validRange"))
	}
}

func (c *check) capacityValues(otherwise, most resource.Quantity, values []resource.Quantity, at *field.Path) {
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			c.add(field.Invalid(at.Index(i), values[i].String(), "values must be sorted in ascending order"))
		}
	}
	if len(values) > maxCapacityValues {
		c.add(field.TooMany(at, len(values), maxCapacityValues))
		c.add(field.Invalid(at, otherwise.String(), "default value is not valid according to the requestPolicy"))
		return
	}
	known, seen := false, sets.New[int64]()
	for i, v := range values {
		if v.Cmp(most) > 0 {
			c.add(field.Invalid(at.Index(i), v.String(), "option is larger than capacity value: "+most.String()))
		}
		known = known || v.Cmp(otherwise) == 0
	}
	for i, v := range values {
		if seen.Has(v.Value()) {
			c.add(field.Duplicate(at.Index(i), fmt.Sprint(v.Value())))
		}
		seen.Insert(v.Value())
	}
	if !known {
		c.add(field.Invalid(at, otherwise.String(), "default value is not valid according to the requestPolicy"))
	}
}

func (c *check) capacityRange(otherwise, most resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, at *field.Path) {
	if r.Min == nil {
		c.add(field.Required(at.Child("min"), "required when validRange is defined"))
		return
	}
	wrong := func(name string, is resource.Quantity, text string, than resource.Quantity) {
		c.add(field.Invalid(at.Child(name), is.String(), text+": "+than.String()))
	}
	if r.Min.Cmp(most) > 0 {
		wrong("min", *r.Min, "min is larger than capacity value", most)
	}
	if otherwise.Cmp(*r.Min) < 0 {
		wrong("default", otherwise, "default is less than min", *r.Min)
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			wrong("max", *r.Min, "min is larger than max", *r.Max)
		}
		if r.Max.Cmp(most) > 0 {
			wrong("max", *r.Max, "max is larger than capacity value", most)
		}
		if otherwise.Cmp(*r.Max) > 0 {
			wrong("default", otherwise, "default is more than max", *r.Max)
		}
	}
	if r.Step == nil {
		return
	}
	if r.Step.Sign() <= 0 {
		c.add(field.Invalid(at.Child("step"), r.Step.String(), "must be greater than zero"))
		return
	}
	next := r.Min.DeepCopy()
	next.Add(*r.Step)
	if next.Cmp(most) > 0 {
		c.add(field.Invalid(at.Child("step"), r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", next.String(), most.String())))
	}
	c.capacitySteps(otherwise, r, at)
}

// capacitySteps wants what can be asked for to be some steps from the least. Steps are counted in int64.
func (c *check) capacitySteps(otherwise resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, at *field.Path) {
	fits := true
	for _, q := range []struct {
		value *resource.Quantity
		name  string
	}{{&otherwise, "default"}, {r.Min, "min"}, {r.Max, "max"}, {r.Step, "step"}} {
		switch {
		case q.value == nil:
			continue
		case q.value.Sign() < 0:
			c.add(field.Invalid(at.Child(q.name), q.value.String(), "must be greater than or equal to 0"))
		case q.value.CmpInt64(math.MaxInt64) > 0:
			c.add(field.Invalid(at.Child(q.name), q.value.String(), fmt.Sprintf("must not be larger than %d", math.MaxInt64)))
		default:
			continue
		}
		fits = false
	}
	if !fits {
		return
	}
	for _, q := range []*resource.Quantity{&otherwise, r.Max} {
		if q != nil && (q.Value()-r.Min.Value())%r.Step.Value() != 0 {
			c.add(field.Invalid(at.Child("step"), q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
}

func (c *check) deviceTaint(t *resourcev1.DeviceTaint, at *field.Path) {
	c.add(metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
	if t.Value != "" {
		c.texts(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))
	}
}

func validateTaintRule(r, old *resourcev1.DeviceTaintRule) field.ErrorList {
	c, at := &check{}, field.NewPath("spec")
	if s, at := r.Spec.DeviceSelector, at.Child("deviceSelector"); s != nil {
		if s.Driver != nil {
			c.driverName(at.Child("driver"), *s.Driver)
		}
		if s.Pool != nil {
			c.poolName(*s.Pool, at.Child("pool"))
		}
		if s.Device != nil {
			c.label(at.Child("device"), *s.Device)
		}
	}
	c.deviceTaint(&r.Spec.Taint, at.Child("taint"))
	if old == nil || old.Spec.Taint.Effect != r.Spec.Taint.Effect {
		c.declareEffect(r.Spec.Taint.Effect, true, at.Child("taint", "effect"))
	}
	return c.all()
}

func validateTaintRuleStatus(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	c := &check{}
	c.deviceConditions(r.Status.Conditions, resourcev1.DeviceTaintRuleStatusMaxConditions, field.NewPath("status", "conditions"), false)
	return c.errs
}
