package faults_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

// ofConfigMaps matches requests for ConfigMaps with some verbs.
func ofConfigMaps(verbs ...string) faults.Match {
	return faults.Match{Resources: []string{"configmaps"}, Verbs: verbs}
}

// create makes a ConfigMap and returns the answer, whatever it is.
func create(s *servertest.Server, name string) (*http.Response, string) {
	return s.Do(http.MethodPost, configMaps, `{"metadata":{"name":"`+name+`"}}`, "Content-Type", "application/json")
}

// exists tells whether there is a ConfigMap.
func exists(s *servertest.Server, name string) bool {
	res, _ := s.Do(http.MethodGet, configMaps+"/"+name, "")
	return res.StatusCode == http.StatusOK
}

// TestStatus: each Status comes in the place of the answer, with nothing done or all.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	for _, test := range []struct {
		code   int32
		reason metav1.StatusReason
		after  int32 // Retry-After
		want   string
	}{
		{409, metav1.StatusReasonConflict, 0, ""},
		{429, metav1.StatusReasonTooManyRequests, 0, "1"},
		{429, metav1.StatusReasonTooManyRequests, 7, "7"},
		{500, metav1.StatusReasonInternalError, 0, ""},
		{503, metav1.StatusReasonServiceUnavailable, 2, "2"},
		{504, metav1.StatusReasonTimeout, 0, ""},
	} {
		for _, after := range []bool{false, true} {
			name := fmt.Sprintf("c%d-%d-%t", test.code, test.after, after)
			t.Run(name, func(t *testing.T) {
				s := s.In(t)
				fault := s.Fault("status", faults.Rule{Match: ofConfigMaps("create"), Times: 1, Status: &faults.Status{Code: test.code, RetryAfterSeconds: test.after, After: after}})
				res, body := create(s, name)
				var got metav1.Status
				if err := json.Unmarshal([]byte(body), &got); err != nil {
					t.Fatalf("%v: %s", err, body)
				}
				if res.StatusCode != int(test.code) || got.Kind != "Status" || got.Code != test.code || got.Reason != test.reason || !strings.Contains(got.Message, "the rule status for faults") {
					t.Errorf("the answer is %s %s", res.Status, body)
				}
				if header := res.Header.Get("Retry-After"); header != test.want {
					t.Errorf("Retry-After is %q, want %q", header, test.want)
				}
				if exists(s, name) != after {
					t.Errorf("the object is there: %t, want %t", !after, after)
				}
				if log := fault.Log(); len(log) != 1 || log[0].AuditID != res.Header.Get("Audit-Id") || log[0].Verb != "create" || log[0].Resource != "configmaps" || log[0].Namespace != "default" {
					t.Errorf("the log is %+v", log)
				}
				if res, _ := create(s, name+"-next"); res.StatusCode != http.StatusCreated {
					t.Errorf("the second request met the fault, too: %s", res.Status)
				}
			})
		}
	}
}

// TestStatusAfterHidesTheAnswer: nothing of the answer that a Status replaces gets out.
func TestStatusAfterHidesTheAnswer(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	create(s, "a")
	s.Fault("after", faults.Rule{Match: ofConfigMaps("get"), Times: 1, Status: &faults.Status{Code: 503, After: true}})
	res, body := s.Do(http.MethodGet, configMaps+"/a", "")
	if res.StatusCode != 503 || res.Header.Get("ETag") != "" || strings.Contains(body, "uid") {
		t.Errorf("the answer is %s %v %s", res.Status, res.Header, body)
	}
}

// TestCut: the connection is closed when the rule says so, and what was to be done is done or not.
func TestCut(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	large := strings.Repeat("x", 300<<10)
	s.PostYAML(configMaps, `{"metadata":{"name":"large"},"data":{"a":"`+large+`"}}`)
	for _, test := range []struct {
		cut           faults.Cut
		done, answers bool // the write is done, there's a whole answer
		begins        bool // there's an answer, perhaps not whole
	}{
		{faults.CutRequest, false, false, false},
		{faults.CutBefore, true, false, false},
		{faults.CutMiddle, true, false, true},
		{faults.CutAfter, true, true, true},
	} {
		t.Run(string(test.cut), func(t *testing.T) {
			s := s.In(t)
			fault := s.Fault("cut", faults.Rule{Match: ofConfigMaps("create", "get", "list"), Times: 3, Cut: test.cut})
			code, body, err := send(s, http.MethodPost, configMaps, `{"metadata":{"name":"`+string(test.cut)+`"}}`)
			if (code != 0) != test.begins || (err == nil) != test.answers || test.answers && code != http.StatusCreated {
				t.Errorf("the create is answered %d %q, %v", code, body, err)
			}
			for _, path := range []string{configMaps, configMaps + "/large"} {
				code, body, err := send(s, http.MethodGet, path, "")
				if (code != 0) != test.begins || (err == nil) != test.answers || test.answers != strings.Contains(body, large) {
					t.Errorf("GET %s is answered %d with %d bytes, %v", path, code, len(body), err)
				}
			}
			if log := fault.Log(); len(log) != 3 || log[0].Fault != "cut "+string(test.cut) {
				t.Errorf("the log is %+v", log)
			}
			if exists(s, string(test.cut)) != test.done {
				t.Errorf("the object is there: %t", !test.done)
			}
		})
	}
}

