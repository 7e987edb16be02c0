package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/bulk"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// transact sends operations, and returns the code, the results and the whole answer.
func transact(s *servertest.Server, query string, operations ...string) (int, transacted, string) {
	res, body := s.Do("POST", bulk.TransactionsPath+query, `{"operations":[`+strings.Join(operations, ",")+`]}`)
	var got transacted
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		return res.StatusCode, got, err.Error() + " in " + body
	}
	return res.StatusCode, got, body
}

// transacted is an answer to a transaction: its results, or the Status of a refusal.
type transacted struct {
	metav1.Status
	ResourceVersion string
	Results         []bulkResult
}

func configMapNamed(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"k":%q}}`, name, value)
}

// inConfigMap returns the data of a ConfigMap; "" if there is none.
func inConfigMap(s *servertest.Server, name string) string {
	res, body := s.Do("GET", "/api/v1/namespaces/default/configmaps/"+name, "")
	var got struct{ Data map[string]string }
	if json.Unmarshal([]byte(body), &got) != nil || res.StatusCode != http.StatusOK {
		return ""
	}
	return got.Data["k"]
}

// TestTransaction: operations of several kinds and namespaces are written at one revision, and each is answered.
func TestTransaction(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.Do("POST", "/api/v1/namespaces/default/configmaps", configMapNamed("old", "1"))
	s.Do("POST", "/api/v1/namespaces/default/configmaps", configMapNamed("gone", "1"))
	code, got, body := transact(s, "?fieldManager=me",
		`{"check":{"resource":"configmaps","name":"old","cel":"object.data.k == '1'"}}`,
		`{"check":{"resource":"configmaps","name":"none","absent":true}}`,
		`{"create":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"new"}}}`,
		`{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"new"},"data":{"k":"1"}}}`,
		`{"create":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}}`,
		`{"patch":{"resource":"configmaps","name":"old","type":"merge","body":{"data":{"k":"2"}}}}`,
		`{"patch":{"resource":"configmaps","name":"old","type":"json","body":[{"op":"add","path":"/data/l","value":"3"}]}}`,
		`{"apply":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"data":{"k":"4"}}}`,
		`{"delete":{"resource":"configmaps","name":"gone"}}`,
		`{"patch":{"resource":"widgets.example.com","name":"w","type":"merge","body":{"spec":{"size":2}}}}`,
	)
	if code != http.StatusOK || len(got.Results) != 10 || got.ResourceVersion == "" {
		t.Fatalf("%d: %s", code, body)
	}
	for i, want := range []int{200, 200, 201, 201, 201, 200, 200, 201, 200, 200} {
		r := got.Results[i]
		if r.Code != want {
			t.Errorf("operation %d: %d, want %d: %s", i, r.Code, want, r.Status.Message)
		}
		if i != 4 && i != 5 && i >= 2 && r.Object.Kind != "Status" && r.Object.Metadata.ResourceVersion != got.ResourceVersion {
			t.Errorf("operation %d has the version %s, and the transaction %s", i, r.Object.Metadata.ResourceVersion, got.ResourceVersion)
		}
	}
	if got.Results[4].Object.Kind != "" || got.Results[5].Object.Kind != "" {
		t.Errorf("an object that a later operation has written is in more than one result: %s", body)
	}
	if inConfigMap(s, "old") != "2" || inConfigMap(s, "applied") != "4" || inConfigMap(s, "gone") != "" {
		t.Errorf("old %q, applied %q, gone %q", inConfigMap(s, "old"), inConfigMap(s, "applied"), inConfigMap(s, "gone"))
	}
	if _, body := s.Do("GET", "/apis/example.com/v1/namespaces/default/widgets/w", ""); !strings.Contains(body, `"size":2`) {
		t.Errorf("what was created and patched: %s", body)
	}
	_, last := s.Do("GET", "/api/v1/namespaces/default/configmaps/old", "")
	if !strings.Contains(last, `"l":"3"`) || !strings.Contains(last, `"resourceVersion":"`+got.ResourceVersion+`"`) {
		t.Errorf("what was patched twice: %s", last)
	}
}

// TestTransactionRefused: one operation that fails leaves nothing, and the answer names it.
func TestTransactionRefused(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.Do("POST", "/api/v1/namespaces/default/configmaps", configMapNamed("there", "1"))
	create := `{"create":` + configMapNamed("new", "1") + `}`
	change := `{"patch":{"resource":"configmaps","name":"there","type":"merge","body":{"data":{"k":"2"}}}}`
	for name, tc := range map[string]struct {
		code       int
		want       string
		operations []string
	}{
		"taken name":                      {409, `operation 1 (create): configmaps "there" already exists; nothing of the transaction was written`, []string{create, `{"create":` + configMapNamed("there", "1") + `}`}},
		"missing object":                  {404, `operation 2 (patch of configmaps /none)`, []string{create, change, `{"patch":{"resource":"configmaps","name":"none","type":"merge","body":{}}}`}},
		"invalid object":                  {422, `operation 1 (create)`, []string{create, `{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w"},"data":{"no key":"x"}}}`}},
		"missing kind":                    {404, `operation 1 (create)`, []string{create, `{"create":{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"w"}}}`}},
		"missing resource":                {404, `operation 1 (delete of gadgets.example.com /x)`, []string{create, `{"delete":{"resource":"gadgets.example.com","name":"x"}}`}},
		"namespace":                       {404, `namespaces "nowhere" not found`, []string{create, `{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"nowhere"}}}`}},
		"version":                         {409, `operation 1`, []string{create, `{"update":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"there","resourceVersion":"1"}}}`}},
		"check of version":                {409, `the check failed: its resourceVersion is`, []string{create, `{"check":{"resource":"configmaps","name":"there","resourceVersion":"1"}}`}},
		"check of absence":                {409, `the check failed: it exists`, []string{create, `{"check":{"resource":"configmaps","name":"there","absent":true}}`}},
		"check by CEL":                    {409, `the check failed: "object.data.k == '7'" isn't true`, []string{create, `{"check":{"resource":"configmaps","name":"there","cel":"object.data.k == '7'"}}`}},
		"check of nothing":                {409, `the check failed: it doesn't exist`, []string{create, `{"check":{"resource":"configmaps","name":"none","cel":"true"}}`}},
		"created twice":                   {409, `operation 1 (create)`, []string{create, create}},
		"contradiction":                   {422, `the object is deleted by operation 0 of the same transaction`, []string{`{"delete":{"resource":"configmaps","name":"there"}}`, change}},
		"deleted, created":                {422, `operation 1 (create): the object is deleted by operation 0 of the same transaction`, []string{`{"delete":{"resource":"configmaps","name":"there"}}`, `{"create":` + configMapNamed("there", "1") + `}`}},
		"other way round":                 {422, `the object is created by operation 0 of the same transaction`, []string{create, `{"delete":{"resource":"configmaps","name":"new"}}`}},
		"last one":                        {404, `operation 3`, []string{create, change, `{"delete":{"resource":"configmaps","name":"there"}}`, `{"delete":{"resource":"configmaps","name":"none"}}`}},
		"dry run of one":                  {422, "dryRun is a parameter of the transaction", []string{change, `{"delete":{"resource":"configmaps","name":"there","options":{"dryRun":["All"]}}}`}},
		"version twice":                   {409, `operation 2 (update)`, []string{create, `{"update":` + configMapNamed("there", "2") + `}`, `{"update":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"there","resourceVersion":"2"}}}`}},
		"version that nothing has":        {409, `operation 1 (update)`, []string{change, `{"update":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"there","resourceVersion":"1"}}}`}},
		"precondition that nothing meets": {409, `operation 1 (delete`, []string{change, `{"delete":{"resource":"configmaps","name":"there","options":{"preconditions":{"resourceVersion":"1"}}}}`}},
		"objects of a definition that goes": {422, "what an object depends on is written", []string{
			`{"create":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}}`,
			`{"delete":{"resource":"customresourcedefinitions.apiextensions.k8s.io","name":"widgets.example.com"}}`}},
		"objects of a definition that is written": {422, "what the object depends on is written by operation 0", []string{
			`{"patch":{"resource":"customresourcedefinitions.apiextensions.k8s.io","name":"widgets.example.com","type":"merge","body":{"metadata":{"labels":{"a":"b"}}}}}`,
			`{"create":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}}`}},
		"two definitions": {422, "a transaction can write one object of customresourcedefinitions", []string{
			`{"patch":{"resource":"customresourcedefinitions.apiextensions.k8s.io","name":"widgets.example.com","type":"merge","body":{"metadata":{"labels":{"a":"b"}}}}}`,
			`{"delete":{"resource":"customresourcedefinitions.apiextensions.k8s.io","name":"widgets.example.com"}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			code, got, body := transact(s, "?fieldManager=me", tc.operations...)
			if code != tc.code || !strings.Contains(got.Message, tc.want) {
				t.Errorf("%d: %s", code, body)
			}
			if inConfigMap(s, "new") != "" || inConfigMap(s, "there") != "1" {
				t.Error("something was written")
			}
		})
	}
	many := make([]string, bulk.MaxOperations+1)
	for i := range many {
		many[i] = create
	}
	for name, tc := range map[string]struct {
		code int
		want string
		body string
	}{
		"nothing":         {400, "no operations", `{"operations":[]}`},
		"no JSON":         {400, "isn't a transaction", `nonsense`},
		"unknown member":  {400, `unknown field "frob"`, `{"frob":1}`},
		"unknown kind":    {400, `operation 0: `, `{"operations":[{"frob":{}}]}`},
		"two in one":      {400, `operation 0: it has 2 of create`, `{"operations":[{"create":{},"update":{}}]}`},
		"patch type":      {400, `operation 0: its type is "x"`, `{"operations":[{"patch":{"resource":"configmaps","name":"a","type":"x","body":{}}}]}`},
		"two checks":      {400, `operation 0: the check has 2`, `{"operations":[{"check":{"resource":"configmaps","name":"a","absent":true,"cel":"true"}}]}`},
		"bad CEL":         {400, `can't be compiled`, `{"operations":[{"check":{"resource":"configmaps","name":"a","cel":"object."}}]}`},
		"no boolean":      {400, `must be true or false`, `{"operations":[{"check":{"resource":"configmaps","name":"a","cel":"7"}}]}`},
		"too many":        {413, `operation 128 is one too many`, `{"operations":[` + strings.Join(many, ",") + `]}`},
		"too large":       {413, `make several of it`, `{"operations":[{"create":` + configMapNamed("new", strings.Repeat("x", bulk.MaxTransactionBytes)) + `}]}`},
		"name in a path":  {400, "can't be a name", `{"operations":[{"delete":{"resource":"configmaps","name":"a/b"}}]}`},
		"something after": {400, "isn't a transaction", `{"operations":[]}{}`},
	} {
		t.Run(name, func(t *testing.T) {
			if res, body := s.Do("POST", bulk.TransactionsPath, tc.body); res.StatusCode != tc.code || !strings.Contains(body, strings.ReplaceAll(tc.want, `"`, `\"`)) {
				t.Errorf("%s: %.300s", res.Status, body)
			}
		})
	}
	if res, _ := s.Do("GET", bulk.TransactionsPath, ""); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %s", res.Status)
	}
}

