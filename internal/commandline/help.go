package commandline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/internal/exit"
)

// titleOf is the annotation of a flag that has its title in help.
const titleOf = "title"

// Titled puts flags below a title in help. Those without one are below "Flags".
func Titled(title string, set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) { _ = set.SetAnnotation(f.Name, titleOf, []string{title}) }) // it's there
}

// FlagGroup is flags below one title.
type FlagGroup struct {
	Title string
	Flags *pflag.FlagSet
}

// FlagGroups returns a command's own flags by their titles, in the order in which they were added.
func FlagGroups(cmd *cobra.Command) (groups []FlagGroup) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		title := "Flags"
		switch own := f.Annotations[titleOf]; {
		case f.Hidden || f.Name == "help":
			return
		case len(own) > 0:
			title = own[0]
		}
		i := slices.IndexFunc(groups, func(g FlagGroup) bool { return g.Title == title })
		if i < 0 {
			i = len(groups)
			set := pflag.NewFlagSet(title, pflag.ContinueOnError)
			set.SortFlags = false
			groups = append(groups, FlagGroup{title, set})
		}
		groups[i].Flags.AddFlag(f)
	})
	return groups
}

// Usages returns how a command is called: by itself, and by each word below it.
func Usages(cmd *cobra.Command) (lines []string) {
	path := strings.TrimSuffix(cmd.CommandPath(), cmd.Name())
	if !cmd.HasParent() {
		return []string{cmd.Use + " [flags]", cmd.Use + " COMMAND ..."}
	}
	if !cmd.HasAvailableSubCommands() {
		return []string{path + cmd.Use}
	}
	for _, word := range cmd.Commands() {
		lines = append(lines, path+cmd.Name()+" "+word.Use)
	}
	return lines
}

// help prints what a command is for, how it's called, and its flags.
func help(cmd *cobra.Command, _ []string) {
	var b strings.Builder
	b.WriteString("Usage: " + strings.Join(Usages(cmd), "\n       ") + "\n\n")
	if cmd.Long != "" {
		b.WriteString(strings.TrimSpace(cmd.Long) + "\n")
	} else {
		b.WriteString(cmd.Short + "\n")
	}
	width := 0
	for _, word := range cmd.Commands() {
		if !word.Hidden {
			width = max(width, len(word.Name()))
		}
	}
	for _, group := range cmd.Groups() {
		b.WriteString("\n" + group.Title + ":\n")
		for _, word := range cmd.Commands() {
			if word.GroupID == group.ID && !word.Hidden {
				fmt.Fprintf(&b, "  %-*s  %s\n", width, word.Name(), word.Short)
			}
		}
	}
	for _, group := range FlagGroups(cmd) {
		b.WriteString("\n" + group.Title + ":\n" + group.Flags.FlagUsages())
	}
	fmt.Fprint(cmd.OutOrStdout(), b.String()) // Output remembers what can't be printed
}

// helpCommand is the word help.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Say what a command does, and its flags",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
			if of, _, err := cmd.Root().Find(args); err == nil {
				for _, word := range of.Commands() {
					if word.IsAvailableCommand() {
						words = append(words, cobra.CompletionWithDesc(word.Name(), word.Short))
					}
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return exit.With(exit.Usage, fmt.Errorf("there is no command %s: %s --help lists them%s", strings.Join(args, " "), Program, didYouMean("", cmd.Root().SuggestionsFor(args[0]))))
			}
			help(of, nil)
			return nil
		},
	}
}
