package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	dir     string // testdata
	bin     string // upstream's programs
	server  string // ours
	only    *regexp.Regexp
	step    *regexp.Regexp
	workers int
	twice   bool
	all     bool
	slow    bool
	summary bool
	allow   bool
	keep    string // where the servers' files stay
	out     io.Writer
}

const usage = "usage: differential record|replay|live|shrink|list [flags]"

func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	o := options{out: out}
	flags := flag.NewFlagSet("differential "+args[0], flag.ContinueOnError)
	flags.StringVar(&o.dir, "testdata", "differential/testdata", "the directory of recordings")
	flags.StringVar(&o.bin, "bin", "../bin/oracle", "the directory with upstream's kube-apiserver and etcd, as `make oracle` leaves it")
	flags.StringVar(&o.server, "server", "../bin/apiserver-lite", "our program")
	only := flags.String("only", "", "an expression: scenarios alone whose names match, such as ^pods")
	steps := flags.String("step", "", "an expression: print differences of these steps alone, such as ^create/")
	flags.IntVar(&o.workers, "workers", 4, "how many scenarios run at a time")
	flags.BoolVar(&o.twice, "twice", true, "record: ask twice, and take each answer for right where upstream's own answers differ")
	flags.BoolVar(&o.all, "all", false, "print the differences of testdata/notyet too")
	flags.BoolVar(&o.summary, "summary", false, "print how many differences there are by scenario and by field")
	flags.BoolVar(&o.allow, "allow", false, "shrink: let testdata/notyet grow too, after new requests were recorded")
	flags.BoolVar(&o.slow, "slow", false, "print requests whose answer or events take more than a second")
	flags.StringVar(&o.keep, "keep", "", "a directory in which the servers' logs stay")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	if o.step, err = regexp.Compile(*steps); err != nil {
		return err
	}
	if o.server, err = filepath.Abs(o.server); err != nil {
		return err
	}
	switch args[0] {
	case "record":
		return o.record(ctx)
	case "replay":
		return o.replay(ctx, false, o.recorded)
	case "shrink":
		return o.replay(ctx, true, o.recorded)
	case "live":
		return o.live(ctx)
	case "list":
		all, err := scenarios(o.dir)
		for _, sc := range all {
			fmt.Fprintln(out, sc.name, len(sc.steps))
		}
		return err
	}
	return errors.New(usage)
}

// basics need no recording of others.
func basics() []scenario {
	return []scenario{
		{name: "discovery", steps: discoverySteps(), alone: true},
		{name: "openapi", steps: openAPISteps(), alone: true},
	}
}

// scenarios returns all of them, in the order in which they're listed.
func scenarios(dir string) ([]scenario, error) {
	all := basics()
	kinds, err := readUpstream(dir)
	if err != nil {
		return nil, err
	}
	all = append(all, bootstrap(kinds), transportScenario()) // before there are definitions, whose groups both show
	written, err := textScenarios()
	if err != nil {
		return nil, err
	}
	all = append(all, written...)
	all = append(all, webhookScenario(), changeScenario(), callScenario(), conversionScenario())
	for _, k := range kinds {
		all = append(all, k.scenarios()...)
	}
	return all, nil
}

// picked are those that --only names.
func (o options) picked(all []scenario) []scenario {
	return slices.DeleteFunc(slices.Clone(all), func(sc scenario) bool { return !o.only.MatchString(sc.name) })
}
