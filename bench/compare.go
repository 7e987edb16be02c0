package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// row is a line of the table in docs/performance.md: figures of one scenario. Rows of the same scenario and flags come
// from one measurement.
type row struct {
	what            string
	scenario, flags string
	only            string // what the case's parameters must hold; "" for all cases
	figures         string // separated by commas
	essential       bool
}

// rows is what compare measures. The numbers are such that all of it takes some twelve minutes with three runs, and
// the essential rows of two builds of ours as long with five.
var rows = []row{
	{"from process start to ready / to the first object, definition included, ms", "start", "--n 5", "", "ready_ms,first_object_ms", true},
	{"resident when idle and empty, MB", "start", "--n 5", "", "idle_mb", true},
	{"CPU when idle and empty, ms a second", "start", "--n 5", "", "idle_cpu_ms_per_s", false},
	{"create, CPU-ms each, 1 / 16 / 64 clients", "writes", "--kinds plain --ops create,update,patch", `op="create"`, "cpu_ms_per_op", true},
	{"update", "writes", "--kinds plain --ops create,update,patch", `op="update"`, "cpu_ms_per_op", true},
	{"merge patch", "writes", "--kinds plain --ops create,update,patch", `op="patch"`, "cpu_ms_per_op", true},
	{"create, a second, 1 / 16 / 64 clients", "writes", "--kinds plain --ops create,update,patch", `op="create"`, "ops_per_s", true},
	{"create, with managed fields on both sides, CPU-ms each", "writes", "--kinds plain --ops create,update --args --managed-fields=always", `op="create"`, "cpu_ms_per_op", false},
	{"update", "writes", "--kinds plain --ops create,update --args --managed-fields=always", `op="update"`, "cpu_ms_per_op", false},
	{"server-side apply, CPU-ms each", "writes", "--kinds plain --ops apply", "", "cpu_ms_per_op", false},
	{"with a schema of 30 fields and two rules: create, CPU-ms each", "writes", "--kinds thirty --n 1000", `op="create"`, "cpu_ms_per_op", false},
	{"update", "writes", "--kinds thirty --n 1000", `op="update"`, "cpu_ms_per_op", false},
	{"merge patch", "writes", "--kinds thirty --n 1000", `op="patch"`, "cpu_ms_per_op", false},
	{"server-side apply", "writes", "--kinds thirty --n 1000", `op="apply"`, "cpu_ms_per_op", false},
	{"get, 16 clients, CPU-ms each", "get", "", "", "cpu_ms_per_op", true},
	{"list of 10,000, 1 / 8 clients, CPU-ms each", "list", "", "limit=0 ", "cpu_ms_per_list", true},
	{"in pages of 500", "list", "", "limit=500 ", "cpu_ms_per_list", true},
	{"with gzip", "list", "--limits 0 --gzip", "", "cpu_ms_per_list", false},
	{"gets / lists of 100 while others write 500 a second: p99, ms", "mixed", "--for 5s", "", "get_p99_ms,list_p99_ms", false},
	{"fan-out to 100 watchers, 4 writers: CPU-s per million events delivered", "fanout", "--watches 100 --updates 3000", "", "cpu_s_per_million", true},
	{"fan-out to 1,000 watchers", "fanout", "--watches 1000", "", "cpu_s_per_million", true},
	{"what Go's HTTP server needs for that alone, a flush for each frame", "stream-limit", "--modes flush", "", "cpu_s_per_million", false},
	{"fan-out to 5,000 watchers", "fanout", "--watches 5000 --updates 200", "", "cpu_s_per_million", false},
	{"1,000 watchers at 50 updates a second, which both carry: lag p50 / p99, ms", "fanout", "--watches 1000 --rate 50 --updates 500", "", "lag_p50_ms,lag_p99_ms", false},
	{"an update beside 10 / 5,000 watchers of other labels, CPU-ms", "selective", "--by label", "", "cpu_ms_per_update", true},
	{"of other names", "selective", "--by name", "", "cpu_ms_per_update", true},
	{"initial events, 10,000 objects to 50 clients at once: CPU-s per million", "initial", "", "", "cpu_s_per_million", true},
	{"idle watcher over HTTP/1.1, resident KB, 1,000 of them", "idle", "--watches 1000", "", "kb_per_watch", true},
	{"resident with 20,000 objects of 1 KB, after the writes / after a restart, MB", "memory", "--objects 20000", "", "after_mb", false},
}

