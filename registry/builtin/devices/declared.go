package devices

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// What Kubernetes declares of the group resource.k8s.io, member by member, by the functions that its declarations name. A member that is as it
// was isn't looked at: so what is stored stays allowed. In lists whose items have keys that's so of each item, and in others of the whole list.

func bytesAtMost[T ~string](most int) rules.Declaration[*T] {
	return func(ctx context.Context, op operation.Operation, at *field.Path, value, old *T) field.ErrorList {
		return validate.MaxBytes(ctx, op, at, value, old, most)
	}
}

func enum[T ~string](known ...T) rules.Declaration[*T] {
	return func(ctx context.Context, op operation.Operation, at *field.Path, value, old *T) field.ErrorList {
		return validate.Enum(ctx, op, at, value, old, sets.New(known...), nil)
	}
}

// asSent is a value that a declaration quotes: declarations are of a version, whose members have their names in JSON.
type asSent struct{ value any }

func (s asSent) MarshalJSON() ([]byte, error) { return json.Marshal(s.value) }

// items asks about the number of a list's items, unless key is nil whether there are two of one, and fn about each, unless that is nil.
// fn gets what an item with its key was, or an empty one.
func items[T any](c rules.Collector, list, was []T, most int, at *field.Path, key func(item *T) any, fn func(item, was *T, at *field.Path)) {
	if equality.Semantic.DeepEqual(list, was) {
		return
	}
	if len(list) > most {
		c.Declare(field.TooMany(at, len(list), most))
		return
	}
	seen := sets.New[any]()
	for i := range list {
		if key == nil {
			break
		}
		of := key(&list[i])
		if seen.Has(of) {
			c.Declare(field.Duplicate(at.Index(i), quoted(list[i])))
		}
		seen.Insert(of)
	}
	if fn == nil {
		return
	}
	eachOf(list, most, at, func(item *T, at *field.Path) {
		i := -1
		if key != nil {
			i = slices.IndexFunc(was, func(old T) bool { return key(&old) == key(item) })
		}
		switch {
		case i < 0:
			fn(item, new(T), at)
		case !equality.Semantic.DeepEqual(*item, was[i]):
			fn(item, &was[i], at)
		}
	})
}

func quoted(value any) any {
	if text, ok := value.(string); ok {
		return text
	}
	return asSent{value}
}

// itself is the key of a text.
func itself(text *string) any { return *text }

var (
	taintEffects = enum(resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute)
	deviceModes  = enum(resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)
	operators    = enum(resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)
	sources      = enum(resourcev1.AllocationConfigSourceClass, resourcev1.AllocationConfigSourceClaim)
)

func (c *check) declareDevices(d, was *resourcev1.DeviceClaim, at *field.Path) {
	items(c, d.Requests, was.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), func(r *resourcev1.DeviceRequest) any { return r.Name }, c.declareRequest)
	items(c, d.Constraints, was.Constraints, resourcev1.DeviceConstraintsMaxSize, at.Child("constraints"), nil, func(d, was *resourcev1.DeviceConstraint, at *field.Path) {
		items(c, d.Requests, was.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), itself, nil)
		rules.Given(c, at.Child("matchAttribute"), d.MatchAttribute, was.MatchAttribute, validate.ResourceFullyQualifiedName)
		rules.Given(c, at.Child("distinctAttribute"), d.DistinctAttribute, was.DistinctAttribute, validate.ResourceFullyQualifiedName)
	})
	items(c, d.Config, was.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"), nil, func(d, was *resourcev1.DeviceClaimConfiguration, at *field.Path) {
		items(c, d.Requests, was.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), itself, nil)
		c.declareConfig(&d.DeviceConfiguration, at)
	})
}

func (c *check) declareRequest(r, was *resourcev1.DeviceRequest, at *field.Path) {
	if e, was, at := r.Exactly, rules.OrEmpty(was.Exactly), at.Child("exactly"); e != nil {
		items(c, e.Selectors, was.Selectors, resourcev1.DeviceSelectorsMaxSize, at.Child("selectors"), nil, nil)
		c.declareMode(e.AllocationMode, was.AllocationMode, at)
		c.declareTolerations(e.Tolerations, was.Tolerations, at)
	}
	key := func(item *resourcev1.DeviceSubRequest) any { return item.Name }
	items(c, r.FirstAvailable, was.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, at.Child("firstAvailable"), key, func(r, was *resourcev1.DeviceSubRequest, at *field.Path) {
		rules.Needed(c, at.Child("deviceClassName"), r.DeviceClassName, was.DeviceClassName, validate.LongName)
		items(c, r.Selectors, was.Selectors, resourcev1.DeviceSelectorsMaxSize, at.Child("selectors"), nil, nil)
		c.declareMode(r.AllocationMode, was.AllocationMode, at)
		c.declareTolerations(r.Tolerations, was.Tolerations, at)
	})
}

