package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	flowcontrol "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/conformance/pair"
)

const (
	answerPatience = 40 * time.Second      // for one answer; upstream lets a request last a minute
	eventPatience  = 10 * time.Second      // for the event of a write that was answered
	pause          = 20 * time.Millisecond // between two looks
	timesOut       = "no answer"           // what the code of a request is that has none
)

// answer is what a server said, normalized.
type answer struct {
	Code   string              `json:"code"`
	Header map[string][]string `json:"header,omitempty"`
	Body   any                 `json:"body,omitempty"`
	Events []any               `json:"events,omitempty"`
}

// target is a server that is asked.
type target struct {
	url       string
	port      string // of url
	host      string // the machine's name
	authority string // of clients, as PEM
	client    *http.Client
	started   time.Time // times since then are the server's
	wellKnown map[string]string
	hooks     *hooks
	lag       time.Duration                         // after which what was written is in effect; ours needs none
	took      func(what string, took time.Duration) // is told of each request and of each wait for events; nil for nobody
}

// newTarget looks up who has the uids that headers name.
func newTarget(ctx context.Context, s *pair.Server) (*target, error) {
	at, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	t := &target{url: s.URL, port: at.Port(), host: strings.ToLower(host), authority: string(s.Authority), client: s.Client(), wellKnown: map[string]string{}}
	for plural, most := range map[string]int{
		"flowschemas":                 len(flowcontrol.MandatoryFlowSchemas) + len(flowcontrol.SuggestedFlowSchemas),
		"prioritylevelconfigurations": len(flowcontrol.MandatoryPriorityLevelConfigurations) + len(flowcontrol.SuggestedPriorityLevelConfigurations),
	} {
		list, err := t.made(ctx, "/apis/flowcontrol.apiserver.k8s.io/v1/"+plural, most)
		if err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			t.wellKnown[item.Metadata.UID] = plural + "/" + item.Metadata.Name
		}
	}
	return t, nil
}

// items are what a list has.
type items struct {
	Items []struct{ Metadata struct{ Name, UID string } }
}

