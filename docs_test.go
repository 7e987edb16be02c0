package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/commands"
	"github.com/apiserver-lite/apiserver-lite/dropin"
)

// pages returns the paths and contents of the files that people read: pages, and examples of installations.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "data", "testdata"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md" && !isInstallation(path):
			return nil
		}
		content, err := os.ReadFile(path)
		found[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{"README.md", "docs/operations.md", "examples/install/Dockerfile", "examples/cluster/members.yaml"} {
		if found[known] == "" {
			t.Fatalf("%s isn't among the pages", known)
		}
	}
	return found
}

// isInstallation reports whether a file is one of the examples of how the program is run.
func isInstallation(path string) bool {
	return slices.Contains([]string{"examples/install", "examples/cluster"}, filepath.ToSlash(filepath.Dir(path)))
}

// TestDocsLinks: each page that another one links to is there, with the heading that the link names.
func TestDocsLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	all := pages(t)
	for path, content := range all {
		for _, m := range link.FindAllStringSubmatch(content, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which isn't there", path, m[1])
			} else if anchor != "" && !slices.Contains(anchors(all[to]), anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", path, m[1], to)
			}
		}
	}
}

// anchors returns what the headings of a page can be linked by.
func anchors(page string) (names []string) {
	heading := regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		names = append(names, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return names
}

// tree is all commands.
func tree(t *testing.T) *cobra.Command {
	t.Helper()
	return commands.Tree(cli.Process{}, commands.Server{Flags: flagSet(&flags{})})
}

// flagsOf returns the names of the flags of a command, or of those below it.
func flagsOf(cmd *cobra.Command, below bool) (names []string) {
	if !below {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return names
	}
	for _, word := range cmd.Commands() {
		if word.Name() != "serve" {
			names = append(append(names, flagsOf(word, false)...), flagsOf(word, true)...)
		}
	}
	return names
}

// TestDocsFlags: each flag and environment variable of ours that a page names is one that the server has. Those of the
// commands, and of kube-apiserver, are named only on the pages that are about them.
func TestDocsFlags(t *testing.T) {
	commands, asKubernetes := flagsOf(tree(t), true), slices.Collect(dropin.FlagNames())
	others := map[string][]string{ // by page, without dashes
		"CHANGELOG.md":              slices.Concat(commands, asKubernetes),
		"docs/testing.md":           asKubernetes,
		"docs/client.md":            commands,
		"docs/conversion.md":        commands,
		"docs/history.md":           commands,
		"docs/monitor.md":           commands,
		"examples/cluster/local.sh": commands,
		"docs/operations.md":        append(commands, "cert-dir"),
		"docs/wire.md":              {"service-node-port-range"},
		"docs/audit.md":             {"audit-webhook-config-file"},
	}
	known := map[string]bool{"APISERVER_LITE_TOKEN": true, "APISERVER_LITE_SERVER": true}
	for _, name := range flagsOf(tree(t), false) {
		known["--"+name] = true
		known[envPrefix+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = true
	}
	variable := regexp.MustCompile(`APISERVER_LITE_[A-Z0-9_]+`)
	inUnit := regexp.MustCompile(`--[a-z][a-z0-9-]+`)
	// In prose a flag of ours is alone in its quotes; those of other programs are in lines of commands.
	inProse := regexp.MustCompile("`(--[a-z][a-z0-9-]+)(?:[ =][^`]*)?`")
	for path, content := range pages(t) {
		if strings.HasPrefix(path, "bench/") || strings.HasPrefix(path, "conformance/") || path == "docs/performance.md" {
			continue // flags of programs of their own
		}
		names := variable.FindAllString(content, -1)
		for _, m := range inProse.FindAllStringSubmatch(content, -1) {
			names = append(names, m[1])
		}
		if isInstallation(path) && slices.Contains([]string{".service", ".yaml", ".sh"}, filepath.Ext(path)) {
			names = append(names, inUnit.FindAllString(content, -1)...)
		}
		for _, name := range names {
			if !known[name] && name != "--help" && !slices.Contains(others[filepath.ToSlash(path)], strings.TrimPrefix(name, "--")) {
				t.Errorf("%s names %s, which the server doesn't have", path, name)
			}
		}
	}
}

// TestDocsFigures: what was measured stands in one place, to which other pages link, so that it's measured anew in one place,
// too. What is measured is in KB, MB or us; bounds, which stand where they hold, are in KiB and MiB.
func TestDocsFigures(t *testing.T) {
	figure := regexp.MustCompile(`.{0,40}[0-9] ?(KB|MB|us|µs)\b`)
	for path, content := range pages(t) {
		switch {
		case slices.Contains([]string{"docs/performance.md", "docs/scale.md", "docs/client.md", "CHANGELOG.md"}, path):
			continue
		case strings.HasPrefix(path, "docs/decisions/"): // which are as they were decided
			continue
		}
		for _, found := range figure.FindAllString(content, -1) {
			if !strings.HasSuffix(found, "of 1 KB") {
				t.Errorf("%s has a figure of its own, …%s: docs/performance.md is the place", path, found)
			}
		}
	}
}

// TestDocsGo: each block of Go that a page takes from a file is in that file.
func TestDocsGo(t *testing.T) {
	block := regexp.MustCompile("(?s)<!-- (?:go|test|example): (\\S+) -->\n```go\n(.*?)```\n")
	blocks := 0
	for path, content := range pages(t) {
		for _, m := range block.FindAllStringSubmatch(content, -1) {
			blocks++
			source, err := os.ReadFile(m[1])
			if err != nil {
				t.Errorf("%s shows a part of %s: %v", path, m[1], err)
			} else if !strings.Contains(string(source), m[2]) {
				t.Errorf("%s doesn't have what %s shows of it:\n%s", m[1], path, m[2])
			}
		}
	}
	if blocks == 0 {
		t.Error("no block was found")
	}
}

// TestDocsMetrics: a metric that a page names is in the list of docs/operations.md, which a test in e2e
// compares with what is served.
func TestDocsMetrics(t *testing.T) {
	name := regexp.MustCompile(`\bapiserver_[a-z_]+[a-z]\b`)
	all := pages(t)
	_, list, found := strings.Cut(all["docs/operations.md"], "<!-- metrics:")
	if !found {
		t.Fatal("docs/operations.md has no list of metrics")
	}
	for path, content := range all {
		for _, m := range name.FindAllString(content, -1) {
			if !strings.Contains(list, "`"+strings.TrimSuffix(m, "_bucket")+"`") {
				t.Errorf("%s names the metric %s, which docs/operations.md doesn't list", path, m)
			}
		}
	}
}
