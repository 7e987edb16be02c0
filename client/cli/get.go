package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// getCommand prints objects.
type getCommand struct {
	place
	selection
	projection
	sortBy string
	output string

	resource string
	names    []string
}

func (c *getCommand) addFlags(set *pflag.FlagSet) {
	c.place.addFlags(set)
	c.selection.addFlags(set)
	set.StringVar(&c.sortBy, "sort-by", "", "puts the objects into the order of a field, such as .spec.size, or -.spec.size for the largest first; of an apiserver-lite only")
	c.projection.addFlags(set, "of objects, with -o json,")
	set.StringVarP(&c.output, "output", "o", "", "table, wide, name or json (default table)")
}

func (c *getCommand) parse(args []string) error {
	switch c.output {
	case "", "table", "wide", "name", "json":
	default:
		return usageError("-o %q is none of table, wide, name, json", c.output)
	}
	if len(args) == 0 {
		return errNoResource("get")
	}
	c.resource, c.names = args[0], args[1:]
	beside := ""
	if len(c.names) > 0 {
		beside = "names"
	}
	return errors.Join(c.place.check(), c.selection.check(beside), c.projection.check(), c.checkOrder(beside))
}

// checkOrder refuses an order that can't be read, or of objects that are named, and fields that nobody would see.
func (c *getCommand) checkOrder(beside string) error {
	if _, err := selectors.ParseSortKey(c.sortBy); c.sortBy != "" && err != nil {
		return usageError("--sort-by: %w", err)
	}
	switch {
	case c.sortBy != "" && beside != "":
		return usageError("--sort-by and %s exclude each other", beside)
	case c.only != "" && c.output != "json":
		return usageError("--fields is for -o json: a table has columns")
	}
	return nil
}

// listOptions returns what is asked of a list.
func (c *getCommand) listOptions() []client.Option {
	options := append(c.selection.options(), c.projection.options()...)
	if c.sortBy != "" {
		options = append(options, client.SortBy(c.sortBy))
	}
	return options
}

func (c *getCommand) run(ctx context.Context, s *session) error {
	collection, err := c.find(ctx, s, c.resource)
	if err != nil {
		return err
	}
	if c.output == "json" || c.output == "name" {
		return c.objects(ctx, s, collection)
	}
	return c.table(ctx, s, collection)
}

// objects prints objects one per line.
func (c *getCommand) objects(ctx context.Context, s *session, collection client.Collection[client.Object]) error {
	for _, name := range c.names {
		object, err := collection.Get(ctx, name, c.projection.options()...)
		if err != nil {
			return err
		}
		c.printObject(s, collection, object)
	}
	if len(c.names) > 0 {
		return nil
	}
	list, err := collection.List(ctx, c.listOptions()...)
	if err != nil {
		return err
	}
	for object, err := range list.All(ctx) {
		if err != nil {
			return err
		}
		c.printObject(s, collection, object)
	}
	return nil
}

func (c *getCommand) printObject(s *session, collection client.Collection[client.Object], object *client.Object) {
	if c.output == "name" {
		fmt.Fprintf(s.out, "%s/%s\n", collection, object.Name())
	} else {
		fmt.Fprintf(s.out, "%s\n", *object)
	}
}

// table prints a table.
func (c *getCommand) table(ctx context.Context, s *session, collection client.Collection[client.Object]) error {
	var all client.Table
	names := c.names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		table, err := collection.Table(ctx, name, s.progress, c.listOptions()...)
		if err != nil {
			return err
		}
		all.Columns = table.Columns
		all.Rows = append(all.Rows, table.Rows...)
	}
	if len(all.Rows) == 0 {
		fmt.Fprintf(s.err, "no %s found\n", collection)
		return nil
	}
	w := tabwriter.NewWriter(s.out, 0, 8, 3, ' ', 0)
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
func (c *getCommand) printRow(w *tabwriter.Writer, namespace string, columns []client.TableColumn, cell func(int) string) {
	var cells []string
	if c.everywhere {
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
func (s *session) progress(done, remaining int) {
	if Terminal(s.err) && done+remaining > progressEvery {
		fmt.Fprintf(s.err, "\r\x1b[K%d of %d", done, done+remaining)
		if remaining == 0 {
			fmt.Fprint(s.err, "\r\x1b[K")
		}
	}
}
