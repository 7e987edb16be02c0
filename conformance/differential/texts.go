package main

import (
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed testdata/scenarios
var texts embed.FS

var methodLine = regexp.MustCompile(`^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|WAIT|GONE|SETTLE) ([/$]\S*)$`)

// textScenarios returns those that are written by hand, one in each file of testdata/scenarios.
func textScenarios() ([]scenario, error) {
	files, err := fs.Glob(texts, "testdata/scenarios/*.txt")
	if err != nil {
		return nil, err
	}
	var all []scenario
	for _, file := range files {
		content, err := texts.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sc, err := parseScenario(strings.TrimSuffix(path.Base(file), ".txt"), string(content))
		if err != nil {
			return nil, err
		}
		all = append(all, sc)
	}
	return all, nil
}

// parseScenario reads a scenario's text. A line with a method and a path begins a request. Lines such as "Name: value" after it are headers,
// "> name=path" keeps something of the answer for $name; in later requests, and the others are the body. "# --- word ---" begins a family,
// any other "#" a comment, "! watch PATH" says what is watched, "! alone" that nothing else may run meanwhile, and "! let $NAME TEXT"
// is an abbreviation. A body without a Content-Type is JSON.
func parseScenario(name, text string) (scenario, error) {
	sc := scenario{name: name}
	family := name
	var abbreviations []string
	var steps []step
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if section, ok := strings.CutPrefix(line, "# --- "); ok {
			family = strings.TrimSuffix(section, " ---")
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if directive, ok := strings.CutPrefix(line, "! "); ok {
			word, rest, _ := strings.Cut(directive, " ")
			switch word {
			case "watch":
				sc.watch = rest
			case "alone":
				sc.alone = true
			case "let":
				from, to, _ := strings.Cut(rest, " ")
				abbreviations = append(abbreviations, from, to)
			default:
				return sc, fmt.Errorf("%s:%d: %q is no directive", name, n, word)
			}
			continue
		}
		if m := methodLine.FindStringSubmatch(line); m != nil {
			steps = append(steps, step{name: family + "/" + m[1] + " " + m[2], method: m[1], path: m[2], header: map[string]string{}})
			continue
		}
		if len(steps) == 0 {
			return sc, fmt.Errorf("%s:%d belongs to no request", name, n)
		}
		s := &steps[len(steps)-1]
		capture, captures := strings.CutPrefix(line, "> ")
		header, value, isHeader := strings.Cut(line, ": ")
		switch {
		case captures:
			s.captures = append(s.captures, capture)
		case isHeader && s.body == "" && header == http.CanonicalHeaderKey(header) && !strings.ContainsAny(header, ` {"`):
			s.header[header] = value
		default:
			s.body += line + "\n"
		}
	}
	pairs := slices.Collect(slices.Chunk(abbreviations, 2))
	slices.SortStableFunc(pairs, func(a, b []string) int { return len(b[0]) - len(a[0]) }) // $CRDS isn't $C
	short := strings.NewReplacer(slices.Concat(pairs...)...)
	captured := regexp.MustCompile(`\$(\w+);`)
	expand := func(s string) string { return captured.ReplaceAllString(short.Replace(s), "$${cap:$1}") }
	for _, s := range steps {
		s.path, s.body = expand(s.path), expand(strings.TrimSuffix(s.body, "\n"))
		for name, value := range s.header {
			s.header[name] = expand(value)
		}
		if s.body != "" && s.header["Content-Type"] == "" && (s.method == "POST" || s.method == "PUT" || s.method == "DELETE") {
			s.header["Content-Type"] = asJSON
		}
		sc.add(s)
	}
	return sc, nil
}
