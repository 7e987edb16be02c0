package controlplane

import (
	"fmt"
	"slices"
	"strings"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// APIServices and StorageVersionMigrations.

// The bounds of an APIService's priorities.
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

// migrationStates are what a migration can be in.
var migrationStates = []storagemigrationv1.MigrationConditionType{storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationSucceeded, storagemigrationv1.MigrationFailed}

func migrationColumns() []registry.Column {
	return []registry.Column{
		{Name: "Name", IsName: true, Type: "string", Description: form.NameColumn().Description, Cell: func(o any) any { return column.Str(column.At(o, "metadata.name")) }},
		column.Cell("Resource", "GroupResource to migrate", func(o any) any {
			return schema.GroupResource{Group: column.Str(column.At(o, "spec.resource.group")), Resource: column.Str(column.At(o, "spec.resource.resource"))}.String()
		}),
		column.Cell("Status", "Status of the migration", func(o any) any {
			state := "Unknown"
			for _, c := range column.AsList(column.At(o, "status.conditions")) {
				if kind := column.Str(column.At(c, "type")); column.At(c, "status") == string(metav1.ConditionTrue) && slices.Contains(migrationStates, storagemigrationv1.MigrationConditionType(kind)) {
					state = kind
				}
			}
			return state
		}),
	}
}

// portOfHTTPS is where an APIService's service listens if it doesn't say.
const portOfHTTPS = 443

func defaultAPIService(s *apiregistrationv1.APIService) {
	if s.Spec.Service != nil {
		line.OrPointTo(&s.Spec.Service.Port, portOfHTTPS)
	}
}

// prepareAPIService makes a new APIService without a service available: this server has what it names.
func prepareAPIService(c *clock.Clock) func(s, old *apiregistrationv1.APIService, _ string) {
	return func(s, old *apiregistrationv1.APIService, _ string) {
		if old != nil || s.Spec.Service != nil {
			return
		}
		s.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
			Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.Now()),
			Reason: "Local", Message: "Local APIServices are always available",
		}}
	}
}

