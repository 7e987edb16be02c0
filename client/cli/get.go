package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// get prints objects.
func (c *command) get(ctx context.Context) error {
	switch c.output {
	case "", "table", "wide", "name", "json":
	default:
		return usageError("-o %q is none of table, wide, name, json", c.output)
	}
	widgets, err := c.resource(ctx)
	if err != nil {
		return err
	}
	names := c.args[1:]
	if len(names) > 0 && len(c.options) > 0 {
		return usageError("names and selectors exclude each other")
	}
	if c.output == "json" || c.output == "name" {
		return c.getObjects(ctx, widgets, names)
	}
	return c.getTable(ctx, widgets, names)
}

// getObjects prints objects one per line.
func (c *command) getObjects(ctx context.Context, widgets client.Collection[client.Object], names []string) error {
	for _, name := range names {
		object, err := widgets.Get(ctx, name)
		if err != nil {
			return err
		}
		c.printObject(widgets, object)
	}
	if len(names) > 0 {
		return nil
	}
	list, err := widgets.List(ctx, c.options...)
	if err != nil {
		return err
	}
	for object, err := range list.All(ctx) {
		if err != nil {
			return err
		}
		c.printObject(widgets, object)
	}
	return nil
}

func (c *command) printObject(widgets client.Collection[client.Object], object *client.Object) {
	if c.output == "name" {
		fmt.Fprintf(c.out, "%s/%s\n", widgets, object.Name())
	} else {
		fmt.Fprintf(c.out, "%s\n", *object)
	}
}

// getTable prints a table.
func (c *command) getTable(ctx context.Context, widgets client.Collection[client.Object], names []string) error {
	var all client.Table
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		table, err := widgets.Table(ctx, name, c.progress, c.options...)
		if err != nil {
			return err
		}
		all.Columns = table.Columns
		all.Rows = append(all.Rows, table.Rows...)
	}
	if len(all.Rows) == 0 {
		fmt.Fprintf(c.err, "no %s found\n", widgets)
		return nil
	}
	w := tabwriter.NewWriter(c.out, 0, 8, 3, ' ', 0)
	c.printRow(w, "NAMESPACE", all.Columns, func(i int) string { return strings.ToUpper(all.Columns[i].Name) })
	for _, row := range all.Rows {
		c.printRow(w, row.Object.Namespace, all.Columns, func(i int) string {
			if i >= len(row.Cells) {
				return ""
			}
			return cell(row.Cells[i])
		})
	}
	return w.Flush()
}

// printRow prints the columns that are shown.
func (c *command) printRow(w *tabwriter.Writer, namespace string, columns []client.TableColumn, cell func(int) string) {
	var cells []string
	if c.allNamespaces {
		cells = append(cells, namespace)
	}
	for i, column := range columns {
		if column.Priority == 0 || c.output == "wide" {
			cells = append(cells, cell(i))
		}
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// cell returns a cell's text. Servers make ages of dates; a date is shown as it is.
func cell(value any) string {
	switch v := value.(type) {
	case nil:
		return "<none>"
	case string:
		return strings.Map(printable, v)
	case float64:
		return fmt.Sprintf("%.15g", v)
	}
	return fmt.Sprint(value)
}

// printable replaces what would break the table, or steer the terminal.
func printable(r rune) rune {
	if r < ' ' || r >= 0x7f && r < 0xa0 {
		return ' '
	}
	return r
}

// progressEvery is how many rows, or objects, there are between two lines about progress.
const progressEvery = 1000

// progress says on a terminal how far a long list has come.
func (c *command) progress(done, remaining int) {
	if terminal(c.err) && done+remaining > progressEvery {
		fmt.Fprintf(c.err, "\r\x1b[K%d of %d", done, done+remaining)
		if remaining == 0 {
			fmt.Fprint(c.err, "\r\x1b[K")
		}
	}
}
