// Package cli is the part of the command line that talks to a server: apiserver-lite watch, get, apply, delete and member.
// Package client does the work.
//
// A command is a value: it has its flags, refuses what it can't use before anything is asked of a server, and runs. What it
// returns decides the exit code, in one place (end).
//
// Everything runs in the caller's goroutine but the reading of files and of the standard input, which may block for ever: if
// the context ends first, that goroutine stays until the process ends. A watch keeps the last state of each object in memory,
// so that it can tell what was deleted while nobody could see it: nothing bounds that but the size of the collection.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/kubeconfig"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// defaultServer is where apiserver-lite listens unless it's told otherwise.
const defaultServer = "http://127.0.0.1:8080"

// Names are the subcommands.
var Names = []string{"watch", "get", "apply", "delete", "rewrite", "member"}

// newCommand returns a subcommand and how its help begins.
func newCommand(name string) (c command, usage string) {
	switch name {
	case "watch":
		return &watchCommand{}, "watch RESOURCE[,RESOURCE...] [NAME]\n\nPrints what there is and then each change, until it's interrupted: over restarts of the server, too."
	case "get":
		return &getCommand{}, "get RESOURCE [NAME...]\n\nPrints objects as a table, or with -o json one per line."
	case "apply":
		return &applyCommand{}, "apply -f FILE\n\nApplies the objects in files (server-side apply)."
	case "delete":
		return &deleteCommand{}, "delete RESOURCE NAME... | -f FILE\n\nDeletes objects."
	case "rewrite":
		return &rewriteCommand{}, "rewrite [RESOURCE...]\n\nHas the server store objects anew that it would store in another way now: under a newer key, or in another version. Without RESOURCE\nit's all kinds. An interrupted one goes on when it's run again."
	case "member":
		return &memberCommand{}, "member list | remove NAME\n\nLists the processes that have the server's store, or removes one of them."
	}
	panic("no subcommand " + name) // the caller asks for one of Names
}

// command is a subcommand.
type command interface {
	// addFlags adds the flags that are the command's own.
	addFlags(*pflag.FlagSet)
	// parse takes the arguments, after the flags have their values. It refuses what the command can't use, by name.
	parse(args []string) error
	// run does the work. nil is exit code 0.
	run(context.Context, *session) error
}

// Process is what a command has of the process that it runs in.
type Process struct {
	Getenv   func(string) string
	In       io.Reader
	Out, Err io.Writer
}

// session is one run of a command.
type session struct {
	client *client.Client
	getenv func(string) string
	in     io.Reader
	out    *output
	err    io.Writer
}

// output is the standard output. It remembers that a write failed, so that no command has to look.
type output struct {
	io.Writer
	failed error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil && o.failed == nil {
		o.failed = fmt.Errorf("write the output: %w", err)
	}
	return n, err
}

// errUsage is what the user got wrong.
var errUsage = errors.New("usage")

// IsUsage tells whether an error of this package is about what the user got wrong, for which the exit code is 2.
func IsUsage(err error) bool { return errors.Is(err, errUsage) }

// usage is an error that wraps errUsage without saying so.
type usage struct{ error }

func (usage) Is(target error) bool { return target == errUsage }
func (u usage) Unwrap() error      { return u.error }

