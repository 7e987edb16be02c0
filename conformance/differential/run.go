package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// answer is what a server said, normalized.
type answer struct {
	Code   string              `json:"code"`
	Header map[string][]string `json:"header,omitempty"`
	Form   string              `json:"form,omitempty"` // how the body is written, as form says it
	Body   any                 `json:"body,omitempty"`
	Events []any               `json:"events,omitempty"`
}

// run is a scenario under way at one server.
type run struct {
	*target
	scenario
	normal   *normal
	vars     map[string]string
	objects  map[string][]byte // as last read, by name
	events   *follower
	issuedAt time.Time // see issued
}

// play sends all requests of a scenario and returns the answers, one for each step. The error is one of the harness, not of the server.
func (t *target) play(ctx context.Context, sc scenario) ([]answer, error) {
	r := &run{target: t, scenario: sc, vars: map[string]string{}, objects: map[string][]byte{}}
	version, err := t.version(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sc.name, err)
	}
	oldest, begun := version, time.Now()
	if !slices.ContainsFunc(sc.steps, step.changes) { // then each version and each time is the server's
		oldest, begun = 0, t.started
	}
	r.normal = newNormal(t.started, begun, oldest, t.wellKnown)
	r.normal.newest = version
	if t.hooks != nil {
		r.vars["cap:hook"], r.vars["cap:ca"] = t.hooks.URL, t.hooks.ca
		r.normal.call(t.hooks.ca, "<authority>")
	}
	r.normal.port, r.normal.host = t.port, t.host
	r.normal.call(t.authority, "<authority of clients>")
	r.normal.call(advertised+":"+t.port, advertised+":<the server's port>")
	answers := make([]answer, 0, len(sc.steps))
	if sc.watch != "" {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r.events = &follower{own: sc.own, seen: map[string]event{}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.events.follow(ctx, t, sc.watch, version)
		}()
		defer func() { cancel(); <-done }()
	}
	for _, s := range sc.steps {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		a, err := r.ask(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", sc.name, s.name, err)
		}
		answers = append(answers, a)
	}
	return answers, nil
}

var placeholder = regexp.MustCompile(`\$\{([^}]+)\}`)

// expand puts in what was captured. What the server never said is 1: a request with it is refused, which is seen.
func (r *run) expand(s string) string {
	return placeholder.ReplaceAllStringFunc(s, func(p string) string {
		p = p[2 : len(p)-1]
		return cmp.Or(r.vars[p], r.issued(p), "1")
	})
}

// ask sends a step's request, and waits for the events of it.
func (r *run) ask(ctx context.Context, s step) (answer, error) {
	path := r.expand(s.path)
	switch s.method {
	case untilEffect:
		return answer{Code: "200"}, rest(ctx, r.lag)
	case untilSecond:
		return answer{Code: "200"}, rest(ctx, time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	case untilFound:
		return r.wait(ctx, path, http.StatusOK)
	case untilGone:
		return r.wait(ctx, path, http.StatusNotFound)
	}
	header, body, err := r.content(s)
	if err != nil {
		return answer{}, err
	}
	began, err := r.begin(ctx, path)
	if err != nil {
		return answer{}, err
	}
	within, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	res, err := r.do(within, s.method, path, body, header)
	if err != nil {
		return answer{Code: timesOut}, ctx.Err()
	}
	content, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		return answer{Code: timesOut}, ctx.Err()
	}
	r.took(r.scenario.name+" "+s.name, time.Since(began))
	if res.Header.Get("Content-Encoding") == "gzip" && len(content) > 0 {
		if content, err = unzipped(content); err != nil {
			return answer{}, err
		}
	}
	contentType := res.Header.Get("Content-Type")
	tree := parse(contentType, content)
	r.capture(path, tree, content)
	for _, capture := range s.captures {
		name, where, _ := strings.Cut(capture, "=")
		r.vars["cap:"+name] = lookUp(tree, where)
	}
	a := answer{Code: strconv.Itoa(res.StatusCode), Form: form(contentType, content), Body: r.normal.document(tree), Header: r.normal.header(res.Header)}
	if r.events == nil {
		return a, nil
	}
	if res.StatusCode < 300 && s.changes() {
		began := time.Now()
		if err := r.settle(ctx, path, tree); err != nil {
			return answer{}, err
		}
		r.took("events of "+r.scenario.name+" "+s.name, time.Since(began))
	}
	for _, e := range r.events.take() {
		a.Events = append(a.Events, r.normal.document(e))
	}
	return a, nil
}

// begin says when a request is sent, after the wait for a second of its own if it's to have one.
func (r *run) begin(ctx context.Context, path string) (time.Time, error) {
	if r.seconds {
		if err := rest(ctx, time.Until(time.Now().Truncate(time.Second).Add(time.Second))); err != nil {
			return time.Time{}, err
		}
		r.normal.seconds = append(r.normal.seconds, time.Now())
	}
	r.normal.asked = time.Now()
	r.normal.path, _, _ = strings.Cut(path, "?")
	return r.normal.asked, nil
}

// rest waits.
func rest(ctx context.Context, long time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(long):
	}
	return ctx.Err()
}

// content returns a request's headers and its body.
func (r *run) content(s step) (header map[string]string, body []byte, err error) {
	header, body = map[string]string{}, []byte(r.expand(s.body))
	for name, value := range s.header {
		header[name] = r.expand(value)
	}
	if s.over != "" {
		base := r.objects[s.over]
		if base == nil {
			base = []byte("{}")
		}
		if body, err = jsonpatch.MergePatch(base, body); err != nil {
			return nil, nil, err
		}
	}
	if s.as != "" {
		header["Content-Type"] = s.as
		body, err = encode(body, s.as)
	}
	return header, body, err
}

// wait asks until the answer has the code.
func (r *run) wait(ctx context.Context, path string, want int) (answer, error) {
	for end := time.Now().Add(answerPatience); ; {
		res, err := r.do(ctx, "GET", path, nil, nil)
		if err != nil {
			return answer{Code: timesOut}, ctx.Err()
		}
		res.Body.Close()
		if res.StatusCode == want || time.Now().After(end) {
			return answer{Code: strconv.Itoa(res.StatusCode)}, nil
		}
		select {
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// capture remembers what later requests may name.
func (r *run) capture(path string, tree any, content []byte) {
	object, _ := tree.(map[string]any)
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	kind, _ := object["kind"].(string)
	if token, _ := meta["continue"].(string); token != "" {
		r.vars["continue"] = url.QueryEscape(token)
	}
	if status, _ := object["status"].(map[string]any); kind == "TokenRequest" && status != nil {
		r.vars["token"], _ = status["token"].(string)
	}
	if name == "" || meta["uid"] == nil || strings.Contains(path, "dryRun=") || kind == "Scale" || kind == "PartialObjectMetadata" {
		return
	}
	r.vars["rv:"+name], _ = meta["resourceVersion"].(string)
	r.vars["uid:"+name], _ = meta["uid"].(string)
	if prefix, _ := meta["generateName"].(string); prefix != "" && strings.HasPrefix(name, prefix) {
		r.vars["gen"] = name
	}
	r.objects[name] = content
	if _, ok := tree.(map[string]any); ok {
		if encoded, err := json.Marshal(tree); err == nil {
			r.objects[name] = encoded
		}
	}
}