func validateAPIService(s, old *apiregistrationv1.APIService) field.ErrorList {
	c, at, spec := &rules.Check{}, field.NewPath("metadata"), &s.Spec
	if old != nil {
		c.Add(apivalidation.ValidateObjectMetaUpdate(&s.ObjectMeta, &old.ObjectMeta, at)...)
	}
	c.Add(apivalidation.ValidateObjectMeta(&s.ObjectMeta, false, func(name string, _ bool) []string {
		texts := rules.WholeSegment(name)
		if is := spec.Version + "." + spec.Group; len(texts) == 0 && name != is {
			texts = []string{fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", is)}
		}
		return texts
	}, at)...)
	at = field.NewPath("spec")
	switch {
	case spec.Group != "":
		c.Subdomain(at.Child("group"), spec.Group)
	case spec.Version != "v1":
		c.Add(field.Required(at.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	c.Texts(at.Child("version"), spec.Version, validation.IsDNS1035Label(spec.Version))
	if n := spec.GroupPriorityMinimum; n <= 0 || n > maxGroupPriority {
		c.Add(field.Invalid(at.Child("groupPriorityMinimum"), n, "must be positive and less than 20000"))
	}
	if n := spec.VersionPriority; n <= 0 || n > maxVersionPriority {
		c.Add(field.Invalid(at.Child("versionPriority"), n, "must be positive and less than 1000"))
	}
	if spec.Service == nil {
		if n := len(spec.CABundle); n > 0 {
			c.Add(field.Invalid(at.Child("caBundle"), fmt.Sprintf("%d bytes", n), "local APIServices may not have a caBundle"))
		}
		c.Refuse(spec.InsecureSkipTLSVerify, at.Child("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify")
		return c.Errs
	}
	c.Required(at.Child("service", "namespace"), spec.Service.Namespace)
	c.Required(at.Child("service", "name"), spec.Service.Name)
	if texts := validation.IsValidPortNum(int(*spec.Service.Port)); len(texts) > 0 {
		c.Add(field.Invalid(at.Child("service", "port"), *spec.Service.Port, "port is not valid: "+strings.Join(texts, ", ")))
	}
	c.Refuse(spec.InsecureSkipTLSVerify && len(spec.CABundle) > 0, at.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present")
	return c.Errs
}

func validateAPIServiceStatus(s, old *apiregistrationv1.APIService) field.ErrorList {
	c, at := &rules.Check{}, field.NewPath("status", "conditions")
	c.Add(apivalidation.ValidateObjectMetaUpdate(&s.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))...)
	for i := range s.Status.Conditions {
		rules.Among(c, at.Index(i).Child("status"), &s.Status.Conditions[i].Status, apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown)
	}
	return c.Errs
}

func validateMigration(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	c, at, of := &rules.Check{}, field.NewPath("spec", "resource"), m.Spec.Resource
	if of.Resource == "" {
		c.Add(field.Required(at.Child("resource"), "resource is required to be set"))
	} else if texts := validation.IsDNS1035Label(of.Resource); len(texts) > 0 {
		c.Add(field.Invalid(at.Child("resource"), of.Resource, strings.Join(texts, ",")))
	}
	if texts := validation.IsDNS1123Subdomain(of.Group); of.Group != "" && len(texts) > 0 {
		c.Add(field.Invalid(at.Child("group"), of.Group, strings.Join(texts, ",")))
	}
	if old != nil {
		c.Immutable(field.NewPath("spec"), m.Spec, old.Spec)
	}
	return c.Errs
}

func validateMigrationStatus(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	c, at := &rules.Check{}, field.NewPath("status")
	version := m.Status.ResourceVersion
	if version != "" {
		if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
			c.Add(field.Invalid(at.Child("resourceVersion"), version, err.Error()))
		}
	}
	c.Add(rules.Conditions(m.Status.Conditions, at.Child("conditions"))...)
	if was := old.Status.ResourceVersion; was != "" {
		c.Immutable(at.Child("resourceVersion"), version, was)
	}
	ended := func(m *storagemigrationv1.StorageVersionMigration, how storagemigrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, string(how))
	}
	const succeeded, failed = storagemigrationv1.MigrationSucceeded, storagemigrationv1.MigrationFailed
	for _, wrong := range []struct {
		is  bool
		why string
	}{
		{ended(m, succeeded) && ended(m, failed), "Both success and failed conditions cannot be true at the same time"},
		{ended(old, succeeded) && !ended(m, succeeded), "Success condition cannot be set to false once it is true"},
		{ended(old, failed) && !ended(m, failed), "Failed condition cannot be set to false once it is true"},
	} {
		c.Refuse(wrong.is, at.Child("conditions"), m.Status.Conditions, wrong.why)
	}
	return c.Errs
}

func apiServiceColumns() []registry.Column {
	service := column.Cell("Service", "The reference to the service that hosts this API endpoint.", func(o any) any {
		if s := column.At(o, "spec.service"); s != nil {
			return column.Str(column.At(s, "namespace")) + "/" + column.Str(column.At(s, "name"))
		}
		return "Local"
	})
	service.Repeated = true // the aggregator's tables always name the columns
	return []registry.Column{
		service,
		column.Cell("Available", "Whether this service is available.", func(o any) any {
			for _, c := range column.AsList(column.At(o, "status.conditions")) {
				if column.At(c, "type") != string(apiregistrationv1.Available) {
					continue
				}
				if reason := column.Str(column.At(c, "reason")); column.At(c, "status") != "True" && reason != "" {
					return column.Str(column.At(c, "status")) + " (" + reason + ")"
				}
				return column.Str(column.At(c, "status"))
			}
			return "Unknown"
		}),
		column.Age(),
	}
}
