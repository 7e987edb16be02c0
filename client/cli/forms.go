package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// The forms in which get prints objects. The last two take a text: a template, and what is in the columns.
const (
	formTable    = "table"
	formWide     = "wide"
	formName     = "name"
	formJSON     = "json"
	formYAML     = "yaml"
	formJSONPath = "jsonpath"
	formColumns  = "custom-columns"
)

// form is what -o says.
type form struct {
	name    string
	path    *jsonpath.JSONPath // of jsonpath
	columns []column           // of custom-columns
}

// column is one of -o custom-columns.
type column struct {
	header string
	path   *jsonpath.JSONPath
}

// parseForm reads -o.
func parseForm(output string) (f form, err error) {
	name, argument, given := strings.Cut(output, "=")
	f.name = name
	switch name {
	case "":
		f.name = formTable
	case formTable, formWide, formName, formJSON, formYAML:
	case formJSONPath:
		if f.path, err = parsePath(argument); err != nil {
			return f, usageError("-o %s: %w", output, err)
		}
	case formColumns:
		f.columns, err = parseColumns(argument)
		return f, err
	default:
		return f, usageError("-o %q is none of table, wide, name, json, yaml, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,...", output)
	}
	if takes := name == formJSONPath; takes != given || takes && argument == "" {
		return f, usageError("-o %s: only jsonpath and custom-columns take a text, and they need one, as -o jsonpath='{.metadata.name}'", output)
	}
	return f, nil
}

// parseColumns reads what kubectl takes: NAME:.metadata.name,SIZE:.spec.size, for example.
func parseColumns(text string) (all []column, err error) {
	for part := range strings.SplitSeq(text, ",") {
		header, path, found := strings.Cut(part, ":")
		if !found || header == "" || path == "" {
			return nil, usageError("-o custom-columns: %q is no HEADER:PATH such as NAME:.metadata.name", part)
		}
		c := column{header: header}
		if c.path, err = parsePath(relaxed(path)); err != nil {
			return nil, usageError("-o custom-columns: %s: %w", part, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// relaxed completes a path that has no braces or no first point.
func relaxed(path string) string {
	if strings.HasPrefix(path, "{") {
		return path
	}
	return "{." + strings.TrimPrefix(path, ".") + "}"
}

func parsePath(template string) (*jsonpath.JSONPath, error) {
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path, path.Parse(template)
}

// whole tells whether the form shows fields of objects, which a table's columns don't.
func (f form) whole() bool {
	return f.name == formJSON || f.name == formYAML || f.name == formJSONPath || f.name == formColumns
}

// print prints one object: JSON in a line, YAML as a document of a stream, its name, or what a template makes of it.
func (f form) print(out io.Writer, of client.Collection[client.Object], object client.Object) error {
	switch f.name {
	case formName:
		fmt.Fprintf(out, "%s/%s\n", of, object.Name())
	case formYAML:
		document, err := yaml.JSONToYAML(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "---\n%s", document)
	case formJSONPath:
		return f.template(out, object)
	default:
		fmt.Fprintf(out, "%s\n", object)
	}
	return nil
}

// template prints what the template makes of an object, or of a List of them.
func (f form) template(out io.Writer, document []byte) error {
	var tree any
	if err := utiljson.Unmarshal(document, &tree); err != nil { // which keeps integers
		return err
	}
	var b bytes.Buffer // a template that fails in the middle prints nothing
	if err := f.path.Execute(&b, tree); err != nil {
		return fmt.Errorf("-o jsonpath: %w", err)
	}
	_, err := out.Write(b.Bytes())
	return err
}

// list is objects as the List that kubectl gives to a template.
func list(objects []client.Object) ([]byte, error) {
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
}

// cells are an object's in the form's columns.
func (f form) cells(object client.Object) (cells []string, err error) {
	var tree any
	if err := utiljson.Unmarshal(object, &tree); err != nil {
		return nil, err
	}
	for _, c := range f.columns {
		found, err := c.path.FindResults(tree)
		if err != nil {
			return nil, fmt.Errorf("-o custom-columns: %s: %w", c.header, err)
		}
		var values []string
		for _, group := range found {
			for _, v := range group {
				values = append(values, value(v))
			}
		}
		if len(values) == 0 {
			values = []string{"<none>"}
		}
		cells = append(cells, strings.Join(values, ","))
	}
	return cells, nil
}

func value(v reflect.Value) string {
	if !v.IsValid() || v.Kind() == reflect.Interface && v.IsNil() {
		return "<none>"
	}
	return cell(v.Interface())
}

func (f form) headers() (all []string) {
	for _, c := range f.columns {
		all = append(all, c.header)
	}
	return all
}

// aligned prints rows whose cells stand below each other: those that are printed together, and below the widest of those that were printed before.
type aligned struct {
	out    io.Writer
	widths []int
}

// gap is between two cells.
const gap = 3

// fit makes the columns as wide as a row needs.
func (a *aligned) fit(row []string) {
	for i, cell := range row {
		if i == len(a.widths) {
			a.widths = append(a.widths, 0)
		}
		a.widths[i] = max(a.widths[i], utf8.RuneCountInString(cell))
	}
}

func (a *aligned) print(rows ...[]string) error {
	for _, row := range rows {
		a.fit(row)
	}
	var b bytes.Buffer
	for _, row := range rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", a.widths[i]+gap-utf8.RuneCountInString(cell)))
			}
		}
		b.WriteByte('\n')
	}
	_, err := a.out.Write(b.Bytes())
	return err
}
