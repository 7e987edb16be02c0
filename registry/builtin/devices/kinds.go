// Package devices has the group resource.k8s.io: ResourceClaims and what they choose from. Kubernetes has its rules in two halves, which say of many mistakes
// both: functions (claims.go, slices.go), and declarations at its types (declared.go), which come last.
package devices

import (
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

const resourceGroup = "resource.k8s.io"

// Kinds are the lines of the table.
func Kinds(r *registry.Registry, may asker, c *clock.Clock) []registry.Type {
	o, t := judge{r, may}, tainter{c}
	return []registry.Type{
		{Names: line.Names(resourceGroup, "v1", "ResourceClaim"), New: line.New[resourcev1.ResourceClaim], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, NoStatusTable: true},
			Columns:  resourceClaimColumns, Default: line.Set(defaultResourceClaim), Prepare: line.Prepare(prepareResourceClaim), Validate: o.validateResourceClaim},
		{Names: line.Names(resourceGroup, "v1", "ResourceClaimTemplate"), New: line.New[resourcev1.ResourceClaimTemplate], Columns: column.TextAge, Default: line.Set(defaultResourceClaimTemplate),
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true},
			Prepare:  line.Prepare(prepareClaimTemplate), Validate: o.validateClaimTemplate},
		{Names: line.Names(resourceGroup, "v1", "ResourceSlice"), New: line.New[resourcev1.ResourceSlice], ClusterScoped: true,
			Strategy:  registry.Strategy{UnconditionalUpdate: true, ReturnDeleted: true, Generation: line.Counted(changesResourceSlice)},
			Selection: registry.Selection{Fields: []string{"spec.nodeName", "spec.driver", "spec.pool.name"}, Unknown: "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %s"}, Columns: resourceSliceColumns, Default: line.Set(t.defaultResourceSlice),
			Prepare: line.Prepare(prepareSlice), Validate: line.Rules(validateResourceSlice), Warnings: line.Warnings(warnResourceSlice)},
		{Names: line.Names(resourceGroup, "v1", "DeviceClass"), New: line.New[resourcev1.DeviceClass], ClusterScoped: true, Columns: column.TextAge, ValidName: rules.LongName,
			Strategy: registry.Strategy{UnconditionalUpdate: true, ReturnDeleted: true}, Validate: line.Rules(validateDeviceClass)},
		{Names: line.Names(resourceGroup, "v1", "DeviceTaintRule"), New: line.New[resourcev1.DeviceTaintRule], ClusterScoped: true, Status: true, Columns: taintRuleColumns, Default: line.Set(t.defaultTaintRule),
			Prepare: line.Prepare(t.prepareTaintRule), Validate: line.Parts(validateTaintRule, validateTaintRuleStatus),
			Stored: registry.Stored{In: "v1beta2"}, Strategy: registry.Strategy{NoStatusTable: true}},
	}
}

func defaultResourceClaim(c *resourcev1.ResourceClaim) {
	defaultDevices(&c.Spec.Devices)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			defaultTolerations(a.Devices.Results[i].Tolerations)
		}
	}
}

func defaultResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) {
	defaultDevices(&t.Spec.Spec.Devices)
}

// defaultDevices asks for one device where a request says nothing else.
func defaultDevices(d *resourcev1.DeviceClaim) {
	one := func(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
		line.OrDefault(mode, resourcev1.DeviceAllocationModeExactCount)
		if *mode == resourcev1.DeviceAllocationModeExactCount {
			line.OrDefault(count, 1)
		}
		defaultTolerations(tolerations)
	}
	for i := range d.Requests {
		r := &d.Requests[i]
		if e := r.Exactly; e != nil {
			one(&e.AllocationMode, &e.Count, e.Tolerations)
		}
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			one(&s.AllocationMode, &s.Count, s.Tolerations)
		}
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		line.OrDefault(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

// tainter says when something was tainted.
type tainter struct{ clock *clock.Clock }

// defaultResourceSlice says when devices were tainted.
func (by tainter) defaultResourceSlice(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		for j := range d.Taints {
			by.defaultTaint(&d.Taints[j].TimeAdded)
		}
	}
}

func (by tainter) defaultTaintRule(r *resourcev1.DeviceTaintRule) {
	by.defaultTaint(&r.Spec.Taint.TimeAdded)
}

func (by tainter) defaultTaint(added **metav1.Time) {
	line.OrPointTo(added, metav1.NewTime(by.clock.Now().Truncate(time.Second)))
}

// taintRuleColumns show the taint. Which devices a rule is about may be long, and its name may tell.
func taintRuleColumns() []registry.Column {
	doc := resourcev1.DeviceTaint{}.SwaggerDoc()
	return []registry.Column{
		column.Text("Key", "spec.taint.key", doc["key"]),
		column.Text("Value", "spec.taint.value", doc["value"]),
		column.Text("Effect", "spec.taint.effect", doc["effect"]),
		column.Cell("TimeAdded", doc["timeAdded"], func(o any) any { return column.Elapsed(column.At(o, "spec.taint.timeAdded")) }),
		column.Age(),
	}
}

func resourceClaimColumns() []registry.Column {
	return []registry.Column{
		column.Cell("State", "A summary of the current state (allocated, pending, reserved, etc.).", func(o any) any {
			var states []string
			if column.At(o, "metadata.deletionTimestamp") != nil {
				states = append(states, "deleted")
			}
			switch {
			case column.At(o, "status.allocation") == nil && len(states) == 0:
				states = append(states, "pending")
			case column.At(o, "status.allocation") != nil:
				states = append(states, "allocated")
				if len(column.AsList(column.At(o, "status.reservedFor"))) > 0 {
					states = append(states, "reserved")
				}
			}
			return strings.Join(states, ",")
		}),
		column.Age(),
	}
}

func resourceSliceColumns() []registry.Column {
	doc := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	return []registry.Column{
		column.Text("Node", "spec.nodeName", doc["nodeName"]),
		column.Text("Driver", "spec.driver", doc["driver"]),
		column.Text("Pool", "spec.pool.name", resourcev1.ResourcePool{}.SwaggerDoc()["name"]),
		column.Age(),
	}
}
