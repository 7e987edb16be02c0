package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/program"
)

// TestScenarios runs each scenario small, so that none rots. What they measure isn't looked at.
func TestScenarios(t *testing.T) {
	small := map[string]struct {
		flags string
		lines int    // of JSON, after the one that says what is measured
		want  string // in one of them
	}{
		"start":        {"", 1, `"first_object_ms":`},
		"writes":       {"", 20, `"op":"patch","clients":4,"n":20`},
		"transactions": {"", 4, `"clients":4,"together":10,"n":40`},
		"get":          {"", 1, `"cpu_ms_per_op":`},
		"list":         {"--limits 0,20 --gzip --table", 4, `"limit":20,"gzip":true,"clients":2`},
		"mixed":        {"", 1, `"list_p99_ms":`},
		"listing":      {"", 2, `"listing":2`},
		"fanout":       {"", 2, `"watches":6`},
		"selective":    {"--by name --runs 2", 6, `"case":"selective by=\"name\" watches=50 updates=100","updates_per_s":{"median":`},
		"initial":      {"", 1, `"clients":3`},
		"idle":         {"", 2, `"watches":20`},
		"resets":       {"", 1, `"open_watches":0`},
		"crowd":        {"", 2, `"watches":30,"streams":15`},
		"slow":         {"", 3, `"complete_deaf":2`},
		"neighbours":   {"--users", 3, `"first":"no reading"`},
		"churn":        {"", 2, `"rounds":2`},
		"restart":      {"", 1, `"killed_ready_ms":`},
		"resume":       {"", 1, `"events":200`},
		"storm":        {"", 1, `"clients":50`},
		"definitions":  {"", 2, `"refused_first_objects":0`},
		"client":       {"", 3, `"part":"cache","restarts":1`},
		"memory":       {"", 2, `"clients":2`},
		"growth":       {"", 2, `"restart_ms":`},
		"lag":          {"--members 2", 2, `"replica":1,"asked":false`},
		"failover":     {"--members 2 --kill 1", 1, `"slowest_ms":`},
		"handover":     {"--members 3 --how stop", 1, `"voters_ms":`},
		"slopes":       {"--members 1", 1, `"replicas":2,"objects":100,"write_cpu_ms":`},
		"stream-limit": {"", 2, `"mode":"raw","connections":5`},
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			test, ok := small[s.name]
			if !ok {
				t.Fatal("it isn't tested")
			}
			args := slices.Concat([]string{s.name, "--server", binary(), "--quick"}, strings.Fields(test.flags))
			var lines, readable bytes.Buffer
			if err := run(t.Context(), args, &lines, &readable); err != nil {
				t.Fatalf("%v\n%s", err, &readable)
			}
			for line := range strings.Lines(lines.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("this isn't JSON: %s", line)
				}
			}
			if n := strings.Count(lines.String(), "\n") - 1; n != test.lines || !strings.Contains(lines.String(), test.want) {
				t.Errorf("it printed %d lines, want %d, one with %s:\n%s", n, test.lines, test.want, &lines)
			}
		})
	}
}

var built *program.Program

// binary is the path of the server, which was built once.
func binary() string { return built.Path() }

// TestMain is also the other half of stream-limit.
func TestMain(m *testing.M) {
	if serveFrames() {
		return
	}
	os.Exit(build(m))
}

// build builds the server.
func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "bench-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if built, err = program.Build("..", filepath.Join(dir, "apiserver-lite"), program.Race()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// TestServerThatRunsIsMeasured: a server that runs is measured with its token and over TLS, without the figures of processes that
// aren't known.
func TestServerThatRunsIsMeasured(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{binary: binary(), args: "--tls --token-file " + tokens, token: "secret", secure: secure{anyCertificate: true}}
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	args := func(what string) []string {
		return slices.Concat(strings.Fields(what), []string{"--url", s.url, "--token", "secret", "--insecure", "--settle", "20ms"})
	}
	for _, scenario := range []string{"writes --n 10 --clients 2 --kinds plain", "idle --watches 5", "list --objects 10 --n 2"} {
		var lines bytes.Buffer
		if err := run(t.Context(), args(scenario), &lines, io.Discard); err != nil {
			t.Fatalf("%s: %v", scenario, err)
		}
		for _, unknown := range []string{"cpu_", "_mb", "kb_", "NaN"} {
			if strings.Contains(strings.ReplaceAll(lines.String(), "mb_per", ""), unknown) {
				t.Errorf("%s says %s of processes that it doesn't know:\n%s", scenario, unknown, &lines)
			}
		}
	}
	if err := run(t.Context(), args("storm"), io.Discard, io.Discard); !errors.Is(err, errRestart) {
		t.Errorf("storm of a server that can't be restarted: %v", err)
	}
}

