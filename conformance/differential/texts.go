package main

import (
	"embed"
	"errors"
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
// any other "#" a comment, "! watch PATH" says what is watched, "! alone" that nothing else may run meanwhile, "! seconds" that each request has
// a second of its own, "! flags" gives the server further ones, and "! let $NAME TEXT"
// is an abbreviation. A body without a Content-Type is JSON.
func parseScenario(name, text string) (scenario, error) {
	p := scenarioText{scenario: scenario{name: name}, family: name}
	n := 0
	for line := range strings.Lines(text) {
		n++
		if err := p.line(strings.TrimSuffix(line, "\n")); err != nil {
			return p.scenario, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	return p.expanded(), nil
}

// scenarioText is a scenario that is being read.
type scenarioText struct {
	scenario                 // with requests as they are written
	family        string     // of the next request
	abbreviations [][]string // each with what it stands for
}

func (p *scenarioText) line(line string) error {
	if section, ok := strings.CutPrefix(line, "# --- "); ok {
		p.family = strings.TrimSuffix(section, " ---")
		return nil
	}
	if line == "" || strings.HasPrefix(line, "#") {
		return nil
	}
	if directive, ok := strings.CutPrefix(line, "! "); ok {
		return p.directive(directive)
	}
	if m := methodLine.FindStringSubmatch(line); m != nil {
		p.steps = append(p.steps, step{name: p.family + "/" + m[1] + " " + m[2], method: m[1], path: m[2], header: map[string]string{}})
		return nil
	}
	if len(p.steps) == 0 {
		return errors.New("it belongs to no request")
	}
	s := &p.steps[len(p.steps)-1]
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
	return nil
}

func (p *scenarioText) directive(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "watch":
		p.watch = rest
	case "alone":
		p.alone = true
	case "seconds":
		p.seconds = true
	case "flags":
		p.flags = strings.Fields(rest)
	case "let":
		from, to, _ := strings.Cut(rest, " ")
		p.abbreviations = append(p.abbreviations, []string{from, to})
	default:
		return fmt.Errorf("%q is no directive", word)
	}
	return nil
}

var captured = regexp.MustCompile(`\$(\w+);`)

// expanded returns the scenario with what abbreviations stand for.
func (p *scenarioText) expanded() scenario {
	slices.SortStableFunc(p.abbreviations, func(a, b []string) int { return len(b[0]) - len(a[0]) }) // $CRDS isn't $C
	short := strings.NewReplacer(slices.Concat(p.abbreviations...)...)
	expand := func(s string) string { return captured.ReplaceAllString(short.Replace(s), "$${cap:$1}") }
	steps := p.steps
	p.steps = nil
	for _, s := range steps {
		s.path, s.body = expand(s.path), expand(strings.TrimSuffix(s.body, "\n"))
		for name, value := range s.header {
			s.header[name] = expand(value)
		}
		if s.body != "" && s.header["Content-Type"] == "" && (s.method == "POST" || s.method == "PUT" || s.method == "DELETE") {
			s.header["Content-Type"] = asJSON
		}
		p.add(s)
	}
	return p.scenario
}
