package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/conformance/cluster"
	"github.com/apiserver-lite/apiserver-lite/conformance/pair"
)

// TestParse: what is taken from what e2e.test prints.
func TestParse(t *testing.T) {
	const end = "\n\nRan 1 of 3206 Specs in 12.500 seconds\n"
	for _, tt := range []struct {
		name, out string
		ok        bool
		want      result
	}{
		{"passed", "SSSS•SSS" + end + "SUCCESS! -- 1 Passed | 0 Failed | 0 Pending | 3205 Skipped\nPASS\n", true, result{Name: "x", Passed: true, Seconds: 12.5}},
		{"failed", "  [FAILED] in [It] - /x/job.go:296 @ 11/23/26\n  << Timeline\n\n  [FAILED] timed out\n  waiting\n  In [It] at: /x/job.go:296\n---" + end + "FAIL! -- 0 Passed | 1 Failed | 0 Pending | 3205 Skipped\n", true,
			result{Name: "x", Seconds: 12.5, Reason: "timed out waiting"}},
		{"skipped by itself", "  [SKIPPED] no provider\n  In [BeforeEach] at: /x.go:1\n\nRan 0 of 3206 Specs in 0.100 seconds\nSUCCESS! -- 0 Passed | 0 Failed | 0 Pending | 3206 Skipped\n", true,
			result{Name: "x", Seconds: 0.1, Reason: "no provider"}},
		{"two of that name", "\nRan 2 of 3206 Specs in 1.000 seconds\nSUCCESS! -- 2 Passed | 0 Failed | 0 Pending | 3204 Skipped\n", true,
			result{Name: "x", Seconds: 1, Reason: "no test, or more than one, was selected by the name"}},
		{"a long reason is cut between characters", "  [FAILED] " + strings.Repeat("ä", reasonLength) + "\n  In [It]" + end + "FAIL! -- 0 Passed | 1 Failed |", true,
			result{Name: "x", Seconds: 12.5, Reason: strings.Repeat("ä", reasonLength/2)}},
		{"cut off", "SSSS", false, result{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := parse("x", tt.out); ok != tt.ok || got != tt.want {
				t.Errorf("got %+v, %v; want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// TestQuickest: those of the API machinery that passed with the pair, the quickest first.
func TestQuickest(t *testing.T) {
	all := &tests{names: []string{"[sig-api-machinery] a", "[sig-api-machinery] b", "[sig-api-machinery] c", "[sig-api-machinery] d", "[sig-apps] e"}, results: map[string]map[string]result{"pair": {
		"[sig-api-machinery] a": {Passed: true, Seconds: 3}, "[sig-api-machinery] b": {Passed: true, Seconds: 1},
		"[sig-api-machinery] c": {Seconds: 0.1}, "[sig-apps] e": {Passed: true, Seconds: 0.1},
	}}}
	if got := all.quickest(5); !slices.Equal(got, []string{"[sig-api-machinery] b", "[sig-api-machinery] a"}) {
		t.Errorf("got %q", got)
	}
}

// TestEnds: the run ends when its time is over, also while a test hangs, which has no result then.
func TestEnds(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	e2e := filepath.Join(dir, "e2e.test")
	if err := os.WriteFile(e2e, []byte("#!/bin/sh\nexec sleep 100000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	all := &tests{results: map[string]map[string]result{"ours": {}}}
	r := &runner{tests: all, side: "ours", e2e: e2e, in: &cluster.Cluster{Dir: dir, Server: &pair.Server{}}}
	failed, left, err := r.all(t.Context(), []string{"a", "b", "c [Serial]"}, 2, time.Now().Add(time.Second))
	if len(failed) > 0 || left != 3 || err != nil || len(all.results["ours"]) > 0 {
		t.Errorf("%q failed and %d are left, with the results %v: %v", failed, left, all.results, err)
	}
}

// TestPage: docs/conformance.md is what the results make. Whatever passes with upstream's pair was run here, and passed; what needs
// a container or a kubelet has no result.
func TestPage(t *testing.T) {
	t.Chdir("..")
	all, err := read()
	if err != nil {
		t.Fatal(err)
	}
	known := maps.Clone(all.containers)
	for _, results := range all.results {
		for name := range results {
			if all.containers[name] != "" {
				t.Errorf("%s needs a container by containers.txt, and has a result", name)
			}
			known[name] = ""
		}
	}
	all.names = slices.Sorted(maps.Keys(known))
	written, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != all.table() {
		t.Error("docs/conformance.md isn't what the results make: run `make conformance`")
	}
	for name, theirs := range all.results["pair"] {
		if ours := all.results["ours"][name]; theirs.Passed && !ours.Passed {
			t.Errorf("%s passes with upstream's pair, and not here: %s", name, ours.Reason)
		}
	}
}