func usageError(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// Run runs the subcommand that args begin with, one of Names, and returns its exit code: 0 when all is done, 1 if the server
// refused or couldn't be reached, or the output couldn't be written, 2 if the arguments are wrong, 130 if ctx ended before all
// was done. A watch is done when ctx ends.
func Run(ctx context.Context, args []string, p Process) int {
	c, help := newCommand(args[0])
	s := &session{getenv: p.Getenv, in: p.In, out: &output{Writer: p.Out}, err: p.Err}
	var to Connection
	set := flagSet(args[0], c, &to)
	err := set.Parse(args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(s.out, "Usage: apiserver-lite %s\n\n%s", help, set.FlagUsages())
		err = nil
	case err != nil:
		err = usageError("%w", err)
	default:
		err = s.run(ctx, c, &to, set.Args())
	}
	if err == nil {
		err = s.out.failed
	}
	return end(ctx, err, p.Err)
}

func (s *session) run(ctx context.Context, c command, to *Connection, args []string) (err error) {
	if err := c.parse(args); err != nil {
		return err
	}
	if s.client, err = to.Open(s.getenv, s.err); err != nil {
		return err
	}
	return c.run(ctx, s)
}

// end returns the exit code of a command that ended with an error, nil for none, and prints the error.
func end(ctx context.Context, err error, stderr io.Writer) int {
	code := exit.Failure
	switch {
	case err == nil:
		return exit.OK
	case errors.Is(err, errUsage):
		code = exit.Usage
	case ctx.Err() != nil:
		code, err = exit.Interrupted, fmt.Errorf("interrupted: %w", err)
	}
	return exit.Why(stderr, "apiserver-lite", code, err)
}

// FlagNames returns the names of all commands' flags, for a test of the documentation.
func FlagNames() (names []string) {
	for _, name := range Names {
		c, _ := newCommand(name)
		flagSet(name, c, &Connection{}).VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		})
	}
	return names
}

func flagSet(name string, c command, to *Connection) *pflag.FlagSet {
	set := NewFlagSet(name)
	to.AddFlags(set)
	c.addFlags(set)
	return set
}

// NewFlagSet returns a command's flags, in the order in which they're added. It prints nothing by itself: errors are for the command to say.
func NewFlagSet(name string) *pflag.FlagSet {
	set := pflag.NewFlagSet(name, pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.SortFlags = false
	return set
}

// Connection is the flags that say which server is meant, and who asks.
type Connection struct {
	server, tokenFile, caFile, kubeconfig, context string
}

// AddFlags adds the flags.
func (c *Connection) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&c.server, "server", "", "URL of the server (default $APISERVER_LITE_SERVER, else that of the kubeconfig, else "+defaultServer+")")
	set.StringVar(&c.tokenFile, "token-file", "", "file with the bearer token (default the kubeconfig's user, without one $APISERVER_LITE_TOKEN)")
	set.StringVar(&c.caFile, "ca-file", "", "PEM file with the authority of the server's certificate (default the kubeconfig's, else the system's)")
	set.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG; never ~/.kube/config unasked)")
	set.StringVar(&c.context, "context", "", "the kubeconfig's context to use")
}

// Open makes the client that flags and environment ask for. What of them it can't use is refused.
func (c *Connection) Open(getenv func(string) string, stderr io.Writer) (*client.Client, error) {
	if c.server != "" && c.kubeconfig != "" {
		return nil, usageError("--server and --kubeconfig exclude each other: a kubeconfig says where its server is")
	}
	server, file := c.server, c.kubeconfig
	if server == "" && file == "" {
		if server = getenv("APISERVER_LITE_SERVER"); server == "" {
			file = getenv("KUBECONFIG")
		}
	}
	o := client.Options{TokenFile: c.tokenFile, CAFile: c.caFile, Log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: brief}))}
	if file != "" {
		opened, err := kubeconfig.Open(file, c.context, o)
		if err != nil {
			return nil, usageError("%w", err)
		}
		return opened, nil
	}
	server = cmp.Or(server, defaultServer)
	switch {
	case c.context != "":
		return nil, usageError("--context is of a kubeconfig, and the server is %s", server)
	case c.caFile != "" && !strings.HasPrefix(server, "https:"):
		return nil, usageError("--ca-file is for https, and the server is %s", server)
	}
	if o.TokenFile == "" {
		o.Token = getenv("APISERVER_LITE_TOKEN")
	}
	opened, err := client.New(server, o)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return opened, nil
}

