package managed

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// maxDepth bounds the levels of what is merged. The library's cost grows with their square: an object of 500
// levels, which nobody has, takes it some 30 ms, and one of 10,000, as many as JSON may have, ten seconds.
const maxDepth = 500

// maxWidth bounds the sum of the squares of the lengths of what is merged: of lists, and of objects by their members. The
// library puts each element into a sorted list, one after the other. An object of 4,000 labels, which nobody has, takes it
// some tenths of a second, and one of 100,000 minutes.
const maxWidth = 4000 * 4000

// tooWide tells whether an object exceeds maxWidth.
func tooWide(v any) bool { return width(v) > maxWidth }

func width(v any) (sum int) {
	n := 0
	for child := range jsontree.Children(v) {
		n++
		if sum += width(child); sum+n*n > maxWidth {
			break
		}
	}
	return sum + n*n
}

// errTooDeep is returned when no record is made of objects that exceed maxDepth or maxWidth; no client sees it.
var errTooDeep = errors.New("too many levels or elements")

// lastAppliedAnnotation is where kubectl's client-side apply keeps its last configuration.
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// Manager merges the objects of one kind, in one version and through one subresource, and records who set what.
// It's safe for concurrent use.
type Manager struct {
	// Clock has the times that are recorded. Nil is the machine's. Nobody sets it after the first use.
	Clock *clock.Clock

	gvk         schema.GroupVersionKind
	apiVersion  string
	subresource string
	types       *Types
	reset       []string
	convert     func(obj map[string]any, apiVersion string) (map[string]any, error)

	shapes shapes
	once   sync.Once
	fields *managedfields.FieldManager
	filter fieldpath.Filter // takes what is in reset out of a set; nil if that's nothing
	err    error
}

// New returns a manager. It does nothing until it's used.
//
// The subresource is "" for the main resource. reset names the fields that a write through it doesn't change,
// whatever the client sends, and therefore doesn't own, as "status" or "metadata.labels". The caller puts them back.
//
// convert returns an object in another version of the group and leaves the one it's given as it is; nil puts
// the other apiVersion in and changes nothing else (definitions with conversion None). It's called for entries
// that were written in another version than the manager's.
func New(gvk schema.GroupVersionKind, subresource string, types *Types, reset []string,
	convert func(obj map[string]any, apiVersion string) (map[string]any, error)) *Manager {
	if convert == nil {
		convert = setAPIVersion
	}
	return &Manager{gvk: gvk, apiVersion: gvk.GroupVersion().String(), subresource: subresource, types: types, reset: reset, convert: convert}
}

func setAPIVersion(obj map[string]any, apiVersion string) (map[string]any, error) {
	obj = maps.Clone(obj)
	obj["apiVersion"] = apiVersion
	return obj, nil
}

// load returns the library's field manager, built at the first call.
func (m *Manager) load() (*managedfields.FieldManager, error) {
	m.once.Do(func() {
		if m.err = m.types.load(); m.err != nil {
			return
		}
		m.fields, m.err = managedfields.NewDefaultCRDFieldManager(m.types, converter{m}, noDefaults{}, creater{m.types},
			m.gvk, m.gvk.GroupVersion(), m.subresource, m.filters())
	})
	return m.fields, m.err
}

// filters says what is left out of the record, by version. kube-apiserver filters the main resource's writes
// in their own version only, so that one with a changed status, which is put back, takes the status away from
// whoever set it in another version; here it's left out in all of them.
func (m *Manager) filters() map[fieldpath.APIVersion]fieldpath.Filter {
	if len(m.reset) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, name := range m.reset {
		path := fieldpath.Path{}
		for _, part := range strings.Split(name, ".") {
			path = append(path, fieldpath.PathElement{FieldName: &part})
		}
		set.Insert(path)
	}
	m.filter = fieldpath.NewExcludeSetFilter(set)
	filters := map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(m.apiVersion): m.filter}
	for _, v := range m.types.apiVersions {
		filters[fieldpath.APIVersion(v)] = m.filter
	}
	return filters
}

