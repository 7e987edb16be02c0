package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience bounds the test; only a failure takes as long.
const patience = time.Minute

// program is the running example.
type program struct {
	t   *testing.T
	ctx context.Context
	url string // of all gadgets
}

// start runs the program. It ends with the test.
func start(t *testing.T) *program {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"--listen", "127.0.0.1:0"}, in)
		in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the program ended with %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, found := strings.CutPrefix(strings.TrimSpace(line), "gadgets are at ")
	if err != nil || !found {
		t.Fatalf("the program says %q, %v", line, err)
	}
	return &program{t, ctx, url}
}

// send makes a request; more are headers, names and values in turn.
func (p *program) send(method, url, body string, more ...string) *http.Response {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.ctx, method, url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	return res
}

// do is send for an answer of that code, which it returns.
func (p *program) do(code int, method, url, body string, more ...string) (http.Header, string) {
	p.t.Helper()
	res := p.send(method, url, body, more...)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != code {
		p.t.Fatalf("%s %s: %s, want %d (%v)\n%s", method, url, res.Status, code, err, answer)
	}
	return res.Header, string(answer)
}

func (p *program) has(answer string, parts ...string) {
	p.t.Helper()
	for _, part := range parts {
		if !strings.Contains(answer, part) {
			p.t.Errorf("the answer lacks %s:\n%s", part, answer)
		}
	}
}

func TestGadgets(t *testing.T) {
	p := start(t)
	root, _, _ := strings.Cut(p.url, "/apis/")
	mine := root + "/apis/example.com/v1/namespaces/default/gadgets"

	// A create: defaults, and an owner by admission.
	_, lamp := p.do(201, "POST", mine+"?fieldManager=me", `{"metadata":{"name":"lamp"},"spec":{"color":"red"}}`)
	p.has(lamp, `"color":"red"`, `"size":1`, `"owner":"me"`, `"kind":"Gadget"`)
	header, _ := p.do(201, "POST", mine, `{"metadata":{"name":"ship"},"spec":{"size":1000}}`)
	if got := header.Get("Warning"); !strings.Contains(got, "door") {
		t.Errorf("warned %q", got)
	}

	// A watch of the red ones sees the lamp come and go.
	watch := p.send("GET", mine+"?watch=true&fieldSelector=spec.color%3Dred", "")
	defer watch.Body.Close()
	events := bufio.NewReader(watch.Body)
	next := func(typ, name string) {
		t.Helper()
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		p.has(line, `"type":"`+typ+`"`, `"name":"`+name+`"`)
	}
	next("ADDED", "lamp")
	p.do(200, "PATCH", mine+"/lamp", `{"spec":{"color":"blue"}}`, "Content-Type", "application/merge-patch+json")
	next("DELETED", "lamp")

	// Server-side apply makes one and changes it.
	apply := func(code int, spec string) string {
		_, answer := p.do(code, "PATCH", mine+"/kettle?fieldManager=cook",
			"apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: kettle}\nspec: "+spec, "Content-Type", "application/apply-patch+yaml")
		return answer
	}
	p.has(apply(201, "{color: red, size: 2}"), `"owner":"cook"`, `"manager":"cook"`)
	next("ADDED", "kettle")
	p.has(apply(200, "{color: red, size: 3}"), `"size":3`, `"owner":"cook"`)
	next("MODIFIED", "kettle")

	// What kubectl get prints.
	_, list := p.do(200, "GET", mine, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var table struct {
		ColumnDefinitions []struct{ Name string }
		Rows              []struct{ Cells []any }
	}
	if err := json.Unmarshal([]byte(list), &table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if got := strings.Join(columns, " "); got != "Name Color Size Owner Age" {
		t.Errorf("columns %q", got)
	}
	if len(table.Rows) != 3 || table.Rows[0].Cells[0] != "kettle" || table.Rows[0].Cells[1] != "red" || table.Rows[0].Cells[2] != 3.0 {
		t.Errorf("rows %v", table.Rows)
	}

	// Refused by validation, and by admission until it's retired.
	_, answer := p.do(422, "PATCH", mine+"/kettle", `{"spec":{"size":-1,"color":"pink","owner":"thief"}}`, "Content-Type", "application/merge-patch+json")
	p.has(answer, `"field":"spec.size"`, `"field":"spec.color"`, `"field":"spec.owner"`)
	_, answer = p.do(403, "DELETE", mine+"/kettle", "")
	p.has(answer, `gadgets.example.com \"kettle\" is forbidden: label it retired=true first`)
	p.do(200, "PATCH", mine+"/kettle", `{"metadata":{"labels":{"retired":"true"}}}`, "Content-Type", "application/merge-patch+json")
	next("MODIFIED", "kettle")
	p.do(200, "DELETE", mine+"/kettle", "")
	next("DELETED", "kettle")

	// The status has its path.
	_, answer = p.do(200, "PATCH", mine+"/lamp/status", `{"status":{"ready":true},"spec":{"size":7}}`, "Content-Type", "application/merge-patch+json")
	p.has(answer, `"ready":true`, `"size":1`)

	// OpenAPI comes from the type.
	_, answer = p.do(200, "GET", root+"/openapi/v3/apis/example.com/v1", "")
	p.has(answer, "GadgetSpec", "red, green, blue or grey, which is the default")
}

func TestArguments(t *testing.T) {
	if err := run(context.Background(), []string{"--listen", "0.0.0.0:0"}, io.Discard); err == nil {
		t.Error("an address for everybody is taken, without a token")
	}
	if err := run(context.Background(), []string{"--no-such-flag"}, io.Discard); err == nil {
		t.Error("a flag that isn't there is taken")
	}
}