// TestModel: what contradicts the model of docs/scale.md is told.
func TestModel(t *testing.T) {
	one := cost{replicas: 1, write: 1, delivery: 3, object: 2}
	for _, test := range []struct {
		name string
		then cost
		want string // in the error; empty if there is none
	}{
		{"as the model says", cost{replicas: 3, write: 2, delivery: 3, object: 2}, ""},
		{"writes whose cost grows with the square", cost{replicas: 7, write: 49, delivery: 3, object: 2}, "a write's CPU with 7 replicas is 49"},
		{"deliveries that cost more beside others", cost{replicas: 3, write: 2, delivery: 9, object: 2}, "a delivered event's CPU"},
		{"objects that are there twice", cost{replicas: 3, write: 2, delivery: 3, object: 4}, "an object's memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := contradictions([]cost{one, test.then}, 1.5)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}

// smallRows has the rows of some scenarios measure little until the test ends. With the flags that figures are made with, it takes minutes.
func smallRows(t *testing.T) {
	all := rows
	t.Cleanup(func() { rows = all })
	rows = slices.Clone(rows)
	small := map[string]string{"get": "--n 50 --clients 2", "start": "--n 1 --idle 100ms", "stream-limit": "--modes flush --connections 5 --frames 100"}
	for i := range rows {
		if flags, ok := small[rows[i].scenario]; ok {
			rows[i].flags = flags
		}
	}
}

// TestServerComparedWithItself compares a server with itself.
func TestServerComparedWithItself(t *testing.T) {
	smallRows(t)
	var table bytes.Buffer
	args := []string{"compare", "--server", binary(), "--with", binary(), "--runs", "2", "--scenarios", "get,start,stream-limit", "--settle", "20ms"}
	if err := run(t.Context(), args, &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| resident when idle and empty, MB | `start --n 1 --idle 100ms` |", "| get, 16 clients, CPU-ms each | `get --n 50 --clients 2` |", "medians of 2 alternating runs"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no %s:\n%s", want, &table)
		}
	}
}

// TestWorseIsBeyondSpread: a figure is worse if its median is beyond what is allowed, and beyond the spread of both.
func TestWorseIsBeyondSpread(t *testing.T) {
	for _, test := range []struct {
		name  string
		a, b  []float64
		worse bool
	}{
		{"as good", []float64{10, 10, 10}, []float64{10, 10, 10}, false},
		{"better", []float64{5, 5, 5}, []float64{10, 10, 10}, false},
		{"worse", []float64{12, 12, 12}, []float64{10, 10, 10}, true},
		{"worse by less than its spread", []float64{9, 12, 14}, []float64{10, 10, 10}, false},
		{"worse by less than the other one's", []float64{12, 12, 12}, []float64{9, 10, 12}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := comparison{out: &output{lines: io.Discard}, worse: 1.1}
			c.print(rows[0], [2][]summary{{summarize(test.a)}, {summarize(test.b)}}, [2]error{})
			if (len(c.bad) > 0) != test.worse {
				t.Errorf("worse: %v, want %v", c.bad, test.worse)
			}
		})
	}
}

// TestCompareSaysWhatFails: the row of a server that fails says so, the other one's figures stay, and the command fails.
func TestCompareSaysWhatFails(t *testing.T) {
	smallRows(t)
	var table bytes.Buffer
	c := comparison{out: &output{lines: &table, readable: io.Discard}, runs: 1}
	c.servers[0].binary, c.servers[1].command = binary(), "false"
	get := measurements(false, "get")[0]
	if err := c.measure(t.Context(), get); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(table.String(), " | – | failed |  |  |\n") || len(c.failures) != 1 || !strings.Contains(c.failures[0].Error(), "B at get") {
		t.Errorf("the row is %q, failures %v", &table, c.failures)
	}
}

// TestFiguresHaveFewDigits: figures have as many digits as a few runs carry.
func TestFiguresHaveFewDigits(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 0.0362: "0.036", 0.5: "0.5", 9.96: "10", 41.7: "42", 349: "350", 5930: "5900", 99.9: "100"} {
		if got := digits(f); got != want {
			t.Errorf("digits(%v) = %s, want %s", f, got, want)
		}
	}
}

// TestTableComparesWhatThereIs: each row of the table has a scenario that takes its flags.
func TestTableComparesWhatThereIs(t *testing.T) {
	for _, r := range rows {
		s, err := scenarioNamed(r.scenario)
		if err != nil {
			t.Error(err)
			continue
		}
		flags := flag.NewFlagSet(s.name, flag.ContinueOnError)
		new(server).register(flags)
		s.new(flags)
		if err := flags.Parse(strings.Fields(r.flags)); err != nil || flags.NArg() > 0 {
			t.Errorf("%s %s: %v", r.scenario, r.flags, err)
		}
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "help requested"},
		{"dance", `no scenario "dance"`},
		{"resume", "--server FILE, --command COMMAND or --url URL"},
		{"resume --url http://a --server b", "one of them"},
		{"compare --server a --with b --with-command c", "one of them"},
		{"idle --url http://a --pid 1,x", "-pid"},
		{"idle --server a --pid 1", "--pid is for --url"},
		{"start --url http://a", "has to be restarted"},
		{"compare --server a", "--with-command"},
		{"writes --server false --kinds none", "it ended"},
		{"idle --url http://a b", `what is ["b"]`},
		{"resume --server /does/not/exist", "no such file"},
		{"resume --server false", "it ended"},
		{"storm --command false", "no line with url="},
		{"lag --server a", "it's about replicas"},
		{"slopes --command a", "it's about replicas"},
		{"get --members 3 --command a", "--members and --etcd take --server"},
		{"get --members 3 --etcd a --server b", "leave out --etcd"},
		{"get --members 3 --at 3 --server b", "there are 3 replicas"},
		{"resume --members 3 --server b", "has to be restarted"},
	} {
		t.Run(test.args, func(t *testing.T) {
			err := run(t.Context(), strings.Fields(test.args), io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}