// TestTransactionAsksInTurn: an admission hook is asked about an operation when those before it have decided, also about what is posted to a
// subresource; and not at all when one of them has failed.
func TestTransactionAsksInTurn(t *testing.T) {
	t.Parallel()
	var asked atomic.Pointer[[]string]
	hook := func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
		if r.Resource.Resource == "pods" || r.Resource.Resource == "configmaps" {
			names := append(slices.Clone(*asked.Load()), r.Name+" "+r.Subresource)
			asked.Store(&names)
		}
		return pass, nil
	}
	asked.Store(&[]string{})
	s := servertest.New(t, func(s *server.Server) {
		s.API.Builtin = builtin.All
		s.API.Admission = []registry.Admission[unstructured.Unstructured]{registry.AdmissionFunc[unstructured.Unstructured](hook)}
	})
	const pods = "/api/v1/namespaces/default/pods"
	s.Do("POST", pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	const binding = `{"create":{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}}`
	const none = `{"check":{"resource":"pods","name":"p","absent":true}}`
	created := `{"create":` + configMapNamed("a", "1") + `}`
	for _, tc := range []struct {
		name       string
		operations []string
		code       int
		asked      []string
	}{
		{"one fails before them", []string{none, created, binding}, http.StatusConflict, nil},
		{"one fails between them", []string{created, none, binding}, http.StatusConflict, []string{"a "}},
		{"none fails", []string{created, binding}, http.StatusOK, []string{"a ", "p binding"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked.Store(&[]string{})
			code, _, body := transact(s, "", tc.operations...)
			if got := *asked.Load(); code != tc.code || !slices.Equal(got, tc.asked) {
				t.Errorf("%d, asked about %q, want %d and %q: %s", code, got, tc.code, tc.asked, body)
			}
		})
	}
}