// made returns a list when it has all n objects that a server makes for itself at its start.
func (t *target) made(ctx context.Context, path string, n int) (list items, err error) {
	for end := time.Now().Add(answerPatience); ; {
		res, err := t.do(ctx, "GET", path, nil, nil)
		if err != nil {
			return list, err
		}
		list = items{}
		err = json.NewDecoder(res.Body).Decode(&list)
		res.Body.Close()
		switch {
		case err != nil || len(list.Items) >= n:
			return list, err
		case time.Now().After(end):
			return list, fmt.Errorf("GET %s: there are %d objects, want %d", path, len(list.Items), n)
		}
		select {
		case <-ctx.Done():
			return list, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// do sends a request as it is.
func (t *target) do(ctx context.Context, method, path string, body []byte, header map[string]string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, t.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "differential/1")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return t.client.Do(r)
}

// run is a scenario under way at one server.
type run struct {
	*target
	scenario
	normal  *normal
	vars    map[string]string
	objects map[string][]byte // as last read, by name
	events  *follower
}

// play sends all requests of a scenario and returns the answers, one for each step. The error is one of the harness, not of the server.
func (t *target) play(ctx context.Context, sc scenario) ([]answer, error) {
	r := &run{target: t, scenario: sc, vars: map[string]string{}, objects: map[string][]byte{}}
	version, err := t.version(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sc.name, err)
	}
	oldest := version
	if !slices.ContainsFunc(sc.steps, step.changes) { // then each version is the server's
		oldest = 0
	}
	r.normal = newNormal(t.started, oldest, t.wellKnown)
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

// version returns the server's newest resourceVersion.
func (t *target) version(ctx context.Context) (uint64, error) {
	res, err := t.do(ctx, "GET", "/api/v1/namespaces?limit=1", nil, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		return 0, err
	}
	version, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	return version, err
}

var placeholder = regexp.MustCompile(`\$\{([^}]+)\}`)

// expand puts in what was captured. What the server never said is 1: a request with it is refused, which is seen.
func (r *run) expand(s string) string {
	return placeholder.ReplaceAllStringFunc(s, func(p string) string { return cmp.Or(r.vars[p[2:len(p)-1]], "1") })
}

// ask sends a step's request, and waits for the events of it.
func (r *run) ask(ctx context.Context, s step) (answer, error) {
	method, path, body := s.method, r.expand(s.path), []byte(r.expand(s.body))
	header := map[string]string{}
	for name, value := range s.header {
		header[name] = r.expand(value)
	}
	if s.over != "" {
		base := r.objects[s.over]
		if base == nil {
			base = []byte("{}")
		}
		merged, err := jsonpatch.MergePatch(base, body)
		if err != nil {
			return answer{}, err
		}
		body = merged
	}
	if s.as != "" {
		var err error
		header["Content-Type"] = s.as
		if body, err = encode(body, s.as); err != nil {
			return answer{}, err
		}
	}
	if wait := map[string]time.Duration{untilEffect: r.lag, untilSecond: time.Until(time.Now().Truncate(time.Second).Add(time.Second))}[method]; method == untilEffect || method == untilSecond {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		return answer{Code: "200"}, ctx.Err()
	}
	if method == untilFound || method == untilGone {
		return r.wait(ctx, path, map[string]int{untilFound: http.StatusOK, untilGone: http.StatusNotFound}[method])
	}
	began := time.Now()
	r.normal.asked = began
	within, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	res, err := r.do(within, method, path, body, header)
	if err != nil {
		return answer{Code: timesOut}, ctx.Err()
	}
	content, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		return answer{Code: timesOut}, ctx.Err()
	}
	r.took(r.scenario.name+" "+s.name, time.Since(began))
	a := answer{Code: strconv.Itoa(res.StatusCode), Header: map[string][]string{}}
	tree := parse(res.Header.Get("Content-Type"), content)
	r.capture(path, tree, content)
	for _, capture := range s.captures {
		name, where, _ := strings.Cut(capture, "=")
		r.vars["cap:"+name] = lookUp(tree, where)
	}
	a.Body = r.normal.document(tree)
	for name, values := range res.Header {
		switch name {
		case "Date", "Content-Length": // the clock; and what follows from the body before it was normalized
			continue
		case "Audit-Id":
			values = []string{"<audit id>"}
		case "Etag", "Last-Modified":
			values = []string{"<" + strings.ToLower(name) + ">"}
		}
		for _, value := range values {
			a.Header[name] = append(a.Header[name], r.normal.text(value))
		}
	}
	if r.events != nil {
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
	}
	return a, nil
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

// lookUp returns what is at a path of names and indexes with dots between, as text.
func lookUp(tree any, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		switch t := tree.(type) {
		case map[string]any:
			tree = t[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(t) {
				return ""
			}
			tree = t[i]
		default:
			return ""
		}
	}
	return fmt.Sprint(tree)
}

// encode makes another encoding of a body of JSON. What can't be that is sent as it is.
func encode(body []byte, as string) ([]byte, error) {
	switch as {
	case asYAML:
		return yaml.JSONToYAML(body)
	case asProtobuf:
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return body, nil
		}
		info, _ := serializerFor(asProtobuf)
		var out bytes.Buffer
		err = info.Serializer.Encode(object, &out)
		return out.Bytes(), err
	}
	return body, nil
}

// parse makes a tree of an answer; text is text.
func parse(contentType string, content []byte) any {
	if len(content) == 0 {
		return nil
	}
	kind, _, _ := strings.Cut(contentType, ";")
	switch kind {
	case asProtobuf:
		info, _ := serializerFor(asProtobuf)
		object, gvk, err := info.Serializer.Decode(content, nil, nil)
		if err != nil {
			return "protobuf that isn't understood: " + err.Error()
		}
		object.GetObjectKind().SetGroupVersionKind(*gvk)
		if content, err = json.Marshal(object); err != nil {
			return err.Error()
		}
	case asYAML:
		converted, err := yaml.YAMLToJSON(content)
		if err != nil {
			return string(content)
		}
		content = converted
	}
	var documents []any
	for decoder := newDecoder(content); ; {
		var tree any
		err := decoder.Decode(&tree)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return string(content)
		}
		documents = append(documents, tree)
	}
	if len(documents) == 1 {
		return documents[0]
	}
	return documents
}

func newDecoder(content []byte) *json.Decoder {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	return decoder
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

// settle waits until the watch has seen what a write did: until it has seen the state that a read shows then.
func (r *run) settle(ctx context.Context, path string, answered any) error {
	collection, _, _ := strings.Cut(r.watch, "?")
	path, _, _ = strings.Cut(path, "?")
	names := []string{}
	object, _ := answered.(map[string]any)
	meta, _ := object["metadata"].(map[string]any)
	rest, below := strings.CutPrefix(path, collection+"/")
	switch {
	case below:
		name, _, _ := strings.Cut(rest, "/")
		names = append(names, name)
	case path != collection:
		return nil // of another resource
	case meta["name"] != nil:
		names = append(names, fmt.Sprint(meta["name"]))
	default: // a collection's deletion
		names = r.events.alive()
	}
	deadline := time.Now().Add(eventPatience)
	for _, name := range names {
		if !strings.HasPrefix(name, r.own) {
			continue
		}
		code, content, err := r.readComplete(ctx, collection+"/"+name, deadline)
		if err != nil {
			return err
		}
		var now struct {
			Metadata struct{ ResourceVersion string }
		}
		json.Unmarshal(content, &now)
		version, _ := strconv.ParseUint(now.Metadata.ResourceVersion, 10, 64)
		if code != http.StatusOK {
			version = 0
		} else if followsUp(kindOf(content)) { // later requests go by what the server has made of it
			r.capture(path, parse(asJSON, content), content)
		}
		for !r.events.reached(name, version) && time.Now().Before(deadline) {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Millisecond):
			}
		}
	}
	return nil
}

