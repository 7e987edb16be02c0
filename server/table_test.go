package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const (
	tableV1      = "application/json;as=Table;v=v1;g=meta.k8s.io"
	tableV1beta1 = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
	partialV1    = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	partialsV1   = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	kubectlGet   = tableV1 + "," + tableV1beta1 + ",application/json"
	gadgetsPath  = "/apis/example.com/v1/namespaces/default/gadgets"
)

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Tags, type: string, jsonPath: .spec.tags, priority: 1, description: What it's about}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func aGadget(name string, size int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":%q,"labels":{"a":"b"}},"spec":{"size":%d,"tags":["x"]}}`, name, size)
}

// newGadgets starts a server with gadgets a (of size 1), b (2) and c (3).
func newGadgets(t *testing.T) *servertest.Server {
	t.Helper()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, gadgets)
	for i, name := range []string{"a", "b", "c"} {
		s.PostYAML(gadgetsPath, aGadget(name, i+1))
	}
	return s
}

// decode reads JSON that a test can't go on without.
func decode[T any](t *testing.T, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// brief is a table as far as most tests look: kind, version, names of columns, rows with the kind of object.
func brief(t *testing.T, text string) string {
	t.Helper()
	table := decode[metav1.Table](t, text)
	out := []string{table.Kind, table.APIVersion}
	for _, c := range table.ColumnDefinitions {
		out = append(out, c.Name)
	}
	for _, row := range table.Rows {
		object := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "none"}}
		if row.Object.Raw != nil {
			object = decode[metav1.PartialObjectMetadata](t, string(row.Object.Raw))
		}
		out = append(out, fmt.Sprint(row.Cells, object.Kind, object.APIVersion, object.Name))
	}
	return strings.Join(out, " ")
}

