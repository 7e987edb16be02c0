package discovery

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
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
	options     []reflect.Type // of which the fields are query parameters
	takes       string         // the name of the body's schema, "" for none
	consumes    []string       // the media types of the body
	optional    bool           // the body may be left out
	gives       string         // the name of the answer's schema
	codes       []int          // of success
}

// action is what can be done with a path.
type action struct {
	name, verb string // in OpenAPI, and in discovery
	prefix     string // of the operation's id
	method     string
	options    []reflect.Type
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
		{"list", "list", "list", "get", []reflect.Type{listOptions}, []int{200}},
		{"post", "create", "create", "post", []reflect.Type{createOptions}, []int{200, 201, 202}},
		{"deletecollection", "deletecollection", "deletecollection", "delete", []reflect.Type{listOptions}, []int{200}},
	}
	objectActions = []action{
		{"get", "get", "read", "get", []reflect.Type{getOptions}, []int{200}},
		{"put", "update", "replace", "put", []reflect.Type{updateOptions}, []int{200, 201}},
		{"delete", "delete", "delete", "delete", []reflect.Type{deleteOptions}, []int{200, 202}},
		{"patch", "patch", "patch", "patch", []reflect.Type{patchOptions}, []int{200}},
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

func (op operation) gvk() object { return gvk(op.endpoint, op.endpoint.Kind) }

func gvk(e *registry.Endpoint, kind string) object {
	return object{"group": e.Group, "version": e.Version, "kind": kind}
}

// parameter is one in the path or in the query.
type parameter struct {
	name, in, description string
	typ                   string
	required              bool
}

// derived remembers the schemas of Go types while a document is built.
type derived map[reflect.Type]derivedSchemas

type derivedSchemas struct {
	root    string
	schemas map[string]*spec.Schema
}

// of is gotype.Of.
func (d derived) of(t reflect.Type) (derivedSchemas, error) {
	if known, ok := d[t]; ok {
		return known, nil
	}
	root, schemas, err := gotype.Of(t)
	if err == nil {
		d[t] = derivedSchemas{root, schemas}
	}
	return d[t], err
}

// parameters returns those of the path and the query.
func (op operation) parameters(types derived) ([]parameter, error) {
	all := []parameter{{name: "pretty", in: "query", typ: "string",
		description: "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."}}
	if strings.Contains(op.path, "{name}") {
		all = append(all, parameter{name: "name", in: "path", typ: "string", required: true, description: "name of the " + op.endpoint.Kind})
	}
	if strings.Contains(op.path, "{namespace}") {
		all = append(all, parameter{name: "namespace", in: "path", typ: "string", required: true,
			description: "object name and auth scope, such as for teams and projects"})
	}
	for _, t := range op.options {
		options, err := types.of(t)
		if err != nil {
			return nil, err
		}
		for name, property := range options.schemas[options.root].Properties {
			known := slices.ContainsFunc(all, func(p parameter) bool { return p.name == name })
			if known || slices.Contains(unpublished, name) || property.Ref.String() != "" {
				continue
			}
			p := parameter{name: name, in: "query", typ: property.Type[0], description: property.Description}
			if p.typ == "array" {
				p.typ = "string" // each of them
			}
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// rendering is how a version of OpenAPI says what an operation is, and what its parameters or those of a path are.
type rendering struct {
	operation  func(operation, []parameter) object
	parameters func([]parameter) []object
}

// add adds operations of whole paths to a document. Parameters that all operations of a path have are the path's.
func (r rendering) add(operations []operation, types derived, paths object) error {
	type located struct {
		path string
		parameter
	}
	params, has, methods := make([][]parameter, len(operations)), map[located]int{}, map[string]int{}
	for i, op := range operations {
		var err error
		if params[i], err = op.parameters(types); err != nil {
			return err
		}
		methods[op.path]++
		for _, p := range params[i] {
			has[located{op.path, p}]++
		}
	}
	for i, op := range operations {
		item, _ := paths[op.path].(object)
		if item == nil {
			item = object{}
			paths[op.path] = item
		}
		var common, own []parameter
		for _, p := range params[i] {
			if has[located{op.path, p}] == methods[op.path] {
				common = append(common, p)
			} else {
				own = append(own, p)
			}
		}
		item["parameters"], item[op.method] = r.parameters(common), r.operation(op, own)
	}
	return nil
}

// responses has an entry for each code, which what makes from the text.
func (op operation) responses(what func(text, schema string) object) object {
	out := object{"401": object{"description": "Unauthorized"}}
	for _, code := range op.codes {
		out[strconv.Itoa(code)] = what(http.StatusText(code), op.gives)
	}
	return out
}