// Apply merges a configuration that the named manager applies into the live object, which is nil or empty if
// there's none yet, and returns the result with its managedFields. Fields that the manager applied before, and
// that are missing now, go if nobody else owns them. Those that others own with another value are conflicts,
// unless force takes them over. An object that was never applied to starts with all its fields owned by
// "before-first-apply". What the manager doesn't own by reset is in the result as applied; the caller puts it back.
//
// Neither live nor applied is changed; the result shares no part with them but entries of managedFields, which
// nobody may change. If the configuration changes nothing, the result equals live.
//
// Errors are Status errors: 409 Conflict, a cause per field; 400 for a configuration that is of another kind or
// version or has managedFields; 413 if one of them nests deeper than 500 levels or exceeds maxWidth; 500, without a reason, if the
// configuration has an element of a list twice or doesn't fit the types, and if the live object can't be merged or converted.
// Source: apiserver's handlers/patch.go.
func (m *Manager) Apply(live, applied map[string]any, manager string, force bool) (map[string]any, error) {
	fields, err := m.load()
	if err != nil {
		return nil, internal(err)
	}
	config, err := m.configuration(applied)
	if err != nil {
		return nil, err
	}
	if len(live) == 0 {
		live = m.types.empty(m.gvk)
	}
	before := recordOf(entriesOf(live))
	old := newObject(plain(live), before.entries)
	if deeper(old.Object, maxDepth) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object nests deeper than %d levels: it can't be applied to, but be updated or patched", maxDepth))
	}
	if tooWide(live) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object has too long lists, or objects of too many members: the squares of their lengths may add up to %d; it can't be applied to, but be updated or patched", maxWidth))
	}
	if m.changesNothing(old, config, manager) {
		return withManaged(copyTree(old.Object).(map[string]any), before.tree), nil
	}
	merged, err := fields.Apply(old, config, manager, force)
	if err != nil {
		return nil, m.fail(err)
	}
	result := merged.(*object)
	m.stamp(result.managed, before.entries)
	next := withManaged(copyTree(result.Object).(map[string]any), before.treeOf(result.managed))
	KeepTimes(live, next)
	return next, nil
}

// configuration checks an applied configuration and makes it ready to be merged.
func (m *Manager) configuration(applied map[string]any) (*object, error) {
	apiVersion, _ := applied["apiVersion"].(string)
	kind, _ := applied["kind"].(string)
	if apiVersion != m.apiVersion || kind != m.gvk.Kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid object type: the applied configuration must have apiVersion %q and kind %q, got %q and %q",
			m.apiVersion, m.gvk.Kind, clip.To(apiVersion, maxMessage), clip.To(kind, maxMessage)))
	}
	meta, ok := applied["metadata"].(map[string]any)
	if !ok && applied["metadata"] != nil {
		return nil, apierrors.NewBadRequest("metadata of the applied configuration must be an object")
	}
	if meta["managedFields"] != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil: who owns what follows from what is applied")
	}
	if deeper(applied, maxDepth) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the applied configuration nests deeper than %d levels", maxDepth))
	}
	if tooWide(applied) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the applied configuration has too long lists, or objects of too many members: the squares of their lengths may add up to %d", maxWidth))
	}
	config := newObject(plain(applied), nil)
	var err error
	if config.typed, err = m.types.ObjectToTyped(config); err != nil {
		return nil, internal(fmt.Errorf("failed to create typed patch object (%s/%s; %v): %w", config.GetNamespace(), config.GetName(), m.gvk, err))
	}
	return config, nil
}

// changesNothing reports whether a configuration has the same fields as the one that the manager applied before,
// with the values that the object still has. Then nothing is to be pruned, and nobody to be in conflict with.
// It's what most applies are (controllers apply what they want again and again), and takes a third of the
// time in which the library finds out.
func (m *Manager) changesNothing(live, config *object, manager string) bool {
	last := m.lastApplied(live.managed, manager)
	if last == nil || manager == "kubectl" && live.GetAnnotations()[lastAppliedAnnotation] != "" {
		return false // the library keeps the annotation of kubectl's client-side apply up to date
	}
	fields, err := config.typed.ToFieldSet()
	if err != nil {
		return false
	}
	if m.filter != nil {
		fields = m.filter.Filter(fields)
	}
	if !fields.Difference(m.types.unowned).Equals(last) {
		return false
	}
	if live.typed, err = m.types.ObjectToTyped(live, typed.AllowDuplicates); err != nil {
		return false
	}
	merged, err := live.typed.Merge(config.typed)
	return err == nil && value.Equals(live.typed.AsValue(), merged.AsValue())
}

// lastApplied returns the fields that a manager applied in this version, nil if it didn't.
func (m *Manager) lastApplied(entries []metav1.ManagedFieldsEntry, manager string) *fieldpath.Set {
	for i := len(entries) - 1; i >= 0; i-- { // of two by that name the library takes the last
		e := &entries[i]
		if e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == m.subresource &&
			e.APIVersion == m.apiVersion && e.FieldsV1 != nil {
			set := &fieldpath.Set{}
			if set.FromJSON(e.FieldsV1.GetRawReader()) == nil {
				return set
			}
		}
	}
	return nil
}

// Update records what a write other than apply did: next is the object as it's to be stored, live what it was,
// nil or empty for a create. It returns next with its managedFields, sharing next's parts and changing none.
//
// An object whose fields nobody records, because it was never applied to, stays so; only always begins with a
// record when an object is created. A client may set managedFields, except through a subresource; an empty
// list, or one with an empty entry, ends the record. What can't be read is ignored. When a record can't be
// made, because types or conversion fail, an object doesn't fit its types, nests deeper than 500 levels or exceeds maxWidth, the
// one of live stays.
// Source: apiserver's handlers/update.go, FieldManager.UpdateNoErrors.
func (m *Manager) Update(live, next map[string]any, manager string, always bool) map[string]any {
	before, given := entriesOf(live), entriesOf(next)
	if m.subresource != "" || given != nil && before != nil && sameEntries(given, before) {
		given = nil // as most clients send back what they read
	}
	switch {
	case before == nil && !valid(given) && (!always || len(live) > 0):
		return withManaged(next, nil)
	case metadataOf(next) == nil || given == nil && sameObject(live, next):
		return withManaged(next, before)
	}
	var list []any
	var err error
	switch {
	case len(live) > 0:
		list, err = m.update(live, next, given, manager)
	case given == nil:
		list, err = m.create(next, manager)
	default:
		list, err = m.update(m.types.empty(m.gvk), next, given, manager)
	}
	if err != nil {
		list = before
	}
	next = withManaged(next, list)
	KeepTimes(live, next)
	return next
}