func TestTables(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	const (
		header = "Table meta.k8s.io/v1 Name Size Tags"
		rowA   = ` [a 1 ["x"]]PartialObjectMetadatameta.k8s.io/v1a`
		rowB   = ` [b 2 ["x"]]PartialObjectMetadatameta.k8s.io/v1b`
		rowC   = ` [c 3 ["x"]]PartialObjectMetadatameta.k8s.io/v1c`
	)
	for _, tc := range []struct{ name, path, accept, want string }{
		{"list", gadgetsPath, tableV1, header + rowA + rowB + rowC},
		{"list as kubectl asks for it", gadgetsPath, kubectlGet, header + rowA + rowB + rowC},
		{"get", gadgetsPath + "/b", kubectlGet, header + rowB},
		{"list of one name", gadgetsPath + "?fieldSelector=metadata.name%3Db", tableV1, header + rowB},
		{"page", gadgetsPath + "?limit=2", tableV1, header + rowA + rowB},
		{"all namespaces", "/apis/example.com/v1/gadgets", tableV1, header + rowA + rowB + rowC},
		{"empty list", "/apis/example.com/v1/namespaces/kube-system/gadgets", tableV1, header},
		{"any type", gadgetsPath + "/a", "*/*;as=Table;v=v1;g=meta.k8s.io", header + rowA},
		{"first that there is", gadgetsPath + "/a", "application/json;as=Table;v=v2;g=meta.k8s.io,application/json;as=Chart;v=v1;g=meta.k8s.io,application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io," + tableV1, header + rowA},
		{"in the older version", gadgetsPath + "/a", tableV1beta1, "Table meta.k8s.io/v1beta1 Name Size Tags" + strings.Replace(rowA, "/v1", "/v1beta1", 1)},
		{"with metadata", gadgetsPath + "/a?includeObject=Metadata", tableV1, header + rowA},
		{"with objects", gadgetsPath + "/a?includeObject=Object", tableV1, header + ` [a 1 ["x"]]Gadgetexample.com/v1a`},
		{"without objects", gadgetsPath + "/a?includeObject=None", tableV1, header + ` [a 1 ["x"]]none`},
		{"namespaces", "/api/v1/namespaces/default", kubectlGet, "Table meta.k8s.io/v1 Name Status Age [default Active AGE]PartialObjectMetadatameta.k8s.io/v1default"},
		{"built-in with objects", "/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault&includeObject=Object", kubectlGet, "Table meta.k8s.io/v1 Name Status Age [default Active AGE]Namespacev1default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do("GET", tc.path, "", "Accept", tc.accept)
			if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("%s, %s: %s", res.Status, res.Header.Get("Content-Type"), body)
			}
			if got := brief(t, body); !sameButAge(got, tc.want) {
				t.Errorf("the table is\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// sameButAge compares texts, of which the wanted one may have AGE where the other has some seconds or minutes.
func sameButAge(got, want string) bool {
	before, after, aged := strings.Cut(want, "AGE")
	if !aged {
		return got == want
	}
	rest, begins := strings.CutPrefix(got, before)
	age, ends := strings.CutSuffix(rest, after)
	return begins && ends && strings.Trim(age, "0123456789ms") == "" && age != ""
}

func TestTableColumns(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	s.PostYAML(definitionsPath, widgets) // declares none
	column := func(path string, i int) metav1.TableColumnDefinition {
		t.Helper()
		_, body := s.Do("GET", path, "", "Accept", tableV1)
		table := decode[metav1.Table](t, body)
		if len(table.ColumnDefinitions) <= i {
			t.Fatalf("%s has no column %d", body, i)
		}
		return table.ColumnDefinitions[i]
	}
	describe := metav1.ObjectMeta{}.SwaggerDoc()
	for _, tc := range []struct {
		path string
		i    int
		want metav1.TableColumnDefinition
	}{
		{gadgetsPath, 0, metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: describe["name"]}},
		{gadgetsPath, 1, metav1.TableColumnDefinition{Name: "Size", Type: "integer", Description: "Custom resource definition column (in JSONPath format): .spec.size"}},
		{gadgetsPath, 2, metav1.TableColumnDefinition{Name: "Tags", Type: "string", Priority: 1, Description: "What it's about"}},
		{widgetsPath, 1, metav1.TableColumnDefinition{Name: "Age", Type: "date", Description: describe["creationTimestamp"]}},
		{definitionsPath, 1, metav1.TableColumnDefinition{Name: "Scope", Type: "string", Description: "Cluster/Namespaced"}},
		{definitionsPath, 3, metav1.TableColumnDefinition{Name: "Created At", Type: "date", Description: describe["creationTimestamp"]}},
		{definitionsPath, 7, metav1.TableColumnDefinition{Name: "Established", Type: "boolean", Priority: 1, Description: "Established status"}},
		{"/api/v1/namespaces", 1, metav1.TableColumnDefinition{Name: "Status", Type: "string", Description: "The status of the namespace"}},
		{"/api/v1/namespaces", 2, metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: describe["creationTimestamp"]}},
	} {
		if got := column(tc.path, tc.i); got != tc.want {
			t.Errorf("column %d of %s is %+v, want %+v", tc.i, tc.path, got, tc.want)
		}
	}
	// kube-apiserver shows when a definition was created as a time, where other kinds have an age.
	_, body := s.Do("GET", definitionsPath+"/gadgets.example.com?includeObject=Metadata", "", "Accept", tableV1)
	row := decode[metav1.Table](t, body).Rows[0]
	object := decode[metav1.PartialObjectMetadata](t, string(row.Object.Raw))
	created := object.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z")
	if want := fmt.Sprint([]any{"gadgets.example.com", "Namespaced", "v1(storage)", created, "example.com", "Gadget", "", true}); fmt.Sprint(row.Cells) != want {
		t.Errorf("a definition's row is %v, want %s", row.Cells, want)
	}

	res, body := s.Do("PATCH", definitionsPath+"/gadgets.example.com", `[{"op":"replace","path":"/spec/versions/0/additionalPrinterColumns/0/name","value":"Width"}]`, "Content-Type", "application/json-patch+json")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, body)
	}
	if got := column(gadgetsPath, 1).Name; got != "Width" {
		t.Errorf("after a change of the definition the column is %s", got)
	}
}

// TestListMetaInForms: pages in other forms say what plain ones do.
func TestListMetaInForms(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	page := func(accept, more string) metav1.ListMeta {
		t.Helper()
		_, body := s.Do("GET", gadgetsPath+"?limit=1"+more, "", "Accept", accept)
		return decode[metav1.PartialObjectMetadataList](t, body).ListMeta
	}
	for _, accept := range []string{tableV1, partialsV1} {
		first, plain := page(accept, ""), page("application/json", "")
		if first.Continue == "" || first.RemainingItemCount == nil || *first.RemainingItemCount != 2 || first.ResourceVersion != plain.ResourceVersion {
			t.Errorf("the first page has %+v", first)
		}
		next := page(accept, "&continue="+first.Continue)
		if next.Continue == "" || next.RemainingItemCount == nil || *next.RemainingItemCount != 1 {
			t.Errorf("the second page has %+v", next)
		}
		if last := page(accept, "&continue="+next.Continue); last.Continue != "" || last.RemainingItemCount != nil {
			t.Errorf("the last page has %+v", last)
		}
	}
}

