package main

import (
	"cmp"
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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/apiserver-lite/apiserver-lite/conformance/pair"
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
	up, err := readUpstream(dir)
	if err != nil {
		return nil, err
	}
	all = append(all, bootstrap(up))
	written, err := textScenarios()
	if err != nil {
		return nil, err
	}
	all = append(all, written...)
	all = append(all, webhookScenario())
	for _, k := range up.kinds {
		all = append(all, k.scenarios()...)
	}
	return all, nil
}

// picked are those that --only names.
func (o options) picked(all []scenario) []scenario {
	return slices.DeleteFunc(slices.Clone(all), func(sc scenario) bool { return !o.only.MatchString(sc.name) })
}

// advertised is the address under which servers say that they can be reached: the same on each machine.
const advertised = "192.0.2.7"

// start starts the programs in a directory.
func (o options) start(ctx context.Context, name, bin string) (_ *pair.Server, stop func() error, err error) {
	dir := filepath.Join(o.keep, name)
	clean := func() error { return nil }
	if o.keep == "" {
		if dir, err = os.MkdirTemp("", "differential-"+name+"-"); err != nil {
			return nil, nil, err
		}
		clean = func() error { return os.RemoveAll(dir) }
	} else if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil { // what an earlier run left
		return nil, nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, nil, err
	}
	if bin == "" {
		bin = filepath.Join(dir, "assets")
		if err := pair.Ours(o.server, bin); err != nil {
			return nil, nil, errors.Join(err, clean())
		}
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return nil, nil, err
	}
	s, err := pair.Start(ctx, pair.Options{Bin: bin, Dir: dir, Args: []string{"--advertise-address=" + advertised}})
	if err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	return s, func() error { return errors.Join(s.Stop(), clean()) }, nil
}

// upstreamLag is what upstream's caches are given to learn of quotas, bindings and policies.
const upstreamLag = 2 * time.Second

// slow is after how long a request is worth a line of --slow.
const slow = time.Second

// playAll runs scenarios side by side, and hands over the answers of each.
func (o options) playAll(ctx context.Context, s *pair.Server, lag time.Duration, all []scenario, got func(scenario, []answer) error) error {
	t, err := newTarget(ctx, s)
	if err != nil {
		return err
	}
	t.lag, t.started = lag, s.Started
	if t.hooks, err = startHooks(); err != nil {
		return err
	}
	defer t.hooks.Close()
	t.took = func(what string, took time.Duration) {
		if o.slow && took > slow {
			fmt.Fprintf(os.Stderr, "%v: %s\n", took.Round(time.Millisecond), what)
		}
	}
	defer t.client.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	play := func(sc scenario) {
		answers, err := t.play(ctx, sc)
		if err == nil {
			err = got(sc, answers)
		}
		if err != nil {
			cancel(err)
		}
	}
	var together []scenario
	for _, sc := range all {
		if !sc.alone {
			together = append(together, sc)
		} else if ctx.Err() == nil {
			play(sc)
		}
	}
	next := make(chan []scenario)
	var workers sync.WaitGroup
	for range o.workers {
		workers.Go(func() {
			for some := range next {
				for _, sc := range some {
					play(sc)
				}
			}
		})
	}
	for len(together) > 0 {
		n := 1
		for n < len(together) && together[n].after == together[0].name {
			n++
		}
		select {
		case next <- together[:n]:
		case <-ctx.Done():
		}
		together = together[n:]
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// record writes what upstream answers.
func (o options) record(ctx context.Context) (err error) {
	runs := 1
	if o.twice {
		runs = 2
	}
	for i := range runs {
		s, stop, err := o.start(ctx, fmt.Sprintf("upstream%d", i), o.bin)
		if err != nil {
			return err
		}
		keep := func(sc scenario, answers []answer) error {
			lines := make([]recorded, len(answers))
			for j, a := range answers {
				lines[j] = recorded{Step: sc.steps[j].name, Request: sc.steps[j].fingerprint(), Answer: a}
			}
			if i > 0 {
				before, err := readRecording(o.dir, sc.name)
				if err != nil {
					return err
				}
				lines = merged(before, lines)
			}
			return writeRecording(o.dir, sc.name, lines)
		}
		err = o.playAll(ctx, s, upstreamLag, o.picked(basics()), keep)
		if err == nil {
			var all []scenario
			if all, err = scenarios(o.dir); err == nil {
				rest := o.picked(all[len(basics()):])
				begun, steps := time.Now(), 0
				for _, sc := range rest {
					steps += len(sc.steps)
				}
				err = o.playAll(ctx, s, upstreamLag, rest, keep)
				fmt.Fprintf(o.out, "%d scenarios with %d requests in %v\n", len(rest), steps, time.Since(begun).Round(time.Second))
				if o.only.String() == "" && err == nil {
					err = removeOthers(o.dir, all)
				}
			}
		}
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
	}
	return nil
}

// merged takes the second recording's answers that differ into the first.
func merged(first, second []recorded) []recorded {
	for i := range first {
		if i < len(second) && len(compare(first[i].Answer, second[i].Answer)) > 0 {
			first[i].Or = append(first[i].Or, second[i].Answer)
		}
	}
	return first
}

// removeOthers removes recordings that no scenario asks for.
func removeOthers(dir string, all []scenario) error {
	stale, err := others(dir, all)
	for _, name := range stale {
		err = errors.Join(err, os.Remove(recordingFile(dir, name)))
	}
	return err
}

// others names recordings that no scenario asks for.
func others(dir string, all []scenario) (stale []string, err error) {
	files, err := os.ReadDir(filepath.Join(dir, "oracle"))
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".jsonl.gz")
		if !slices.ContainsFunc(all, func(sc scenario) bool { return sc.name == name }) {
			stale = append(stale, name)
		}
	}
	return stale, err
}

