package registry

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Strategy is what Kubernetes' strategy of a kind decides besides what its functions do. The zero value is the strict
// choice.
type Strategy struct {
	// UnconditionalUpdate lets a PUT leave resourceVersion out.
	UnconditionalUpdate bool
	// CreateOnUpdate lets a PUT make an object that isn't there.
	CreateOnUpdate bool
	// CreatesStatus lets a create decide the status, too. Otherwise it's dropped where it has its own subresource.
	CreatesStatus bool
	// NoGeneration leaves metadata.generation to those who create an object, and to Generation.
	NoGeneration bool
	// Generation, if set, counts the changes of an object, but for its status, instead of the registry, before Prepare. old is nil for a new object.
	Generation func(obj, old Typed) int64
	// ReturnDeleted answers a DELETE that removes an object with the object. Otherwise the answer is a Status.
	ReturnDeleted bool
	// SettledByUpdate makes the first update of an object a change, also one that changes nothing: kube-apiserver stores such an object without
	// its status, which it reads as its default, and an update stores that.
	SettledByUpdate bool
	// NamesNew gives a new object a name that comes without one, and without what one begins with.
	NamesNew bool
	// NoStatusTable keeps the status from being shown as a Table.
	NoStatusTable bool
	// AnnotationsCount raises metadata.generation when annotations change, too.
	AnnotationsCount bool
	// HiddenAnnotation is one that only whole objects show: neither metadata alone does nor the rows of Tables.
	HiddenAnnotation string
	// Uncached tells that kube-apiserver reads objects of the kind from etcd, which refuses a resourceVersion in its own way.
	Uncached bool
	// PlainNames takes a generateName for the name, without anything random after it.
	PlainNames bool
	// MetaRules are what metadata must keep to besides what that of all objects must.
	MetaRules MetaRules
	// Resets are the fields, besides the status where that has its own subresource, that a write of the whole object leaves as
	// they are, and that its writer doesn't own. Prepare puts them back.
	Resets []string
	// StatusResets are the fields that a write of the status leaves as they are, and that its writer doesn't own, as "spec"
	// and "metadata.labels". They're what GetResetFields returns in Kubernetes. Nil is all of spec and metadata. Of status,
	// Prepare puts back what is named here.
	StatusResets []string
	// Dependents is what becomes of an object's dependents when neither its deletion nor its finalizers say so:
	// Orphan, Foreground or, by default, Background. With NoDependents, what a deletion says is ignored.
	Dependents metav1.DeletionPropagation
	// DependentsWarning is told a client whose deletion doesn't say what becomes of dependents; "" for none.
	DependentsWarning string
	// Awaited answers a write only when the caches have it, for kinds by which the server judges the requests
	// that follow. On a replica they are the rules by which writes presume that they're judged (Presume).
	Awaited bool
	// RowOrder is the order in which a Table shows a list's objects; nil: that of the list.
	RowOrder func(a, b Typed) int
}

// MetaRules are rules of metadata.
type MetaRules int

// The rules, which can be added.
const (
	// QualifiedFinalizers refuses finalizers that are neither Kubernetes' own nor have a domain.
	QualifiedFinalizers MetaRules = 1 << iota
	// MetaAsNew checks the metadata of an updated object as that of a new one, too. So generateName is checked again.
	MetaAsNew
	// CausesAgain refuses with causes as often as they were found: what is wrong with metadata of an updated object comes from
	// Kubernetes' rules for whatever object, and again from the kind's own. So it's with custom resources, too.
	CausesAgain
	// MetaLast checks the metadata of a new object only where the kind's own rules have found nothing.
	MetaLast
)

// NoDependents is the Dependents of kinds whose objects own nothing, such as Events: no garbage collector is asked to act.
const NoDependents metav1.DeletionPropagation = "None"

// resetMeta puts back fields of metadata, by their names.
var resetMeta = map[string]func(m, old *metav1.ObjectMeta){
	"deletionTimestamp": func(m, old *metav1.ObjectMeta) { m.DeletionTimestamp = old.DeletionTimestamp },
	"labels":            func(m, old *metav1.ObjectMeta) { m.Labels = old.Labels },
	"ownerReferences":   func(m, old *metav1.ObjectMeta) { m.OwnerReferences = old.OwnerReferences },
}

// statusResets are the fields that a write of the status leaves as they are, whatever the kind is.
func (s *Strategy) statusResets() []string {
	if s == nil || s.StatusResets == nil {
		return []string{"metadata", "spec"}
	}
	return append(slices.Clone(s.StatusResets), "metadata.annotations."+kube.TTLAnnotation)
}

// StatusMeta returns the metadata of an object after a write of its status, for a kind with StatusResets: what was sent, with what such a write doesn't
// change put back from old. It changes neither.
func (s *Strategy) StatusMeta(sent, old *metav1.ObjectMeta) metav1.ObjectMeta {
	next, old := sent.DeepCopy(), old.DeepCopy()
	for name, reset := range resetMeta {
		if slices.Contains(s.StatusResets, "metadata."+name) {
			reset(next, old)
		}
	}
	KeepTTL(next, old)
	return *next
}

// KeepTTL gives an object the annotation by which it expires that it had before, or takes away one that it didn't have.
func KeepTTL(m, old *metav1.ObjectMeta) {
	before, had := old.Annotations[kube.TTLAnnotation]
	if now, has := m.Annotations[kube.TTLAnnotation]; has == had && now == before {
		return
	}
	annotations := maps.Clone(m.Annotations)
	if delete(annotations, kube.TTLAnnotation); had {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[kube.TTLAnnotation] = before
	}
	m.Annotations = annotations
}

// OfCollector tells whether a finalizer asks the garbage collector to act.
func OfCollector(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

// PolicyOf returns the policy that a deletion's options name; "" for none.
func PolicyOf(o *metav1.DeleteOptions) metav1.DeletionPropagation {
	//lint:ignore SA1019 it's deprecated, and still sent
	switch orphan := o.OrphanDependents; {
	case orphan != nil && *orphan:
		return metav1.DeletePropagationOrphan
	case orphan != nil:
		return metav1.DeletePropagationBackground
	case o.PropagationPolicy != nil:
		return *o.PropagationPolicy
	}
	return ""
}

// Now is the time as it's written in metadata: UTC, whole seconds.
func (r *Registry) Now() metav1.Time {
	return metav1.Time{Time: r.Clock.Now().UTC().Truncate(time.Second)}
}

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
