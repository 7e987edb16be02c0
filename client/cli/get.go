package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// getCommand prints objects, and then those that change.
type getCommand struct {
	place
	selection
	projection
	sortBy string
	at     Moment
	output string
	watch  bool

	form     form
	resource string
	names    []string
}

func (c *getCommand) addFlags(set *pflag.FlagSet) {
	c.place.addFlags(set)
	c.selection.addFlags(set)
	set.StringVar(&c.sortBy, "sort-by", "", "puts the objects into the order of a field, such as .spec.size, or -.spec.size for the largest first; of an apiserver-lite only")
	set.Var(&c.at, "at", "the state of then: "+momentForms+"; of an apiserver-lite only")
	c.projection.addFlags(set, "of objects, with -o json and other forms of whole objects,")
	set.StringVarP(&c.output, "output", "o", "", "table, wide, name, json, yaml, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,... (default table)")
	set.BoolVarP(&c.watch, "watch", "w", false, "then print objects that change, until it's interrupted")
}

func (c *getCommand) parse(args []string) (err error) {
	if c.form, err = parseForm(c.output); err != nil {
		return err
	}
	if len(args) == 0 {
		return errNoResource("get")
	}
	c.resource, c.names = args[0], args[1:]
	beside := ""
	if len(c.names) > 0 {
		beside = "names"
	}
	return errors.Join(checkNames(c.names...), c.place.check(), c.selection.check(beside), c.projection.check(), c.checkOrder(beside), c.checkWatch())
}

// checkOrder refuses an order that can't be read, or of objects that are named, and fields that nobody would see.
func (c *getCommand) checkOrder(beside string) error {
	if _, err := selectors.ParseSortKey(c.sortBy); c.sortBy != "" && err != nil {
		return usageError("--sort-by: %w", err)
	}
	switch {
	case c.sortBy != "" && beside != "":
		return usageError("--sort-by and %s exclude each other", beside)
	case c.only != "" && !c.form.whole():
		return usageError("--fields is for -o json and other forms of whole objects: a table has columns")
	}
	return nil
}

// checkWatch refuses what can't be watched.
func (c *getCommand) checkWatch() error {
	switch {
	case c.watch && len(c.names) > 1:
		return usageError("-w watches one object, or all")
	case c.watch && c.at.Given():
		return usageError("--at and -w exclude each other: what was doesn't change")
	case c.watch && c.sortBy != "":
		return usageError("--sort-by and -w exclude each other: changes come in their own order")
	}
	return nil
}

// listOptions returns what is asked of a list.
func (c *getCommand) listOptions() []client.Option {
	options := append(append(c.selection.options(), c.projection.options()...), c.at.Options()...)
	if c.sortBy != "" {
		options = append(options, client.SortBy(c.sortBy))
	}
	return options
}

func (c *getCommand) run(ctx context.Context, s *session) error {
	collection, err := c.find(ctx, s, c.resource)
	failed := &failures{to: s}
	switch {
	case err != nil:
		return err
	case c.watch:
		return c.follow(ctx, s, collection)
	case c.form.name == formTable || c.form.name == formWide:
		err = c.table(ctx, s, collection, failed)
	case c.form.name == formJSONPath && len(c.names) != 1 || c.form.name == formColumns:
		err = c.together(ctx, s, collection, failed)
	default:
		err = c.each(ctx, collection, failed, func(object client.Object) error { return c.form.print(s.out, collection, object) })
	}
	return failed.end(err)
}

// each does something with the objects that are named, or else selected.
func (c *getCommand) each(ctx context.Context, collection client.Collection[client.Object], failed *failures, do func(client.Object) error) error {
	for _, name := range c.names {
		object, err := collection.Get(ctx, name, append(c.projection.options(), c.at.Options()...)...)
		if end := failed.pass(err); end != nil {
			return end
		}
		if err != nil {
			continue
		}
		if err := do(*object); err != nil {
			return err
		}
	}
	if len(c.names) > 0 {
		return nil
	}
	list, err := collection.List(ctx, c.listOptions()...)
	if err != nil {
		return err
	}
	for object, err := range list.All(ctx) {
		if err == nil {
			err = do(*object)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// together prints objects in a form that needs all of them.
func (c *getCommand) together(ctx context.Context, s *session, collection client.Collection[client.Object], failed *failures) error {
	var objects []client.Object
	if err := c.each(ctx, collection, failed, func(object client.Object) error { objects = append(objects, object); return nil }); err != nil {
		return err
	}
	if len(objects) == 0 && failed.last != nil {
		return nil
	}
	if c.form.name == formJSONPath {
		document, err := list(objects)
		if err != nil {
			return err
		}
		return c.form.template(s.out, document)
	}
	rows := [][]string{c.form.headers()}
	for _, object := range objects {
		cells, err := c.form.cells(object)
		if err != nil {
			return err
		}
		rows = append(rows, cells)
	}
	return (&aligned{out: s.out}).print(rows...)
}

// read returns the table of what is named or selected.
func (c *getCommand) read(ctx context.Context, s *session, collection client.Collection[client.Object], failed *failures) (all client.Table, err error) {
	names := c.names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		table, err := collection.Table(ctx, name, s.progress, c.listOptions()...)
		if end := failed.pass(err); end != nil {
			return all, end
		}
		if err != nil {
			continue
		}
		all.Columns = table.Columns
		all.Rows = append(all.Rows, table.Rows...)
	}
	return all, nil
}

// table prints a table.
func (c *getCommand) table(ctx context.Context, s *session, collection client.Collection[client.Object], failed *failures) error {
	all, err := c.read(ctx, s, collection, failed)
	if err != nil {
		return err
	}
	if len(all.Rows) == 0 && failed.last != nil {
		return nil
	}
	if len(all.Rows) == 0 {
		fmt.Fprintf(s.err, "no %s found\n", collection)
		return nil
	}
	rows := [][]string{c.header(all.Columns)}
	for _, row := range all.Rows {
		rows = append(rows, c.row(all.Columns, row))
	}
	return (&aligned{out: s.out}).print(rows...)
}

func (c *getCommand) header(columns []client.TableColumn) []string {
	return c.shown("NAMESPACE", columns, func(i int) string { return strings.ToUpper(columns[i].Name) })
}

func (c *getCommand) row(columns []client.TableColumn, row client.TableRow) []string {
	return c.shown(row.Object.Namespace, columns, func(i int) string {
		if i >= len(row.Cells) {
			return ""
		}
		return cell(row.Cells[i])
	})
}

// shown returns the cells of the columns that are shown.
func (c *getCommand) shown(namespace string, columns []client.TableColumn, cell func(int) string) (cells []string) {
	if c.everywhere {
		cells = append(cells, namespace)
	}
	for i, column := range columns {
		if column.Priority == 0 || c.form.name == formWide {
			cells = append(cells, cell(i))
		}
	}
	return cells
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
