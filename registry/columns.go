package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"
)

// Column is a column of the tables in which kubectl prints objects. The first is always the name; it
// isn't declared.
type Column struct {
	Name        string
	Type        string // integer, number, string, boolean or date, which is shown as an age
	Format      string // of OpenAPI; may be empty
	Description string
	Priority    int32  // above 0: shown by kubectl get -o wide only
	JSONPath    string // of the value, as ".spec.color"
	// Cell computes what is shown instead, if it's set: a JSON value. It must not change the object.
	Cell func(object map[string]any) any
}

// describe holds the descriptions of metadata's fields.
var describe = metav1.ObjectMeta{}.SwaggerDoc()

// nameColumn is every table's first.
func nameColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: describe["name"]}
}

// age is the column of kinds that declare none.
func age() Column {
	return Column{Name: "Age", Type: "date", Description: describe["creationTimestamp"], JSONPath: ".metadata.creationTimestamp"}
}

// columnsOf returns the columns that a version of a definition declares.
func columnsOf(v *apiextensionsv1.CustomResourceDefinitionVersion) []Column {
	var out []Column
	for _, c := range v.AdditionalPrinterColumns {
		if c.Description == "" {
			c.Description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		out = append(out, Column{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority, JSONPath: c.JSONPath})
	}
	return out
}

// columns are compiled ones. Immutable.
type columns struct {
	cells       []func(object map[string]any) any // behind the name
	definitions []byte                            // all of them, as JSON
}

// compile prepares columns: those declared, or the age.
func compile(declared []Column) *columns {
	if len(declared) == 0 {
		declared = []Column{age()}
	}
	out := &columns{}
	definitions := []metav1.TableColumnDefinition{nameColumn()}
	for _, c := range declared {
		definitions = append(definitions, metav1.TableColumnDefinition{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority,
		})
		cell := c.Cell
		if cell == nil {
			cell = cellAt(c.JSONPath, c.Type)
		}
		out.cells = append(out.cells, cell)
	}
	var err error
	if out.definitions, err = json.Marshal(definitions); err != nil {
		panic(err) // strings and numbers always encode
	}
	return out
}

// cellAt returns what shows the value at a path as a type. Of several values it's the first. A path that
// can't be used shows nothing.
func cellAt(text, typ string) func(map[string]any) any {
	path := jsonpath.New("column").AllowMissingKeys(true)
	text = "{" + text + "}"
	if !simple(text) || path.Parse(text) != nil {
		return func(map[string]any) any { return nil }
	}
	return func(object map[string]any) any {
		found, err := path.FindResults(object)
		if err != nil || len(found) == 0 || len(found[0]) == 0 {
			return nil
		}
		value := found[0][0].Interface()
		if typ != "string" {
			return cellOf(value, typ)
		}
		var out bytes.Buffer
		if err := path.PrintResults(&out, []reflect.Value{reflect.ValueOf(value)}); err != nil {
			return nil
		}
		return out.String()
	}
}

// simple tells whether a path is one that can be shared by goroutines, which those with a range can't, and
// that takes time and memory in proportion to the object. Definitions are only checked to begin with a dot.
func simple(text string) bool {
	parsed, err := jsonpath.Parse("column", text)
	if err != nil {
		return false
	}
	branching := 0
	var walk func(n jsonpath.Node) bool
	list := func(l *jsonpath.ListNode) bool {
		for _, n := range l.Nodes {
			if !walk(n) {
				return false
			}
		}
		return true
	}
	walk = func(n jsonpath.Node) bool {
		switch n := n.(type) {
		case *jsonpath.ListNode:
			return list(n)
		case *jsonpath.FilterNode:
			return list(n.Left) && list(n.Right)
		case *jsonpath.UnionNode:
			branching++
			for _, l := range n.Nodes {
				if !list(l) {
					return false
				}
			}
		case *jsonpath.RecursiveNode:
			branching++
		case *jsonpath.IdentifierNode:
			return false
		}
		return branching <= 1
	}
	return len(parsed.Root.Nodes) == 1 && walk(parsed.Root)
}

// cellOf shows a JSON value as a type; nil if it isn't of that.
func cellOf(value any, typ string) any {
	switch typ {
	case "integer":
		switch n := value.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		}
	case "number":
		switch n := value.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "date":
		if text, ok := value.(string); ok {
			return elapsed(text)
		}
	}
	return nil
}

// elapsed shows a time as an age, such as "5m": kubectl prints what the server says.
func elapsed(text string) string {
	var t metav1.Time
	if err := t.UnmarshalQueryParameter(text); err != nil {
		return "<invalid>"
	}
	return metatable.ConvertToHumanReadableDateType(t)
}

// at returns the text of a member of an object, "" if there's none.
func at(object map[string]any, path ...string) string {
	var value any = object
	for _, name := range path {
		members, ok := value.(map[string]any)
		if !ok {
			return ""
		}
		value = members[name]
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