// send sends a request over a connection of its own. The code is 0 if no answer begins.
func send(s *servertest.Server, method, path, body string) (code int, answer string, err error) {
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: false}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return res.StatusCode, string(all), err
}

// TestDelay: a request waits as long as was drawn, and the wait ends with its client.
func TestDelay(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	fault := s.Fault("delay", faults.Rule{Match: ofConfigMaps("list"), Seed: 1, Delay: &faults.Delay{Distribution: "uniform", Min: in(10 * time.Millisecond), Max: in(30 * time.Millisecond)}})
	for range 5 {
		began := time.Now()
		s.Get(configMaps)
		took := time.Since(began)
		log := fault.Log()
		said, err := time.ParseDuration(strings.TrimPrefix(log[len(log)-1].Fault, "delay "))
		if err != nil || said < 10*time.Millisecond || said > 30*time.Millisecond || took < said {
			t.Errorf("the request took %v, and the log says %v, %v", took, said, err)
		}
	}
	long := s.Fault("delay", faults.Rule{Match: ofConfigMaps("list"), Delay: &faults.Delay{Mean: in(time.Minute)}})
	client := http.Client{Timeout: 50 * time.Millisecond}
	if res, err := client.Get(s.URL + configMaps); err == nil {
		t.Errorf("a request that has to wait for a minute is answered: %s", res.Status)
	}
	long.Await(1)
	if res, _ := s.Do(http.MethodGet, "/readyz", ""); res.StatusCode != http.StatusOK {
		t.Errorf("readyz is %s", res.Status)
	}
}

// TestDelayEndsWithServer: a request that waits doesn't hold up the end.
func TestDelayEndsWithServer(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	fault := s.Fault("delay", faults.Rule{Match: ofConfigMaps("list"), Delay: &faults.Delay{Mean: in(time.Minute)}})
	answered := make(chan error, 1)
	go func() {
		res, err := http.Get(s.URL + configMaps)
		if err == nil {
			res.Body.Close()
			if res.StatusCode != http.StatusServiceUnavailable {
				err = errors.New(res.Status)
			}
		}
		answered <- err
	}()
	fault.Await(1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-answered // what it is depends on which end is first; what counts is that there's one
}

func in(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// TestWatch: a watch ends as a rule says, after as many events or as long, and what it has given until then is whole.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	create(s, "w1")
	version := versionOf(t, s)
	for _, name := range []string{"w2", "w3", "w4"} {
		create(s, name)
	}
	for _, test := range []struct {
		name   string
		watch  faults.Watch
		events []string // that come, by the name of the object; "410" for an ERROR of that code
		err    error    // nil: the connection is cut
	}{
		{"clean at once", faults.Watch{End: "clean"}, nil, io.EOF},
		{"cut at once", faults.Watch{End: "cut"}, nil, nil},
		{"expired at once", faults.Watch{End: "expired"}, []string{"410"}, io.EOF},
		{"clean after two", faults.Watch{End: "clean", AfterEvents: 2}, []string{"w2", "w3"}, io.EOF},
		{"cut after two", faults.Watch{End: "cut", AfterEvents: 2}, []string{"w2", "w3"}, nil},
		{"expired after two", faults.Watch{End: "expired", AfterEvents: 2}, []string{"w2", "w3", "410"}, io.EOF},
		{"clean after a time", faults.Watch{End: "clean", After: in(time.Second)}, []string{"w2", "w3", "w4"}, io.EOF},
		{"cut after a time", faults.Watch{End: "cut", After: in(time.Second)}, []string{"w2", "w3", "w4"}, nil},
		{"expired after a time", faults.Watch{End: "expired", After: in(time.Second)}, []string{"w2", "w3", "w4", "410"}, io.EOF},
		{"the resume is refused", faults.Watch{Expired: true}, []string{"410"}, io.EOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			fault := s.Fault("watch", faults.Rule{Match: ofConfigMaps(), Times: 1, Watch: &test.watch})
			got, err := read(t, s.Watch(configMaps+"?watch=true&resourceVersion="+version))
			if !slices.Equal(got, test.events) || test.err != nil && err != test.err || test.err == nil && err == io.EOF {
				t.Errorf("the watch gives %q and %v, want %q and %v", got, err, test.events, test.err)
			}
			if n := len(fault.Log()); n != 1 {
				t.Errorf("the log has %d faults", n)
			}
		})
	}
	t.Run("a watch that resumes from nothing is not refused", func(t *testing.T) {
		s := s.In(t)
		fault := s.Fault("watch", faults.Rule{Match: ofConfigMaps(), Watch: &faults.Watch{Expired: true}})
		w := s.Watch(configMaps + "?watch=true")
		defer w.Close()
		if line, err := w.Next(); err != nil || !strings.Contains(line, "ADDED") || len(fault.Log()) != 0 {
			t.Errorf("the watch gives %q, %v; the log is %+v", line, err, fault.Log())
		}
	})
}

