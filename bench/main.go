// Command bench measures what a server costs and how fast it is, in scenarios that take more than a Go benchmark:
// restarts, thousands of watches, hundreds of definitions. It knows HTTP, and /proc for the CPU time and the memory of
// the server's processes, so it must run on the server's machine, and that is Linux. Another server of the same API is
// measured by the same code:
//
//	go run ./bench resume --server bin/apiserver-lite
//	go run ./bench fanout --server bin/apiserver-lite --runs 5
//	go run ./bench all --command bin/peer/peer
//	go run ./bench all --server bin/apiserver-lite --quick
//	go run ./bench idle --url https://127.0.0.1:8080 --token secret --insecure --pid 123,456
//	go run ./bench compare --server bin/apiserver-lite --with-command bin/peer/peer
//	go run ./bench compare --server bin/apiserver-lite --with bin/older --essential --worse 1.1
//	go run ./bench writes --server bin/apiserver-lite --members 3 --clients 64
//	go run ./bench get --server bin/apiserver-lite --etcd bin/peer/etcd --replicas 2 --at 1
//
// With --server it starts the binary for each run, on a port and a data directory of its own; with --command whatever
// else starts a server (see server.start and bench/peer); with --url it measures one that runs, which can't be
// restarted and keeps what the scenario made. `bench` alone lists the scenarios, `bench SCENARIO -h` its flags.
//
// Each scenario gives lines of JSON on standard output, and one for people on standard error: first what was measured
// and where, then each case, then with --runs the median and the spread of each case. A figure that can't be known,
// such as the CPU time of processes that --pid doesn't name, is left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// scenario registers its flags and returns what measures. An interrupt ends the context and with it the server, so that
// whatever is going on fails; requests need no context of their own.
type scenario struct {
	name, help string
	quick      string // the flags that --quick stands for: what it does is done, and no figure means anything
	new        func(*flag.FlagSet) measure
	needs      need
}

type measure func(context.Context, *bench) error

// need is what a scenario wants of its server.
type need int

const (
	running     need = iota // it runs
	restartable             // it can be stopped and started
	nothing                 // there is none
	several                 // there are replicas
	sizes                   // it starts replicas itself, of several numbers
)

func scenarios() []scenario {
	return []scenario{
		{"start", "from the process's start to ready and to the first object; memory and CPU of an idle server", "--n 1 --idle 20ms", start, restartable},
		{"writes", "create, update, patch and apply, and patches of one object by all: rate, and CPU of each", "--n 20 --clients 1,4", writes, running},
		{"transactions", "objects created one by one and in transactions: rate, and CPU of each", "--n 40 --clients 1,4 --together 1,10", transactions, running},
		{"get", "gets: rate, and CPU of each", "--n 50 --clients 2", get, running},
		{"list", "lists of everything, whole and in pages: CPU of each", "--objects 30 --n 2 --clients 1,2", list, running},
		{"mixed", "how long gets and short lists take while others write", "--for 100ms", mixed, running},
		{"listing", "writes with and without clients that list all the time", "--objects 100 --clients 2 --for 100ms", listing, running},
		{"fanout", "every watcher sees every update: CPU of each delivery, and how late it comes", "--watches 3,6 --updates 100 --rate 500", fanout, running},
		{"selective", "an update while there are watchers of other objects: CPU of each", "--watches 2,50 --updates 100", selective, running},
		{"initial", "many clients that ask for the state at once", "--objects 1100 --clients 3", initial, running},
		{"idle", "resident memory of a watch that has nothing to tell", "--watches 10,20", idle, running},
		{"crowd", "many watches over HTTP/2: memory, and one event to all of them while others write", "--watches 20,30 --streams 15 --events 2", crowd, running},
		{"slow", "how late events come, with and without further watchers that never read", "--readers 4 --deaf 2 --updates 200 --pairs 1", slow, running},
		{"neighbours", "how long a client's gets and leases take, alone and beside one that holds all that he can get", "--held 3 --n 5 --objects 20", neighbours, running},
		{"churn", "many watches opened and dropped, again and again: what they leave", "--watches 20 --rounds 3 --wait 50ms", churn, running},
		{"resets", "watches whose connections are reset before the answer: what they leave", "--n 200 --wait 100ms", resets, running},
		{"restart", "from the process's start to ready, with many objects: after a stop and after a kill", "--objects 200 --n 2", restarted, restartable},
		{"resume", "a watch from before many events, after a restart: time to the first and to the last", "--events 200", resume, restartable},
		{"storm", "a restart under many watches, which all come back at once", "--clients 50", storm, restartable},
		{"definitions", "what a definition costs: time, memory, OpenAPI's document of all, and time to start again", "--n 5 --starts 1", definitions, running},
		{"client", "package client: its calls, Follow and a cache, through cuts and a restart; what they give is checked", "--updates 200", goClient, running},
		{"memory", "resident memory of many objects, and the most while they are listed", "--objects 200 --clients 2", memory, running},
		{"growth", "a create, a get, a list of 1,000, an event and a start, with more and more objects there", "--sizes 1100,1200 --n 20 --lists 2 --watches 3", growth, running},
		{"lag", "how late events come at each of several replicas, and what they cost each", "--watches 2 --updates 100", lag, several},
		{"failover", "a replica is killed: when writes at each survivor succeed again", "--before 100ms --after 2s", failover, several},
		{"handover", "the replica that acts for all is stopped or killed: when another one acts", "--within 2m", handover, several},
		{"slopes", "what a further replica adds to a write, an object and a delivered event", "--sizes 1,2 --objects 100 --updates 100 --watches 10", slopes, sizes},
		{"stream-limit", "what Go's HTTP server alone sends to many connections, a frame at a time and without flushes", "--connections 5 --frames 100", streamLimit, nothing},
	}
}

