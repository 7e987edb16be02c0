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
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
)

// command is one of them.
type command interface {
	addFlags(set *pflag.FlagSet)
	// parse takes the arguments, after the flags have their values.
	parse(args []string) error
	// run does it. What it says to p.Out is all that goes there.
	run(ctx context.Context, c *client.Client, p cli.Process) error
}

// Commands returns the commands of a process.
func Commands(p cli.Process) []*cobra.Command {
	return []*cobra.Command{
		newCommand(&exportCommand{}, p, &cobra.Command{Use: "export [KIND...] [-n NAMESPACE | -A] [-o DIR | -o -]", Short: "Write what a server has as YAML",
			Long: `Writes the objects of a server as YAML, all at one revision, without what the server sets or makes by itself, and in an order that applies:
definitions, namespaces, owners before what they own. Without KIND it's all kinds but Events and Leases. Secrets take --secrets.`}),
		newCommand(&importCommand{}, p, &cobra.Command{Use: "import FILE | DIR | - ...", Short: "Give such YAML to a server",
			Long: `Gives the objects in YAML or JSON files to a server, those of a directory in an order that applies. What isn't there is created, what is there is
applied (server-side apply). What is refused is listed at the end, and the exit code is 1 then.`}),
	}
}

// newCommand returns a command that ends with exit code 0 when all is done, 1 if something failed, 2 if the arguments are wrong, 130 if its
// context ended first.
func newCommand(c command, p cli.Process, cmd *cobra.Command) *cobra.Command {
	cmd.Flags().SortFlags = false
	c.addFlags(cmd.Flags())
	said := p.Err
	if cmd.Name() == "export" {
		said = io.Discard // of warnings about kinds that nobody asked for
	}
	return p.Connected(cmd, said, c.parse, c.run)
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
