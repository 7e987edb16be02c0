package cli

import (
	"context"
	"errors"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// follow is get -w: it prints what there is, and then each object that changes, one that is deleted as it was, until ctx ends.
func (c *getCommand) follow(ctx context.Context, s *session, collection client.Collection[client.Object]) error {
	w := &watcher{known: map[identity]client.Event[client.Object]{}}
	switch c.form.name {
	case formTable, formWide:
		rows := &changingRows{get: c, from: collection, out: aligned{out: s.out}, last: map[client.Key]client.TableRow{}}
		if err := rows.begin(ctx, s); err != nil {
			return err
		}
		w.print = func(event client.Event[client.Object]) error { return rows.print(ctx, event) }
	case formColumns:
		rows := aligned{out: s.out}
		if err := rows.print(c.form.headers()); err != nil {
			return err
		}
		w.print = func(event client.Event[client.Object]) error {
			cells, err := c.form.cells(*event.Object)
			if err != nil {
				return err
			}
			return rows.print(cells)
		}
	default:
		w.print = func(event client.Event[client.Object]) error { return c.form.print(s.out, collection, *event.Object) }
	}
	options := append(append(c.selection.options(), c.projection.options()...), client.Backoff(retryInterval, retryInterval))
	if len(c.names) == 1 {
		options = append(options, client.Fields("metadata.name="+c.names[0]))
	}
	err := w.watch(ctx, collection.Track(ctx, options...), s.err)
	if err == nil && s.out.Failed != nil {
		return s.out.Failed
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// changingRows is a table whose rows are printed when they change. Servers make rows: that of an object that has changed is asked for by itself, so
// that it may be of a still newer state.
type changingRows struct {
	get     *getCommand
	from    client.Collection[client.Object]
	out     aligned
	columns []client.TableColumn
	last    map[client.Key]client.TableRow // of each object that there is
}

// begin asks for all rows at once.
func (r *changingRows) begin(ctx context.Context, s *session) error {
	failed := &failures{to: s}
	all, err := r.get.read(ctx, s, r.from, failed)
	if err = failed.end(err); err != nil {
		return err
	}
	r.columns = all.Columns
	r.out.fit(r.get.header(all.Columns))
	for _, row := range all.Rows {
		r.out.fit(r.get.row(all.Columns, row))
		r.last[client.Key{Namespace: row.Object.Namespace, Name: row.Object.Name}] = row
	}
	return r.out.print(r.get.header(all.Columns))
}

func (r *changingRows) print(ctx context.Context, event client.Event[client.Object]) error {
	row, had := r.last[event.Key]
	if event.Type == client.Deleted {
		delete(r.last, event.Key)
	} else if !had || row.Object.ResourceVersion != event.ResourceVersion {
		table, err := r.from.In(event.Key.Namespace).Table(ctx, event.Key.Name, nil)
		switch {
		case errors.Is(err, client.ErrNotFound) || err == nil && len(table.Rows) == 0: // the deletion is about to come
		case err != nil:
			return err
		default:
			row, r.columns = table.Rows[0], table.Columns
		}
		r.last[event.Key] = row
	}
	return r.out.print(r.get.row(r.columns, row))
}
