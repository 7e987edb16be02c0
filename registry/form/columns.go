package form

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
)

// Column is a column of the tables in which kubectl prints objects. The first is the name, which isn't declared, unless a
// column of the format "name" is.
type Column struct {
	Name        string // "" for cells that have no column
	Type        string // integer, number, string, boolean or date, which is shown as an age
	Format      string // of OpenAPI; may be empty
	Description string
	Priority    int32  // above 0: shown by kubectl get -o wide only
	JSONPath    string // of the value, as ".spec.color"; of several it's the first
	// Cell, if set, computes what is shown for the value, or without a JSONPath for the object: a string,
	// bool, int64 or float64, an Ago, or nil for nothing. It must not change what it's given.
	Cell func(value any) any
	// IsName is set for a column of the name whose Format doesn't say so.
	IsName bool
	// Repeated is set for a column with which each event of a watch says what the columns are, and not only the first.
	Repeated bool
	// NullRows is set for a column of kinds whose tables are those that kube-apiserver makes of any kind: without rows they have null.
	NullRows bool
}

// describe holds the descriptions of metadata's fields.
var describe = metav1.ObjectMeta{}.SwaggerDoc()

// NameColumn is every table's first.
func NameColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: describe["name"]}
}

// Age is the column of kinds that declare none.
func Age() Column {
	return Column{Name: "Age", Type: "date", Description: describe["creationTimestamp"], JSONPath: ".metadata.creationTimestamp"}
}

// ColumnsOf returns the columns that a version of a definition declares.
func ColumnsOf(v *apiextensionsv1.CustomResourceDefinitionVersion) []Column {
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
	cells       []func(object any) any // after the name, if the name is first
	nameFirst   bool
	repeated    bool   // in each event of a watch
	nullRows    bool   // instead of no rows
	wanted      wanted // what they look at
	definitions []byte // all of them, as JSON
}

// compile prepares columns: those declared, or the age.
func compile(declared []Column) *columns {
	if len(declared) == 0 {
		declared = []Column{Age()}
	}
	out := &columns{wanted: wanted{}, nameFirst: !slices.ContainsFunc(declared, func(c Column) bool { return c.IsName || c.Format == NameColumn().Format })}
	var definitions []metav1.TableColumnDefinition
	if out.nameFirst {
		definitions = append(definitions, NameColumn())
	}
	for _, c := range declared {
		out.repeated, out.nullRows = out.repeated || c.Repeated, out.nullRows || c.NullRows
		if c.Name != "" {
			definitions = append(definitions, metav1.TableColumnDefinition{
				Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority,
			})
		}
		cell, members, err := c.compile()
		if err != nil { // the column stays empty, as one with a wrong path is
			cell = func(any) any { return nil }
		} else {
			out.wanted = out.wanted.with(members)
		}
		out.cells = append(out.cells, cell)
	}
	var err error
	if out.definitions, err = json.Marshal(definitions); err != nil {
		panic(err) // strings and numbers always encode
	}
	return out
}

// compile returns what makes the column's cell of an object, and the names of members that lead to what it
// looks at.
func (c Column) compile() (cell func(object any) any, members []string, err error) {
	show := c.Cell
	if c.JSONPath == "" && show != nil {
		return show, nil, nil
	}
	path, err := parsePath(c.JSONPath)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case show != nil:
	case c.Type == "string":
		show = func(value any) any { return textOf(path.JSONPath, value) }
	default:
		show = func(value any) any { return cellOf(value, c.Type) }
	}
	return func(object any) any {
		value, ok := path.first(object)
		if !ok {
			return nil
		}
		return show(value)
	}, path.members, nil
}

// textOf shows a value of any type as a string.
func textOf(path *jsonpath.JSONPath, value any) any {
	if text, ok := value.(string); ok {
		return text
	}
	var out bytes.Buffer
	if err := path.PrintResults(&out, []reflect.Value{reflect.ValueOf(value)}); err != nil {
		return nil
	}
	return out.String()
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
		return Elapsed(value)
	}
	return nil
}

// Ago is a cell that shows how long ago something was, as "5m", by the clock of whoever writes the row.
type Ago struct {
	At     time.Time
	Format string // of fmt, with one string in it; "" for that alone
}

// Said returns what a cell shows: the text of an Ago, and others as they are.
func Said(cell any, now func() time.Time) any {
	ago, ok := cell.(Ago)
	if !ok {
		return cell
	}
	text := duration.HumanDuration(now().Sub(ago.At))
	if ago.Format == "" {
		return text
	}
	return fmt.Sprintf(ago.Format, text)
}

// Elapsed shows a time (RFC 3339, in a string) as an age, an Ago: kubectl prints what the server says. It's
// "<invalid>" for another string, "<unknown>" for an empty one, and nil for what isn't one.
func Elapsed(value any) any {
	text, ok := value.(string)
	if !ok {
		return nil
	}
	var t metav1.Time
	if err := t.UnmarshalQueryParameter(text); err != nil {
		return "<invalid>"
	}
	if t.IsZero() {
		return "<unknown>"
	}
	return Ago{At: t.Time}
}