func (c *check) declareMode(mode, was resourcev1.DeviceAllocationMode, of *field.Path) {
	if mode != "" && mode != was {
		rules.Declared(c, of.Child("allocationMode"), &mode, deviceModes)
	}
}

func (c *check) declareTolerations(tolerations, was []resourcev1.DeviceToleration, of *field.Path) {
	items(c, tolerations, was, len(tolerations), of.Child("tolerations"), nil, func(t, _ *resourcev1.DeviceToleration, at *field.Path) {
		if t.Key != "" {
			rules.Declared(c, at.Child("key"), &t.Key, validate.LabelKey)
		}
		rules.Needed(c, at.Child("operator"), t.Operator, "", operators)
		c.declareEffect(t.Effect, false, at.Child("effect"))
	})
}

func (c *check) declareEffect(effect resourcev1.DeviceTaintEffect, must bool, at *field.Path) {
	if must || effect != "" {
		rules.Needed(c, at, effect, "", taintEffects)
	}
}

func (c *check) declareConfig(d *resourcev1.DeviceConfiguration, at *field.Path) {
	if d.Opaque != nil {
		//lint:ignore SA1019 kube-apiserver takes such names of drivers
		rules.Needed(c, at.Child("opaque", "driver"), d.Opaque.Driver, "", validate.LongNameCaseless, rules.AtMost[string](resourcev1.DriverNameMaxLength))
	}
}

func (c *check) declareDeviceClass(s, was *resourcev1.DeviceClassSpec, at *field.Path) {
	items(c, s.Selectors, was.Selectors, resourcev1.DeviceSelectorsMaxSize, at.Child("selectors"), nil, nil)
	items(c, s.Config, was.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"), nil, func(d, _ *resourcev1.DeviceClassConfiguration, at *field.Path) {
		c.declareConfig(&d.DeviceConfiguration, at)
	})
	rules.Given(c, at.Child("extendedResourceName"), s.ExtendedResourceName, was.ExtendedResourceName, validate.ExtendedResourceName)
}

func (c *check) declareClaimStatus(s, old *resourcev1.ResourceClaimStatus, at *field.Path) {
	allocation := at.Child("allocation")
	switch {
	case s.Allocation != nil && old.Allocation == nil:
		c.declareAllocation(&s.Allocation.Devices, allocation.Child("devices"))
	case s.Allocation != nil && !equality.Semantic.DeepEqual(s.Allocation, old.Allocation):
		c.Declare(field.Invalid(allocation, nil, "field cannot be modified once set"))
	}
	items(c, s.ReservedFor, old.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, at.Child("reservedFor"),
		func(r *resourcev1.ResourceClaimConsumerReference) any { return r.UID }, nil)
	key := func(d *resourcev1.AllocatedDeviceStatus) any { return idOf(*d) }
	items(c, s.Devices, old.Devices, len(s.Devices), at.Child("devices"), key, func(d, was *resourcev1.AllocatedDeviceStatus, at *field.Path) {
		rules.Given(c, at.Child("shareID"), d.ShareID, was.ShareID, validate.UUID)
		if n, was, at := d.NetworkData, rules.OrEmpty(was.NetworkData), at.Child("networkData"); n != nil {
			rules.Given(c, at.Child("interfaceName"), &n.InterfaceName, &was.InterfaceName, bytesAtMost[string](resourcev1.NetworkDeviceDataInterfaceNameMaxLength))
			items(c, n.IPs, was.IPs, resourcev1.NetworkDeviceDataMaxIPs, at.Child("ips"), itself, nil)
			rules.Given(c, at.Child("hardwareAddress"), &n.HardwareAddress, &was.HardwareAddress, bytesAtMost[string](resourcev1.NetworkDeviceDataHardwareAddressMaxLength))
		}
	})
}

