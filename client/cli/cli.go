// Package cli is the part of the command line that talks to a server: apiserver-lite watch, get, apply, delete and member.
// Package client does the work.
//
// Everything runs in the caller's goroutine. A watch keeps the last state of each object in memory, so that it can tell
// what was deleted while nobody could see it.
package cli

import (
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
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// Exit codes.
const (
	exitOK      = 0
	exitRefused = 1 // by the server, or it can't be reached
	exitUsage   = 2
)

// defaultServer is where apiserver-lite listens unless it's told otherwise.
const defaultServer = "http://127.0.0.1:8080"

// Names are the subcommands.
var Names = []string{"watch", "get", "apply", "delete", "member"}

// usages begin each command's help.
var usages = map[string]string{
	"watch":  "watch RESOURCE [NAME]\n\nPrints what there is and then each change, until it's interrupted: over restarts of the server, too.",
	"get":    "get RESOURCE [NAME...]\n\nPrints objects as a table, or with -o json one per line.",
	"apply":  "apply -f FILE\n\nApplies the objects in files (server-side apply).",
	"delete": "delete RESOURCE NAME... | -f FILE\n\nDeletes objects.",
	"member": "member list | remove NAME\n\nLists the processes that have the server's store, or removes one of them.",
}

// command is one run.
type command struct {
	name    string
	args    []string
	out     io.Writer
	err     io.Writer
	getenv  func(string) string
	client  *client.Client
	flags   *pflag.FlagSet
	in      io.Reader
	options []client.Option // the selectors

	server, tokenFile, caFile    string
	kubeconfig, context          string
	namespace                    string
	allNamespaces                bool
	labels, fields               string
	output                       string
	files                        []string
	all, force, dryRun, isColour bool
}

// errUsage is what the user got wrong.
var errUsage = errors.New("usage")

// usage is an error that wraps errUsage without saying so.
type usage struct{ error }

func (usage) Is(target error) bool { return target == errUsage }
func (u usage) Unwrap() error      { return u.error }

func usageError(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// Run runs the subcommand that args begin with, and returns its exit code: 0 also when ctx ends, 1 if the server refused or
// couldn't be reached, 2 if the arguments are wrong.
func Run(ctx context.Context, args []string, getenv func(string) string, in io.Reader, stdout, stderr io.Writer) int {
	c := &command{name: args[0], out: stdout, err: stderr, in: in, getenv: getenv}
	c.flags = c.flagSet()
	if err := c.flags.Parse(args[1:]); errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(stdout, "Usage: apiserver-lite %s\n\n%s", usages[c.name], c.flags.FlagUsages())
		return exitOK
	} else if err != nil {
		return c.failed(usageError("%w", err))
	}
	c.args = c.flags.Args()
	if err := c.connect(); err != nil {
		return c.failed(err)
	}
	err := map[string]func(context.Context) error{"watch": c.watch, "get": c.get, "apply": c.apply, "delete": c.delete, "member": c.member}[c.name](ctx)
	if err != nil && ctx.Err() == nil {
		return c.failed(err)
	}
	return exitOK
}

func (c *command) failed(err error) int {
	fmt.Fprintf(c.err, "apiserver-lite: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitRefused
}

// FlagNames returns the names of all commands' flags, for a test of the documentation.
func FlagNames() (names []string) {
	for _, name := range Names {
		c := command{name: name}
		c.flagSet().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		})
	}
	return names
}

func (c *command) flagSet() *pflag.FlagSet {
	set := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.SortFlags = false
	set.StringVar(&c.server, "server", "", "URL of the server (default $APISERVER_LITE_SERVER, else that of the kubeconfig, else "+defaultServer+")")
	set.StringVar(&c.tokenFile, "token-file", "", "file with the bearer token (else $APISERVER_LITE_TOKEN)")
	set.StringVar(&c.caFile, "ca-file", "", "PEM file with the authority of the server's certificate")
	set.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG; never ~/.kube/config unasked)")
	set.StringVar(&c.context, "context", "", "the kubeconfig's context to use")
	if c.name == "member" {
		return set
	}
	set.StringVarP(&c.namespace, "namespace", "n", "", `namespace (default the kubeconfig's, else "default")`)
	if c.name != "apply" {
		set.StringVarP(&c.labels, "selector", "l", "", "label selector, such as tier=front")
		set.StringVar(&c.fields, "field-selector", "", "field selector, such as metadata.name=red")
	}
	switch c.name {
	case "watch":
		set.BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "all namespaces")
		set.StringVarP(&c.output, "output", "o", "", "json or line (default line on a terminal, else json)")
	case "get":
		set.BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "all namespaces")
		set.StringVarP(&c.output, "output", "o", "", "table, wide, name or json")
	case "apply", "delete":
		set.StringSliceVarP(&c.files, "filename", "f", nil, "YAML or JSON file, - for the standard input; may be repeated")
		set.BoolVar(&c.dryRun, "dry-run", false, "do everything but store the result")
	}
	switch c.name {
	case "apply":
		set.BoolVar(&c.force, "force-conflicts", false, "take fields from other field managers")
	case "delete":
		set.BoolVar(&c.all, "all", false, "delete all objects of the resource in the namespace")
	}
	return set
}

// connect makes the client that flags and environment ask for.
func (c *command) connect() (err error) {
	if _, err := selectors.ParseLabels(c.labels); err != nil {
		return usageError("--selector: %w", err)
	}
	if _, err := selectors.ParseFields(c.fields); err != nil {
		return usageError("--field-selector: %w", err)
	}
	if c.labels != "" {
		c.options = append(c.options, client.Labels(c.labels))
	}
	if c.fields != "" {
		c.options = append(c.options, client.Fields(c.fields))
	}
	o := client.Options{Namespace: c.namespace, Log: slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: brief}))}
	if c.caFile != "" {
		if o.CA, err = os.ReadFile(c.caFile); err != nil {
			return usageError("--ca-file: %w", err)
		}
	}
	server, file := c.server, c.kubeconfig
	if server == "" && file == "" {
		if server = c.getenv("APISERVER_LITE_SERVER"); server == "" {
			file = c.getenv("KUBECONFIG")
		}
	}
	if server == "" && file != "" {
		if c.client, err = kubeconfig.Open(file, c.context, o); err != nil {
			return usageError("%w", err)
		}
		return nil
	}
	if server == "" {
		server = defaultServer
	}
	if o.TokenFile = c.tokenFile; o.TokenFile == "" {
		o.Token = c.getenv("APISERVER_LITE_TOKEN")
	}
	if c.client, err = client.New(server, o); err != nil {
		return usageError("--server: %w", err)
	}
	return nil
}

// brief leaves out of the log what a person at a terminal doesn't need.
func brief(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// resource finds the resource that the first argument names, in the namespace that is asked for.
func (c *command) resource(ctx context.Context) (client.Collection[client.Object], error) {
	if len(c.args) == 0 {
		return client.Collection[client.Object]{}, usageError("which resource? apiserver-lite %s widgets, for example", c.name)
	}
	info, err := c.client.Find(ctx, c.args[0])
	if err != nil {
		return client.Collection[client.Object]{}, err
	}
	return c.collection(info, ""), nil
}

// collection returns the collection of a resource in the namespace given, or else the one that is asked for.
func (c *command) collection(info client.ResourceInfo, namespace string) client.Collection[client.Object] {
	all := client.Resource[client.Object](c.client, info.APIVersion, info.Plural)
	switch {
	case !info.Namespaced || c.allNamespaces:
		return all
	case namespace != "":
		return all.In(namespace)
	}
	return all.In(c.client.Namespace())
}

// terminal tells whether a person reads it.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