// recorded returns what upstream answered to a scenario; an error if the recording is of other requests.
func (o options) recorded(sc scenario) ([]recorded, error) {
	lines, err := readRecording(o.dir, sc.name)
	if err != nil {
		return nil, err
	}
	for i := range max(len(lines), len(sc.steps)) {
		switch {
		case i >= len(lines):
			return nil, fmt.Errorf("%s has no recording of %s: run `make record ONLY='^%s$'`", sc.name, sc.steps[i].name, sc.name)
		case i >= len(sc.steps):
			return nil, fmt.Errorf("%s: nothing asks for the recording of %s: run `make record ONLY='^%s$'`", sc.name, lines[i].Step, sc.name)
		case lines[i].Request != sc.steps[i].fingerprint() || lines[i].Step != sc.steps[i].name:
			return nil, fmt.Errorf("%s: the recording of %s is of another request than %s: run `make record ONLY='^%s$'`", sc.name, lines[i].Step, sc.steps[i].name, sc.name)
		}
	}
	return lines, nil
}

// live asks both, without a recording.
func (o options) live(ctx context.Context) error {
	s, stop, err := o.start(ctx, "upstream", o.bin)
	if err != nil {
		return err
	}
	all, err := scenarios(o.dir)
	if err != nil {
		return errors.Join(err, stop())
	}
	var mu sync.Mutex // guards theirs
	theirs := map[string][]recorded{}
	err = o.playAll(ctx, s, upstreamLag, o.picked(all), func(sc scenario, answers []answer) error {
		lines := make([]recorded, len(answers))
		for i, a := range answers {
			lines[i] = recorded{Step: sc.steps[i].name, Answer: a}
		}
		mu.Lock()
		defer mu.Unlock()
		theirs[sc.name] = lines
		return nil
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	return o.replay(ctx, false, func(sc scenario) ([]recorded, error) { return theirs[sc.name], nil })
}

// result is what came of a scenario.
type result struct {
	name   string
	counts map[entry]int
	spare  int    // how many more differences testdata/notyet allows
	text   string // of the differences that are printed
	errs   []error
}

// replay asks ours and compares.
func (o options) replay(ctx context.Context, shrink bool, right func(scenario) ([]recorded, error)) error {
	all, err := scenarios(o.dir)
	if err != nil {
		return err
	}
	stale, err := others(o.dir, all)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range stale {
		errs = append(errs, fmt.Errorf("nothing asks for the recording %s: remove it", name))
	}
	s, stop, err := o.start(ctx, "ours", "")
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards all below
	results, used, steps := []result{}, make([]bool, len(onPurpose)), 0
	begun := time.Now()
	err = o.playAll(ctx, s, 0, o.picked(all), func(sc scenario, answers []answer) error {
		mine := make([]bool, len(onPurpose))
		lines, err := right(sc)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			return nil
		}
		r, err := o.judge(sc, lines, answers, &mine)
		if err != nil {
			return err
		}
		if shrink {
			if err := o.shrink(r); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		results, steps = append(results, r), steps+len(answers)
		for i, u := range mine {
			used[i] = used[i] || u
		}
		return nil
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.name, b.name) })
	differences, differing, spare := 0, 0, 0
	for _, r := range results {
		fmt.Fprint(o.out, r.text)
		if !shrink {
			errs = append(errs, r.errs...)
		}
		for _, n := range r.counts {
			differences += n
		}
		if len(r.counts) > 0 {
			differing++
		}
		spare += r.spare
	}
	if o.only.String() == "" {
		for i, u := range used {
			if !u {
				errs = append(errs, fmt.Errorf("onpurpose.go: nothing differs any more by %q: remove the line", onPurpose[i].why))
			}
		}
	}
	if o.summary {
		summarize(o.out, results)
	}
	fmt.Fprintf(o.out, "%d scenarios with %d requests in %v; %d fields differ, in %d scenarios\n", len(results), steps, time.Since(begun).Round(time.Millisecond), differences, differing)
	if spare > 0 && !shrink && len(errs) == 0 {
		fmt.Fprintf(o.out, "testdata/notyet allows %d more: `make differential-shrink` takes them out\n", spare)
	}
	return errors.Join(errs...)
}

// judge compares a scenario's answers.
func (o options) judge(sc scenario, lines []recorded, answers []answer, used *[]bool) (result, error) {
	r := result{name: sc.name, counts: map[entry]int{}}
	allowed, err := readNotYet(o.dir, sc.name)
	if err != nil {
		return r, err
	}
	type found struct {
		step step
		difference
	}
	var all []found
	right := rightAnswers(sc, lines)
	for i, a := range joined(sc, answers) {
		for _, d := range closest(right[i], a, byChance.MatchString(sc.name+" "+sc.steps[i].name)) {
			if isOnPurpose(sc.name, sc.steps[i].name, d, used) {
				continue
			}
			all = append(all, found{sc.steps[i], d})
			r.counts[entry{sc.steps[i].family(), class(d.Path)}]++
		}
	}
	var b strings.Builder
	last := ""
	for _, f := range all {
		e := entry{f.step.family(), class(f.Path)}
		if !o.all && r.counts[e] <= allowed[e] || !o.step.MatchString(f.step.name) {
			continue
		}
		if last != f.step.name {
			fmt.Fprintf(&b, "%s %s: %s %.300s\n", sc.name, f.step.name, f.step, f.step.body)
			last = f.step.name
		}
		fmt.Fprintf(&b, "    %s\n        theirs: %.600s\n        ours:   %.600s\n", f.Path, cmp.Or(f.Theirs, "-"), cmp.Or(f.Ours, "-"))
	}
	r.text = b.String()
	for e, n := range r.counts {
		if n > allowed[e] {
			r.errs = append(r.errs, fmt.Errorf("%s: %d answers of %q differ in %s, and testdata/notyet allows %d", sc.name, n, e.family, e.class, allowed[e]))
		}
	}
	for e, a := range allowed {
		r.spare += a - r.counts[e]
	}
	slices.SortFunc(r.errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return r, nil
}

// rightAnswers returns what upstream answered to each step, with later changes joined. Each of a step's answers is right.
func rightAnswers(sc scenario, lines []recorded) [][]answer {
	right := make([][]answer, len(lines))
	for run, more := 0, true; more; run++ {
		answers := make([]answer, len(lines))
		more = false
		for i, l := range lines {
			if answers[i] = l.Answer; 0 < run && run <= len(l.Or) {
				answers[i], more = l.Or[run-1], true
			}
		}
		for i, a := range joined(sc, answers) {
			if run == 0 || len(lines[i].Or) >= run {
				right[i] = append(right[i], a)
			}
		}
		more = more || run == 0
	}
	return right
}

// shrink lowers a scenario's counts to what they are. They never grow, unless that is allowed.
func (o options) shrink(r result) error {
	allowed, err := readNotYet(o.dir, r.name)
	if err != nil {
		return err
	}
	counts := map[entry]int{}
	for e, n := range r.counts {
		counts[e] = min(n, allowed[e])
		if o.allow {
			counts[e] = n
		}
	}
	return writeNotYet(o.dir, r.name, counts)
}

// summarize prints how many differences there are, by scenario, and by field over all scenarios.
func summarize(out io.Writer, results []result) {
	byScenario, byField, byFamily := map[string]int{}, map[string]int{}, map[string]int{}
	scenariosOf := map[string]map[string]bool{}
	for _, r := range results {
		for e, n := range r.counts {
			byScenario[r.name] += n
			byFamily[e.family] += n
			byField[e.class] += n
			if scenariosOf[e.class] == nil {
				scenariosOf[e.class] = map[string]bool{}
			}
			scenariosOf[e.class][r.name] = true
		}
	}
	print := func(title string, counts map[string]int, more func(string) string) {
		names := sortedKeys(counts)
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
		fmt.Fprintf(out, "\n%s\n", title)
		for _, name := range names {
			fmt.Fprintf(out, "%7d  %s%s\n", counts[name], name, more(name))
		}
	}
	none := func(string) string { return "" }
	print("Differences by scenario", byScenario, none)
	print("Differences by family of requests", byFamily, none)
	print("Differences by field", byField, func(name string) string {
		in := sortedKeys(scenariosOf[name])
		text := strings.Join(in[:min(3, len(in))], ", ")
		if len(in) > 3 {
			text += fmt.Sprintf(" and %d more", len(in)-3)
		}
		return "  (" + text + ")"
	})
	fmt.Fprintln(out)
}
