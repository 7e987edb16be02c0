package writes

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/registry/schema"
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

// newName returns a name for an object that comes with what it's to begin with.
func (e Writer) newName(base string) string {
	if s := e.Strategy(); s != nil && s.PlainNames {
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

// placeIn checks the namespace in the body against the URL's and fills it in.
func placeIn(o *object.Object, namespace string) error {
	switch {
	case namespace == "":
		o.Meta.Namespace = "" // cluster scope has none, whatever the client sent
	case o.Meta.Namespace == "":
		o.Meta.Namespace = namespace
	case o.Meta.Namespace != namespace:
		return registry.BadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// initMeta sets what the server decides about a new object, whatever the client or a hook says.
func (e Writer) initMeta(m *metav1.ObjectMeta) {
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	m.UID = types.UID(uuid.NewString())
	m.CreationTimestamp = e.Res.Registry.Now()
	if e.Typed == nil || !e.Typed.NoGeneration { // others keep what the client sent, as there
		m.Generation = 1
	}
}

// unversioned refuses a new object that names a version. kube-apiserver's storage does so, and a dry run doesn't get there: its answer has the version.
// What is no number is none, unless a path names the object: it's read then, and comes to nothing else.
func (w *write) unversioned(m *metav1.ObjectMeta) error {
	if m.ResourceVersion == "" {
		return nil
	}
	rev, err := reads.ParseRevision(m.ResourceVersion)
	switch named := w.targetKey != ""; {
	case named && err != nil:
		return registry.Unforeseen(clip.Text(err.Error()))
	case !named && err == nil && rev != 0 && !w.dryRun:
		return registry.Unforeseen("resourceVersion should not be set on objects to be created")
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

// validName is the rule for the resource's names.
func (e Writer) validName(name string, prefix bool) []string {
	if t := e.Typed; t != nil && t.ValidName != nil {
		return t.ValidName(name, prefix)
	}
	return validation.NameIsDNSSubdomain(name, prefix)
}

// inheritMeta gives an updated object the metadata that only the server sets, and the resourceVersion of the one before. It leaves
// what the client has changed and may not: validateMeta refuses that.
func inheritMeta(o, old *object.Object) {
	m, prev := &o.Meta, &old.Meta
	m.UID = cmp.Or(m.UID, prev.UID)
	m.CreationTimestamp = prev.CreationTimestamp
	if prev.DeletionTimestamp != nil {
		m.DeletionTimestamp = prev.DeletionTimestamp
	}
	m.DeletionGracePeriodSeconds = cmp.Or(m.DeletionGracePeriodSeconds, prev.DeletionGracePeriodSeconds)
	m.Generation = prev.Generation
	m.ResourceVersion = prev.ResourceVersion
}

// validateMeta checks the metadata of an object against the one before, or for nil that of a new one.
func (e Writer) validateMeta(o, old *object.Object) field.ErrorList {
	path := field.NewPath("metadata")
	if old == nil {
		errs := validateTTL(o, nil)
		if e.Typed == nil || !e.causesAgain() { // else a Go type's own rules find it, and nothing else does
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
			if e.Typed == nil { // a Go type's own rules are asked besides
				errs = append(errs, update...)
			}
		}
	case e.Typed.MetaRules&registry.MetaAsNew != 0:
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
func (e Writer) causesAgain() bool {
	return e.Typed == nil || e.Typed.MetaRules&registry.CausesAgain != 0
}

// checkFinalizers refuses finalizers that are neither Kubernetes' own nor have a domain, for kinds that may have no others.
func (e Writer) checkFinalizers(o *object.Object, path *field.Path) (errs field.ErrorList) {
	if e.Typed == nil || e.Typed.MetaRules&registry.QualifiedFinalizers == 0 {
		return nil
	}
	for i, f := range o.Meta.Finalizers {
		errs = append(errs, registry.QualifiedFinalizer(f, path.Child("finalizers").Index(i))...)
	}
	return errs
}

// AddWarning adds a warning of a schema's rules, or of what prepares an object, to those for the client. It makes a write a warning.Recorder.
func (w *write) AddWarning(_, text string) { w.warnings = append(w.warnings, text) }

// validate checks an object against the schema; old is the one before, or nil. meta are the errors of its metadata.
func (w *write) validate(ctx context.Context, o, old *object.Object, meta field.ErrorList) field.ErrorList {
	if w.Schema == nil {
		return meta
	}
	found := schema.Found{Metadata: meta, Scale: w.validateScale(o, w.Subresource)}
	if w.Schema.Trivial() {
		return append(found.Metadata, found.Scale...)
	}
	ctx = warning.WithWarningRecorder(ctx, w)
	var before map[string]any
	if old != nil {
		before = w.Plain(old)
	}
	if w.Subresource == registry.AtStatus {
		return w.Schema.ValidateStatus(ctx, w.Plain(o), before, found)
	}
	return w.Schema.Validate(ctx, w.Plain(o), before, found)
}
