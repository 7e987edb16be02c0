package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Table is what a collection looks like to people, as the server sees it: the columns of `kubectl get`.
type Table struct {
	Columns []TableColumn `json:"columnDefinitions"`
	Rows    []TableRow    `json:"rows"`
}

// TableColumn says what is in a column.
type TableColumn struct {
	Name        string `json:"name"`
	Type        string `json:"type"` // string, integer, number, boolean or date
	Description string `json:"description"`
	Priority    int    `json:"priority"` // above 0 for columns that are shown only when there's room
}

// TableRow is an object.
type TableRow struct {
	Cells  []any `json:"cells"`  // as Columns
	Object Meta  `json:"object"` // its metadata
}

// Table returns the collection, or with a name that object, as a table, whose pages are fetched one by one. progress, if it
// isn't nil, is told after each page how many rows there have been, and how many remain, as far as the server says so.
func (c Collection[T]) Table(ctx context.Context, name string, progress func(done, remaining int), options ...Option) (*Table, error) {
	s, v := newSettings(options), aGet
	if name == "" {
		v = aList
	}
	if err := s.check(v); err != nil {
		return nil, err
	}
	if s.query.Has("fields") {
		return nil, errors.New("client: Only has no use in a table, which has columns")
	}
	var all Table
	for token := ""; ; {
		query := s.only(aGet)
		if name == "" {
			query = s.page(s.pageSize, token)
		}
		body, err := c.client.answer(ctx, &request{
			method: http.MethodGet, path: c.path(c.namespace, name, ""), query: query, accept: "application/json;as=Table;v=v1;g=meta.k8s.io",
		})
		if err != nil {
			return nil, err
		}
		var page struct {
			Kind     string
			Metadata struct {
				Continue           string
				RemainingItemCount int
			}
			Table
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("%s: the answer is no table: %w", c, err)
		}
		if page.Kind != "Table" {
			return nil, fmt.Errorf("%s: the answer is no table but %.*q", c, maxQuoted, body)
		}
		if all.Columns == nil {
			all.Columns = page.Columns
		}
		all.Rows = append(all.Rows, page.Rows...)
		if progress != nil {
			progress(len(all.Rows), page.Metadata.RemainingItemCount)
		}
		if page.Metadata.Continue == "" {
			return &all, nil
		}
		token = page.Metadata.Continue
	}
}
