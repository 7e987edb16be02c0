package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// differ sends the same requests (testdata/requests.txt) to two servers and prints where their answers differ, field by
// field. What is known (known.go) is left out, and what is known but no longer so is printed too.
func differ(ctx context.Context, args []string, out *output) error {
	var servers [2]server
	flags := flag.NewFlagSet("bench differ", flag.ContinueOnError)
	flags.SetOutput(out.readable)
	flags.StringVar(&servers[0].command, "with-command", "", "a command that starts the server that is right")
	flags.StringVar(&servers[1].binary, "server", "", "the apiserver-lite that is looked at")
	only := flags.String("only", "", "print requests alone whose line has this")
	everything := flags.Bool("all", false, "print known differences too")
	messages := flags.Bool("messages", false, "compare the texts of errors and warnings too, which are ours")
	if err := flags.Parse(args); err != nil {
		return err
	}
	servers[1].args = "--ephemeral --managed-fields=always --controllers=none" // as the peer's
	for i := range servers {
		if err := servers[i].check(running); err != nil {
			return fmt.Errorf("it takes --server and --with-command: %w", err)
		}
	}
	text, err := testdata.ReadFile("testdata/requests.txt")
	if err != nil {
		return err
	}
	requests, err := parseRequests(string(text))
	if err != nil {
		return err
	}
	for i := range servers {
		if err := servers[i].open(ctx); err != nil {
			return err
		}
		defer servers[i].close()
	}
	d := differing{servers: [2]side{{server: &servers[0]}, {server: &servers[1]}}, out: out, only: *only, everything: *everything, messages: *messages}
	return d.run(ctx, requests)
}

// request is one of the file's.
type request struct {
	line     int
	method   string // or WAIT, GONE: GET until the answer is 200, or 404
	path     string
	header   []string // names and values in turn
	body     string
	captures []string // name=path into the answer, to be used as $name later
}

func (r request) String() string { return r.method + " " + r.path }

var methodLine = regexp.MustCompile(`^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|WAIT|GONE) ([/$]\S*)$`)

// parseRequests reads the file. A line with a method and a path begins a request; lines such as "Name: value" after it
// are headers, "> name=path" captures something from the answer, and the others are the body. "#" begins a comment.
func parseRequests(text string) (all []request, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		if m := methodLine.FindStringSubmatch(line); m != nil {
			all = append(all, request{line: n, method: m[1], path: m[2]})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("line %d belongs to no request", n)
		}
		r := &all[len(all)-1]
		capture, captures := strings.CutPrefix(line, "> ")
		name, value, isHeader := strings.Cut(line, ": ")
		switch {
		case captures:
			r.captures = append(r.captures, capture)
		case isHeader && r.body == "" && name == http.CanonicalHeaderKey(name) && !strings.ContainsAny(name, ` {"`):
			r.header = append(r.header, name, value)
		default:
			r.body += line + "\n"
		}
	}
	return all, nil
}

// side is one of the servers and what was captured from it.
type side struct {
	*server
	captured map[string]string
}

// answer is what a server said, made comparable.
type answer struct {
	fields map[string]string // by path
	err    error
}

// differing is a run.
type differing struct {
	servers    [2]side // theirs and ours
	out        *output
	only       string
	everything bool
	messages   bool
	used       map[int]int // how often each known difference was seen
	unknown    int
}

func (d *differing) run(ctx context.Context, requests []request) error {
	d.used = map[int]int{}
	for i := range d.servers {
		d.servers[i].captured = map[string]string{}
	}
	differing, compared := 0, 0
	for _, r := range requests {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var answers [2]answer
		var both sync.WaitGroup
		for i := range d.servers {
			both.Go(func() { answers[i] = d.servers[i].ask(r) })
		}
		both.Wait()
		if err := cmp.Or(answers[0].err, answers[1].err); err != nil {
			return fmt.Errorf("line %d, %s: %w", r.line, r, err)
		}
		compared++
		if d.compare(r, answers[0].fields, answers[1].fields) {
			differing++
		}
	}
	for i, k := range known {
		if d.used[i] == 0 {
			fmt.Fprintf(d.out.lines, "no longer so: %s %s (%s)\n", k.request, k.field, k.why)
		}
	}
	fmt.Fprintf(d.out.lines, "%d requests, %d with differences that aren't known\n", compared, differing)
	if d.unknown > 0 {
		return fmt.Errorf("%d fields differ", d.unknown)
	}
	return nil
}

