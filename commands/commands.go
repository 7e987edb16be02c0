// Package commands is the program's command line: one tree of all commands, and which of them a word means. What a command does is in the
// package that has it.
package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/backup"
	"github.com/apiserver-lite/apiserver-lite/backup/playback"
	"github.com/apiserver-lite/apiserver-lite/backup/text"
	"github.com/apiserver-lite/apiserver-lite/backup/undo"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/conversionhook"
	"github.com/apiserver-lite/apiserver-lite/dropin"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/migrate"
)

// Server is the command that serves, which a call without a word means, too.
type Server struct {
	Flags *pflag.FlagSet
	Run   func() error // after the flags have their values
}

const about = `apiserver-lite serves the Kubernetes API for custom resources from one process, with etcd inside. Without a command it serves.

Each flag of the server is also an environment variable: --data-dir is APISERVER_LITE_DATA_DIR.`

// groups are the titles of commands in help, with the commands below them.
var groups = []struct {
	title    string
	commands []string
}{
	{"Serve", []string{"serve", "envtest"}},
	{"Objects of a server", []string{"get", "watch", "apply", "diff", "history", "undo", "delete", "export", "import", "record", "replay"}},
	{"Operate", []string{"top", "snapshot", "rewrite", "member", "migrate", "conversion-webhook"}},
	{"This command line", []string{"completion", "help"}},
}

// Tree returns all commands of a process below one.
func Tree(p cli.Process, s Server) *cobra.Command {
	serve := &cobra.Command{Use: "serve", Short: "Serve, as without a command", Long: about}
	root := commandline.Root(append(append(cli.Commands(p), append(text.Commands(p), playback.Commands(p)...)...), undo.Command(p), backup.Command(p), migrate.Command(p.Out, p.Err), conversionhook.Command(p.Out, p.Err), envtest(p), manual(p), serve)...)
	root.Long = about
	for _, cmd := range []*cobra.Command{root, serve} {
		cmd.Flags().SortFlags = false
		cmd.Flags().AddFlagSet(s.Flags)
		cmd.RunE = func(*cobra.Command, []string) error { return s.Run() }
	}
	serve.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return exit.With(exit.Usage, fmt.Errorf("unexpected argument %q: serve takes flags", args[0]))
		}
		return nil
	}
	of := map[string]string{}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, name := range g.commands {
			of[name] = g.title
		}
	}
	root.SetHelpCommandGroupID(of["help"])
	root.SetCompletionCommandGroupID(of["completion"])
	root.SetOut(p.Out) // for the command that cobra makes now
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Short = "Print what makes a shell complete commands and flags"
			commandline.NeedsWord(cmd)
		}
		cmd.GroupID = of[cmd.Name()]
	}
	return root
}

// Run runs the command that args name and returns its exit code. The first SIGINT or SIGTERM ends a command, and the second one the process at
// once; the server has its own way with both.
func Run(args []string, p cli.Process, s Server) int {
	root, ctx := Tree(p, s), context.Background()
	if cmd, _, err := root.Find(args); err != nil || cmd != root && cmd.Name() != "serve" {
		interruptible, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(interruptible, stop)
		ctx = interruptible
	}
	return commandline.Run(ctx, root, args, p.Out, p.Err)
}

// manual is the command that writes the man pages for a package. Help doesn't have it, because those who run the program don't need it.
func manual(p cli.Process) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the man pages into a directory", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.With(exit.Usage, errors.New("which directory? apiserver-lite man DIR"))
			}
			pages, err := commandline.WriteManual(cmd.Root(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Out, "%d pages in %s\n", pages, args[0])
			return err
		},
	}
}

// envtest is the command that fills a directory for KUBEBUILDER_ASSETS, and prints its path for a Makefile.
func envtest(p cli.Process) *cobra.Command {
	return &cobra.Command{
		Use: "envtest DIR", Short: "Fill a directory for KUBEBUILDER_ASSETS", Long: "Puts this program into DIR as kube-apiserver and etcd, and prints the path for KUBEBUILDER_ASSETS.",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.With(exit.Usage, errors.New("which directory? apiserver-lite envtest DIR"))
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			dir, err := dropin.FillAssets(args[0], self)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.Out, dir)
			return err
		},
	}
}