// readComplete reads an object until it's complete, or the deadline is over.
func (r *run) readComplete(ctx context.Context, path string, deadline time.Time) (code int, content []byte, err error) {
	for {
		res, err := r.do(ctx, "GET", path, nil, map[string]string{"Accept": asJSON})
		if err != nil {
			return 0, nil, err
		}
		content, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || isComplete(content) || time.Now().After(deadline) {
			return res.StatusCode, content, err
		}
		select {
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// followsUp tells whether a server changes an object of a kind after the write of it was answered.
func followsUp(kind string) bool {
	return slices.Contains([]string{"CustomResourceDefinition", "APIService", "FlowSchema"}, kind)
}

func kindOf(content []byte) string {
	var o struct{ Kind string }
	json.Unmarshal(content, &o)
	return o.Kind
}

// cleanup is the finalizer of definitions that the server itself takes away.
const cleanup = "customresourcecleanup.apiextensions.k8s.io"

// isComplete tells whether a server has said what it says of an object after the write of it: of a definition, that it's established or
// why not, or after its deletion that its objects are gone; of an APIService, whether it's available; and
// of a FlowSchema, whether its level is there.
func isComplete(content []byte) bool {
	type condition struct{ Type, Status, Message string }
	var o struct {
		Kind     string
		Metadata struct {
			DeletionTimestamp string
			Finalizers        []string
		}
		Spec struct {
			PriorityLevelConfiguration struct{ Name string }
			Names                      map[string]any
		}
		Status struct {
			Conditions    []condition
			AcceptedNames map[string]any
		}
	}
	if json.Unmarshal(content, &o) != nil {
		return true
	}
	if o.Metadata.DeletionTimestamp != "" {
		return !slices.Contains(o.Metadata.Finalizers, cleanup)
	}
	switch o.Kind {
	case "CustomResourceDefinition":
		is := map[string]string{} // a client may have taken conditions away
		for _, c := range o.Status.Conditions {
			is[c.Type] = c.Status
		}
		named := short(o.Spec.Names) == short(o.Status.AcceptedNames) && (is["NamesAccepted"] != "True" || is["Established"] == "True")
		return named || is["NamesAccepted"] == "False"
	case "APIService":
		return slices.ContainsFunc(o.Status.Conditions, func(c condition) bool { return c.Type == "Available" && c.Message != "" })
	case "FlowSchema":
		return slices.ContainsFunc(o.Status.Conditions, func(c condition) bool {
			return c.Type == "Dangling" && strings.Contains(c.Message, strconv.Quote(o.Spec.PriorityLevelConfiguration.Name))
		})
	}
	return true
}

// follower is a watch.
type follower struct {
	own string

	mu    sync.Mutex // guards all below
	new   []any
	seen  map[string]event // the last of each object, by name
	ended bool
}

// event is what a watch said last of an object.
type event struct {
	version uint64
	gone    bool
}

// follow reads events until the context ends.
func (f *follower) follow(ctx context.Context, t *target, path string, from uint64) {
	defer func() {
		f.mu.Lock()
		f.ended = true
		f.mu.Unlock()
	}()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	res, err := t.do(ctx, "GET", fmt.Sprintf("%s%swatch=true&resourceVersion=%d", path, join, from), nil, nil)
	if err != nil {
		return
	}
	defer res.Body.Close()
	for decoder := json.NewDecoder(res.Body); ; {
		decoder.UseNumber()
		var e map[string]any
		if decoder.Decode(&e) != nil {
			return
		}
		object, _ := e["object"].(map[string]any)
		meta, _ := object["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		if !strings.HasPrefix(name, f.own) {
			continue
		}
		version, _ := meta["resourceVersion"].(string)
		v, _ := strconv.ParseUint(version, 10, 64)
		f.mu.Lock()
		f.new = append(f.new, e)
		f.seen[name] = event{version: v, gone: e["type"] == "DELETED"}
		f.mu.Unlock()
	}
}

// take returns the events that came since.
func (f *follower) take() []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.new
	f.new = nil
	return taken
}

// alive names the objects that the watch knows to be there.
func (f *follower) alive() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f.seen)) {
		if !f.seen[name].gone {
			names = append(names, name)
		}
	}
	return names
}

// reached tells whether the watch has shown an object at a version or later; 0 is its end.
func (f *follower) reached(name string, version uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, known := f.seen[name]
	if f.ended || version == 0 {
		return f.ended || !known || e.gone
	}
	return known && e.version >= version
}
