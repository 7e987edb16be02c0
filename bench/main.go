// Command bench measures what a server costs and how fast it is in scenarios that take more than a Go benchmark:
// restarts, thousands of watches, hundreds of definitions. It knows HTTP, and /proc for the CPU time and the memory of
// the server's processes, so it must run beside the server, on Linux. Another server of the same API is measured by the
// same code:
//
//	go run ./bench resume --server bin/apiserver-lite
//	go run ./bench all --server bin/apiserver-lite
//	go run ./bench idle --url http://127.0.0.1:8080 --pid 123,456
//	go run ./bench storm --command "peer/run.sh --foreground"
//
// With --server it starts the binary for each scenario, on a port and a data directory of its own; with --command
// whatever else starts a server (see server.start); with --url it measures one that runs, which can't be restarted and
// keeps what the scenario made. `bench` alone lists the scenarios, `bench SCENARIO -h` its flags.
//
// Each case gives one line of JSON on standard output, and one for people on standard error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// scenario registers its flags and returns what measures. An interrupt ends the context and with it the server, so that
// whatever is going on fails; requests need no context of their own.
type scenario struct {
	name, help string
	new        func(*flag.FlagSet) measure
}

type measure func(context.Context, *bench) error

func scenarios() []scenario {
	return []scenario{
		{"resume", "a watch from before many events, after a restart: time to the first and to the last", resume},
		{"storm", "a restart under many watches, which all come back at once", storm},
		{"churn", "many watches opened and dropped, again and again: what they leave", churn},
		{"fanout", "every watcher sees every update: CPU of each delivery, and how late it comes", fanout},
		{"selective", "an update beside watchers of other objects: CPU of each", selective},
		{"initial", "many clients that ask for the state at once", initial},
		{"idle", "resident memory of a watch that has nothing to tell", idle},
		{"slow", "how late events come, with and without watchers beside them that never read", slow},
		{"writes", "create, update, patch and apply: rate, and CPU of each", writes},
		{"definitions", "what a definition costs: time, memory, and time to start again", definitions},
		{"listing", "writes with and without clients that list all the time", listing},
		{"memory", "resident memory of many objects, and the most while they are listed", memory},
	}
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run does what the arguments say.
func run(ctx context.Context, args []string, lines, readable io.Writer) error {
	if len(args) == 0 {
		fmt.Fprintln(readable, "usage: bench SCENARIO|all [flags]")
		for _, s := range scenarios() {
			fmt.Fprintf(readable, "  %-12s %s\n", s.name, s.help)
		}
		return flag.ErrHelp
	}
	known := false
	for _, s := range scenarios() {
		if args[0] != "all" && args[0] != s.name {
			continue
		}
		known = true
		if err := s.run(ctx, args[1:], lines, readable); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if !known {
		return fmt.Errorf("there is no scenario %q: `bench` alone lists them", args[0])
	}
	return nil
}

// bench is what a scenario has.
type bench struct {
	*server
	name            string
	settling        time.Duration
	lines, readable io.Writer
}

func (s scenario) run(ctx context.Context, args []string, lines, readable io.Writer) (err error) {
	flags := flag.NewFlagSet("bench "+s.name, flag.ContinueOnError)
	flags.SetOutput(readable)
	b := &bench{server: newServer(), name: s.name, lines: lines, readable: readable}
	flags.StringVar(&b.binary, "server", "", "start this apiserver-lite, for this scenario")
	flags.StringVar(&b.args, "args", "", "further flags for it, separated by blanks")
	flags.StringVar(&b.command, "command", "", "start another server with this command")
	flags.StringVar(&b.url, "url", "", "measure the server that runs there")
	pids := flags.String("pid", "", "its processes, separated by commas")
	flags.DurationVar(&b.settling, "settle", 3*time.Second, "memory has settled when it hasn't changed by 1 % for so long")
	run := s.new(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q?", flags.Args())
	}
	if b.pids, err = integers(*pids); err != nil {
		return fmt.Errorf("--pid: %w", err)
	}
	if err := b.open(ctx); err != nil {
		return err
	}
	return errors.Join(run(ctx, b), b.close())
}

// integers reads what is separated by commas.
func integers(list string) (all []int, err error) {
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		n, err := strconv.Atoi(item)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q isn't a list of positive numbers", list)
		}
		all = append(all, n)
	}
	return all, nil
}

// report prints a case: names and values in turn.
func (b *bench) report(pairs ...any) {
	line, people := fmt.Sprintf(`{"cmd":%q`, b.name), fmt.Sprintf("# %-11s", b.name)
	for i := 0; i+1 < len(pairs); i += 2 {
		value, err := json.Marshal(short(pairs[i+1]))
		if err != nil {
			value = strconv.AppendQuote(nil, err.Error())
		}
		line += fmt.Sprintf(`,%q:%s`, pairs[i], value)
		people += fmt.Sprintf(" %s=%s", pairs[i], value)
	}
	fmt.Fprintln(b.lines, line+"}")
	fmt.Fprintln(b.readable, people)
}

// short leaves about four digits of a number that was measured.
func short(value any) any {
	f, ok := value.(float64)
	if !ok {
		return value
	}
	decimals := 4
	switch {
	case f >= 1000 || f <= -1000:
		decimals = 0
	case f >= 10 || f <= -10:
		decimals = 2
	}
	return json.Number(strconv.FormatFloat(f, 'f', decimals, 64))
}
