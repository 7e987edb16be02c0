package registry

import (
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxObjectBytes bounds one stored object: etcd's customary limit of a request.
const MaxObjectBytes = 1536 << 10

// Now is the time as it's written in metadata: UTC, whole seconds.
func Now() metav1.Time { return metav1.Time{Time: time.Now().UTC().Truncate(time.Second)} }

// NeverInPaths tells whether a character is in no segment of a path, however it's escaped, because a proxy on the way could take
// it for more than a part of the segment. So it's in no name of an object, either.
func NeverInPaths(r rune) bool { return strings.ContainsRune(`/\;%`, r) || unicode.IsControl(r) }

// QualifiedFinalizer refuses a finalizer that is neither Kubernetes' own nor has a domain.
func QualifiedFinalizer(name string, at *field.Path) field.ErrorList {
	if strings.Contains(name, "/") || name == string(corev1.FinalizerKubernetes) || OfCollector(name) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "name is neither a standard finalizer name nor is it fully qualified")}
}
