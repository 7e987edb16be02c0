package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// output is where figures go.
type output struct {
	lines, readable io.Writer
	records         []record // all of them, for a summary
}

// record is a measured case.
type record struct {
	key     string // which case it is: the scenario and its parameters
	figures []figure
}

// figure is something that was measured.
type figure struct {
	name  string
	value float64
}

// pairs is names and values in turn.
type pairs []any

// report prints a case: what it is, and its figures. Those that aren't known (NaN) are left out.
func (b *bench) report(what, figures pairs) {
	r := record{key: b.name + what.people()}
	var known pairs
	for i := 0; i+1 < len(figures); i += 2 {
		value := number(figures[i+1])
		if math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		r.figures = append(r.figures, figure{figures[i].(string), value})
		known = append(known, figures[i], figures[i+1])
	}
	b.out.records = append(b.out.records, r)
	b.out.print(b.name, slices.Concat(what, known))
}

func number(value any) float64 {
	switch v := value.(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case int64:
		return float64(v)
	}
	panic(fmt.Sprintf("a figure is a %T", value))
}

// print writes the two lines of a case.
func (o *output) print(name string, all pairs) {
	line := fmt.Sprintf(`{"cmd":%q`, name)
	for i := 0; i+1 < len(all); i += 2 {
		line += fmt.Sprintf(`,%q:%s`, all[i], text(all[i+1]))
	}
	fmt.Fprintln(o.lines, line+"}")
	fmt.Fprintf(o.readable, "# %-11s%s\n", name, all.people())
}

// people is the pairs for people.
func (p pairs) people() (s string) {
	for i := 0; i+1 < len(p); i += 2 {
		s += fmt.Sprintf(" %s=%s", p[i], text(p[i+1]))
	}
	return s
}

// text is a value as JSON. A number that was measured has about four digits.
func text(value any) string {
	if f, ok := value.(float64); ok {
		return short(f)
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return strconv.Quote(err.Error())
	}
	return string(encoded)
}

func short(f float64) string {
	decimals := 4
	switch {
	case f >= 1000 || f <= -1000:
		decimals = 0
	case f >= 10 || f <= -10:
		decimals = 2
	}
	return strconv.FormatFloat(f, 'f', decimals, 64)
}

// summary is a figure over several runs.
type summary struct {
	Median float64 `json:"median"`
	Least  float64 `json:"min"`
	Most   float64 `json:"max"`
	Runs   int     `json:"runs"`
}

func summarize(values []float64) summary {
	return summary{median(values), slices.Min(values), slices.Max(values), len(values)}
}

// summarize prints the median, the least and the most of each figure of the same case.
func (o *output) summarize(records []record) {
	for _, c := range gather(records) {
		all := pairs{"case", c.key}
		for _, name := range c.names {
			all = append(all, name, summarize(c.values[name]))
		}
		o.print("summary", all)
	}
}

// gathered is the same case in several runs.
type gathered struct {
	key    string
	names  []string // of its figures, in their order
	values map[string][]float64
}

func gather(records []record) (all []*gathered) {
	known := map[string]*gathered{}
	for _, r := range records {
		c := known[r.key]
		if c == nil {
			c = &gathered{key: r.key, values: map[string][]float64{}}
			known[r.key] = c
			all = append(all, c)
		}
		for _, f := range r.figures {
			if c.values[f.name] == nil {
				c.names = append(c.names, f.name)
			}
			c.values[f.name] = append(c.values[f.name], f.value)
		}
	}
	return all
}

// introduce prints what is measured, where, and how.
func (b *bench) introduce(args []string) error {
	version, err := b.version()
	if err != nil {
		return err
	}
	if args == nil {
		args = []string{}
	}
	b.out.print(b.name, pairs{"flags", args, "server", version, "machine", machine(), "load", load(), "time", time.Now().UTC().Format(time.RFC3339)})
	return nil
}

// version is what the server calls itself, with the commit that it was built from if it says that.
func (b *bench) version() (string, error) {
	if b.url == "" {
		return "none", nil
	}
	answer, err := b.expect("GET", "/version", "", nil, 200)
	if err != nil {
		return "", err
	}
	var version struct{ GitVersion, GitCommit string }
	err = json.Unmarshal(answer, &version)
	commit := version.GitCommit
	if strings.HasPrefix(commit, "$") { // a build without one
		commit = ""
	}
	return strings.TrimSpace(version.GitVersion + " " + commit), err
}

// machine is the processor, the memory, the kernel, Go's version, and what the servers' data is on, which says what a
// sync costs: in a tmpfs nothing.
func machine() string {
	read := func(path string) string {
		content, _ := os.ReadFile(path)
		return string(content)
	}
	_, rest, _ := strings.Cut(read("/proc/cpuinfo"), "model name")
	model, _, _ := strings.Cut(strings.TrimLeft(rest, "\t :"), "\n")
	_, rest, _ = strings.Cut(read("/proc/meminfo"), "MemTotal:")
	kb := 0.0
	if fields := strings.Fields(rest); len(fields) > 0 {
		kb, _ = strconv.ParseFloat(fields[0], 64)
	}
	disk, _ := exec.Command("df", "--output=fstype", os.TempDir()).Output()
	_, filesystem, _ := strings.Cut(string(disk), "\n")
	return fmt.Sprintf("%d x %s, %.0f GiB, Linux %s, %s, data on %s", runtime.NumCPU(), model, kb/(1<<20),
		strings.TrimSpace(read("/proc/sys/kernel/osrelease")), runtime.Version(), cmp.Or(strings.TrimSpace(filesystem), "an unknown filesystem"))
}

// load is the machine's load of the last minute: much of it makes figures worthless.
func load() string {
	content, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(content), " ")
	return one
}
