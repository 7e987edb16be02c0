package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// faultsPath is where rules for faults are.
const faultsPath = "/apiserver-lite/v1/faults"

// fault arms a rule, which is removed with the test, and returns what tells how many requests have met its fault.
func (s *apiserver) fault(t *testing.T, name, rule string) (hits func() int) {
	t.Helper()
	admin, err := rest.HTTPClientFor(s.config())
	if err != nil {
		t.Fatal(err)
	}
	call := func(method, body string) (answer []byte) {
		t.Helper()
		r, err := http.NewRequest(method, s.url+faultsPath+"/"+name, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := admin.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if answer, err = io.ReadAll(res.Body); err != nil || res.StatusCode >= 300 {
			t.Fatalf("%s the rule %s: %s %s, %v", method, name, res.Status, answer, err)
		}
		return answer
	}
	call(http.MethodPut, rule)
	t.Cleanup(func() { call(http.MethodDelete, "") })
	return func() int {
		t.Helper()
		var page struct{ Hits int }
		if err := json.Unmarshal(call(http.MethodGet, ""), &page); err != nil {
			t.Fatal(err)
		}
		return page.Hits
	}
}

// startFaulty starts a server that fails on purpose, with widgets.
func startFaulty(t *testing.T) *apiserver {
	t.Helper()
	s := start(t, "--ephemeral", "--faults")
	s.define()
	return s
}

// faultsOfWrites are what happens to a create, what client-go and controller-runtime, which is built on it, say, and whether the widget is there.
var faultsOfWrites = []struct {
	name, fault string
	told        func(error) bool
	done        bool
}{
	{"409", `"status": {"code": 409}`, apierrors.IsConflict, false},
	{"429 is sent again", `"status": {"code": 429}`, isNil, true},
	{"500", `"status": {"code": 500}`, apierrors.IsInternalError, false},
	{"503", `"status": {"code": 503}`, apierrors.IsServiceUnavailable, false},
	{"503 with Retry-After is sent again", `"status": {"code": 503, "retryAfterSeconds": 1}`, isNil, true},
	{"504", `"status": {"code": 504}`, apierrors.IsTimeout, false},
	{"409 after", `"status": {"code": 409, "after": true}`, apierrors.IsConflict, true},
	{"429 after is sent again", `"status": {"code": 429, "after": true}`, apierrors.IsAlreadyExists, true},
	{"500 after", `"status": {"code": 500, "after": true}`, apierrors.IsInternalError, true},
	{"503 after", `"status": {"code": 503, "after": true}`, apierrors.IsServiceUnavailable, true},
	{"504 after", `"status": {"code": 504, "after": true}`, apierrors.IsTimeout, true},
	{"delay", `"delay": {"distribution": "uniform", "min": "5ms", "max": "20ms"}`, isNil, true},
	{"delay beyond the client's time", `"delay": {"mean": "1m"}`, isLate, false},
	{"cut before anything is done", `"cut": "request"`, isUnanswered, false},
	{"cut before the answer", `"cut": "before"`, isUnanswered, true},
	{"cut in the middle of the answer", `"cut": "middle"`, isUnanswered, true},
	{"cut after the answer", `"cut": "after"`, isNil, true},
}

func isNil(err error) bool { return err == nil }

func isLate(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// isUnanswered tells whether a client has no answer of the server.
func isUnanswered(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || status.Status().Code == 0)
}

// TestFaultsOfWrites: what client-go and controller-runtime say of a create that meets a fault, and whether it has happened.
func TestFaultsOfWrites(t *testing.T) {
	for name, s := range map[string]*apiserver{"HTTP/1.1": start(t, "--ephemeral", "--faults"), "HTTP/2": startSecureWith(t, "--faults")} {
		t.Run(name, func(t *testing.T) { s.faultsOfWrites(t) })
	}
}

func (s *apiserver) faultsOfWrites(t *testing.T) {
	s.define()
	ofClientGo := s.dynamic().Resource(widgets).Namespace("default")
	ofRuntime := widgetsClient(t, s)
	for _, by := range []struct {
		name   string
		create func(ctx context.Context, name string) error
	}{
		{"client-go", func(ctx context.Context, name string) error {
			_, err := ofClientGo.Create(ctx, widget(name, 1), metav1.CreateOptions{})
			return err
		}},
		{"controller-runtime", func(ctx context.Context, name string) error {
			return ofRuntime.Create(ctx, &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: WidgetSpec{Size: 1}})
		}},
	} {
		for i, test := range faultsOfWrites {
			t.Run(by.name+" "+test.name, func(t *testing.T) {
				name := fmt.Sprintf("%s-%d", by.name, i)
				hits := s.fault(t, "rule", `{"match": {"resources": ["widgets.example.com"], "verbs": ["create"]}, "times": 1, `+test.fault+`}`)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if strings.HasPrefix(test.name, "delay beyond") {
					ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
				}
				if err := by.create(ctx, name); !test.told(err) {
					t.Errorf("the client says %v", err)
				}
				if n := hits(); n != 1 {
					t.Errorf("%d requests met the fault", n)
				}
				if _, err := ofClientGo.Get(t.Context(), name, metav1.GetOptions{}); (err == nil) != test.done || err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("the widget is there: %v, want %t", err, test.done)
				}
				if err := by.create(t.Context(), name+"-next"); err != nil {
					t.Errorf("the next create: %v", err)
				}
			})
		}
	}
}

