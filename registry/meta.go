package registry

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// The rules of metadata are Kubernetes's (see the API conventions); kube-apiserver's numbers.
const (
	// maxGeneratedBase is how much of generateName is used, so that with the suffix it has 63 characters.
	maxGeneratedBase = 58
	// generatedSuffix is how many random characters follow it.
	generatedSuffix = 5
	// generateTries is how many names are tried before a create with generateName is refused.
	generateTries = 8
)

// maxObjectBytes bounds one stored object: etcd's customary limit of a request.
const maxObjectBytes = 1536 << 10

// newName returns a name for an object that comes with what it's to begin with.
func (e *Endpoint) newName(base string) string {
	if s := e.strategy(); s != nil && s.PlainNames {
		return base
	}
	return generatedName(base)
}

func generatedName(base string) string {
	if len(base) > maxGeneratedBase {
		base = base[:maxGeneratedBase]
	}
	return base + rand.String(generatedSuffix)
}

// now is the time as it's written in metadata: UTC, whole seconds.
func now() metav1.Time { return metav1.Time{Time: time.Now().UTC().Truncate(time.Second)} }

// placeIn checks the namespace in the body against the URL's and fills it in.
func placeIn(o *object.Object, namespace string) error {
	switch {
	case namespace == "":
		o.Meta.Namespace = "" // cluster scope has none, whatever the client sent
	case o.Meta.Namespace == "":
		o.Meta.Namespace = namespace
	case o.Meta.Namespace != namespace:
		return badRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// initMeta sets what the server decides about a new object, whatever the client or a hook says.
func (e *Endpoint) initMeta(m *metav1.ObjectMeta) {
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	m.UID = types.UID(uuid.NewString())
	m.CreationTimestamp = now()
	if e.typed == nil || !e.typed.NoGeneration { // others keep what the client sent, as there
		m.Generation = 1
	}
}

// unversioned refuses a new object that names a version. kube-apiserver's storage does so, and a dry run doesn't get there: its answer has the version.
// What is no number is none, unless a path names the object: it's read then, and comes to nothing else.
func (w *write) unversioned(m *metav1.ObjectMeta) error {
	if m.ResourceVersion == "" {
		return nil
	}
	rev, err := parseRevision(m.ResourceVersion)
	switch named := w.targetKey != ""; {
	case named && err != nil:
		return unforeseen(clip.Text(err.Error()))
	case !named && err == nil && rev != 0 && !w.dryRun:
		return unforeseen("resourceVersion should not be set on objects to be created")
	}
	return nil
}

// withoutSystemMeta takes out of a new object's metadata what nobody but the server says.
func withoutSystemMeta(m *metav1.ObjectMeta) {
	m.UID, m.CreationTimestamp = "", metav1.Time{}
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	//lint:ignore SA1019 it's deprecated, and still sent
	m.SelfLink = ""
}

// NeverInPaths tells whether a character is in no segment of a path, however it's escaped, because a proxy on the way could take
// it for more than a part of the segment. So it's in no name of an object, either.
func NeverInPaths(r rune) bool { return strings.ContainsRune(`/\;%`, r) || unicode.IsControl(r) }

// validName is the rule for the resource's names.
func (e *Endpoint) validName(name string, prefix bool) []string {
	if t := e.typed; t != nil && t.ValidName != nil {
		return t.ValidName(name, prefix)
	}
	return validation.NameIsDNSSubdomain(name, prefix)
}

// inheritMeta gives an updated object the metadata that only the server sets, and the resourceVersion of the one before. It leaves
// what the client has changed and may not: validateMeta refuses that.
func inheritMeta(o, old *object.Object) {
	m, prev := &o.Meta, &old.Meta
	if m.UID == "" {
		m.UID = prev.UID
	}
	m.CreationTimestamp = prev.CreationTimestamp
	if prev.DeletionTimestamp != nil {
		m.DeletionTimestamp = prev.DeletionTimestamp
	}
	if m.DeletionGracePeriodSeconds == nil {
		m.DeletionGracePeriodSeconds = prev.DeletionGracePeriodSeconds
	}
	m.Generation = prev.Generation
	m.ResourceVersion = prev.ResourceVersion
}

// validateMeta checks the metadata of an object against the one before, or for nil that of a new one.
func (e *Endpoint) validateMeta(o, old *object.Object) field.ErrorList {
	path := field.NewPath("metadata")
	if old == nil {
		errs := validateTTL(o, nil)
		if e.typed == nil || !e.causesAgain() { // else a Go type's own rules find it, and nothing else does
			errs = append(validation.ValidateObjectMeta(&o.Meta, e.Namespaced, e.validName, path), errs...)
		}
		return append(errs, e.checkFinalizers(o, path)...)
	}
	errs := append(validation.ValidateObjectMetaUpdate(&o.Meta, &old.Meta, path), validateTTL(o, old)...)
	if o.Meta.Name == "" { // a hook has taken it
		errs = append(validation.ValidateObjectMeta(&metav1.ObjectMeta{Namespace: o.Meta.Namespace}, e.Namespaced, segment, path), errs...)
	}
	// Finalizers that were taken once aren't judged again, so that a label of an object with many costs no more than a label.
	judged := o.Meta
	if slices.Equal(judged.Finalizers, old.Meta.Finalizers) {
		judged.Finalizers = nil
	}
	errs = append(errs, validation.ValidateFinalizers(judged.Finalizers, path.Child("finalizers"))...)
	errs = append(errs, e.checkFinalizers(o, path)...)
	switch {
	case e.causesAgain():
		if len(errs) > 0 {
			asNew := validation.ValidateObjectMeta(&judged, e.Namespaced, segment, path)
			update := validation.ValidateObjectMetaUpdate(&o.Meta, &old.Meta, path)
			errs = slices.Concat(asNew, update, validateTTL(o, old))
			if e.typed == nil { // a Go type's own rules are asked besides
				errs = append(errs, update...)
			}
		}
	case e.typed.MetaRules&MetaAsNew != 0:
		errs = append(errs, validation.ValidateObjectMeta(&judged, e.Namespaced, e.validName, path)...)
	}
	return errs
}

// segment is the rule for names of objects that exist: they were judged when these were made.
func segment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// causesAgain tells whether refusals have causes as often as they were found.
func (e *Endpoint) causesAgain() bool { return e.typed == nil || e.typed.MetaRules&CausesAgain != 0 }

// checkFinalizers refuses finalizers that are neither Kubernetes' own nor have a domain, for kinds that may have no others.
func (e *Endpoint) checkFinalizers(o *object.Object, path *field.Path) (errs field.ErrorList) {
	if e.typed == nil || e.typed.MetaRules&QualifiedFinalizers == 0 {
		return nil
	}
	for i, f := range o.Meta.Finalizers {
		errs = append(errs, QualifiedFinalizer(f, path.Child("finalizers").Index(i))...)
	}
	return errs
}

// QualifiedFinalizer refuses a finalizer that is neither Kubernetes' own nor has a domain.
func QualifiedFinalizer(name string, at *field.Path) field.ErrorList {
	if strings.Contains(name, "/") || name == string(corev1.FinalizerKubernetes) || ofCollector(name) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "name is neither a standard finalizer name nor is it fully qualified")}
}