// TestTransactionByNewDefinition: a definition that is written while a transaction is decided holds nobody up, also where two operations are about
// one of its objects.
func TestTransactionByNewDefinition(t *testing.T) {
	t.Parallel()
	var s *servertest.Server
	var asked atomic.Int32
	hook := func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
		if r.Resource.Resource == "widgets" && r.Operation == registry.Update && asked.Add(1) == 3 { // by then the first object is decided
			send(t, s, 200, "PATCH", definitionsPath+"/widgets.example.com", mergePatch, `{"metadata":{"labels":{"x":"y"}}}`)
		}
		return pass, nil
	}
	s = newWidgets(t, func(s *server.Server) {
		s.API.Admission = []registry.Admission[unstructured.Unstructured]{registry.AdmissionFunc[unstructured.Unstructured](hook)}
	})
	for _, name := range []string{"p", "q"} {
		s.PostYAML(widgetsPath, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"size":1}}`, name))
	}
	label := func(name, label string) string {
		return fmt.Sprintf(`{"patch":{"resource":"widgets.example.com","name":%q,"type":"merge","body":{"metadata":{"labels":{%q:"1"}}}}}`, name, label)
	}
	code, _, body := transact(s, "", label("p", "l1"), label("p", "l2"), label("q", "l3"))
	if n := asked.Load(); code != http.StatusOK || n > 6 {
		t.Errorf("%d, hooks were asked %d times: %s", code, n, body)
	}
	check(t, s.Get(widgetsPath+"/p"), "metadata.labels.l1=1 metadata.labels.l2=1")
	check(t, s.Get(widgetsPath+"/q"), "metadata.labels.l3=1")
}

// TestTransactionVersions: an object that an operation leaves as an earlier one has made it, or that goes with its last finalizer, has the
// transaction's version.
func TestTransactionVersions(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.PostYAML(configMapsPath, `{"metadata":{"name":"goes","finalizers":["example.com/f"]}}`)
	s.Do("DELETE", configMapsPath+"/goes", "")
	patch := func(name, body string) string {
		return fmt.Sprintf(`{"patch":{"resource":"configmaps","name":%q,"type":"merge","body":%s}}`, name, body)
	}
	for name, operations := range map[string][]string{
		"as it is": {`{"create":` + configMapNamed("new", "1") + `}`, patch("new", `{"data":{"k":"1"}}`)},
		"removed":  {patch("goes", `{"metadata":{"labels":{"a":"b"}}}`), patch("goes", `{"metadata":{"finalizers":null}}`)},
	} {
		code, got, body := transact(s, "", operations...)
		if code != http.StatusOK || len(got.Results) != 2 || got.Results[1].Object.Metadata.ResourceVersion != got.ResourceVersion {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if res, body := s.Do("GET", configMapsPath+"/goes", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("what had a finalizer is there: %s", body)
	}
}

// TestTransactionDryRunDepends: a dry run refuses the deletion of what an earlier operation's object depends on, as a transaction does, and its objects
// have no version that nothing has.
func TestTransactionDryRunDepends(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.PostYAML("/api/v1/namespaces", `{"metadata":{"name":"goes"}}`)
	into := `{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"goes"}}}`
	for _, query := range []string{"?dryRun=All", ""} {
		if code, _, body := transact(s, query, into, `{"delete":{"resource":"namespaces","name":"goes"}}`); code != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d %s", query, code, body)
		}
	}
	code, got, body := transact(s, "?dryRun=All", into, `{"patch":{"resource":"configmaps","namespace":"goes","name":"x","type":"merge","body":{"data":{"k":"1"}}}}`)
	if code != http.StatusOK || len(got.Results) != 2 || got.Results[1].Object.Metadata.ResourceVersion != "" {
		t.Errorf("%d %s", code, body)
	}
}

// TestTransactionAnswers: what deletions are answered with counts as what a transaction writes does.
func TestTransactionAnswers(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.All })
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	var operations []string
	for i := range 3 {
		s.PostYAML(accounts, fmt.Sprintf(`{"metadata":{"name":"s%d"},"imagePullSecrets":[{"name":%q}]}`, i, strings.Repeat("x", bulk.MaxTransactionBytes/2)))
		operations = append(operations, fmt.Sprintf(`{"delete":{"resource":"serviceaccounts","name":"s%d"}}`, i))
	}
	if code, _, body := transact(s, "", operations...); code != http.StatusRequestEntityTooLarge {
		t.Errorf("three of half of it are deleted: %d %.300s", code, body)
	}
	if code, _, body := transact(s, "", operations[0]); code != http.StatusOK {
		t.Errorf("one: %d %.300s", code, body)
	}
	if code, _, body := transact(s, "", `{"check":{"resource":"componentstatuses","name":"etcd-0","cel":"true"}}`); code != http.StatusUnprocessableEntity || !strings.Contains(body, "aren't stored") {
		t.Errorf("a check of what isn't stored: %d %s", code, body)
	}
}

// TestTransactionMeetsFaults: its operations meet faults in their order.
func TestTransactionMeetsFaults(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	for i := range 10 {
		s.Fault("once", faults.Rule{Match: faults.Match{Verbs: []string{"create"}, Resources: []string{"configmaps"}}, Every: 2, Times: 1, Status: &faults.Status{Code: 503}})
		var operations []string
		for j := range 6 {
			operations = append(operations, `{"create":`+configMapNamed(fmt.Sprintf("c%d-%d", i, j), "1")+`}`)
		}
		if code, got, body := transact(s, "", operations...); code != http.StatusServiceUnavailable || !strings.Contains(got.Message, "operation 1 (create)") {
			t.Fatalf("%d %s", code, body)
		}
	}
}

// TestTransactionDryRun: all is judged, also what an operation does to the object of another one, and nothing is written.
func TestTransactionDryRun(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.Do("POST", "/api/v1/namespaces/default/configmaps", configMapNamed("there", "1"))
	code, got, body := transact(s, "?dryRun=All",
		`{"check":{"resource":"configmaps","name":"there","cel":"object.data.k == '1'"}}`,
		`{"create":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"new"}}}`,
		`{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"new"},"data":{"k":"1"}}}`,
		`{"patch":{"resource":"configmaps","namespace":"new","name":"a","type":"merge","body":{"data":{"k":"2"}}}}`,
		`{"delete":{"resource":"configmaps","name":"there"}}`)
	if code != http.StatusOK || len(got.Results) != 5 || got.ResourceVersion != "" {
		t.Errorf("%d: %s", code, body)
	}
	if code, _, body := transact(s, "?dryRun=All", `{"delete":{"resource":"configmaps","name":"there"}}`, `{"patch":{"resource":"configmaps","name":"there","type":"merge","body":{}}}`); code != 422 {
		t.Errorf("%d: %s", code, body)
	}
	if res, _ := s.Do("GET", "/api/v1/namespaces/new", ""); res.StatusCode != http.StatusNotFound || inConfigMap(s, "there") != "1" {
		t.Error("something was written")
	}
}

// TestTransactionsMeet: transactions that write the same objects, in different orders, with what others write besides, all succeed, and
// each adds to all of its objects.
func TestTransactionsMeet(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	const clients, each, objects = 8, 15, 4
	for i := range objects {
		s.Do("POST", "/api/v1/namespaces/default/configmaps", configMapNamed(fmt.Sprint("c", i), "1"))
	}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for n := range each {
				var operations []string
				for i := range objects {
					at := (i + c) % objects
					operations = append(operations, fmt.Sprintf(`{"patch":{"resource":"configmaps","name":"c%d","type":"merge","body":{"data":{"c%d-%d":"x"}}}}`, at, c, n))
				}
				if code, _, body := transact(s, "", operations...); code != http.StatusOK {
					t.Errorf("%d: %s", code, body)
				}
				s.Do("PATCH", "/api/v1/namespaces/default/configmaps/c0", fmt.Sprintf(`{"data":{"single%d-%d":"x"}}`, c, n), "Content-Type", "application/merge-patch+json")
			}
		})
	}
	wg.Wait()
	for i := range objects {
		_, body := s.Do("GET", fmt.Sprint("/api/v1/namespaces/default/configmaps/c", i), "")
		var got struct{ Data map[string]string }
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		want := 1 + clients*each
		if i == 0 {
			want += clients * each
		}
		if len(got.Data) != want {
			t.Errorf("c%d has %d values, want %d", i, len(got.Data), want)
		}
	}
}

// TestTransactionWatched: a watch that is cut between two events of a transaction gets both when it resumes, from what is in memory.
func TestTransactionWatched(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	_, got, _ := transact(s, "", `{"create":`+configMapNamed("a", "1")+`}`, `{"create":`+configMapNamed("b", "1")+`}`)
	events := s.Watch("/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=" + got.ResourceVersion)
	for _, want := range []string{"a", "b"} {
		if line, err := events.Next(); err != nil || !strings.Contains(line, `"ADDED"`) || !strings.Contains(line, `"name":"`+want+`"`) {
			t.Errorf("%v: %s, want %s", err, line, want)
		}
	}
}

// account is an object that holds an amount, of one of two kinds.
type account struct{ path, body, member string }

func (a account) sent(amount int, version string) string {
	return fmt.Sprintf(a.body, version, amount)
}

// amount is what an object holds, and its version.
func (a account) amount(t *testing.T, document string) (amount int, version string) {
	t.Helper()
	var o struct {
		Metadata struct{ ResourceVersion string }
		Data     struct{ Amount string }
		Spec     struct{ Size int }
	}
	if err := json.Unmarshal([]byte(document), &o); err != nil {
		t.Fatal(err)
	}
	if a.member == "spec" {
		return o.Spec.Size, o.Metadata.ResourceVersion
	}
	amount, err := strconv.Atoi(o.Data.Amount)
	if err != nil {
		t.Fatal(err)
	}
	return amount, o.Metadata.ResourceVersion
}

// TestTransfers: money is moved between objects of two kinds by transactions. Whoever follows both kinds on one stream sees all of a
// transfer or none. Nothing is lost or made, also where a watch is cut and
// goes on all the time.
func TestTransfers(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		testTransfers(t, []*servertest.Server{newWidgets(t)})
	})
	t.Run("replicas", func(t *testing.T) {
		t.Parallel()
		all := newReplicas(t, 3)
		all[0].PostYAML(definitionsPath, widgets)
		testTransfers(t, all)
	})
}

// testTransfers moves and follows at several servers of one store.
func testTransfers(t *testing.T, all []*servertest.Server) {
	s := all[0]
	const each, begin, clients, transfers = 3, 100, 4, 40
	var accounts []account
	for i := range each {
		accounts = append(accounts, account{
			path:   fmt.Sprint("/api/v1/namespaces/default/configmaps/m", i),
			body:   fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m%d","labels":{"account":"yes"},"resourceVersion":%%q},"data":{"amount":"%%d"}}`, i),
			member: "data",
		}, account{
			path:   fmt.Sprint("/apis/example.com/v1/namespaces/default/widgets/m", i),
			body:   fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"m%d","labels":{"account":"yes"},"resourceVersion":%%q},"spec":{"size":%%d}}`, i),
			member: "spec",
		})
	}
	for _, a := range accounts {
		if code, _, body := transact(s, "", `{"create":`+a.sent(begin, "")+`}`); code != http.StatusOK {
			t.Fatal(body)
		}
	}
	var followers, movers sync.WaitGroup
	for i, cut := range []int{0, 3} { // events after which the stream is cut; 0: never
		followers.Go(func() { followTransfers(t, all[i%len(all)], cut, 2*each*begin) })
	}
	for c := range clients {
		movers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 7))
			for range transfers {
				for !transfer(t, all[rng.IntN(len(all))], accounts[rng.IntN(len(accounts))], accounts[rng.IntN(len(accounts))]) {
				}
			}
		})
	}
	movers.Wait()
	s.Do("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"end","labels":{"account":"yes"}},"data":{"amount":"0"}}`)
	followers.Wait()
	sum := 0
	for _, a := range accounts {
		_, document := s.Do("GET", a.path, "")
		amount, _ := a.amount(t, document)
		sum += amount
	}
	if sum != 2*each*begin {
		t.Errorf("there are %d at the end, of %d", sum, 2*each*begin)
	}
}

