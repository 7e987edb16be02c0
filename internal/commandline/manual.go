package commandline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// WriteManual writes a man page of a command, and of each below it, into a directory, which is made if it's missing: apiserver-lite-get.1, for
// example. It returns how many there are.
func WriteManual(cmd *cobra.Command, dir string) (pages int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(manual(cmd, name)), 0o644); err != nil {
		return 0, err
	}
	pages = 1
	for _, word := range cmd.Commands() {
		if word.Hidden || word.Name() == "help" {
			continue
		}
		below, err := WriteManual(word, dir)
		if pages += below; err != nil {
			return pages, err
		}
	}
	return pages, nil
}

// manual is a command's page in the macros of man(7).
func manual(cmd *cobra.Command, name string) string {
	var b strings.Builder
	short := cmd.Short
	if short == "" {
		short = "Serve the Kubernetes API from one process"
	}
	fmt.Fprintf(&b, ".TH \"%s\" 1\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(strings.ToUpper(name)), roff(name), roff(strings.ToLower(short[:1])+short[1:]))
	for _, line := range Usages(cmd) {
		b.WriteString(roff(line) + "\n.br\n")
	}
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(cmd) + "\n")
	for _, group := range cmd.Groups() {
		b.WriteString(".SH " + strings.ToUpper(roff(group.Title)) + "\n")
		for _, word := range cmd.Commands() {
			if word.GroupID == group.ID && !word.Hidden {
				b.WriteString(".TP\n\\fB" + roff(word.Name()) + "\\fR\n" + roff(word.Short) + "\n")
			}
		}
	}
	for _, group := range FlagGroups(cmd) {
		b.WriteString(".SH " + strings.ToUpper(roff(group.Title)) + "\n")
		group.Flags.VisitAll(func(f *pflag.Flag) { b.WriteString(flagManual(f)) })
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n\\fB%s\\fR(1)\n", roff(strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-")))
	}
	return b.String()
}

func paragraphs(cmd *cobra.Command) string {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	return strings.ReplaceAll(roff(strings.TrimSpace(text)), "\n\n", "\n.PP\n")
}

func flagManual(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	name := "\\fB" + roff("--"+f.Name) + "\\fR"
	if f.Shorthand != "" {
		name = "\\fB" + roff("-"+f.Shorthand) + "\\fR, " + name
	}
	if value != "" {
		name += " \\fI" + roff(value) + "\\fR"
	}
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
		usage += " (default " + f.DefValue + ")"
	}
	return ".TP\n" + name + "\n" + roff(usage) + "\n"
}

// roff writes text so that man shows it as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
