package faults_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// overHTTP2 returns a client that speaks HTTP/2 without TLS.
func overHTTP2(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// whole reads an answer to its end. The code is 0 if none begins.
func whole(client *http.Client, url string, headers ...string) (code int, body []byte, err error) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// TestHTTP2: a cut is the stream's end, and that of a watch likewise; after the answer the connection ends.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	create(s, "a")
	create(s, "b")
	for _, test := range []struct {
		name           string
		rule           faults.Rule
		path           string
		begins, answer bool
		want           int // events, or objects
	}{
		{"request", faults.Rule{Cut: faults.CutRequest}, configMaps, false, false, 0},
		{"before", faults.Rule{Cut: faults.CutBefore}, configMaps, false, false, 0},
		{"middle", faults.Rule{Cut: faults.CutMiddle}, configMaps, true, false, 0},
		{"after", faults.Rule{Cut: faults.CutAfter}, configMaps, true, true, 1},
		{"watch", faults.Rule{Watch: &faults.Watch{End: "cut", AfterEvents: 1}}, configMaps + "?watch=true", true, false, 1},
		{"watch that ends", faults.Rule{Watch: &faults.Watch{End: "clean", AfterEvents: 1}}, configMaps + "?watch=true", true, true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			rule := test.rule
			rule.Match, rule.Times = ofConfigMaps("list", "watch"), 1
			fault := s.Fault("rule", rule)
			client := overHTTP2(t)
			code, body, err := whole(client, s.URL+test.path)
			if (code != 0) != test.begins || (err == nil) != test.answer || test.answer && bytes.Count(body, []byte("\n")) != test.want {
				t.Errorf("the answer is %d %s, %v", code, body, err)
			}
			if n := len(fault.Log()); n != 1 {
				t.Errorf("%d requests met the fault", n)
			}
			if code, _, err := whole(client, s.URL+configMaps); code != http.StatusOK || err != nil {
				t.Errorf("the next request is answered %d, %v", code, err)
			}
		})
	}
}

// TestForms: the ends of watches are the same in all forms of events.
func TestForms(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	for _, name := range []string{"a", "b", "c"} {
		create(s, name)
	}
	client := &http.Client{Timeout: time.Minute}
	for _, test := range []struct {
		name, accept string
		count        func(body []byte) int
	}{
		{"JSON", "application/json", func(b []byte) int { return bytes.Count(b, []byte("\n")) }},
		{"server-sent events", "text/event-stream", func(b []byte) int { return bytes.Count(b, []byte("event: ")) }},
		{"protobuf", "application/vnd.kubernetes.protobuf;stream=watch", kubeproto.CountFrames},
	} {
		for _, end := range []struct {
			how  string
			want int
		}{{"clean", 2}, {"expired", 3}} {
			t.Run(test.name+" "+end.how, func(t *testing.T) {
				s := s.In(t)
				s.Fault("watch", faults.Rule{Match: ofConfigMaps("watch"), Times: 1, Watch: &faults.Watch{End: end.how, AfterEvents: 2}})
				code, body, err := whole(client, s.URL+configMaps+"?watch=true", "Accept", test.accept)
				if n := test.count(body); code != http.StatusOK || err != nil || n != end.want {
					t.Errorf("%d %v: %d events, want %d: %q", code, err, n, end.want, body)
				}
				if end.how == "expired" && !bytes.Contains(body, []byte("410")) && !bytes.Contains(body, []byte("Expired")) {
					t.Errorf("the watch ends without an error: %q", body)
				}
			})
		}
	}
	t.Run("an EventSource that comes back", func(t *testing.T) {
		s := s.In(t)
		s.Fault("watch", faults.Rule{Match: ofConfigMaps("watch"), Times: 1, Watch: &faults.Watch{Expired: true}})
		_, body, err := whole(client, s.URL+configMaps+"?watch=true", "Accept", "text/event-stream", "Last-Event-Id", versionOf(t, s))
		if err != nil || !bytes.Contains(body, []byte(`"code":410`)) {
			t.Errorf("it gets %q, %v", body, err)
		}
	})
}

// TestSeveralKinds: a rule about one of the kinds of a stream is about the stream.
func TestSeveralKinds(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	create(s, "a")
	fault := s.Fault("watch", faults.Rule{Match: ofConfigMaps("watch"), Watch: &faults.Watch{End: "cut", AfterEvents: 1}})
	w := s.Watch("/apiserver-lite/v1/watch?resource=namespaces&resource=configmaps&initialEvents=true")
	defer w.Close()
	if line, err := w.Next(); err != nil || !strings.Contains(line, "ADDED") {
		t.Errorf("the first event is %q, %v", line, err)
	}
	if line, err := w.Next(); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("then comes %q, %v, want a cut", line, err)
	}
	if log := fault.Log(); len(log) != 1 || log[0].Resource != "namespaces,configmaps" || log[0].Verb != "watch" {
		t.Errorf("the log is %+v", log)
	}
	other := s.Watch("/apiserver-lite/v1/watch?resource=namespaces&initialEvents=true")
	defer other.Close()
	for range 2 {
		if line, err := other.Next(); err != nil {
			t.Errorf("a stream of other kinds gets %q, %v", line, err)
		}
	}
}

// TestList: the objects of a List meet faults as if each had come alone.
func TestList(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	s.Fault("conflict", faults.Rule{Match: faults.Match{Resources: []string{"configmaps"}, Verbs: []string{"create"}}, Every: 2, Status: &faults.Status{Code: 409}})
	item := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","namespace":"default"}}`
	}
	res, body := s.Do(http.MethodPost, "/apiserver-lite/v1/create", `{"apiVersion":"v1","kind":"List","items":[`+item("a")+","+item("b")+","+item("c")+`]}`, "Content-Type", "application/json")
	if res.StatusCode != http.StatusOK || strings.Count(body, "the rule conflict for faults") != 1 {
		t.Errorf("the answer is %s %s", res.Status, body)
	}
	if !exists(s, "a") || exists(s, "b") || !exists(s, "c") {
		t.Errorf("not all but the second object are there: %s", s.Get(configMaps))
	}
	cut := s.Fault("conflict", faults.Rule{Match: faults.Match{Verbs: []string{"create", "post"}}, Times: 1, Cut: faults.CutMiddle})
	if code, body, err := send(s, http.MethodPost, "/apiserver-lite/v1/create", `{"apiVersion":"v1","kind":"List","items":[`+item("d")+`]}`); code != http.StatusOK || err == nil {
		t.Errorf("a List that is cut is answered %d %s", code, body)
	}
	if log := cut.Log(); len(log) != 1 || log[0].Verb != "post" {
		t.Errorf("an object was cut that has no connection: %+v", log)
	}
}

// TestReset: rules outlive a reset of what is stored, and a stale list is none from before it.
func TestReset(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	create(s, "a")
	s.Fault("stale", faults.Rule{Match: ofConfigMaps("list"), Stale: &faults.Stale{Versions: 50}})
	s.Reset()
	for range 10 {
		if _, names := namesIn(t, s.Get(configMaps)); len(names) > 0 {
			t.Fatalf("a list after the reset has %v", names)
		}
	}
}