// transfer moves one, and reports whether nobody else was faster.
func transfer(t *testing.T, s *servertest.Server, from, to account) bool {
	if from == to {
		return true
	}
	_, one := s.Do("GET", from.path, "")
	_, other := s.Do("GET", to.path, "")
	less, fromVersion := from.amount(t, one)
	more, toVersion := to.amount(t, other)
	code, _, body := transact(s, "", `{"update":`+from.sent(less-1, fromVersion)+`}`, `{"update":`+to.sent(more+1, toVersion)+`}`)
	if code != http.StatusOK && code != http.StatusConflict {
		t.Errorf("%d: %s", code, body)
		return true
	}
	return code == http.StatusOK
}

// followTransfers follows both kinds until the object "end" comes. After each revision the sum is what it was at the beginning.
func followTransfers(t *testing.T, s *servertest.Server, cut, sum int) {
	const path = "/apiserver-lite/v1/watch?resource=configmaps&resource=widgets.example.com&namespace=default&labelSelector=account"
	amounts, at := map[string]int{}, ""
	check := func() {
		total := 0
		for _, amount := range amounts {
			total += amount
		}
		if total != sum {
			t.Errorf("at %s there are %d, of %d: %v", at, total, sum, amounts)
		}
	}
	query := "&initialEvents=true"
	for {
		stream := s.Watch(path + query)
		for n := 0; cut == 0 || n < cut || strings.Contains(query, "initial"); n++ {
			line, err := stream.Next()
			if err != nil {
				t.Error(err)
				return
			}
			var e struct {
				Type   string
				Object struct {
					Kind     string
					Metadata metav1.ObjectMeta
					Data     struct{ Amount string }
					Spec     struct{ Size int }
				}
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Error(err)
				return
			}
			version := e.Object.Metadata.ResourceVersion
			if e.Type == "BOOKMARK" {
				check()
				query, at = "&resourceVersion="+version, version
				continue
			}
			if !strings.Contains(query, "initial") && at != version {
				check()
			}
			amount := e.Object.Spec.Size
			if e.Object.Kind == "ConfigMap" {
				amount, _ = strconv.Atoi(e.Object.Data.Amount)
			}
			amounts[e.Object.Kind+e.Object.Metadata.Name] = amount
			if !strings.Contains(query, "initial") {
				query, at = "&resourceVersion="+version, version
			}
			if e.Object.Metadata.Name == "end" {
				stream.Close()
				return
			}
		}
		stream.Close() // perhaps between two events of one revision: they come again
	}
}