// comparison is two servers, and what was measured of them.
type comparison struct {
	servers   [2]server
	runs      int
	essential bool
	worse     float64
	settle    time.Duration
	out       *output
	bad       []string // figures that are worse than allowed
	failures  []error  // of scenarios, whose rows say so
}

// compare measures two servers in turn and prints a table with their medians, spreads and ratios, in Markdown.
func compare(ctx context.Context, args []string, out *output) error {
	c := comparison{out: out}
	flags := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	flags.SetOutput(out.readable)
	flags.StringVar(&c.servers[0].binary, "server", "", "the apiserver-lite that is measured")
	flags.StringVar(&c.servers[1].binary, "with", "", "the apiserver-lite that it's compared with")
	flags.StringVar(&c.servers[1].command, "with-command", "", "instead of that, a command that starts another server")
	flags.StringVar(&c.servers[0].replicas.etcd, "etcd", "", "the first one keeps its data in this etcd, as bin/peer/etcd, whose CPU and memory count")
	flags.IntVar(&c.servers[0].replicas.members, "members", 0, "the first one is so many members of a cluster, whose CPU and memory count")
	flags.IntVar(&c.runs, "runs", 5, "runs of each, in turn")
	flags.BoolVar(&c.essential, "essential", false, "leave out the rows that take long")
	flags.Float64Var(&c.worse, "worse", 0, "fail if a median is worse by more than this factor, such as 1.1, and by more than the spread; 0 for never")
	flags.DurationVar(&c.settle, "settle", 2*time.Second, "as in the scenarios")
	only := flags.String("scenarios", "", "measure these alone, separated by commas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c.servers[0].count = 1
	for i := range c.servers {
		if err := c.servers[i].check(running); err != nil {
			return fmt.Errorf("a comparison takes --server, and --with or --with-command: %w", err)
		}
	}
	begin := time.Now()
	if err := c.head(ctx, args); err != nil {
		return err
	}
	for _, group := range measurements(c.essential, *only) {
		if err := c.measure(ctx, group); err != nil {
			return err
		}
	}
	fmt.Fprintf(out.readable, "# it took %v\n", time.Since(begin).Round(time.Second))
	if len(c.bad) > 0 {
		c.failures = append(c.failures, fmt.Errorf("worse by more than %.4g, and by more than the spread:\n%s", c.worse, strings.Join(c.bad, "\n")))
	}
	return errors.Join(c.failures...)
}

// measurements is the rows in groups, each of which comes from one measurement.
func measurements(essential bool, only string) (all [][]row) {
	for _, r := range rows {
		if essential && !r.essential || only != "" && !strings.Contains(","+only+",", ","+r.scenario+",") {
			continue
		}
		if n := len(all); n > 0 && all[n-1][0].scenario == r.scenario && all[n-1][0].flags == r.flags {
			all[n-1] = append(all[n-1], r)
		} else {
			all = append(all, []row{r})
		}
	}
	return all
}

// head prints what is compared, where and how, and the table's first lines. It starts each server once, so that a
// wrong path shows at once.
func (c *comparison) head(ctx context.Context, args []string) error {
	var versions [2]string
	for i := range c.servers {
		b := &bench{server: &c.servers[i]}
		err := b.open(ctx)
		if err == nil {
			versions[i], err = b.version()
			err = errors.Join(err, b.close())
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(c.out.lines, "%s. Load when it began: %s. %s. A: %s. B: %s. `bench compare %s`: medians of %d alternating runs; the spread is the distance from the least to the most, as a share of the median.\n\n",
		machine(), load(), time.Now().UTC().Format(time.DateOnly), versions[0], versions[1], strings.Join(args, " "), c.runs)
	fmt.Fprint(c.out.lines, "| what | `go run ./bench` | A | spread | B | spread | B / A |\n|---|---|---|---|---|---|---|\n")
	return nil
}

// measure runs one scenario on both servers in turn, and prints its rows. Whether A or B is first changes with each run.
func (c *comparison) measure(ctx context.Context, group []row) error {
	s, err := scenarioNamed(group[0].scenario)
	if err != nil {
		return err
	}
	var records [2][]record
	var failed [2]error
	for run := range c.runs {
		for turn := range 2 {
			i := (run + turn) % 2
			if failed[i] != nil || s.needs == nothing && i == 1 {
				continue
			}
			out := &output{lines: io.Discard, readable: c.out.readable}
			fmt.Fprintf(c.out.readable, "# run %d of %s:\n", run+1, "AB"[i:i+1])
			failed[i] = s.run(ctx, c.arguments(group[0].flags, i), out)
			records[i] = append(records[i], out.records...)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	for i, err := range failed {
		if err != nil {
			c.failures = append(c.failures, fmt.Errorf("%s at %s: %w", "AB"[i:i+1], s.name, err))
		}
	}
	for _, r := range group {
		c.print(r, [2][]summary{r.of(gather(records[0])), r.of(gather(records[1]))}, failed)
	}
	return nil
}

func scenarioNamed(name string) (scenario, error) {
	for _, s := range scenarios() {
		if s.name == name {
			return s, nil
		}
	}
	return scenario{}, fmt.Errorf("there is no scenario %q: `bench` alone lists them", name)
}

// arguments is what a scenario is called with for a server.
func (c *comparison) arguments(flags string, i int) []string {
	all := append(strings.Fields(flags), "--settle", c.settle.String())
	if s := &c.servers[i]; s.binary != "" {
		all = append(all, "--server", s.binary)
		if s.on() {
			all = append(all, "--etcd", s.replicas.etcd, "--members", strconv.Itoa(s.members))
		}
		return all
	}
	return append(all, "--command", c.servers[i].command)
}

// print prints a row: in each cell a figure of each case. A server that failed has that instead of figures.
func (c *comparison) print(r row, sides [2][]summary, failed [2]error) {
	var cells [5][]string // medians and spreads of A and of B, ratios
	for i, side := range sides {
		if failed[i] != nil {
			cells[2*i] = []string{"failed"}
			sides[i] = nil
			continue
		}
		for _, s := range side {
			cells[2*i], cells[2*i+1] = append(cells[2*i], digits(s.Median)), append(cells[2*i+1], s.spread())
		}
	}
	for i := range min(len(sides[0]), len(sides[1])) {
		a, b := sides[0][i], sides[1][i]
		ratio := b.Median / a.Median
		cells[4] = append(cells[4], digits(ratio))
		if worse := r.worse(ratio); c.worse > 0 && worse > max(c.worse, 1+a.variation(), 1+b.variation()) {
			c.bad = append(c.bad, fmt.Sprintf("%s, number %d (%s %s): %s, it was %s (%.2f)", r.what, i+1, r.scenario, r.flags, short(a.Median), short(b.Median), worse))
		}
	}
	line := fmt.Sprintf("| %s | `%s` |", r.what, strings.TrimSpace(r.scenario+" "+r.flags))
	for _, cell := range cells {
		line += " " + strings.Join(cell, " / ") + " |"
	}
	fmt.Fprintln(c.out.lines, line)
}

// of returns the row's figures, by case.
func (r row) of(cases []*gathered) (all []summary) {
	for _, c := range cases {
		if !strings.Contains(c.key+" ", r.only) {
			continue
		}
		for name := range strings.SplitSeq(r.figures, ",") {
			if values := c.values[name]; len(values) > 0 {
				all = append(all, summarize(values))
			}
		}
	}
	return all
}

// worse is how much worse A is than B, of which the ratio is B's figure by A's: of rates more is better.
func (r row) worse(ratio float64) float64 {
	if strings.HasSuffix(r.figures, "_per_s") {
		return ratio
	}
	return 1 / ratio
}

// variation is the distance between the least and the most, as a share of the median.
func (s summary) variation() float64 { return (s.Most - s.Least) / s.Median }

// spread is that for people.
func (s summary) spread() string {
	if s.Runs == 1 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", s.variation()*100)
}

// digits leaves two: a few runs carry no more.
func digits(f float64) string {
	if f < 10 {
		return fmt.Sprintf("%.2g", f)
	}
	step := math.Pow10(int(math.Log10(f)) - 1)
	return fmt.Sprintf("%.0f", math.Round(f/step)*step)
}
