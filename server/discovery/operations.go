package discovery

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// The media types that operations take and give.
const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// object is a piece of JSON; encoding/json sorts its keys, so that equal documents have equal bytes.
type object = map[string]any

// operation is one method of one path, as both versions of OpenAPI need it.
type operation struct {
	endpoint    *registry.Endpoint
	path        string
	method      string // in lower case
	action      string // "post", "deletecollection"
	id          string
	description string
	options     reflect.Type // of which the fields are query parameters
	takes       string       // the name of the body's schema, "" for none
	consumes    []string     // the media types of the body
	optional    bool         // the body may be left out
	gives       string       // the name of the answer's schema
	codes       []int        // of success
}

// action is what can be done with a path.
type action struct {
	name, verb string // in OpenAPI, and in discovery
	prefix     string // of the operation's id
	method     string
	options    reflect.Type
	codes      []int
}

var (
	listOptions   = reflect.TypeFor[metav1.ListOptions]()
	createOptions = reflect.TypeFor[metav1.CreateOptions]()
	getOptions    = reflect.TypeFor[metav1.GetOptions]()
	updateOptions = reflect.TypeFor[metav1.UpdateOptions]()
	patchOptions  = reflect.TypeFor[metav1.PatchOptions]()
	deleteOptions = reflect.TypeFor[metav1.DeleteOptions]()
)

// The actions on collections, on objects and on subresources, in the order of their methods.
var (
	collectionActions = []action{
		{"list", "list", "list", "get", listOptions, []int{200}},
		{"post", "create", "create", "post", createOptions, []int{200, 201, 202}},
		{"deletecollection", "deletecollection", "deletecollection", "delete", listOptions, []int{200}},
	}
	objectActions = []action{
		{"get", "get", "read", "get", getOptions, []int{200}},
		{"put", "update", "replace", "put", updateOptions, []int{200, 201}},
		{"delete", "delete", "delete", "delete", deleteOptions, []int{200, 202}},
		{"patch", "patch", "patch", "patch", patchOptions, []int{200}},
	}
)

// unpublished are members of options that are no parameters.
var unpublished = []string{"kind", "apiVersion"}

// schemaNames are the names of the schemas of an endpoint.
type schemaNames struct{ kind, list string }

func namesOf(e *registry.Endpoint, kind string) schemaNames {
	return schemaNames{kind: kind, list: strings.TrimSuffix(kind, e.Kind) + e.ListKind}
}

// operationsOf lists what can be done with an endpoint's objects.
func operationsOf(e *registry.Endpoint, names schemaNames) (all []operation) {
	prefix := "/" + Path(schema.GroupVersion{Group: e.Group, Version: e.Version})
	collection, scope := prefix+"/"+e.Plural, ""
	if e.Namespaced {
		everywhere := newOperation(e, names, site{path: collection}, collectionActions[0])
		everywhere.id += "ForAllNamespaces"
		all = append(all, everywhere)
		collection, scope = prefix+"/namespaces/{namespace}/"+e.Plural, "Namespaced"
	}
	for _, a := range collectionActions {
		if slices.Contains(e.Verbs, a.verb) {
			all = append(all, newOperation(e, names, site{path: collection, scope: scope}, a))
		}
	}
	for _, a := range objectActions {
		if slices.Contains(e.Verbs, a.verb) {
			all = append(all, newOperation(e, names, site{path: collection + "/{name}", scope: scope}, a))
		}
	}
	for _, subresource := range e.Subresources {
		for _, a := range objectActions {
			if slices.Contains(e.SubresourceVerbs(subresource), a.verb) {
				all = append(all, newOperation(e, names, site{collection + "/{name}/" + subresource, scope, subresource}, a))
			}
		}
	}
	return all
}

// site is where an operation is found.
type site struct {
	path        string
	scope       string // of the operation's id: "Namespaced" or ""
	subresource string // "" for none
}

func newOperation(e *registry.Endpoint, names schemaNames, at site, a action) operation {
	group := cmp.Or(e.Group, "core")
	kind := names.kind
	if at.subresource == "scale" {
		kind = scaleSchema
	}
	op := operation{
		endpoint: e, path: at.path, method: a.method, action: a.name, options: a.options, codes: a.codes, gives: kind,
		description: describe(a.prefix, e.Kind, at.subresource),
	}
	verb, collection := strings.CutSuffix(a.prefix, "collection")
	op.id = verb + upperIdentifier(strings.TrimSuffix(group, ".k8s.io")) + upperIdentifier(e.Version)
	if collection {
		op.id += "Collection"
	}
	op.id += at.scope + upperIdentifier(e.Kind) + upperIdentifier(at.subresource)
	switch a.name {
	case "list":
		op.gives = names.list
	case "post", "put":
		op.takes, op.consumes = kind, []string{mediaJSON, mediaYAML}
	case "patch":
		op.takes = patchSchema
		for _, media := range e.PatchTypes() {
			op.consumes = append(op.consumes, string(media))
		}
	case "deletecollection":
		op.gives = statusSchema
	case "delete":
		op.gives = statusSchema
		op.takes, op.consumes, op.optional = deleteOptionsSchema, []string{mediaJSON, mediaYAML}, true
	}
	return op
}

// describe says in words what an operation does.
func describe(verb, kind, subresource string) string {
	of := "the specified " + kind
	if subresource != "" {
		of = subresource + " of " + of
	}
	switch verb {
	case "list":
		return "list objects of kind " + kind
	case "create", "delete":
		return verb + withArticle(kind)
	case "patch":
		return "partially update " + of
	case "deletecollection":
		return "delete collection of " + kind
	}
	return verb + " " + of
}

// withArticle puts before a kind what Kubernetes puts there: nothing before what looks like a plural.
func withArticle(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		return " " + kind
	case strings.ContainsRune("AEIOUaeiou", rune(kind[0])):
		return " an " + kind
	}
	return " a " + kind
}

// upperIdentifier is identifier with a capital first, lowerIdentifier one without.
func upperIdentifier(s string) string { return identifier(s, true) }
func lowerIdentifier(s string) string { return identifier(s, false) }

// identifier leaves out what can't be in an identifier, and has the next letter capitalized for it.
func identifier(s string, capital bool) string {
	var b strings.Builder
	for i, c := range s {
		switch {
		case unicode.IsLetter(c) || c == '_' || i > 0 && unicode.IsDigit(c):
			if capital {
				c = unicode.ToUpper(c)
			}
			b.WriteRune(c)
			capital = false
		default:
			capital = true
		}
	}
	return b.String()
}

// tag is what groups the operations of a group version.
func (op operation) tag() string {
	group := cmp.Or(op.endpoint.Group, "core")
	return lowerIdentifier(strings.TrimSuffix(group, ".k8s.io")) + "_" + lowerIdentifier(op.endpoint.Version)
}