// TestTransactionSeats: operations that are read ahead take no seat, so a level that has one is enough for a transaction.
func TestTransactionSeats(t *testing.T) {
	d := newDoors(t)
	post := func(user, path, body string) (int, string) {
		t.Helper()
		res, text := d.Do(http.MethodPost, path, body, "Authorization", "Bearer "+user+"-token", "Content-Type", "application/json")
		return res.StatusCode, text
	}
	const group = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	for kind, body := range map[string]string{
		"prioritylevelconfigurations": `{"metadata":{"name":"one"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`,
		"flowschemas": `{"metadata":{"name":"bob"},"spec":{"priorityLevelConfiguration":{"name":"one"},"matchingPrecedence":50,"rules":[{"subjects":[{"kind":"User","user":{"name":"bob"}}],
			"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`,
	} {
		if code, text := post("root", group+kind, body); code != http.StatusCreated {
			t.Fatal(code, text)
		}
	}
	post("root", configMapsPath, configMapNamed("there", "1"))
	for i := range 50 {
		operations := make([]string, 8)
		for j := range operations {
			operations[j] = `{"create":` + configMapNamed(fmt.Sprintf("x%d-%d", i, j), "1") + `}`
		}
		if i%2 == 1 { // a check is a read, which takes its seat in its turn
			operations[5] = `{"check":{"resource":"configmaps","name":"there","cel":"true"}}`
		}
		if code, text := post("bob", bulk.TransactionsPath, `{"operations":[`+strings.Join(operations, ",")+`]}`); code != http.StatusOK {
			t.Fatalf("transaction %d: %d %s", i, code, text)
		}
	}
}
