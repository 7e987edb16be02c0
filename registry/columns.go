package registry

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// definitionColumns are those that kubectl prints of definitions, as kube-apiserver has them.
var definitionColumns = []form.Column{
	{Name: "Scope", Type: "string", Description: "Cluster/Namespaced", JSONPath: ".spec.scope"},
	{Name: "Versions", Type: "string", Description: "Served versions", JSONPath: ".spec.versions", Cell: servedVersions},
	{Name: "Created At", Type: "date", NullRows: true, Description: form.Age().Description,
		JSONPath: ".metadata.creationTimestamp", Cell: func(value any) any { return value }}, // not as an age
	{Name: "Group", Type: "string", Priority: 1, Description: "API group", JSONPath: ".spec.group"},
	{Name: "Kind", Type: "string", Priority: 1, Description: "CustomResource kind", JSONPath: ".spec.names.kind"},
	{Name: "ShortNames", Type: "string", Priority: 1, Description: "Short names", JSONPath: ".spec.names", Cell: func(names any) any {
		var all []string
		for _, name := range list(object.Map(names)["shortNames"]) {
			all = append(all, fmt.Sprint(name))
		}
		return strings.Join(all, ",")
	}},
	{Name: "Established", Type: "boolean", Priority: 1, Description: "Established status", JSONPath: ".status", Cell: func(status any) any {
		return slices.ContainsFunc(list(object.Map(status)["conditions"]), func(c any) bool {
			condition := object.Map(c)
			return condition["type"] == string(apiextensionsv1.Established) && condition["status"] == string(apiextensionsv1.ConditionTrue)
		})
	}},
}

// servedVersions shows the names of the served versions, and which is stored.
func servedVersions(versions any) any {
	var all []string
	for _, v := range list(versions) {
		version := object.Map(v)
		if version["served"] != true {
			continue
		}
		name := fmt.Sprint(version["name"])
		if version["storage"] == true {
			name += "(storage)"
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func list(v any) []any {
	all, _ := v.([]any)
	return all
}