// update has the library record a change. given is what the client wants managedFields to be, nil if nothing.
func (m *Manager) update(live, next map[string]any, given []any, manager string) ([]any, error) {
	fields, err := m.load()
	if err != nil {
		return nil, err
	}
	before, wanted := recordOf(entriesOf(live)), recordOf(given)
	was, is := newObject(plain(live), before.entries), newObject(plain(next), wanted.entries)
	if m.types.zero != nil && m.wrote(before.entries) && m.wrote(wanted.entries) { // other objects may not fit their types
		was.Object, is.Object = differing(was.Object, is.Object)
	}
	if deeper(was.Object, maxDepth) || deeper(is.Object, maxDepth) || tooWide(was.Object) || tooWide(is.Object) {
		return nil, errTooDeep
	}
	updated, err := fields.Update(was, is, manager)
	if err != nil {
		return nil, err
	}
	result := updated.(*object)
	m.stamp(result.managed, before.entries, wanted.entries)
	return before.treeOf(result.managed), nil
}

// stamp gives the entries that the library has made just now, by the machine's clock, the time of a clock that stands still.
func (m *Manager) stamp(made []metav1.ManagedFieldsEntry, known ...[]metav1.ManagedFieldsEntry) {
	if !m.Clock.Stands() {
		return
	}
	now := metav1.NewTime(m.Clock.Now())
	for i, e := range made {
		had := func(o metav1.ManagedFieldsEntry) bool { return e.Time.Equal(o.Time) }
		if !slices.ContainsFunc(slices.Concat(known...), had) {
			made[i].Time = &now
		}
	}
}

// wrote reports whether all entries are of the manager's version, so that nothing has to be converted.
func (m *Manager) wrote(entries []metav1.ManagedFieldsEntry) bool {
	return !slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return e.APIVersion != m.apiVersion })
}

// valid reports whether managedFields say anything, in a form that can be kept.
func valid(list []any) bool {
	r := recordOf(list)
	return len(r.entries) > 0 && managedfields.ValidateManagedFields(r.entries) == nil
}

// sameObject reports whether two objects differ in nothing but managedFields.
func sameObject(live, next map[string]any) bool {
	return equalMaps(live, next, "metadata") &&
		equalMaps(without(metadataOf(live), "managedFields"), without(metadataOf(next), "managedFields"), "")
}

// fail makes an error of the library's a Status.
func (m *Manager) fail(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return internal(err)
}

// internal has the library's text, and no reason, as kube-apiserver's answer to errors that are no Status.
func internal(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: clip.To(err.Error(), maxMessage),
	}}
}

// maxMessage bounds what of a client's words, or of a list of errors, comes back in a message, in bytes.
const maxMessage = 4096

// converter is the library's way to other versions.
type converter struct{ m *Manager }

// ConvertToVersion returns the object itself if it's in that version. Of a version that there's no more, the library forgets the
// entries of a Go type. For a custom resource it's an error that ends applies and that leaves the record of other writes as it
// was, until the entry is gone. Source: apiextensions-apiserver's crConverter.
func (c converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	gv, ok := target.(schema.GroupVersion)
	if !ok {
		return nil, fmt.Errorf("%v is no version", target)
	}
	o, ok := in.(*object)
	if !ok {
		return nil, fmt.Errorf("objects of type %T can't be converted", in)
	}
	if o.GroupVersionKind().GroupVersion() == gv {
		return in, nil
	}
	if !c.m.types.knows(gv.String()) {
		if c.m.types.zero == nil {
			return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", gv)
		}
		return nil, runtime.NewNotRegisteredErrForKind(c.m.apiVersion, gv.WithKind(c.m.gvk.Kind))
	}
	root, err := c.m.convert(o.Object, gv.String())
	if err != nil {
		return nil, err
	}
	return newObject(root, o.managed), nil
}

// Convert is part of runtime.ObjectConvertor and not called.
func (c converter) Convert(in, out, context any) error {
	return errors.New("conversion into another object isn't supported")
}

// ConvertFieldLabel is part of runtime.ObjectConvertor and not called.
func (c converter) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	return "", "", errors.New("conversion of field labels isn't supported")
}

// noDefaults leaves objects as they are: the caller has the defaults.
type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// creater makes the object from which "before-first-apply" is counted.
type creater struct{ types *Types }

func (c creater) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	return newObject(c.types.empty(gvk), nil), nil
}

var _ metav1.Object = (*object)(nil)