func main() {
	if serveFrames() { // as the other half of stream-limit
		return
	}
	debug.SetGCPercent(400) // so that the client leaves more of the machine to the server
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
		fmt.Fprintln(readable, "usage: bench SCENARIO|all|compare [flags]")
		for _, s := range scenarios() {
			fmt.Fprintf(readable, "  %-12s %s\n", s.name, s.help)
		}
		fmt.Fprintf(readable, "  %-12s %s\n", "compare", "two servers in alternating runs, as a table")
		return flag.ErrHelp
	}
	out := &output{lines: lines, readable: readable}
	if args[0] == "compare" {
		return compare(ctx, args[1:], out)
	}
	known := false
	for _, s := range scenarios() {
		if args[0] != "all" && args[0] != s.name {
			continue
		}
		known = true
		err := s.run(ctx, args[1:], out)
		if args[0] == "all" && (errors.Is(err, errRestart) || errors.Is(err, errSeveral)) {
			fmt.Fprintf(readable, "# %-11s left out: %v\n", s.name, err)
			continue
		}
		if err != nil {
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
	name     string
	settling time.Duration
	out      *output
}

// run measures as often as --runs says, each time with a server of its own if it can start one.
func (s scenario) run(ctx context.Context, args []string, out *output) error {
	flags := flag.NewFlagSet("bench "+s.name, flag.ContinueOnError)
	flags.SetOutput(out.readable)
	b := &bench{server: &server{}, name: s.name, out: out}
	b.server.register(flags)
	flags.DurationVar(&b.settling, "settle", 3*time.Second, "memory has settled when it hasn't changed by 1 % for so long")
	runs := flags.Int("runs", 1, "how often to measure; the median and the spread are printed last")
	quick := flags.Bool("quick", false, "only see that it works: as "+s.quick+" --settle 20ms, where these aren't given")
	measure := s.new(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *quick { // and once more what was given, which counts
		if err := flags.Parse(slices.Concat(strings.Fields(s.quick), []string{"--settle", "20ms"}, args)); err != nil {
			return err
		}
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q?", flags.Args())
	}
	if err := b.server.check(s.needs); err != nil {
		return err
	}
	first := len(out.records)
	for i := range *runs {
		var err error
		if s.needs == sizes {
			err = measure(ctx, b)
		} else {
			err = b.once(ctx, measure, i == 0, args)
		}
		if err != nil {
			return err
		}
	}
	if *runs > 1 {
		out.summarize(out.records[first:])
	}
	return nil
}

// once starts the server, measures and stops it.
func (b *bench) once(ctx context.Context, measure measure, introduce bool, args []string) (err error) {
	if err := b.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if introduce {
		if err := b.introduce(args); err != nil {
			return err
		}
	}
	return measure(ctx, b)
}

// integers reads what is separated by commas.
func integers(list string) (all []int, err error) {
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		n, err := strconv.Atoi(item)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q isn't a list of numbers", list)
		}
		all = append(all, n)
	}
	return all, nil
}
