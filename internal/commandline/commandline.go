// Package commandline is what the program's commands have in common: how their flags are read, how their help looks, what a typo is answered
// with, and how they end. The commands are cobra's; package commands makes one tree of them.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/internal/exit"
)

// Program is how the program calls itself.
const Program = "apiserver-lite"

// nearby is how many letters a word may have wrong for which another one was meant: cobra's own number.
const nearby = 2

func init() {
	cobra.MousetrapHelpText = "" // from the Explorer of Windows the program starts as from a terminal
}

// Root returns a command that has others below it, and prints nothing by itself but help.
func Root(commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{Use: Program, SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: nearby}
	root.SetHelpFunc(help)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand())
	root.AddCommand(commands...)
	return root
}

// Parent returns a command that has only words below it.
func Parent(use, short, long string, words ...*cobra.Command) *cobra.Command {
	parent := &cobra.Command{Use: use, Short: short, Long: long}
	parent.AddCommand(words...)
	NeedsWord(parent)
	return parent
}

// NeedsWord has a command that does nothing without one of the words below it refuse what isn't one.
func NeedsWord(parent *cobra.Command) {
	var names []string
	for _, word := range parent.Commands() {
		names = append(names, word.Name())
	}
	parent.SuggestionsMinimumDistance = nearby
	parent.Args = nil
	parent.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return exit.With(exit.Usage, fmt.Errorf("%s needs a word: %s; see %s --help", parent.Name(), either(names), parent.CommandPath()))
		}
		return exit.With(exit.Usage, fmt.Errorf("there is no %s %s: %s%s", parent.Name(), args[0], either(names), didYouMean("", parent.SuggestionsFor(args[0]))))
	}
}

// Run runs root with arguments and returns the exit code: that of the error, else 130 if ctx ended before all was done, else 1. An error is
// printed in one line. What can't be printed to out is an error, too.
func Run(ctx context.Context, root *cobra.Command, args []string, out, stderr io.Writer) int {
	printed := &Output{Writer: out}
	root.SetOut(printed)
	root.SetErr(stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code, has := exit.Code(err)
	switch {
	case err == nil:
		err = printed.Failed
		code, _ = exit.Code(err)
	case !has && strings.HasPrefix(err.Error(), "unknown command "): // cobra's words, in one line
		says := strings.NewReplacer("\n\nDid you mean this?\n\t", ": did you mean ", "\n\t", " or ", "\n", "?").Replace(err.Error())
		code, err = exit.Usage, fmt.Errorf("%s (%s --help lists the commands)", says, Program)
	case !has && ctx.Err() != nil:
		code, err = exit.Interrupted, fmt.Errorf("interrupted: %w", err)
	}
	if err != nil {
		return exit.Why(stderr, Program, code, err)
	}
	return code
}

// Output is the standard output. It remembers that a write failed, so that no command has to look.
type Output struct {
	io.Writer
	Failed error // of the first write that failed
}

func (o *Output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil && o.Failed == nil {
		o.Failed = fmt.Errorf("write the output: %w", err)
	}
	return n, err
}

// flagError says which flag was meant, perhaps.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		known := cobra.Command{SuggestionsMinimumDistance: nearby} // cobra knows the nearest of its words
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			known.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		})
		err = fmt.Errorf("%w%s", err, didYouMean("--", known.SuggestionsFor(unknown.GetSpecifiedName())))
	}
	return exit.With(exit.Usage, err)
}

// didYouMean ends a message about a word that isn't known.
func didYouMean(prefix string, words []string) string {
	if len(words) == 0 {
		return ""
	}
	return ": did you mean " + prefix + strings.Join(words, " or "+prefix) + "?"
}

// either is words of which one is meant.
func either(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
