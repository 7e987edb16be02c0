package rules

import (
	"context"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Declaration is one of the functions that declarations name.
type Declaration[T any] func(ctx context.Context, op operation.Operation, at *field.Path, value, old T) field.ErrorList

// Declared asks some of these functions about a value.
func Declared[T any](c Collector, at *field.Path, value T, functions ...Declaration[T]) {
	var none T
	for _, fn := range functions {
		c.Declare(fn(context.Background(), operation.Operation{}, at, value, none)...)
	}
}

// Needed asks about a text that must be there.
func Needed[T ~string](c Collector, at *field.Path, value, was T, functions ...Declaration[*T]) {
	switch value {
	case "":
		c.Declare(field.Required(at, ""))
	case was:
	default:
		Declared(c, at, &value, functions...)
	}
}

// Given asks about a text if there is one.
func Given[T ~string](c Collector, at *field.Path, value, was *T, functions ...Declaration[*T]) {
	if value != nil && (was == nil || *value != *was) {
		Declared(c, at, value, functions...)
	}
}

// OrEmpty is an empty value where there's none: nothing was there before.
func OrEmpty[T any](was *T) *T {
	if was == nil {
		return new(T)
	}
	return was
}

// AtMost bounds the characters of a text.
func AtMost[T ~string](most int) Declaration[*T] {
	return func(ctx context.Context, op operation.Operation, at *field.Path, value, old *T) field.ErrorList {
		return validate.MaxLength(ctx, op, at, value, old, most)
	}
}
