package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// live asks both, without a recording.
func (o options) live(ctx context.Context) error {
	all, err := scenarios(o.dir)
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards theirs
	theirs := map[string][]recorded{}
	err = o.playFlagged(ctx, "upstream", o.bin, upstreamLag, o.picked(all), func(sc scenario, answers []answer) error {
		lines := make([]recorded, len(answers))
		for i, a := range answers {
			lines[i] = recorded{Step: sc.steps[i].name, Answer: a}
		}
		mu.Lock()
		defer mu.Unlock()
		theirs[sc.name] = lines
		return nil
	})
	if err != nil {
		return err
	}
	return o.replay(ctx, false, func(sc scenario) ([]recorded, error) { return theirs[sc.name], nil })
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
	t := &tally{used: make([]bool, len(onPurpose)), begun: time.Now()}
	for _, name := range stale {
		t.errs = append(t.errs, fmt.Errorf("nothing asks for the recording %s: remove it", name))
	}
	err = o.playFlagged(ctx, "ours", "", 0, o.picked(all), func(sc scenario, answers []answer) error {
		lines, err := right(sc)
		if err != nil {
			t.failed(err)
			return nil
		}
		r, err := o.judge(sc, lines, answers)
		if err == nil && shrink {
			err = o.shrink(r)
		}
		t.add(r, len(answers))
		return err
	})
	if err != nil {
		return err
	}
	return t.print(o, shrink)
}

// tally is what came of all scenarios.
type tally struct {
	begun time.Time

	mu      sync.Mutex // guards all below
	results []result
	used    []bool // which lines of onPurpose something differs by
	steps   int
	errs    []error
}

func (t *tally) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errs = append(t.errs, err)
}

func (t *tally) add(r result, steps int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results, t.steps = append(t.results, r), t.steps+steps
	for i, used := range r.used {
		t.used[i] = t.used[i] || used
	}
}

// print prints it when all scenarios are over, and returns what is wrong.
func (t *tally) print(o options, shrink bool) error {
	slices.SortFunc(t.results, func(a, b result) int { return cmp.Compare(a.name, b.name) })
	differences, differing, spare := 0, 0, 0
	for _, r := range t.results {
		fmt.Fprint(o.out, r.text)
		if !shrink {
			t.errs = append(t.errs, r.errs...)
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
		for i, used := range t.used {
			if !used {
				t.errs = append(t.errs, fmt.Errorf("onpurpose.go: nothing differs any more by %q: remove the line", onPurpose[i].why))
			}
		}
	}
	if o.summary {
		summarize(o.out, t.results)
	}
	fmt.Fprintf(o.out, "%d scenarios with %d requests in %v; %d fields differ, in %d scenarios\n", len(t.results), t.steps, time.Since(t.begun).Round(time.Millisecond), differences, differing)
	if spare > 0 && !shrink && len(t.errs) == 0 {
		fmt.Fprintf(o.out, "testdata/notyet allows %d more: `make differential-shrink` takes them out\n", spare)
	}
	return errors.Join(t.errs...)
}

// result is what came of a scenario.
type result struct {
	name   string
	counts map[entry]int
	spare  int    // how many more differences testdata/notyet allows
	text   string // of the differences that are printed
	errs   []error
	used   []bool // see tally
}

// judge compares a scenario's answers.
func (o options) judge(sc scenario, lines []recorded, answers []answer) (result, error) {
	r := result{name: sc.name, counts: map[entry]int{}, used: make([]bool, len(onPurpose))}
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
			if isOnPurpose(sc.name, sc.steps[i].name, d, &r.used) {
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
		names := slices.Sorted(maps.Keys(counts))
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
		in := slices.Sorted(maps.Keys(scenariosOf[name]))
		text := strings.Join(in[:min(3, len(in))], ", ")
		if len(in) > 3 {
			text += fmt.Sprintf(" and %d more", len(in)-3)
		}
		return "  (" + text + ")"
	})
	fmt.Fprintln(out)
}
