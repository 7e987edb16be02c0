package discovery

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// parameter is one in the path or in the query.
type parameter struct {
	name, in    string
	description string // as JSON: thousands of operations have the same ones
	typ         string
	required    bool
}

// quoted is a text as JSON.
func quoted(s string) string { return string(jsontree.AppendString(nil, s)) }

// The parameters that don't come from options.
var (
	prettyParameter = parameter{name: "pretty", in: "query", typ: "string", description: quoted(
		"If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget).")}
	namespaceParameter = parameter{name: "namespace", in: "path", typ: "string", required: true, description: quoted(
		"object name and auth scope, such as for teams and projects")}
)

// optionParameters has the query parameters that the fields of options are, by their type, for as long as the process runs. There are as many as actions.
var optionParameters sync.Map

func parametersOf(options reflect.Type) ([]parameter, error) {
	if known, ok := optionParameters.Load(options); ok {
		return known.([]parameter), nil
	}
	root, schemas, err := gotype.Of(options)
	if err != nil {
		return nil, err
	}
	var all []parameter
	for name, property := range schemas[root].Properties {
		if slices.Contains(unpublished, name) || property.Ref.String() != "" {
			continue
		}
		p := parameter{name: name, in: "query", typ: property.Type[0], description: quoted(property.Description)}
		if p.typ == "array" {
			p.typ = "string" // each of them
		}
		all = append(all, p)
	}
	optionParameters.Store(options, all)
	return all, nil
}

// parameters returns those of the path and the query.
func (op operation) parameters() ([]parameter, error) {
	options, err := parametersOf(op.options)
	if err != nil {
		return nil, err
	}
	all := append(slices.Clone(options), prettyParameter)
	if strings.Contains(op.path, "{name}") {
		all = append(all, parameter{name: "name", in: "path", typ: "string", required: true, description: quoted("name of the " + op.endpoint.Kind)})
	}
	if strings.Contains(op.path, "{namespace}") {
		all = append(all, namespaceParameter)
	}
	slices.SortFunc(all, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// rendering is how a version of OpenAPI says what an operation is with parameters of its own, and what a parameter is.
type rendering struct {
	operation func(to *text, op operation, own []parameter)
	parameter func(to *text, p parameter)
}

// add adds operations of whole paths to a document: those of a path stand together.
func (r *rendering) add(operations []operation, paths object) {
	for len(operations) > 0 {
		n := slices.IndexFunc(operations, func(op operation) bool { return op.path != operations[0].path })
		if n < 0 {
			n = len(operations)
		}
		paths[operations[0].path] = pathItem{r, operations[:n]}
		operations = operations[n:]
	}
}

// pathItem is the operations of a path. Parameters that all of them have are the path's.
type pathItem struct {
	*rendering
	operations []operation
}

func (i pathItem) write(to *text) error {
	params := make([][]parameter, len(i.operations))
	for n, op := range i.operations {
		var err error
		if params[n], err = op.parameters(); err != nil {
			return err
		}
	}
	common := slices.DeleteFunc(slices.Clone(params[0]), func(p parameter) bool {
		return slices.ContainsFunc(params[1:], func(of []parameter) bool { return !slices.Contains(of, p) })
	})
	members := map[string]func(){"parameters": func() { i.parameters(to, common) }}
	for n, op := range i.operations {
		own := slices.DeleteFunc(params[n], func(p parameter) bool { return slices.Contains(common, p) })
		members[op.method] = func() { i.operation(to, op, own) }
	}
	to.open('{')
	for _, name := range []string{"delete", "get", "parameters", "patch", "post", "put"} {
		if write := members[name]; write != nil {
			to.name(name)
			write()
		}
	}
	to.close('}')
	return nil
}

func (r *rendering) parameters(to *text, list []parameter) {
	to.open('[')
	for _, p := range list {
		r.parameter(to, p)
	}
	to.close(']')
}

// end writes the last members of an operation, and the object's end.
func (op operation) end(to *text) {
	to.name("tags")
	to.strings(op.tag())
	to.member("x-kubernetes-action", op.action)
	to.name("x-kubernetes-group-version-kind")
	to.open('{')
	to.member("group", op.endpoint.Group)
	to.member("kind", op.endpoint.Kind)
	to.member("version", op.endpoint.Version)
	to.close('}')
	to.close('}')
}

// responses writes a member with an entry for each code, in which answer writes what of it isn't the description.
func (op operation) responses(to *text, answer func(code int)) {
	to.name("responses")
	to.open('{')
	for _, code := range op.codes { // which are lower than 401
		to.name(strconv.Itoa(code))
		to.open('{')
		answer(code)
		to.close('}')
	}
	to.name("401")
	to.open('{')
	to.member("description", "Unauthorized")
	to.close('}')
	to.close('}')
}

var rendering2 = &rendering{operation2, parameter2}

func operation2(to *text, op operation, own []parameter) {
	to.open('{')
	if op.consumes != nil {
		to.name("consumes")
		to.strings(op.consumes...)
	}
	to.member("description", op.description)
	to.member("operationId", op.id)
	to.name("parameters")
	to.open('[')
	if op.takes != "" {
		to.open('{')
		to.member("in", "body")
		to.member("name", "body")
		if !op.optional {
			to.name("required")
			to.raw("true")
		}
		to.name("schema")
		to.reference(refPrefix2, op.takes)
		to.close('}')
	}
	for _, p := range own {
		parameter2(to, p)
	}
	to.close(']')
	to.name("produces")
	to.strings(answerTypes...)
	op.responses(to, func(code int) {
		to.member("description", http.StatusText(code))
		to.name("schema")
		to.reference(refPrefix2, op.gives)
	})
	to.name("schemes")
	to.strings("https")
	op.end(to)
}

// head writes the first members of a parameter, which both versions have.
func (p parameter) head(to *text) {
	to.open('{')
	to.name("description")
	to.raw(p.description)
	to.member("in", p.in)
	to.member("name", p.name)
	if p.required {
		to.name("required")
		to.raw("true")
	}
}

// kind says of which type a parameter is, and ends an object.
func (p parameter) kind(to *text) {
	to.member("type", p.typ)
	to.name("uniqueItems")
	to.raw("true")
	to.close('}')
}

func parameter2(to *text, p parameter) {
	p.head(to)
	p.kind(to)
}

// answerTypes are the media types of an operation's answers, in order.
var answerTypes = []string{mediaJSON, mediaYAML}

var rendering3 = &rendering{operation3, parameter3}

func operation3(to *text, op operation, own []parameter) {
	content := func(types []string, schema string) {
		to.name("content")
		to.open('{')
		for _, media := range slices.Sorted(slices.Values(types)) {
			to.name(media)
			to.open('{')
			to.name("schema")
			to.reference(gotype.RefPrefix, schema)
			to.close('}')
		}
		to.close('}')
	}
	to.open('{')
	to.member("description", op.description)
	to.member("operationId", op.id)
	if len(own) > 0 {
		to.name("parameters")
		to.open('[')
		for _, p := range own {
			parameter3(to, p)
		}
		to.close(']')
	}
	if op.takes != "" {
		to.name("requestBody")
		to.open('{')
		content(op.consumes, op.takes)
		if !op.optional {
			to.name("required")
			to.raw("true")
		}
		to.close('}')
	}
	op.responses(to, func(code int) {
		content(answerTypes, op.gives)
		to.member("description", http.StatusText(code))
	})
	op.end(to)
}

func parameter3(to *text, p parameter) {
	p.head(to)
	to.name("schema")
	to.open('{')
	p.kind(to)
	to.close('}')
}