func (c *check) declareAllocation(a *resourcev1.DeviceAllocationResult, at *field.Path) {
	items(c, a.Results, nil, resourcev1.AllocationResultsMaxSize, at.Child("results"), nil, func(r, _ *resourcev1.DeviceRequestAllocationResult, at *field.Path) {
		//lint:ignore SA1019 kube-apiserver takes such names of drivers
		rules.Needed(c, at.Child("driver"), r.Driver, "", validate.LongNameCaseless, rules.AtMost[string](resourcev1.DriverNameMaxLength))
		rules.Needed(c, at.Child("pool"), r.Pool, "", validate.ResourcePoolName)
		c.declareTolerations(r.Tolerations, nil, at)
		c.declareBinding(r.BindingConditions, r.BindingFailureConditions, at)
		rules.Given(c, at.Child("shareID"), r.ShareID, nil, validate.UUID[types.UID])
	})
	items(c, a.Config, nil, 2*resourcev1.DeviceConfigMaxSize, at.Child("config"), nil, func(d, _ *resourcev1.DeviceAllocationConfiguration, at *field.Path) {
		rules.Needed(c, at.Child("source"), d.Source, "", sources)
		items(c, d.Requests, nil, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), itself, nil)
		c.declareConfig(&d.DeviceConfiguration, at)
	})
}

func (c *check) declareBinding(conditions, failures []string, of *field.Path) {
	items(c, conditions, nil, resourcev1.BindingConditionsMaxSize, of.Child("bindingConditions"), nil, nil)
	items(c, failures, nil, resourcev1.BindingFailureConditionsMaxSize, of.Child("bindingFailureConditions"), nil, nil)
}

// attributeKinds are the members of an attribute of which it has one.
var attributeKinds = validate.NewUnionMembership(validate.NewUnionMember("int"), validate.NewUnionMember("bool"), validate.NewUnionMember("string"),
	validate.NewUnionMember("version"), validate.NewUnionMember("ints"), validate.NewUnionMember("bools"), validate.NewUnionMember("strings"), validate.NewUnionMember("versions"))

func (c *check) declareSlice(s, was *resourcev1.ResourceSliceSpec, at *field.Path) {
	items(c, s.Devices, was.Devices, len(s.Devices), at.Child("devices"), nil, func(d, _ *resourcev1.Device, at *field.Path) { c.declareDevice(d, at) })
	key := func(item *resourcev1.CounterSet) any { return item.Name }
	items(c, s.SharedCounters, was.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, at.Child("sharedCounters"), key, func(s, was *resourcev1.CounterSet, at *field.Path) {
		rules.Needed(c, at.Child("name"), s.Name, was.Name, validate.ShortName)
		c.declareCounters(s.Counters, was.Counters, at.Child("counters"))
	})
}

func (c *check) declareDevice(d *resourcev1.Device, at *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		a := d.Attributes[name]
		is := func(set bool) validate.ExtractorFn[*resourcev1.DeviceAttribute, bool] {
			return func(a *resourcev1.DeviceAttribute) bool { return a != nil && set }
		}
		c.Declare(validate.Union(context.Background(), operation.Operation{}, at.Child("attributes").Key(string(name)), &a, nil, attributeKinds,
			is(a.IntValue != nil), is(a.BoolValue != nil), is(a.StringValue != nil), is(a.VersionValue != nil),
			is(len(a.IntValues) > 0), is(len(a.BoolValues) > 0), is(len(a.StringValues) > 0), is(len(a.VersionValues) > 0))...)
	}
	key := func(item *resourcev1.DeviceCounterConsumption) any { return item.CounterSet }
	items(c, d.ConsumesCounters, nil, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, at.Child("consumesCounters"), key,
		func(u, _ *resourcev1.DeviceCounterConsumption, at *field.Path) {
			rules.Needed(c, at.Child("counterSet"), u.CounterSet, "", validate.ShortName)
			c.declareCounters(u.Counters, nil, at.Child("counters"))
		})
	for i, t := range d.Taints {
		c.declareEffect(t.Effect, true, at.Child("taints").Index(i).Child("effect"))
	}
	c.declareBinding(d.BindingConditions, d.BindingFailureConditions, at)
}

func (c *check) declareCounters(counters, was map[string]resourcev1.Counter, at *field.Path) {
	if len(counters) == 0 {
		c.Declare(field.Required(at, ""))
	}
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if _, had := was[name]; !had {
			rules.Declared(c, at, &name, validate.ShortName)
		}
	}
}
