package builtin_test

import (
	"fmt"
	"reflect"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// filler fills all fields of a value, as upstream's roundtrip fuzzers do, always with the same values.
type filler struct{ n int }

// maxDepth is how often a type may be inside itself: schemas of definitions are.
const maxDepth = 2

// oneOfTheirs are values of types that have a few.
var oneOfTheirs = map[reflect.Type]string{
	reflect.TypeFor[corev1.Protocol]():                      "UDP",
	reflect.TypeFor[corev1.PullPolicy]():                    "IfNotPresent",
	reflect.TypeFor[corev1.RestartPolicy]():                 "Always",
	reflect.TypeFor[corev1.DNSPolicy]():                     "None",
	reflect.TypeFor[corev1.ServiceType]():                   "LoadBalancer",
	reflect.TypeFor[corev1.ServiceAffinity]():               "ClientIP",
	reflect.TypeFor[discoveryv1.AddressType]():              "IPv4",
	reflect.TypeFor[appsv1.DeploymentStrategyType]():        "RollingUpdate",
	reflect.TypeFor[appsv1.StatefulSetUpdateStrategyType](): "RollingUpdate",
	reflect.TypeFor[appsv1.DaemonSetUpdateStrategyType]():   "RollingUpdate",
	reflect.TypeFor[appsv1.PodManagementPolicyType]():       "Parallel",
	reflect.TypeFor[batchv1.ConcurrencyPolicy]():            "Forbid",
	reflect.TypeFor[networkingv1.PathType]():                "ImplementationSpecific",
	reflect.TypeFor[resourcev1.DeviceAllocationMode]():      "All",
	reflect.TypeFor[corev1.PersistentVolumeReclaimPolicy](): "Retain",
	reflect.TypeFor[autoscalingv2.MetricSourceType]():       "Resource",

	reflect.TypeFor[admissionregistrationv1.OperationType]():               "CREATE",
	reflect.TypeFor[admissionregistrationv1.ScopeType]():                   "*",
	reflect.TypeFor[admissionregistrationv1.MatchPolicyType]():             "Exact",
	reflect.TypeFor[admissionregistrationv1.FailurePolicyType]():           "Ignore",
	reflect.TypeFor[admissionregistrationv1.ReinvocationPolicyType]():      "IfNeeded",
	reflect.TypeFor[admissionregistrationv1.ParameterNotFoundActionType](): "Deny",
	reflect.TypeFor[admissionregistrationv1.ValidationAction]():            "Warn",
	reflect.TypeFor[admissionregistrationv1.PatchType]():                   "JSONPatch",
}

func (f *filler) fill(v reflect.Value, depth map[reflect.Type]int) {
	f.n++
	switch value := v.Addr().Interface().(type) {
	case *metav1.Time:
		*value = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, f.n%60, 0, time.UTC))
		return
	case *metav1.MicroTime:
		*value = metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, f.n%60, 5000, time.UTC))
		return
	case *resource.Quantity:
		*value = resource.MustParse(fmt.Sprintf("%dMi", f.n))
		return
	case *intstr.IntOrString:
		*value = intstr.FromInt32(int32(f.n%1000 + 1))
		return
	case *runtime.RawExtension:
		value.Raw = fmt.Appendf(nil, `{"n":%d}`, f.n)
		return
	case *metav1.TypeMeta: // of an object inside another: the server knows
		return
	case *metav1.ObjectMeta: // of a template: what filled selectors select
		*value = metav1.ObjectMeta{Labels: map[string]string{"app": "a", "tier": "x"}}
		return
	case *metav1.LabelSelector:
		*value = metav1.LabelSelector{
			MatchLabels:      map[string]string{"app": "a"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"x", "y"}}},
		}
		return
	}
	if known, ok := oneOfTheirs[v.Type()]; ok {
		v.SetString(known)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if depth[v.Type().Elem()] < maxDepth {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth)
		}
	case reflect.Struct:
		depth[v.Type()]++
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), depth)
			}
		}
		depth[v.Type()]--
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(fmt.Appendf(nil, "bytes-%d", f.n))
			return
		}
		if depth[v.Type().Elem()] >= maxDepth {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), depth)
	case reflect.Map:
		if depth[v.Type().Elem()] >= maxDepth {
			return
		}
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, depth)
		f.fill(value, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.n%100 + 1))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n%100 + 1))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.n) / 2)
	}
}