// brief leaves out of the log what a person at a terminal doesn't need.
func brief(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// place is the flags that say in which namespaces.
type place struct {
	namespace  string
	everywhere bool
}

func (p *place) addNamespace(set *pflag.FlagSet) {
	set.StringVarP(&p.namespace, "namespace", "n", "", `namespace of namespaced objects (default the kubeconfig's, else "default")`)
}

func (p *place) addFlags(set *pflag.FlagSet) {
	p.addNamespace(set)
	set.BoolVarP(&p.everywhere, "all-namespaces", "A", false, "all namespaces")
}

func (p *place) check() error {
	if p.everywhere && p.namespace != "" {
		return usageError("--namespace and --all-namespaces exclude each other")
	}
	return nil
}

// collection returns the part of a resource that is there.
func (p *place) collection(s *session, info client.ResourceInfo) client.Collection[client.Object] {
	all := client.Resource[client.Object](s.client, info.APIVersion, info.Plural)
	if !info.Namespaced {
		return all
	}
	return all.In(p.where(s))
}

// where is the namespace of what is in namespaces, "" for all.
func (p *place) where(s *session) string {
	switch {
	case p.everywhere:
		return ""
	case p.namespace != "":
		return p.namespace
	}
	return s.client.Namespace()
}

// find returns the part of the resource with that name that is there.
func (p *place) find(ctx context.Context, s *session, resource string) (client.Collection[client.Object], error) {
	info, err := s.client.Find(ctx, resource)
	if err != nil {
		return client.Collection[client.Object]{}, err
	}
	return p.collection(s, info), nil
}

// selection is the flags that say which objects.
type selection struct{ labels, fields, expression string }

func (s *selection) addFlags(set *pflag.FlagSet) {
	set.StringVarP(&s.labels, "selector", "l", "", "label selector, such as tier=front")
	set.StringVar(&s.fields, "field-selector", "", "field selector, such as metadata.name=red")
	set.StringVar(&s.expression, "where", "", "selects by any field, such as 'spec.size>3,spec.host^=eu-||!spec.owner'; of an apiserver-lite only")
}

// check refuses selectors that don't parse, and those that are given beside something else that says which objects are meant.
func (s *selection) check(beside string) error {
	if _, err := selectors.ParseLabels(s.labels); err != nil {
		return usageError("--selector: %w", err)
	}
	if _, err := selectors.ParseFields(s.fields); err != nil {
		return usageError("--field-selector: %w", err)
	}
	if _, err := selectors.ParseExpression(s.expression); err != nil {
		return usageError("--where: %w", err)
	}
	switch {
	case s.fields != "" && s.expression != "":
		return usageError("--field-selector and --where exclude each other")
	case beside == "":
	case s.labels != "":
		return usageError("--selector and %s exclude each other", beside)
	case s.fields != "":
		return usageError("--field-selector and %s exclude each other", beside)
	case s.expression != "":
		return usageError("--where and %s exclude each other", beside)
	}
	return nil
}

func (s *selection) given() bool { return s.labels != "" || s.fields != "" || s.expression != "" }

// options returns the selectors.
func (s *selection) options() (options []client.Option) {
	if s.labels != "" {
		options = append(options, client.Labels(s.labels))
	}
	if s.fields != "" {
		options = append(options, client.Fields(s.fields))
	}
	if s.expression != "" {
		options = append(options, client.Where(s.expression))
	}
	return options
}

// projection is the flag that says which fields of objects.
type projection struct{ only string }

func (p *projection) addFlags(set *pflag.FlagSet, of string) {
	set.StringVar(&p.only, "fields", "", "leaves "+of+" these fields, such as metadata.labels,spec.size; of an apiserver-lite only")
}

func (p *projection) check() error {
	if _, err := selectors.ParsePaths(p.only); p.only != "" && err != nil {
		return usageError("--fields: %w", err)
	}
	return nil
}

// options returns the projection.
func (p *projection) options() []client.Option {
	if p.only == "" {
		return nil
	}
	return []client.Option{client.Only(p.only)}
}

// errNoResource is the lack of a resource.
func errNoResource(command string) error {
	return usageError("which resource? apiserver-lite %s widgets, for example", command)
}

// Terminal tells whether a person reads it.
func Terminal(w io.Writer) bool {
	if o, is := w.(*output); is {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
