package writes

import (
	"bytes"
	"cmp"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// writeOptions are those that creates, updates, patches and applies share.
type writeOptions struct {
	validation string // metav1.FieldValidation...
	dryRun     bool   // everything but the write itself
	manager    string // who the client is in managedFields
	said       saidOptions
	force      bool // of an apply: take over what others manage
	userAgent  string
	asked      bool // by a client, and not by the server itself: see admit

	deleteOptions *metav1.DeleteOptions // of a deletion, as hooks see them
}

// saidOptions are what a client itself has said of its name and of unknown fields, as hooks see it; "" for nothing.
type saidOptions struct{ manager, validation string }

// parseWriteOptions reads the parameters of a create, update or patch; kind is that of the options object
// which errors name.
func parseWriteOptions(r *registry.Request, kind string) (writeOptions, error) {
	values := r.Query
	q := reads.Query{Values: values}
	o := metav1.PatchOptions{
		DryRun:          values["dryRun"],
		FieldManager:    values.Get("fieldManager"),
		FieldValidation: values.Get("fieldValidation"),
	}
	force, forced := q.Flag("force")
	if forced && kind == patchOptions {
		o.Force = &force
	}
	if errs := v1validation.ValidatePatchOptions(&o, types.PatchType(strings.ToLower(r.PatchType))); len(errs) > 0 {
		return writeOptions{}, registry.InvalidOptions(kind, errs)
	}
	said := saidOptions{o.FieldManager, o.FieldValidation}
	o.FieldValidation = cmp.Or(o.FieldValidation, metav1.FieldValidationWarn)
	return writeOptions{
		said: said, validation: o.FieldValidation, dryRun: len(o.DryRun) > 0, force: force,
		manager: managed.ManagerName(o.FieldManager, r.UserAgent), userAgent: r.UserAgent, asked: true,
	}, nil
}

// parseDeleteOptions reads the options of a deletion from the body or, when that is empty, from the
// query.
func (e Writer) parseDeleteOptions(r *registry.Request) (*metav1.DeleteOptions, error) {
	values, body := r.Query, r.Body
	if values.Has("at") || reads.Flag(values, "history") { // what was selected then may be something else now
		return nil, registry.BadRequest("at and history read the past, and what is there now would be deleted: leave them out")
	}
	o := &metav1.DeleteOptions{}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := object.Decode(body, o); err != nil {
			return nil, registry.BadOptions(body, err)
		}
		if err := e.checkDeleteOptionsType(o); err != nil {
			return nil, err
		}
	} else if err := deleteOptionsFromQuery(values, o); err != nil {
		return nil, err
	}
	if len(o.DryRun) == 0 {
		o.DryRun = values["dryRun"]
	}
	if errs := v1validation.ValidateDeleteOptions(o); len(errs) > 0 {
		return nil, registry.InvalidOptions("DeleteOptions", errs)
	}
	return o, nil
}

func (e Writer) checkDeleteOptionsType(o *metav1.DeleteOptions) error {
	if o.Kind != "" && o.Kind != "DeleteOptions" {
		return registry.BadRequest("no kind %q is registered for version %q in scheme %q", clip.Text(o.Kind), clip.Text(cmp.Or(o.APIVersion, e.APIVersion())), object.Scheme)
	}
	switch o.APIVersion {
	case "", "v1", "meta.k8s.io/v1", e.APIVersion():
		return nil
	}
	return registry.BadRequest("the API version of DeleteOptions must be v1, meta.k8s.io/v1 or %s, not %q", e.APIVersion(), clip.Text(o.APIVersion))
}

func deleteOptionsFromQuery(values url.Values, o *metav1.DeleteOptions) error {
	q := reads.Query{Values: values}
	if values.Get("gracePeriodSeconds") != "" {
		o.GracePeriodSeconds = new(q.Count("gracePeriodSeconds"))
	}
	if values.Has("propagationPolicy") { // an empty one is refused as well
		o.PropagationPolicy = new(metav1.DeletionPropagation(values.Get("propagationPolicy")))
	}
	if orphan, set := q.Flag("orphanDependents"); set {
		//lint:ignore SA1019 it's deprecated, and still sent
		o.OrphanDependents = &orphan
	}
	if ignore, set := q.Flag("ignoreStoreReadErrorWithClusterBreakingPotential"); set {
		o.IgnoreStoreReadErrorWithClusterBreakingPotential = &ignore
	}
	return q.Err
}