// widgetsClient returns controller-runtime's client, without a cache.
func widgetsClient(t *testing.T, s *apiserver) client.Client {
	t.Helper()
	c, err := client.New(s.config(), client.Options{Scheme: widgetScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFaultsOfRetries: what client-go has for conflicts gets through them.
func TestFaultsOfRetries(t *testing.T) {
	s := startFaulty(t)
	api := s.dynamic().Resource(widgets).Namespace("default")
	if _, err := api.Create(t.Context(), widget("a", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hits := s.fault(t, "conflict", `{"match": {"names": ["a"], "verbs": ["update"]}, "times": 3, "status": {"code": 409}}`)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		a, err := api.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = api.Update(t.Context(), setSize(t, a, 2), metav1.UpdateOptions{})
		return err
	})
	if err != nil || hits() != 3 {
		t.Errorf("after %d conflicts RetryOnConflict says %v", hits(), err)
	}
}

// TestFaultsOfInformer: an informer of client-go and a cache of controller-runtime come to hold what there is, whatever happens to their lists and watches.
func TestFaultsOfInformer(t *testing.T) {
	for _, mode := range informerModes {
		for _, test := range []struct {
			name, rule string
			listed     bool // it's about lists, which a streamed list doesn't need
		}{
			{"watches end", `"times": 3, "watch": {"end": "clean", "afterEvents": 2}`, false},
			{"watches are cut", `"times": 3, "watch": {"end": "cut", "afterEvents": 2}`, false},
			{"watches are cut by time", `"times": 2, "watch": {"end": "cut", "after": "50ms"}`, false},
			{"watches expire", `"times": 2, "watch": {"end": "expired", "afterEvents": 2}`, false},
			{"resuming is expired", `"times": 1, "watch": {"expired": true}`, false},
			{"no bookmarks", `"times": 1, "watch": {"noBookmarks": true}`, false},
			{"refusals of watches", `"times": 2, "status": {"code": 503, "retryAfterSeconds": 1}`, false},
			{"stale lists", `"times": 2, "stale": {"versions": 3}`, true},
			{"lists are cut", `"times": 1, "cut": "middle"`, true},
			{"refusals of lists", `"times": 2, "status": {"code": 500}`, true},
		} {
			if test.listed && mode.watchList {
				continue
			}
			t.Run(mode.name+" "+test.name, func(t *testing.T) {
				featurestesting.SetFeatureDuringTest(t, features.WatchListClient, mode.watchList)
				s := startFaulty(t)
				direct := s.dynamic().Resource(widgets).Namespace("default")
				createMany(t, direct, 0, 5)
				ofClientGo, hits := s.faultOfInformer(t, "client-go", mode.watchList, test.listed, test.rule)
				ofRuntime, hitsToo := s.faultOfInformer(t, "controller-runtime", mode.watchList, test.listed, test.rule)
				informer := runInformer(t, dynamicFor(t, ofClientGo), nil)
				cached := runCache(t, ofRuntime)
				createMany(t, direct, 5, 20)
				eventually(t, "requests of both meet the fault", func(context.Context) bool { return hits() > 0 && hitsToo() > 0 })
				eventuallyEqual(t, informer, direct, "")
				eventually(t, "controller-runtime's cache has what there is", func(ctx context.Context) bool {
					var has WidgetList
					if err := cached.List(ctx, &has); err != nil {
						t.Fatal(err)
					}
					found := map[string]string{}
					for _, w := range has.Items {
						found[w.Name] = w.ResourceVersion
					}
					list, err := direct.List(ctx, metav1.ListOptions{})
					if err != nil {
						t.Fatal(err)
					}
					same := len(found) == len(list.Items)
					for _, w := range list.Items {
						same = same && found[w.GetName()] == w.GetResourceVersion()
					}
					return same
				})
			})
		}
	}
}

// faultOfInformer arms a rule for the lists or watches of an informer, and returns the configuration that the informer must have.
func (s *apiserver) faultOfInformer(t *testing.T, name string, streamed, listed bool, rule string) (config *rest.Config, hits func() int) {
	t.Helper()
	verb := "watch"
	if listed {
		verb = "list"
	}
	if streamed { // whose first watch doesn't resume: a cut makes it do so
		s.fault(t, "first-"+name, `{"match": {"userAgents": ["`+name+`"], "cel": "'sendInitialEvents' in request.query"}, "times": 1, "watch": {"end": "cut", "after": "200ms"}}`)
	}
	config = s.config()
	config.UserAgent = name
	return config, s.fault(t, "rule-"+name, `{"match": {"userAgents": ["`+name+`"], "resources": ["widgets.example.com"], "verbs": ["`+verb+`"]}, `+rule+`}`)
}

// createMany creates widgets.
func createMany(t *testing.T, api dynamic.ResourceInterface, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := api.Create(t.Context(), widget(fmt.Sprint("w", i), int64(i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFaultsOfController: a controller of controller-runtime does its work with a server that fails in many ways, the same with each run.
func TestFaultsOfController(t *testing.T) {
	s := startFaulty(t)
	var rules []func() int
	for name, rule := range map[string]string{
		"a-conflict":    `"verbs": ["update", "patch"]}, "rate": 0.2, "status": {"code": 409}`,
		"b-unavailable": `"verbs": ["update", "patch"]}, "rate": 0.2, "status": {"code": 503, "after": true}`,
		"c-cut":         `"verbs": ["update", "patch"]}, "rate": 0.2, "cut": "before"`,
		"d-late":        `"verbs": ["update", "patch"]}, "rate": 0.3, "delay": {"distribution": "exponential", "mean": "10ms", "max": "50ms"}`,
		"e-ends":        `"verbs": ["watch"]}, "rate": 0.5, "times": 3, "watch": {"end": "cut", "afterEvents": 3}`,
	} {
		rules = append(rules, s.fault(t, name, `{"match": {"resources": ["widgets.example.com*"], "userAgents": ["conformance*"], `+rule+`, "seed": 29}`))
	}
	manager, _ := runController(t, s)
	api, ctx := manager.GetAPIReader(), t.Context()
	writer := s.dynamic().Resource(widgets).Namespace("default")
	const n = 10
	for i := range n {
		name := fmt.Sprint("w", i)
		eventually(t, "the widget is created", func(ctx context.Context) bool {
			_, err := writer.Create(ctx, widget(name, 1), metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err)
		})
	}
	for i := range n {
		var w Widget
		key := client.ObjectKey{Namespace: "default", Name: fmt.Sprint("w", i)}
		eventually(t, "the controller has set the status", func(ctx context.Context) bool {
			return api.Get(ctx, key, &w) == nil && w.Status == WidgetStatus{Phase: "Ready", ObservedGeneration: w.Generation}
		})
		if err := writer.Delete(ctx, key.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the widgets are gone", func(ctx context.Context) bool {
		list, err := writer.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	met := 0
	for _, hits := range rules {
		met += hits()
	}
	if met < 5 {
		t.Errorf("%d requests met a fault", met)
	}
}
