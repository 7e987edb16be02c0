package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// historyCommand prints what happened to an object.
type historyCommand struct {
	place
	limit  int
	from   Moment
	output string

	resource, name string
}

func (c *historyCommand) addFlags(set *pflag.FlagSet) {
	c.addNamespace(set)
	set.IntVar(&c.limit, "limit", 0, "how many versions to print at most, the newest first (default all)")
	set.Var(&c.from, "from", "begin with the version that was the newest then: "+momentForms)
	set.StringVarP(&c.output, "output", "o", formTable, "table, or json for a line with each version and the JSON patch that makes it of the one before")
}

func (c *historyCommand) parse(args []string) error {
	switch {
	case len(args) != 2:
		return usageError("which object? apiserver-lite history widget a, for example")
	case c.limit < 0:
		return usageError("--limit must be at least 1, and is %d", c.limit)
	case c.output != formTable && c.output != formJSON:
		return usageError("-o %q is none of table, json", c.output)
	}
	c.resource, c.name = args[0], args[1]
	return checkNames(c.name)
}

func (c *historyCommand) run(ctx context.Context, s *session) error {
	collection, err := c.find(ctx, s, c.resource)
	if err != nil {
		return err
	}
	options := c.from.Options()
	if c.limit > 0 && c.limit < historyPage {
		options = append(options, client.PageSize(c.limit))
	}
	rows, n := [][]string{{"VERSION", "TIME", "WITHIN", "WHAT", "BY", "CHANGES"}}, 0
	for v, err := range collection.History(ctx, c.name, options...) {
		if err != nil {
			return err
		}
		if c.output == formJSON {
			if err := json.NewEncoder(s.out).Encode(v); err != nil {
				return err
			}
		} else {
			rows = append(rows, versionRow(v))
		}
		if n++; n == c.limit {
			break
		}
	}
	if c.output == formJSON {
		return nil
	}
	return (&aligned{out: s.out}).print(rows...)
}

// historyPage is how many versions the client asks for at once.
const historyPage = 500

// versionRow is a version as a line of a table.
func versionRow(v client.Version) []string {
	at, within := "<unknown>", "<unknown>"
	if !v.Time.IsZero() {
		at, within = v.Time.UTC().Format(time.RFC3339), v.Within.Round(time.Millisecond).String()
	}
	by := strings.Trim(v.User+" ("+v.Manager+")", " ()")
	if v.User != "" && v.Manager != "" {
		by = v.User + " (" + v.Manager + ")"
	}
	if by == "" {
		by = "<unknown>"
	}
	return []string{v.ResourceVersion, at, within, v.Change, cell(by), cell(changes(v))}
}

// maxPaths is how many paths of what a version changes are on its line.
const maxPaths = 4

// changes names what a version changes.
func changes(v client.Version) string {
	if v.Unreadable != "" {
		return "can't be read: " + v.Unreadable
	}
	var paths []string
	for i, op := range v.Patch {
		if i == maxPaths {
			paths = append(paths, fmt.Sprintf("and %d more", len(v.Patch)-maxPaths))
			break
		}
		sign := map[string]string{"add": "+", "remove": "-"}[op.Op]
		paths = append(paths, sign+strings.TrimPrefix(op.Path, "/"))
	}
	return strings.Join(paths, " ")
}
