// Package cmp stands in for github.com/google/go-cmp/cmp in the binaries that `make build` and `make release` make. etcd calls Diff
// for the message of a check that is on only with ETCD_VERIFY. The real package looks methods up by number, and a program that does
// so keeps every method of every type: 8 MB of this one.
package cmp

import (
	"fmt"
	"reflect"
)

// Option is nothing that etcd uses.
type Option any

// Diff says what two values are, if they differ.
func Diff(x, y any, _ ...Option) string {
	if reflect.DeepEqual(x, y) {
		return ""
	}
	return fmt.Sprintf("-%+v\n+%+v", x, y)
}
