package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestScenarios runs each scenario small, so that none rots. What they measure isn't looked at.
func TestScenarios(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "apiserver-lite")
	// Without the version control's stamp, which a clone that belongs to someone else can't have.
	if output, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "..").CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, output)
	}
	small := map[string]struct {
		flags string
		lines int    // of JSON
		want  string // in one of them
	}{
		"resume":      {"--events 200", 1, `"events":200`},
		"storm":       {"--clients 50", 1, `"clients":50`},
		"churn":       {"--watches 20 --rounds 3 --wait 50ms", 2, `"rounds":2`},
		"fanout":      {"--watches 3,6 --updates 100 --rate 500", 2, `"watches":6`},
		"selective":   {"--watches 2,20 --updates 100", 2, `"watches":20`},
		"initial":     {"--objects 1100 --clients 3", 1, `"clients":3`},
		"idle":        {"--watches 10,20", 2, `"watches":20`},
		"slow":        {"--readers 4 --deaf 2 --updates 200 --runs 1", 3, `"complete_deaf":2`},
		"writes":      {"--n 20 --clients 1,4", 16, `"op":"patch","clients":4,"n":20`},
		"definitions": {"--n 5 --starts 1", 2, `"refused_first_objects":0`},
		"listing":     {"--objects 100 --clients 2 --for 100ms", 2, `"listing":2`},
		"memory":      {"--objects 200 --clients 2", 2, `"clients":2`},
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			test, ok := small[s.name]
			if !ok {
				t.Fatal("it isn't tested")
			}
			args := slices.Concat([]string{s.name, "--server", binary, "--settle", "20ms"}, strings.Fields(test.flags))
			var lines, readable bytes.Buffer
			if err := run(t.Context(), args, &lines, &readable); err != nil {
				t.Fatalf("%v\n%s", err, &readable)
			}
			for line := range strings.Lines(lines.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("this isn't JSON: %s", line)
				}
			}
			if n := strings.Count(lines.String(), "\n"); n != test.lines || !strings.Contains(lines.String(), test.want) {
				t.Errorf("it printed %d lines, want %d, one with %s:\n%s", n, test.lines, test.want, &lines)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "help requested"},
		{"dance", `no scenario "dance"`},
		{"resume", "--server FILE, --command COMMAND or --url URL"},
		{"resume --url http://a --server b", "one of them"},
		{"idle --url http://a --pid 1,x", "--pid"},
		{"idle --url http://a b", `what is ["b"]`},
		{"resume --server /does/not/exist", "no such file"},
		{"resume --server false", "it ended"},
		{"storm --command false", "no line with url="},
	} {
		t.Run(test.args, func(t *testing.T) {
			err := run(t.Context(), strings.Fields(test.args), io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}
