package devices

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules of DeviceClasses, ResourceSlices and DeviceTaintRules.

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

// changesResourceSlice goes by what is asked for, also what is dropped then.
func changesResourceSlice(s, old *resourcev1.ResourceSlice) bool {
	return !equality.Semantic.DeepEqual(s.Spec, old.Spec)
}

// prepareTaintRule dates a taint anew whose effect has changed.
func (by tainter) prepareTaintRule(r, old *resourcev1.DeviceTaintRule, subresource string) {
	if old == nil || subresource != "" {
		return
	}
	is, was := &r.Spec.Taint, &old.Spec.Taint
	if is.Effect != was.Effect && is.TimeAdded.Equal(was.TimeAdded) {
		is.TimeAdded = new(metav1.NewTime(by.clock.Now()).Rfc3339Copy())
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
	c.declareDeviceClass(&class.Spec, &rules.OrEmpty(old).Spec, at)
	return c.All()
}

func warnResourceSlice(s, _ *resourcev1.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
}

func validateResourceSlice(slice, old *resourcev1.ResourceSlice) field.ErrorList {
	c, at, s := &check{}, field.NewPath("spec"), &slice.Spec
	c.DriverName(at.Child("driver"), s.Driver)
	pool := at.Child("pool")
	c.poolName(s.Pool.Name, pool.Child("name"))
	c.Refuse(s.Pool.ResourceSliceCount <= 0, pool.Child("resourceSliceCount"), s.Pool.ResourceSliceCount, "must be greater than zero")
	c.Refuse(s.Pool.Generation < 0, pool.Child("generation"), s.Pool.Generation, "must be greater than or equal to zero")
	if old != nil {
		c.Immutable(pool.Child("name"), s.Pool.Name, old.Spec.Pool.Name)
		c.Immutable(at.Child("driver"), s.Driver, old.Spec.Driver)
		c.Immutable(at.Child("nodeName"), s.NodeName, old.Spec.NodeName)
	}
	c.sliceNodes(s, at)
	c.Refuse(s.SharedCounters != nil && s.Devices != nil, at, "", "only one of `sharedCounters` or `devices` is allowed")
	c.sliceDevices(s, old, at.Child("devices"))
	eachOf(s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, at.Child("sharedCounters"), func(s *resourcev1.CounterSet, at *field.Path) {
		c.counters(s.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, at)
	})
	c.declareSlice(s, &rules.OrEmpty(old).Spec, at)
	return c.All()
}

// chosen wants one of several ways to say where devices are. set are those that were used, choices all of them.
func (c *check) chosen(set []string, at *field.Path, none, several string) {
	switch len(set) {
	case 0:
		c.Add(field.Required(at, none))
	case 1:
	default:
		c.Add(field.Invalid(at, "{"+strings.Join(set, ", ")+"}", several))
	}
}

// made tells whether a choice was made, which is true or absent.
func (c *check) made(choice *bool, at *field.Path) bool {
	c.Refuse(choice != nil && !*choice, at, false, "must be either unset or set to true")
	return ptr.Deref(choice, false)
}

// namedNode checks the name of a node, if there is one, and returns it as a choice. empty is said of one that has no characters.
func (c *check) namedNode(name *string, at *field.Path, empty string) (set []string) {
	switch {
	case name == nil:
	case *name == "":
		c.Add(field.Invalid(at, "", empty))
	default:
		set = append(set, "`nodeName`")
		c.Subdomain(at, *name)
	}
	return set
}

func (c *check) sliceNodes(s *resourcev1.ResourceSliceSpec, at *field.Path) {
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	set := c.namedNode(s.NodeName, at.Child("nodeName"), "must be either unset or set to a non-empty string")
	if s.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		c.NodeSelector(s.NodeSelector, at.Child("nodeSelector"))
		if terms := s.NodeSelector.NodeSelectorTerms; len(terms) != 1 {
			c.Add(field.Invalid(at.Child("nodeSelector", "nodeSelectorTerms"), rules.Untagged(terms), "must have exactly one node selector term"))
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
		c.Add(field.TooMany(at, len(s.Devices), most))
		return
	}
	before := map[string]*resourcev1.Device{}
	if old != nil {
		for i := range old.Spec.Devices {
			before[old.Spec.Devices[i].Name] = &old.Spec.Devices[i]
		}
	}
	for i := range s.Devices {
		c.device(&s.Devices[i], before[s.Devices[i].Name], ptr.Deref(s.PerDeviceNodeSelection, false), at.Index(i))
	}
	seen := sets.New[string]()
	for i, d := range s.Devices {
		c.Twice(seen.Has(d.Name), at.Index(i), d.Name)
		seen.Insert(d.Name)
	}
}

func (c *check) device(d, old *resourcev1.Device, choosesNodes bool, at *field.Path) {
	c.Label(at.Child("name"), d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		c.Add(field.Invalid(at, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	if n := len(d.Attributes); n > resourcev1.ResourceSliceMaxAttributeValuesPerDevice {
		c.Add(field.Invalid(at, n, fmt.Sprintf("the total number of attribute values must not exceed %d", resourcev1.ResourceSliceMaxAttributeValuesPerDevice)))
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
			if ptr.Deref(d.AllowMultipleAllocations, false) {
				c.capacityPolicy(capacity.Value, capacity.RequestPolicy, policy)
			} else {
				c.Add(field.Forbidden(policy, "allowMultipleAllocations must be true"))
			}
		}
	}
	if taints := at.Child("taints"); old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		c.NoMore(taints, len(d.Taints), resourcev1.DeviceTaintsMaxLength)
		eachOf(d.Taints, resourcev1.DeviceTaintsMaxLength, taints, c.deviceTaint)
	}
	eachOf(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, at.Child("consumesCounters"), func(u *resourcev1.DeviceCounterConsumption, at *field.Path) {
		c.counters(u.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, at)
	})
	c.deviceNodes(d, choosesNodes, at)
	c.bindingConditions(d.BindingConditions, d.BindingFailureConditions, at)
}

func (c *check) counters(counters map[string]resourcev1.Counter, most int, of *field.Path) {
	c.NoMore(of.Child("counters"), len(counters), most)
}

func (c *check) deviceNodes(d *resourcev1.Device, chooses bool, at *field.Path) {
	const per = "if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	if !chooses {
		c.Refuse(d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil, at, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set "+per)
		return
	}
	set := c.namedNode(d.NodeName, at.Child("nodeName"), "must not be empty")
	if d.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		c.NodeSelector(d.NodeSelector, at.Child("nodeSelector"))
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
		c.NoLonger(at, len(id), resourcev1.DeviceMaxIDLength)
		c.Texts(at, id, content.IsCIdentifier(id))
	}
	switch parts := strings.Split(name, "/"); len(parts) {
	case 1:
		identifier(name)
	case 2:
		if parts[0] == "" {
			c.Add(field.Invalid(at, "", "the domain must not be empty"))
		} else {
			c.DriverName(at, parts[0])
		}
		if parts[1] == "" {
			c.Add(field.Invalid(at, "", "the name must not be empty"))
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
		c.Add(field.TooLong(at.Child("string"), "", most))
	}
	if v := a.VersionValue; v != nil {
		c.Refuse(!versions.MatchString(*v), at.Child("version"), *v, "must be a string compatible with semver.org spec 2.0.0")
		c.NoLonger(at.Child("version"), len(*v), most)
	}
}

// capacityPolicy checks how much of a capacity can be asked for.
func (c *check) capacityPolicy(most resource.Quantity, p *resourcev1.CapacityRequestPolicy, at *field.Path) {
	values, within := len(p.ValidValues) > 0, p.ValidRange != nil
	switch {
	case values && within:
		c.Add(field.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`))
	case p.Default == nil && values:
		c.Add(field.Required(at.Child("default"), "required when validValues is defined"))
	case p.Default == nil && within:
		c.Add(field.Required(at.Child("default"), "required when validRange is defined"))
	case values:
		c.capacityValues(*p.Default, most, p.ValidValues, at.Child("validValues"))
	case within:
		c.capacityRange(*p.Default, most, p.ValidRange, at.Child("validRange"))
	}
}

func (c *check) capacityValues(otherwise, most resource.Quantity, values []resource.Quantity, at *field.Path) {
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			c.Add(field.Invalid(at.Index(i), values[i].String(), "values must be sorted in ascending order"))
		}
	}
	if len(values) > maxCapacityValues {
		c.Add(field.TooMany(at, len(values), maxCapacityValues))
		c.Add(field.Invalid(at, otherwise.String(), "default value is not valid according to the requestPolicy"))
		return
	}
	known, seen := false, sets.New[int64]()
	for i, v := range values {
		if v.Cmp(most) > 0 {
			c.Add(field.Invalid(at.Index(i), v.String(), "option is larger than capacity value: "+most.String()))
		}
		known = known || v.Cmp(otherwise) == 0
	}
	for i, v := range values {
		if seen.Has(v.Value()) {
			c.Add(field.Duplicate(at.Index(i), fmt.Sprint(v.Value())))
		}
		seen.Insert(v.Value())
	}
	if !known {
		c.Add(field.Invalid(at, otherwise.String(), "default value is not valid according to the requestPolicy"))
	}
}

func (c *check) capacityRange(otherwise, most resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, at *field.Path) {
	if r.Min == nil {
		c.Add(field.Required(at.Child("min"), "required when validRange is defined"))
		return
	}
	wrong := func(name string, is resource.Quantity, text string, than resource.Quantity) {
		c.Add(field.Invalid(at.Child(name), is.String(), text+": "+than.String()))
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
		c.Add(field.Invalid(at.Child("step"), r.Step.String(), "must be greater than zero"))
		return
	}
	next := r.Min.DeepCopy()
	next.Add(*r.Step)
	if next.Cmp(most) > 0 {
		c.Add(field.Invalid(at.Child("step"), r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", next.String(), most.String())))
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
			c.Add(field.Invalid(at.Child(q.name), q.value.String(), "must be greater than or equal to 0"))
		case q.value.CmpInt64(math.MaxInt64) > 0:
			c.Add(field.Invalid(at.Child(q.name), q.value.String(), fmt.Sprintf("must not be larger than %d", math.MaxInt64)))
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
			c.Add(field.Invalid(at.Child("step"), q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
}

func (c *check) deviceTaint(t *resourcev1.DeviceTaint, at *field.Path) {
	c.Add(metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
	if t.Value != "" {
		c.Texts(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))
	}
}

func validateTaintRule(r, old *resourcev1.DeviceTaintRule) field.ErrorList {
	c, at := &check{}, field.NewPath("spec")
	if s, at := r.Spec.DeviceSelector, at.Child("deviceSelector"); s != nil {
		if s.Driver != nil {
			c.DriverName(at.Child("driver"), *s.Driver)
		}
		if s.Pool != nil {
			c.poolName(*s.Pool, at.Child("pool"))
		}
		if s.Device != nil {
			c.Label(at.Child("device"), *s.Device)
		}
	}
	c.deviceTaint(&r.Spec.Taint, at.Child("taint"))
	if old == nil || old.Spec.Taint.Effect != r.Spec.Taint.Effect {
		c.declareEffect(r.Spec.Taint.Effect, true, at.Child("taint", "effect"))
	}
	return c.All()
}

func validateTaintRuleStatus(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	c := &check{}
	c.deviceConditions(r.Status.Conditions, resourcev1.DeviceTaintRuleStatusMaxConditions, field.NewPath("status", "conditions"), false)
	return c.Errs
}
