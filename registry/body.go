package registry

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// MaxTypedWork bounds bytes times levels of a Go type's body, because types that decode themselves read what is
// below each level again. A real definition of a megabyte has 40 levels.
const MaxTypedWork = 128 << 20

// What a body may have of values: members of objects, elements of lists, and one more for what is empty. An object of as many bytes as can be stored has
// fewer, unless somebody fills a list with what is next to nothing.
const (
	// MaxTypedValues bounds those of a Go type, of which an empty one may take 2 KiB while it's decoded and checked.
	MaxTypedValues = 100_000
	// MaxPodValues bounds those of a pod, or of what has a template of pods: each empty container takes 0.1 ms of defaults, hooks
	// and rules. A pod of a hundred full containers has some 10,000.
	MaxPodValues = 25_000
	// MaxTreeValues bounds those of a custom resource, which take some 300 bytes.
	MaxTreeValues = 400_000
)

func TooManyValues(n, most int) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body of the request has %d values, of which at most %d are taken", n, most))
}

// BadBody refuses a body for what was found when it was read; nil for nil. It keeps the error of a decoder.
func BadBody(err error) error {
	if err == nil {
		return nil
	}
	refused := apierrors.NewBadRequest(fmt.Sprintf("the body of the request %s", err))
	if d := (*object.DecodeError)(nil); errors.As(err, &d) {
		return &Undecoded{StatusError: refused, Cause: d.Cause}
	}
	return refused
}