// wording is the fields with sentences for people. Whether there is one counts always.
var wording = regexp.MustCompile(`(^|\.)message$|^header Warning$`)

// compare prints what differs and isn't known, and tells whether there was any.
func (d *differing) compare(r request, theirs, ours map[string]string) bool {
	names := slices.Collect(maps.Keys(theirs))
	for name := range ours {
		if _, ok := theirs[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	found := false
	for _, name := range names {
		a, b := theirs[name], ours[name]
		if a == b || !d.messages && wording.MatchString(name) && (a == "") == (b == "") {
			continue
		}
		isKnown := d.known(r, name)
		if isKnown && !d.everything || !strings.Contains(r.String(), d.only) {
			continue
		}
		if !found {
			fmt.Fprintf(d.out.lines, "%d: %s %s\n", r.line, r, strings.TrimSpace(r.body))
			found = true
		}
		fmt.Fprintf(d.out.lines, "    %s\n        theirs: %.400s\n        ours:   %.400s\n", name, a, b)
		if !isKnown {
			d.unknown++
		}
	}
	return found
}

// known tells whether a difference is one that is known.
func (d *differing) known(r request, field string) bool {
	for i, k := range known {
		if k.isOf(r) && k.field.MatchString(field) {
			d.used[i]++
			return true
		}
	}
	return false
}

// longest is how long an answer may take: longer than the watches of the file, which end after a second.
const longest = 20 * time.Second

// ask sends a request, with what was captured in the place of $name.
func (s *side) ask(r request) answer {
	expand := func(text string) string {
		for name, value := range s.captured {
			text = strings.ReplaceAll(text, "$"+name+";", value)
		}
		return shorthand.Replace(text)
	}
	path := expand(r.path)
	if r.method == "WAIT" || r.method == "GONE" {
		return answer{err: s.wait(path, map[string]int{"WAIT": 200, "GONE": 404}[r.method])}
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, s.url+path, strings.NewReader(expand(strings.TrimSuffix(r.body, "\n"))))
	if err != nil {
		return answer{err: err}
	}
	if r.body != "" && (r.method == "POST" || r.method == "PUT") {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "differ/1")
	for i := 0; i < len(r.header); i += 2 {
		req.Header.Set(r.header[i], expand(r.header[i+1]))
	}
	res, err := s.http.Do(req)
	if err != nil {
		return answer{fields: map[string]string{"code": "none: the connection was closed"}}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{fields: map[string]string{"code": "none: the answer was cut off"}}
	}
	a := answer{fields: map[string]string{"code": strconv.Itoa(res.StatusCode)}}
	for _, name := range []string{"Content-Type", "Warning", "Retry-After", "Location", "Allow", "Cache-Control", "Vary", "X-Content-Type-Options"} {
		values := slices.Sorted(slices.Values(res.Header.Values(name)))
		a.fields["header "+name] = strings.Join(values, " | ")
	}
	return s.read(a, body, r)
}

// shorthand is what requests abbreviate.
var shorthand = strings.NewReplacer(
	"$CRDS", definitionsPath,
	"$W", "/apis/differ.example.com/v1/namespaces/default/widgets",
	"$C", "/apis/differ.example.com/v1/clusterwidgets",
	"$G", "/apis/differ.example.com/v1",
)

// wait asks until the answer has the code.
func (s *side) wait(path string, want int) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		code, _, err := s.do("GET", path, "", nil)
		if err != nil || code == want {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is answered with %d, not %d", path, code, want)
		}
	}
}