func TestPartialObjectMetadata(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	whole := decode[metav1.PartialObjectMetadata](t, s.Get(gadgetsPath+"/a"))
	for _, version := range []string{"v1", "v1beta1"} {
		want := whole
		want.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/" + version}
		wantJSON, _ := json.Marshal(want)

		_, body := s.Do("GET", gadgetsPath+"/a", "", "Accept", strings.Replace(partialV1, "v1", version, 1))
		if strings.Contains(body, "spec") {
			t.Errorf("there's more than metadata in %s", body)
		}
		if got, _ := json.Marshal(decode[metav1.PartialObjectMetadata](t, body)); string(got) != string(wantJSON) {
			t.Errorf("get answers\n%s\nwant\n%s", got, wantJSON)
		}
		_, body = s.Do("GET", gadgetsPath, "", "Accept", strings.Replace(partialsV1, "v1", version, 1))
		list := decode[metav1.PartialObjectMetadataList](t, body)
		if list.Kind != "PartialObjectMetadataList" || list.APIVersion != want.APIVersion || list.ResourceVersion == "" || len(list.Items) != 3 {
			t.Fatalf("the list is %s", body)
		}
		if got, _ := json.Marshal(list.Items[0]); string(got) != string(wantJSON) {
			t.Errorf("the list's first item is\n%s\nwant\n%s", got, wantJSON)
		}
	}
	// A built-in kind's items have a kind, too, in this form.
	if _, body := s.Do("GET", "/api/v1/namespaces", "", "Accept", partialsV1); strings.Count(body, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{`) != 4 {
		t.Errorf("the list is %s", body)
	}
}

// TestFormsFallThrough: a clause that can't be answered leaves it to the next one, the last to a 406.
func TestFormsFallThrough(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	for _, tc := range []struct {
		name, path, accept string
		code               int
		begins             string
	}{
		{"unknown version", gadgetsPath + "/a", "application/json;as=Table;v=v2;g=meta.k8s.io,application/json", 200, `{"apiVersion":"example.com/v1"`},
		{"unknown version only", gadgetsPath + "/a", "application/json;as=Table;v=v2;g=meta.k8s.io", 406, ""},
		{"no group", gadgetsPath + "/a", "application/json;as=Table;v=v1", 406, ""},
		{"another group", gadgetsPath + "/a", "application/json;as=Table;v=v1;g=example.com", 406, ""},
		{"unknown form", gadgetsPath, "application/json;as=Chart;v=v1;g=meta.k8s.io", 406, ""},
		{"metadata client's get", gadgetsPath + "/a", strings.Replace(partialV1, "json", "vnd.kubernetes.protobuf", 1) + "," + partialV1 + ",application/json", 200, "k8s\x00\n'\n\x0emeta.k8s.io/v1\x12\x15PartialObjectMetadata\x12"},
		{"metadata client's list", gadgetsPath, strings.Replace(partialsV1, "json", "vnd.kubernetes.protobuf", 1) + "," + partialsV1 + ",application/json", 200, "k8s\x00\n+\n\x0emeta.k8s.io/v1\x12\x19PartialObjectMetadataList\x12"},
		{"a form of lists for an object", gadgetsPath + "/a", partialsV1 + ",application/json", 200, `{"apiVersion":"example.com/v1"`},
		{"a form of lists for an object only", gadgetsPath + "/a", partialsV1, 406, ""},
		{"a form of objects for a list only", gadgetsPath, partialV1, 406, ""},
		{"a form of lists for a watch only", gadgetsPath + "?watch=1", partialsV1, 406, ""},
		{"q decides", gadgetsPath + "/a", tableV1 + ";q=0.5,application/json", 200, `{"apiVersion":"example.com/v1"`},
		{"yaml watch", gadgetsPath + "?watch=1", strings.Replace(tableV1, "json", "yaml", 1), 406, ""},
		{"bad includeObject in a get", gadgetsPath + "/a?includeObject=All", tableV1, 400, ""},
		{"bad includeObject in a list", gadgetsPath + "?includeObject=none", tableV1, 400, ""},
		{"bad includeObject in a watch", gadgetsPath + "?watch=1&includeObject=x", tableV1, 400, ""},
		{"includeObject means nothing elsewhere", gadgetsPath + "/a?includeObject=x", partialV1, 200, `{"kind":"PartialObjectMetadata"`},
		{"errors have no form", gadgetsPath + "/none", tableV1, 404, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do("GET", tc.path, "", "Accept", tc.accept)
			if res.StatusCode != tc.code || !strings.HasPrefix(body, tc.begins) {
				t.Fatalf("%s: %s", res.Status, body)
			}
			if tc.code < 400 {
				return
			}
			got := status(t, res, body)
			if tc.code == http.StatusBadRequest && !strings.HasPrefix(got.Message, "Unable to convert to Table as requested: includeObject: Invalid value: ") {
				t.Errorf("the message is %q", got.Message)
			}
		})
	}
}

func TestTableForPeople(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	res, body := s.Do("GET", gadgetsPath, "", "Accept", strings.Replace(tableV1, "json", "yaml", 1))
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/yaml" {
		t.Fatalf("%s: %s", res.Status, body)
	}
	var table metav1.Table
	if err := yaml.Unmarshal([]byte(body), &table); err != nil || table.Kind != "Table" || len(table.Rows) != 3 || len(table.ColumnDefinitions) != 3 {
		t.Errorf("%v in %s", err, body)
	}
	if _, body = s.Do("GET", gadgetsPath+"/a", "", "Accept", tableV1, "User-Agent", "curl/8.5.0"); !strings.HasPrefix(body, "{\n  \"kind\": \"Table\",\n") {
		t.Errorf("it isn't indented: %s", body)
	}
}

// TestWritesInForms: what a write answers has the form that was asked for, too.
func TestWritesInForms(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	for _, tc := range []struct {
		method, path, body, media, accept string
		code                              int
		want                              string
	}{
		{"POST", gadgetsPath, aGadget("d", 4), "application/json", tableV1, 201, `"cells":["d",4,"[\"x\"]"]`},
		{"PATCH", gadgetsPath + "/d", `{"spec":{"size":5}}`, "application/merge-patch+json", partialV1, 200, `{"kind":"PartialObjectMetadata"`},
		{"PATCH", gadgetsPath + "/d", `{"spec":{"size":6}}`, "application/merge-patch+json", tableV1, 200, `"cells":["d",6,"[\"x\"]"]`},
		{"DELETE", gadgetsPath + "/d", "", "application/json", tableV1, 200, `"kind":"Status"`},
	} {
		res, body := s.Do(tc.method, tc.path, tc.body, "Content-Type", tc.media, "Accept", tc.accept)
		if res.StatusCode != tc.code || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s: %s: %s", tc.method, tc.path, res.Status, body)
		}
	}
}

// formWatch opens a watch in a form and returns its events, each with its object.
func formWatch(t *testing.T, s *servertest.Server, path, accept string) func() (kind, object string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	res, err := s.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	lines := bufio.NewReader(res.Body)
	return func() (string, string) {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the watch ended: %v", err)
		}
		e := decode[struct {
			Type   string
			Object json.RawMessage
		}](t, line)
		return e.Type, string(e.Object)
	}
}

const watchList = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

func TestTableWatch(t *testing.T) {
	t.Parallel()
	const (
		header  = "Table meta.k8s.io/v1 Name Size Tags"
		partial = "PartialObjectMetadatameta.k8s.io/v1"
	)
	row := func(name string, size int, object string) string {
		return fmt.Sprintf(` [%s %d ["x"]]%s`, name, size, object)
	}
	for _, tc := range []struct {
		name, query string
		first       []string // what comes before a write
		object      string   // of rows
	}{
		{"of the state", "?watch=1", []string{
			"ADDED " + header + row("a", 1, partial+"a"), "ADDED Table meta.k8s.io/v1" + row("b", 2, partial+"b"), "ADDED Table meta.k8s.io/v1" + row("c", 3, partial+"c"),
		}, partial + "a"},
		{"streamed list", watchList + "&labelSelector=a%3Db&fieldSelector=metadata.name%3Da", []string{
			"ADDED " + header + row("a", 1, partial+"a"), "BOOKMARK Table meta.k8s.io/v1 [ <nil> <nil>]" + partial,
		}, partial + "a"},
		{"streamed list of nothing", watchList + "&fieldSelector=metadata.name%3Dd", []string{
			"BOOKMARK " + header + " [ <nil> <nil>]" + partial,
		}, ""},
		{"streamed list without objects", watchList + "&includeObject=None&fieldSelector=metadata.name%3Da", []string{
			"ADDED " + header + row("a", 1, "none"), "BOOKMARK Table meta.k8s.io/v1 [ <nil> <nil>]" + partial,
		}, "none"},
		{"of what follows", "?watch=1&resourceVersion=NOW", nil, partial + "a"},
		{"with objects", "?watch=1&resourceVersion=NOW&includeObject=Object", nil, "Gadgetexample.com/v1a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newGadgets(t)
			now := decode[metav1.List](t, s.Get(gadgetsPath)).ResourceVersion
			path := gadgetsPath + strings.Replace(tc.query, "NOW", now, 1)
			expect := func(next func() (string, string), wants ...string) (object string) {
				t.Helper()
				for _, want := range wants {
					kind, table := next()
					if got := kind + " " + brief(t, table); got != want {
						t.Errorf("the event is\n%s\nwant\n%s", got, want)
					}
					object = table
				}
				return object
			}
			watch, second := formWatch(t, s, path, kubectlGet), formWatch(t, s, path, tableV1)
			expect(watch, tc.first...)
			expect(second, tc.first...)
			if tc.object == "" {
				return
			}
			patched := decode[metav1.PartialObjectMetadata](t, patchGadget(t, s, gadgetsPath+"/a", `{"spec":{"size":7}}`))
			columns := "Table meta.k8s.io/v1"
			if tc.first == nil {
				columns = header
			}
			changed := "MODIFIED " + columns + row("a", 7, tc.object)
			if got := decode[metav1.Table](t, expect(watch, changed)).ResourceVersion; got != patched.ResourceVersion {
				t.Errorf("the event's table has resourceVersion %s, want %s", got, patched.ResourceVersion)
			}
			expect(second, changed)

			if res, body := s.Do("DELETE", gadgetsPath+"/a", ""); res.StatusCode != http.StatusOK {
				t.Fatal(body)
			}
			deleted := decode[metav1.Table](t, expect(watch, "DELETED Table meta.k8s.io/v1"+row("a", 7, tc.object)))
			raw := string(deleted.Rows[0].Object.Raw)
			if deleted.ResourceVersion == patched.ResourceVersion || raw != "" && !strings.Contains(raw, `"resourceVersion":"`+deleted.ResourceVersion+`"`) {
				t.Errorf("the deletion has resourceVersion %s, its object is %s", deleted.ResourceVersion, raw)
			}
		})
	}
}

func patchGadget(t *testing.T, s *servertest.Server, path, body string) string {
	t.Helper()
	res, answer := s.Do("PATCH", path, body, "Content-Type", "application/merge-patch+json")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, answer)
	}
	return answer
}

// TestTableWatchKeepsItsColumns: whoever comes later gets them, too, from events that others have had.
func TestTableWatchKeepsItsColumns(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	now := decode[metav1.List](t, s.Get(gadgetsPath)).ResourceVersion
	patchGadget(t, s, gadgetsPath+"/a", `{"spec":{"size":7}}`)
	patchGadget(t, s, gadgetsPath+"/a", `{"spec":{"size":8}}`)
	for range 2 {
		watch := formWatch(t, s, gadgetsPath+"?watch=1&resourceVersion="+now, tableV1)
		for i, want := range []int{3, 0} {
			_, object := watch()
			if got := len(decode[metav1.Table](t, object).ColumnDefinitions); got != want {
				t.Errorf("event %d has %d columns, want %d", i, got, want)
			}
		}
	}
}

func TestPartialObjectMetadataWatch(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	watch := formWatch(t, s, gadgetsPath+watchList+"&fieldSelector=metadata.name%3Da", partialV1)
	expect := func(want string) metav1.PartialObjectMetadata {
		t.Helper()
		kind, body := watch()
		object := decode[metav1.PartialObjectMetadata](t, body)
		if got := fmt.Sprint(kind, " ", object.Name); got != want || object.Kind != "PartialObjectMetadata" || object.APIVersion != "meta.k8s.io/v1" || strings.Contains(body, "spec") {
			t.Errorf("the event is %s %s, want %s", kind, body, want)
		}
		return object
	}
	if object := expect("ADDED a"); object.Labels["a"] != "b" || object.UID == "" {
		t.Errorf("the object is %+v", object)
	}
	if object := expect("BOOKMARK "); object.Annotations[metav1.InitialEventsAnnotationKey] != "true" || object.ResourceVersion == "" {
		t.Errorf("the bookmark is %+v", object)
	}
	patched := decode[metav1.PartialObjectMetadata](t, patchGadget(t, s, gadgetsPath+"/a", `{"spec":{"size":7}}`))
	if object := expect("MODIFIED a"); object.ResourceVersion != patched.ResourceVersion || object.Generation != 2 {
		t.Errorf("the object is %+v", object)
	}
	s.Do("DELETE", gadgetsPath+"/a", "")
	if object := expect("DELETED a"); object.ResourceVersion == patched.ResourceVersion {
		t.Errorf("the object is %+v", object)
	}
}
