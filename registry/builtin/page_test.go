package builtin_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
)

var update = flag.Bool("update", false, "write the list of kinds into docs/kinds.md")

// TestKindsPage compares the page that lists the kinds with the table.
func TestKindsPage(t *testing.T) {
	const page, begin, end = "../../docs/kinds.md", "-update` -->\n", "<!-- end of kinds -->"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for the kinds", page)
	}
	want := before + begin + kindsTable() + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(raw) {
		t.Errorf("%s isn't what the table says: go test ./registry/builtin -run TestKindsPage -update", page)
	}
}

// kindsTable has a row for each line of the table.
func kindsTable() string {
	var b strings.Builder
	b.WriteString("| kind | path | | subresources | field selectors |\n|---|---|---|---|---|\n")
	core := builtin.CoreLines()
	for i, line := range builtin.Lines() {
		var about []string
		if i < core {
			about = append(about, "core")
		}
		if line.Unstored.Answer != nil {
			about = append(about, "answered, not stored")
		}
		if line.Unstored.Forward != nil {
			about = append(about, "goes on to "+line.Unstored.Forward.Kind+"'s "+line.Unstored.Forward.Subresource)
		}
		if line.Unstored.Shown != nil {
			about = append(about, "read only")
		}
		if line.ClusterScoped {
			about = append(about, "cluster scope")
		}
		if len(line.ShortNames) > 0 {
			about = append(about, strings.Join(line.ShortNames, ", "))
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", line.Kind, apiVersion(line)+"/"+line.Plural, strings.Join(about, "; "), subresourcesOf(line), code(line.Fields))
	}
	return b.String()
}

func subresourcesOf(line registry.Type) string {
	var all []string
	if line.Status {
		all = append(all, "status")
	}
	if line.Parts.Scale != nil {
		all = append(all, "scale")
	}
	for _, s := range line.Parts.Own {
		all = append(all, s.Name)
	}
	return strings.Join(all, ", ")
}

func code(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}
