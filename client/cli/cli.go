// Package cli is the part of the command line that talks to a server: apiserver-lite watch, get, apply, diff, history, delete, rewrite, top and member.
// Package client does the work.
//
// A command is a value: it has its flags, refuses what it can't use before anything is asked of a server, and runs. What it
// returns decides the exit code (commandline.Run).
//
// Everything runs in the caller's goroutine but the reading of files and of the standard input, which may block for ever: if
// the context ends first, that goroutine stays until the process ends. A watch keeps the last state of each object in memory,
// so that it can tell what was deleted while nobody could see it: nothing bounds that but the size of the collection.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/kubeconfig"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// defaultServer is where apiserver-lite listens unless it's told otherwise.
const defaultServer = "http://127.0.0.1:8080"

// word is a command before it has a process.
type word struct {
	use, short, long string
	make             func() command
}

var words = []word{
	{"watch RESOURCE[,RESOURCE...] [NAME]", "Print what there is, and then each change", "Prints what there is and then each change, until it's interrupted: over restarts of the server, too.",
		func() command { return &watchCommand{} }},
	{"get RESOURCE [NAME...]", "Print objects", "Prints objects as a table, or with -o json one per line, as YAML documents, or what a JSONPath or columns of yours make of them: as kubectl does.\nWith -w then each that changes.", func() command { return &getCommand{} }},
	{"apply -f FILE [--prune -l SELECTOR]", "Apply the objects in files", "Applies the objects in files (server-side apply).", func() command { return &applyCommand{} }},
	{"diff -f FILE | diff RESOURCE NAME --from MOMENT [--to MOMENT]", "Say what apply would change, or what has changed", "Prints what apply would change, or what has changed of an object since a moment, as a unified difference. The exit code is 0 if that's nothing, 1 if\nit's something, and 2 if it can't be said. Values of Secrets aren't shown.",
		func() command { return &diffCommand{} }},
	{"history RESOURCE NAME", "Print what happened to an object", "Prints the versions of an object that the server's history still has, newest first: when each was written, how exactly that's known, by whom, and\nwhat it changed.",
		func() command { return &historyCommand{} }},
	{"delete RESOURCE NAME... | -f FILE", "Delete objects", "", func() command { return &deleteCommand{} }},
	{"rewrite [RESOURCE...]", "Have the server store anew what it would store in another way now",
		"Has the server store objects anew that it would store in another way now: under a newer key, or in another version. Without RESOURCE\nit's all kinds. An interrupted one goes on when it's run again.",
		func() command { return &rewriteCommand{} }},
	{"top", "Show what the server does", "Shows each second how many writes and events there are, the watchers, how far they're behind, the server's memory, and the five busiest\nclients: by requests, and by what their watches are sent. It needs the right to get /metrics, /apiserver-lite/v1/traffic and /debug/watchers.",
		func() command { return &topCommand{} }},
}

// Commands returns the commands of a process.
func Commands(p Process) (all []*cobra.Command) {
	for _, w := range words {
		all = append(all, w.cobra(p))
	}
	return append(all, commandline.Parent("member", "List or remove the processes that have the server's store", "Lists the processes that have the server's store, or removes one of them.",
		word{"list", "List them", "", func() command { return &memberCommand{} }}.cobra(p),
		word{"remove NAME", "Remove one", "", func() command { return &memberCommand{removes: true} }}.cobra(p)))
}

// cobra returns the command. It ends with exit code 0 when all is done, 1 if the server refused or couldn't be reached, or the output couldn't
// be written, 2 if the arguments are wrong, 130 if its context ended before all was done. A watch is done when the context ends.
func (w word) cobra(p Process) *cobra.Command {
	c, cmd := w.make(), &cobra.Command{Use: w.use, Short: w.short, Long: w.long}
	var to Connection
	cmd.Flags().SortFlags = false
	c.addFlags(cmd.Flags())
	to.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := &session{getenv: p.Getenv, in: p.In, out: &commandline.Output{Writer: p.Out}, err: p.Err}
		if err := s.run(cmd.Context(), c, &to, args); err != nil {
			return err
		}
		return s.out.Failed
	}
	return cmd
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

// Connected makes a command of another package one that talks to a server, whose flags come after its own. parse takes the arguments, after the
// flags have their values: its error is one of usage. warnings is where those of the server go.
func (p Process) Connected(cmd *cobra.Command, warnings io.Writer, parse func(args []string) error, run func(ctx context.Context, c *client.Client, p Process) error) *cobra.Command {
	var to Connection
	to.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := parse(args); err != nil {
			return exit.With(exit.Usage, err)
		}
		server, err := to.Open(p.Getenv, warnings)
		if err != nil {
			return err
		}
		defer server.CloseIdleConnections()
		return run(cmd.Context(), server, p)
	}
	return cmd
}

// session is one run of a command.
type session struct {
	client *client.Client
	getenv func(string) string
	in     io.Reader
	out    *commandline.Output
	err    io.Writer
}

func usageError(format string, args ...any) error {
	return exit.With(exit.Usage, fmt.Errorf(format, args...))
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

// Connection is the flags that say which server is meant, and who asks.
type Connection struct {
	server, tokenFile, caFile, kubeconfig, context string
}

// AddFlags adds the flags, below a title of their own.
func (c *Connection) AddFlags(set *pflag.FlagSet) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	own.StringVar(&c.server, "server", "", "URL of the server (default $APISERVER_LITE_SERVER, else that of the kubeconfig, else "+defaultServer+")")
	own.StringVar(&c.tokenFile, "token-file", "", "file with the bearer token (default the kubeconfig's user, without one $APISERVER_LITE_TOKEN)")
	own.StringVar(&c.caFile, "ca-file", "", "PEM file with the authority of the server's certificate (default the kubeconfig's, else the system's)")
	own.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG; never ~/.kube/config unasked)")
	own.StringVar(&c.context, "context", "", "the kubeconfig's context to use")
	commandline.Titled("The server", own)
	set.AddFlagSet(own)
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

// given tells whether there's a selector that isn't blank.
func (s *selection) given() bool { return strings.TrimSpace(s.labels+s.fields+s.expression) != "" }

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

// checkNames refuses an empty name, as of a variable that has no value: it would stand for all objects.
func checkNames(names ...string) error {
	if slices.Contains(names, "") {
		return usageError("the name is empty")
	}
	return nil
}

// errNoResource is the lack of a resource.
func errNoResource(command string) error {
	return usageError("which resource? apiserver-lite %s widgets, for example", command)
}

// Terminal tells whether a person reads it.
func Terminal(w io.Writer) bool {
	if o, is := w.(*commandline.Output); is {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