// read takes the body apart: a document, or the lines of a watch. What isn't JSON is compared as it is.
func (s *side) read(a answer, body []byte, r request) answer {
	var documents []any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			a.fields["body"] = comparableText(string(body))
			return a
		}
		documents = append(documents, document)
	}
	for i, document := range documents {
		for _, capture := range r.captures {
			name, path, _ := strings.Cut(capture, "=")
			s.captured[name] = lookUp(document, path)
		}
		prefix := ""
		if len(documents) > 1 || strings.Contains(r.path, "watch=") {
			prefix = fmt.Sprintf("event %d", i)
		}
		flatten(a.fields, prefix, document)
	}
	return a
}

func lookUp(document any, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		fields, _ := document.(map[string]any)
		document = fields[name]
	}
	return fmt.Sprint(document)
}

// flatten writes the leaves of a document by their paths, without what differs from run to run.
func flatten(into map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			into[path+"{}"] = "empty"
		}
		for name, value := range v {
			flatten(into, path+"."+name, value)
		}
	case []any:
		if len(v) == 0 {
			into[path+"[]"] = "empty"
		}
		if slices.ContainsFunc(v, func(e any) bool { _, ok := e.(map[string]any); return !ok }) {
			encoded, _ := json.Marshal(v)
			into[path] = comparableText(string(encoded))
			return
		}
		for i, value := range v {
			flatten(into, fmt.Sprintf("%s[%s]", path, place(path, i, value)), value)
		}
	default:
		last := path[strings.LastIndexByte(path, '.')+1:]
		text := fmt.Sprint(v)
		if slices.Contains([]string{"uid", "creationTimestamp", "deletionTimestamp", "time", "lastTransitionTime", "resourceVersion", "continue", "storageVersionHash"}, last) && text != "" && text != "0" && v != nil {
			text = "<" + last + ">"
		}
		into[path] = comparableText(text)
	}
}

// namedBy are the lists whose elements are compared by what they say of themselves: their order means nothing, and what
// comes twice is compared once.
var namedBy = map[string][]string{
	"causes":                          {"field", "reason"},
	"managedFields":                   {"manager", "operation", "subresource"},
	"conditions":                      {"type"},
	"groups":                          {"name"},
	"resources":                       {"name", "resource"},
	"parameters":                      {"name", "in"},
	"x-kubernetes-group-version-kind": {"group", "version", "kind"},
}

// place names an element of a list.
func place(path string, i int, element any) string {
	members, _ := element.(map[string]any)
	var names []string
	for _, member := range namedBy[path[strings.LastIndexByte(path, '.')+1:]] {
		if name, ok := members[member].(string); ok {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return strconv.Itoa(i)
	}
	return strings.Join(names, " ")
}

// whole is the request with its headers and body.
func (r request) whole() string { return r.String() + " " + strings.Join(r.header, " ") + " " + r.body }

var (
	uidText     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	versionText = regexp.MustCompile(`(resource version: |current: |\(|resourceVersion":")\d+`)
	timeText    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	randomName  = regexp.MustCompile(`\b(gen-)[a-z0-9]{5}\b`)
	hashText    = regexp.MustCompile(`hash=[0-9A-F]+`)
	ageText     = regexp.MustCompile(`"\d+s"`)
	addressText = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// comparableText is a text without what differs from run to run.
func comparableText(s string) string {
	s = uidText.ReplaceAllString(s, "<uid>")
	s = versionText.ReplaceAllString(s, "$1<version>")
	s = timeText.ReplaceAllString(s, "<time>")
	s = randomName.ReplaceAllString(s, "$1<random>")
	s = hashText.ReplaceAllString(s, "hash=<hash>")
	s = ageText.ReplaceAllString(s, `"<age>"`)
	return addressText.ReplaceAllString(s, "<address>")
}
