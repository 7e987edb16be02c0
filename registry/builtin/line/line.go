// Package line has what the lines of the table of built-in kinds are made of: names, and functions with a kind's Go type as a registry.Type
// takes them.
package line

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
)

// Names are those of a kind whose plural is regular.
func Names(group, version, kind string, short ...string) registry.Names {
	plural := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(plural, "s"):
		plural += "es"
	case strings.HasSuffix(plural, "y"):
		plural = strings.TrimSuffix(plural, "y") + "ies"
	default:
		plural += "s"
	}
	return registry.Names{Group: group, Version: version, Kind: kind, Plural: plural, ShortNames: short}
}

// InAll puts a kind among those that `kubectl get all` shows.
func InAll(n registry.Names) registry.Names {
	n.Categories = []string{"all"}
	return n
}

// New makes a new object of a Go type.
func New[T any, P registry.Pointer[T]]() registry.Typed { return P(new(T)) }

// Set makes a Default, or what else changes an object, of a function with the type.
func Set[T any, P registry.Pointer[T]](fn func(obj *T)) func(registry.Typed) {
	return func(obj registry.Typed) { fn(obj.(P)) }
}

// Prepare makes a Prepare of a function with the type. old is nil for a new object.
func Prepare[T any, P registry.Pointer[T]](fn func(obj, old *T, subresource string)) func(ctx context.Context, obj, old registry.Typed, subresource string) {
	return func(_ context.Context, obj, old registry.Typed, subresource string) {
		before, _ := old.(P)
		fn(obj.(P), before, subresource)
	}
}

// Rules makes a Validate of a function with the type. old is nil for a new object. Writes of a status aren't asked about:
// Kubernetes has no rules for that of such a kind.
func Rules[T any, P registry.Pointer[T]](fn func(obj, old *T) field.ErrorList) func(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
	return func(_ context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
		if subresource == "status" {
			return nil
		}
		before, _ := old.(P)
		return declaredLast(fn(obj.(P), before))
	}
}

// declaredLast puts last what Kubernetes finds by the tags of its types: its functions are asked before.
func declaredLast(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		switch {
		case a.CoveredByDeclarative == b.CoveredByDeclarative:
			return 0
		case a.CoveredByDeclarative:
			return 1
		}
		return -1
	})
	return errs
}

// Counted makes a Generation that is 1 for a new object, and one more at each write of which a function tells that it counts.
func Counted[T any, P registry.Pointer[T]](changed func(obj, old *T) bool) func(obj, old registry.Typed) int64 {
	return func(obj, old registry.Typed) int64 {
		before, _ := old.(P)
		if before == nil {
			return 1
		}
		generation := before.GetObjectMeta().GetGeneration()
		if changed(obj.(P), before) {
			generation++
		}
		return generation
	}
}

// Parts makes a Validate of two functions with the type, for writes of a whole object and of its status. Without a second one the first
// is asked about both.
func Parts[T any, P registry.Pointer[T]](whole, status func(obj, old *T) field.ErrorList) func(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
	return func(_ context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
		before, _ := old.(P)
		if subresource == "status" && status != nil {
			return declaredLast(status(obj.(P), before))
		}
		return declaredLast(whole(obj.(P), before))
	}
}

// Warnings makes a Warnings of a function with the type. old is nil for a new object. Writes of subresources aren't asked about.
func Warnings[T any, P registry.Pointer[T]](fn func(obj, old *T) []string) func(ctx context.Context, obj, old registry.Typed, subresource string) []string {
	return func(_ context.Context, obj, old registry.Typed, subresource string) []string {
		if subresource != "" {
			return nil
		}
		before, _ := old.(P)
		return fn(obj.(P), before)
	}
}

// Claiming makes a Claim of a function with the type. old is nil for a new object.
func Claiming[T any, P registry.Pointer[T]](fn func(obj, old *T, dryRun bool) (registry.Settle, error)) func(obj, old registry.Typed, dryRun bool) (registry.Settle, error) {
	return func(obj, old registry.Typed, dryRun bool) (registry.Settle, error) {
		before, _ := old.(P)
		return fn(obj.(P), before, dryRun)
	}
}

// Answer makes an Answer of a function with the type.
func Answer[T any, P registry.Pointer[T]](fn func(ctx context.Context, question *T) error) func(context.Context, registry.Typed) error {
	return func(ctx context.Context, question registry.Typed) error { return fn(ctx, question.(P)) }
}

// SpecOnly are the StatusResets of kinds whose status may be written together with metadata, as that of most built-in kinds.
var SpecOnly = []string{"spec"}

// OrDefault sets what is missing.
func OrDefault[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// OrPointTo sets a pointer that is missing.
func OrPointTo[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

// RoundUp rounds quantities to thousandths: what is smaller isn't kept.
func RoundUp(list corev1.ResourceList) {
	const milli = -3
	for name, q := range list {
		q.RoundUp(milli)
		list[name] = q
	}
}

// Carry makes a member of a part of an object what it is in another one, or absent as there.
func Carry(next, in map[string]any, part, name string) {
	changed := maps.Clone(column.AsMap(next[part]))
	if changed == nil {
		changed = map[string]any{}
	}
	if v, ok := column.AsMap(in[part])[name]; ok {
		changed[name] = v
	} else {
		delete(changed, name)
	}
	next[part] = changed
}

// InAPIExtensions puts a kind into the category of what extends the API.
func InAPIExtensions(n registry.Names) registry.Names {
	n.Categories = []string{"api-extensions"}
	return n
}

// OnlyProxy is for kinds of which the proxy alone is absent.
func OnlyProxy() map[string]registry.Absent {
	return map[string]registry.Absent{"proxy": WithoutKubelet("proxy")}
}

// WithoutKubelet is a path that leads to a kubelet.
func WithoutKubelet(name string) registry.Absent {
	return registry.Absent{Why: "there is no kubelet: nothing runs on this server, so " + name + " isn't served"}
}
