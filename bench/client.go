package main

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	// objectSize is the length of an object's text, as it's sent.
	objectSize = 1024
)

//go:embed testdata
var testdata embed.FS

// kind is a definition and its objects.
type kind struct {
	file, name, plural string
	fields             string // of spec, besides count and text
	namespace          string
}

var (
	plain = kind{file: "plain.yaml", name: "Gauge", plural: "gauges", namespace: "default",
		fields: `"owner":"team-7","color":"green","ratio":0.5,"tags":["one","two"],`}
	// thirty has 30 fields, all of which are set, and two rules.
	thirty = kind{file: "thirty.yaml", name: "Machine", plural: "machines", namespace: "default",
		fields: `"image":"registry.example.com/app:1.2.3","owner":"team-7","zone":"eu-1a",` +
			`"tier":"front","color":"green","host":"a.example.com","protocol":"TCP","schedule":"0 4 * * *","strategy":"Rolling",` +
			`"created":"2026-01-02T03:04:05Z","minimum":1,"replicas":3,"maximum":5,"port":8080,"weight":10,"priority":7,"retries":3,` +
			`"seconds":30,"ratio":0.5,"share":0.25,"enabled":true,"paused":false,"public":true,"tags":["one","two"],` +
			`"ports":[80,443],"limits":{"cpu":"1","memory":"1Gi"},"options":{"a":"b"},"reference":{"kind":"Secret","name":"key"},`}
)

func (k kind) path() string {
	return "/apis/bench.example.com/v1/namespaces/" + k.namespace + "/" + k.plural
}

// body is an object's JSON. n is what changes; without a version it says none. Its label own is its name.
func (k kind) body(name string, n int, version int64) []byte {
	b := fmt.Appendf(nil, `{"apiVersion":"bench.example.com/v1","kind":%q,"metadata":{"name":%q,"namespace":%q`, k.name, name, k.namespace)
	if version != 0 {
		b = fmt.Appendf(b, `,"resourceVersion":"%d"`, version)
	}
	b = fmt.Appendf(b, `,"labels":{"app":"bench","own":%q}},"spec":{%s"count":%d,"text":"`, name, k.fields, n)
	// Words in an order that differs from object to object compress as text does.
	words := strings.Fields("alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa")
	for x := uint64(len(name)) + uint64(n)*0x9E3779B97F4A7C15; len(b) < objectSize-len(`"}}`); x = x*6364136223846793005 + 1442695040888963407 {
		b = append(append(b, words[x>>60]...), ' ')
	}
	return append(b[:max(0, objectSize-len(`"}}`))], `"}}`...)
}

// namespacesMade counts the namespaces that this process has made.
var namespacesMade atomic.Int64

// ownNamespace makes sure that the kind is served, and makes a namespace for a case to have it alone. A server without
// namespaces takes objects of any.
func (s *server) ownNamespace(k kind) (kind, error) {
	if err := s.define(k); err != nil {
		return k, err
	}
	k.namespace = fmt.Sprintf("bench-%x-%d", time.Now().UnixNano(), namespacesMade.Add(1))
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, k.namespace)
	_, err := s.expect("POST", "/api/v1/namespaces", "application/json", body, 201, 404, 405)
	return k, err
}

// define makes sure that the kind is served.
func (s *server) define(k kind) error {
	text, err := testdata.ReadFile("testdata/" + k.file)
	if err != nil {
		return err
	}
	if _, err := s.expect("POST", definitionsPath, "application/yaml", text, 201, 409); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) { // another server may take a while
		code, _, err := s.send("GET", k.path()+"?limit=1", "", nil)
		if err != nil || code == http.StatusOK {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s aren't served after %v: %d", k.plural, patience, code)
		}
	}
}

// send sends a request and reads the answer.
func (s *server) send(method, path, contentType string, body []byte) (code int, answer []byte, err error) {
	r, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Accept", "application/json")
	if strings.HasPrefix(path, "/metrics") {
		r.Header.Set("Accept", "text/plain")
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := s.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// expect is send with an answer that must have one of the codes.
func (s *server) expect(method, path, contentType string, body []byte, codes ...int) ([]byte, error) {
	code, answer, err := s.send(method, path, contentType, body)
	if err == nil && !slices.Contains(codes, code) {
		err = fmt.Errorf("%s %s: %d %.500s", method, path, code, answer)
	}
	return answer, err
}

// object is one that the scenarios write.
type object struct {
	name    string
	version int64 // of its last write
	n       int
}

// createObjects makes so many of a kind, in a namespace of their own.
func (s *server) createObjects(k kind, count int) (kind, []*object, error) {
	k, err := s.ownNamespace(k)
	if err != nil {
		return k, nil, err
	}
	all := make([]*object, count)
	_, err = parallel(64, count, func(i int) error {
		o := &object{name: fmt.Sprint("g", i)}
		all[i] = o
		answer, err := s.expect("POST", k.path(), "application/json", k.body(o.name, 0, 0), 201)
		o.version = versionIn(answer)
		return err
	})
	return k, all, err
}

// listVersion is the version of a kind's list.
func (s *server) listVersion(k kind) (int64, error) {
	answer, err := s.expect("GET", k.path()+"?limit=1", "", nil, 200)
	if err != nil {
		return 0, err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return 0, err
	}
	return strconv.ParseInt(list.Metadata.ResourceVersion, 10, 64)
}

// versionIn returns the first resourceVersion; 0 without one.
func versionIn(document []byte) int64 {
	_, rest, _ := bytes.Cut(document, []byte(`"resourceVersion":"`))
	digits, _, _ := bytes.Cut(rest, []byte{'"'})
	n, _ := strconv.ParseInt(string(digits), 10, 64)
	return n
}

// update replaces the object.
func (s *server) update(k kind, o *object) error {
	o.n++
	answer, err := s.expect("PUT", k.path()+"/"+o.name, "application/json", k.body(o.name, o.n, o.version), 200)
	o.version = versionIn(answer)
	return err
}

// written is an update that was answered.
type written struct {
	object  *object
	version int64
	due     time.Time // when it was to be sent; when it was sent if there's no rate
}

// updateAll changes the objects in turn, four at a time, at so many a second in all, or as fast as it goes for 0.
// It returns the updates by version.
func (s *server) updateAll(k kind, objects []*object, count, rate int) ([]written, error) {
	objects = objects[:len(objects)/writers*writers] // so that each has one writer
	all := make([]written, count)
	begin := time.Now()
	_, err := parallel(writers, count, func(i int) error {
		o := objects[i%len(objects)]
		all[i] = written{object: o, due: time.Now()}
		if rate > 0 { // a writer that is late doesn't make events look early
			all[i].due = begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
			time.Sleep(time.Until(all[i].due))
		}
		err := s.update(k, o)
		all[i].version = o.version
		return err
	})
	slices.SortFunc(all, func(a, b written) int { return cmp.Compare(a.version, b.version) })
	return all, err
}

// parallel calls f with 0 to count-1 from so many goroutines, goroutine k with what is k modulo their number, until a
// call fails. It returns how long each took.
func parallel(goroutines, count int, f func(i int) error) ([]time.Duration, error) {
	took, errs := make([]time.Duration, count), make([]error, goroutines)
	var failed atomic.Bool
	var all sync.WaitGroup
	for k := range goroutines {
		all.Go(func() {
			for i := k; i < count && !failed.Load(); i += goroutines {
				begin := time.Now()
				if errs[k] = f(i); errs[k] != nil {
					failed.Store(true)
				}
				took[i] = time.Since(begin)
			}
		})
	}
	all.Wait()
	return took, errors.Join(errs...)
}