// read returns the events of a watch up to its end, by the names of their objects, and the end.
func read(t *testing.T, w *servertest.Stream) (events []string, end error) {
	t.Helper()
	defer w.Close()
	for {
		line, err := w.Next()
		if err != nil {
			return events, err
		}
		var event struct {
			Type   string
			Object struct {
				Code     int
				Metadata struct{ Name string }
			}
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if event.Type == "ERROR" {
			events = append(events, fmt.Sprint(event.Object.Code))
		} else {
			events = append(events, event.Object.Metadata.Name)
		}
	}
}

// versionOf returns the resourceVersion of the list.
func versionOf(t *testing.T, s *servertest.Server) string {
	t.Helper()
	version, _ := namesIn(t, s.Get(configMaps))
	return version
}

// namesIn returns the version and the names of a list.
func namesIn(t *testing.T, body string) (version string, names []string) {
	t.Helper()
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		names = append(names, item.Metadata.Name)
	}
	return list.Metadata.ResourceVersion, names
}

// TestBookmarks: bookmarks are withheld, except the one that ends the initial events.
func TestBookmarks(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	create(s, "a")
	path := configMaps + "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=3" // the last bookmark comes two seconds before
	for _, test := range []struct {
		withheld  bool
		bookmarks int
	}{{false, 2}, {true, 1}} {
		t.Run(fmt.Sprintf("withheld %t", test.withheld), func(t *testing.T) {
			s := s.In(t)
			if test.withheld {
				s.Fault("bookmarks", faults.Rule{Match: ofConfigMaps("watch"), Watch: &faults.Watch{NoBookmarks: true}})
			}
			w := s.Watch(path)
			defer w.Close()
			bookmarks, ends := 0, 0
			for {
				line, err := w.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(line, `"BOOKMARK"`) {
					bookmarks++
				}
				if strings.Contains(line, "initial-events-end") {
					ends++
				}
			}
			if ends != 1 || bookmarks != test.bookmarks {
				t.Errorf("%d bookmarks came, of which %d end the initial events", bookmarks, ends)
			}
		})
	}
}

// TestStale: a list is one that was true, of a version that the rule allows.
func TestStale(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	lists := map[string]string{} // by version
	for i := range 6 {
		create(s, fmt.Sprintf("s%d", i))
		version, names := namesIn(t, s.Get(configMaps))
		lists[version] = strings.Join(names, " ")
	}
	newest := versionOf(t, s)
	fault := s.Fault("stale", faults.Rule{Match: ofConfigMaps(), Seed: 7, Stale: &faults.Stale{Versions: 3}})
	seen := map[string]bool{}
	for range 20 {
		version, names := namesIn(t, s.Get(configMaps))
		if want, ok := lists[version]; !ok || version == newest || strings.Join(names, " ") != want {
			t.Errorf("the list at %s is %q, want %q", version, names, want)
		}
		seen[version] = true
	}
	for _, path := range []string{"?limit=2", "?lite=true&sortBy=metadata.name", "?labelSelector=a=b", "?fieldSelector=metadata.name=s0", "?resourceVersion=0", "?pretty=true"} {
		if version, _ := namesIn(t, s.Get(configMaps+path)); lists[version] == "" || version == newest {
			t.Errorf("the list %s is of %s", path, version)
		}
	}
	if len(seen) != 3 {
		t.Errorf("the lists are of %d versions, want 3: %v", len(seen), seen)
	}
	if res, body := s.Do(http.MethodGet, configMaps+"?limit=%zz", ""); res.StatusCode != http.StatusBadRequest {
		t.Errorf("a query that doesn't parse is answered %s %s", res.Status, body)
	}
	hits := len(fault.Log())
	for _, path := range []string{"?resourceVersion=" + newest, "?resourceVersion=" + newest + "&resourceVersionMatch=NotOlderThan", "?at=" + time.Now().Add(time.Minute).UTC().Format(time.RFC3339)} {
		if strings.HasPrefix(path, "?at=") { // it isn't there yet, which is told of the instant alone
			if _, body := s.Do(http.MethodGet, configMaps+path, ""); !strings.Contains(body, "is in the future") {
				t.Errorf("%s: %s", path, body)
			}
			continue
		}
		if version, _ := namesIn(t, s.Get(configMaps+path)); version < newest {
			t.Errorf("the list that asks for %s is of %s", path, version)
		}
	}
	if n := len(fault.Log()); n != hits {
		t.Errorf("%d of the lists that ask for a version met the fault", n-hits)
	}
}
