package dropin

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the table of flags into docs/testing.md")

// upstreamHelp is what kube-apiserver 1.37.2 prints for --help.
//
//go:embed testdata/kube-apiserver-help.txt
var upstreamHelp string

// The table stands between these.
const (
	tablePath  = "../docs/testing.md"
	tableBegin = "<!-- flags of kube-apiserver: made from its --help by `go test ./dropin -run TestFlagsTable -update` -->\n"
	tableEnd   = "<!-- end of the flags of kube-apiserver -->\n"
)

// notes say in what a flag that has a meaning differs.
var notes = map[string]string{
	"authorization-mode":                   "without ABAC",
	"enable-priority-and-fairness":         "false has no effect: requests are always shared fairly",
	"etcd-compaction-interval":             "how long history is kept",
	"feature-gates":                        "the log names gates without an effect",
	"max-mutating-requests-inflight":       "only the sum counts, as there",
	"max-requests-inflight":                "only the sum counts, as there",
	"service-cluster-ip-range":             "of two networks the first is used",
	"strict-transport-security-directives": "over HTTPS, which is all there is under this name",
	"v":                                    "4 and more is for debugging",
}

// TestFlagsTable compares the table of kube-apiserver's flags with what its --help says and what they are here.
func TestFlagsTable(t *testing.T) {
	groups := regexp.MustCompile(`(?m)^([A-Z][^\n:]*) flags:\n`)
	lines := regexp.MustCompile(`(?m)^ {2,6}(?:-v, )?--([a-z0-9-]+)`)
	set := (&APIServer{}).flagSet(new(flags))
	_, rest, _ := strings.Cut(upstreamHelp, "Usage:")
	var table strings.Builder
	table.WriteString("\n| flag | here |\n|---|---|\n")
	count := 0
	at := groups.FindAllStringSubmatchIndex(rest, -1)
	for i, group := range at {
		end := len(rest)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		fmt.Fprintf(&table, "| **%s** | |\n", rest[group[2]:group[3]])
		for _, m := range lines.FindAllStringSubmatch(rest[group[1]:end], -1) {
			fmt.Fprintf(&table, "| `--%s` | %s |\n", m[1], here(set.Lookup(m[1]), m[1]))
			count++
		}
	}
	if n := len(lines.FindAllString(rest, -1)); count != n || n < 150 {
		t.Fatalf("--help has %d flags, of which %d are in a group", n, count)
	}
	table.WriteString("\n")
	page, err := os.ReadFile(tablePath)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(page), tableBegin)
	have, after, closed := strings.Cut(after, tableEnd)
	if !found || !closed {
		t.Fatal("docs/testing.md has no place for the table of flags")
	}
	if have == table.String() {
		return
	}
	if !*update {
		t.Fatal("the table of docs/testing.md isn't what the flags are: run this test with -update")
	}
	if err := os.WriteFile(tablePath, []byte(before+tableBegin+table.String()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// here is what a flag of kube-apiserver is here.
func here(f *pflag.Flag, name string) string {
	if f == nil {
		if name == "help" {
			return "same"
		}
		return "unknown"
	}
	switch v := f.Value.(type) {
	case *unusedFlag:
		return strings.Replace(f.Usage, "no effect here", "no effect", 1)
	case *refusedFlag:
		return "**refused**: " + v.reason
	}
	if note := notes[name]; note != "" {
		return "same; " + note
	}
	return "same"
}
