// Package text is the commands apiserver-lite export and import: they write what a server has as YAML, and give such YAML to a server. Package
// backup/document has the form, package client asks the server.
//
// An export lists each kind in pages, all at one revision, and has one page more than the one that it writes. It lists a kind again for
// those of its objects that have owners, because these come after their owners: so it keeps no objects, but for each that has owners its uid and theirs. An import reads
// batches, gives each to the server by workers who end before the next batch, and keeps what has to wait for something that isn't there yet. Nothing
// outlives Run but a read of the standard input that may block for ever.
package text

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
)

// Names are the commands.
var Names = []string{"export", "import"}

// command is one of them.
type command interface {
	addFlags(set *pflag.FlagSet)
	// parse takes the arguments, after the flags have their values.
	parse(args []string) error
	// run does it. What it says to p.Out is all that goes there.
	run(ctx context.Context, c *client.Client, p cli.Process) error
}

// newCommand returns a command, and how its help begins.
func newCommand(name string) (c command, help string) {
	if name == "export" {
		return &exportCommand{}, `export [KIND...] [-n NAMESPACE | -A] [-o DIR | -o -]

Writes the objects of a server as YAML, all at one revision, without what the server sets or makes by itself, and in an order that applies:
definitions, namespaces, owners before what they own. Without KIND it's all kinds but Events and Leases. Secrets take --secrets.`
	}
	return &importCommand{}, `import FILE | DIR | - ...

Gives the objects in YAML or JSON files to a server, those of a directory in an order that applies. What isn't there is created, what is there is
applied (server-side apply). What is refused is listed at the end, and the exit code is 1 then.`
}

// Run runs the command that args begin with, and returns its exit code: 0 when all is done, 1 if something failed, 2 if the arguments are
// wrong, 130 if ctx ended first.
func Run(ctx context.Context, args []string, p cli.Process) int {
	c, help := newCommand(args[0])
	var to cli.Connection
	set := flagSet(args[0], c, &to)
	err := set.Parse(args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(p.Out, "Usage: apiserver-lite %s\n\n%s", help, set.FlagUsages())
		return exit.OK
	}
	if err == nil {
		err = c.parse(set.Args())
	}
	if err != nil {
		return exit.Why(p.Err, "apiserver-lite", exit.Usage, err)
	}
	said := p.Err
	if args[0] == "export" {
		said = io.Discard // of warnings about kinds that nobody asked for
	}
	server, err := to.Open(p.Getenv, said)
	if err == nil {
		defer server.CloseIdleConnections()
		err = c.run(ctx, server, p)
	}
	switch {
	case err == nil:
		return exit.OK
	case ctx.Err() != nil:
		return exit.Why(p.Err, "apiserver-lite", exit.Interrupted, fmt.Errorf("interrupted: %w", err))
	case cli.IsUsage(err):
		return exit.Why(p.Err, "apiserver-lite", exit.Usage, err)
	}
	return exit.Why(p.Err, "apiserver-lite", exit.Failure, err)
}

// FlagNames returns the names of both commands' flags, for a test of the documentation.
func FlagNames() (names []string) {
	for _, name := range Names {
		c, _ := newCommand(name)
		flagSet(name, c, &cli.Connection{}).VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	}
	return names
}

func flagSet(name string, c command, to *cli.Connection) *pflag.FlagSet {
	set := cli.NewFlagSet(name)
	to.AddFlags(set)
	c.addFlags(set)
	return set
}

// progressEvery is how often a person at a terminal is told how far it is.
const progressEvery = 2 * time.Second

// progress tells a person at a terminal how far it is.
type progress struct {
	to   io.Writer
	last time.Time
}

func newProgress(to io.Writer) *progress { return &progress{to: to, last: time.Now()} }

func (p *progress) say(format string, args ...any) {
	if time.Since(p.last) >= progressEvery && cli.Terminal(p.to) {
		p.last = time.Now()
		fmt.Fprintf(p.to, format+"\n", args...)
	}
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
