package writes

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

func TestCreateGetUpdateDelete(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	versioned := func(rv, more string) []byte {
		return []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"` + rv + `"}` + more + `}`)
	}
	created := s.ok(w.Create(s.ctx, "default", nil, widget("a", `,"spec":{"size":1},"status":{"x":1}`)))
	rv := created.str("metadata.resourceVersion")
	// The cases follow each other: each begins with what the one before left.
	t.Run("create fills in what the server decides, and drops status", func(t *testing.T) {
		for path, want := range map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata.name": "a", "metadata.namespace": "default",
			"metadata.generation": "1", "spec.size": "1", "status": nil, "metadata.managedFields": nil,
		} {
			if got := created.get(path); got != want {
				t.Errorf("created %s = %v, want %v", path, got, want)
			}
		}
		if len(created.str("metadata.uid")) != 36 || !strings.HasSuffix(created.str("metadata.creationTimestamp"), "Z") {
			t.Errorf("created metadata %v", created["metadata"])
		}
	})
	t.Run("get shows what create answered", func(t *testing.T) {
		if got := s.ok(w.Get(s.ctx, "default", "a", "", nil)); fmt.Sprint(got) != fmt.Sprint(created) {
			t.Errorf("get differs from create:\n%v\n%v", got, created)
		}
	})
	t.Run("an update without a version is invalid", func(t *testing.T) {
		_, err := w.Update(s.ctx, "default", "a", "", nil, widget("a", `,"spec":{"size":2},"status":{"x":2}`))
		if d := s.refused(err, 422, metav1.StatusReasonInvalid, `widgets.example.com "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`).Details; d.Kind != "widgets" {
			t.Errorf("details %+v", d)
		}
	})
	t.Run("an update of the version it read succeeds, and of another conflicts", func(t *testing.T) {
		updated := s.ok(w.Update(s.ctx, "default", "a", "", nil, versioned(rv, `,"spec":{"size":2},"status":{"x":2}`)))
		if updated.get("metadata.generation") != "2" || updated.get("spec.size") != "2" || updated.get("status") != nil {
			t.Errorf("updated %v", updated)
		}
		if updated.get("metadata.uid") != created.get("metadata.uid") || updated.get("metadata.creationTimestamp") != created.get("metadata.creationTimestamp") {
			t.Errorf("updated metadata %v of %v", updated["metadata"], created["metadata"])
		}
		_, err := w.Update(s.ctx, "default", "a", "", nil, versioned(rv, `,"spec":{"size":3}`))
		s.refused(err, 409, metav1.StatusReasonConflict, "please apply your changes to the latest version and try again")
		rv = updated.str("metadata.resourceVersion")
	})
	t.Run("status is written alone", func(t *testing.T) {
		st := s.ok(w.Update(s.ctx, "default", "a", "status", nil, versioned(rv, `,"spec":{"size":9},"status":{"ready":true}`)))
		if st.get("spec.size") != "2" || st.get("status.ready") != true || st.get("metadata.generation") != "2" {
			t.Errorf("status update %v", st)
		}
		rv = st.str("metadata.resourceVersion")
	})
	t.Run("an update that changes nothing isn't stored", func(t *testing.T) {
		same := s.ok(w.Update(s.ctx, "default", "a", "", nil, versioned(rv, `,"spec":{"size":2}`)))
		if same.str("metadata.resourceVersion") != rv {
			t.Errorf("an unchanged update wrote: %s, was %s", same.str("metadata.resourceVersion"), rv)
		}
	})
	t.Run("delete answers with a Status, and then everything is 404", func(t *testing.T) {
		gone := s.ok(w.Delete(s.ctx, "default", "a", nil, nil))
		for path, want := range map[string]any{
			"kind": "Status", "status": "Success", "details.name": "a", "details.group": "example.com",
			"details.kind": "widgets", "details.uid": created.get("metadata.uid"),
		} {
			if got := gone.get(path); got != want {
				t.Errorf("deleted %s = %v, want %v", path, got, want)
			}
		}
		_, err := w.Get(s.ctx, "default", "a", "", nil)
		s.refused(err, 404, metav1.StatusReasonNotFound, `widgets.example.com "a" not found`)
		_, err = w.Delete(s.ctx, "default", "a", nil, nil)
		s.refused(err, 404, metav1.StatusReasonNotFound)
		_, err = w.Update(s.ctx, "default", "a", "", nil, versioned(rv, ""))
		s.refused(err, 404, metav1.StatusReasonNotFound)
	})
}

func TestWriteRefusals(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	s.ok(w.Create(s.ctx, "default", nil, widget("taken", "")))
	meta := func(m string) string {
		return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":` + m + `}`
	}
	owner := `{"apiVersion":"v1","kind":"Pod","name":"p","uid":"%s","controller":true}`
	for _, c := range []struct {
		name, query, body string
		code              int32
		reason            metav1.StatusReason
		part              string
	}{
		{"taken", "", meta(`{"name":"taken"}`), 409, metav1.StatusReasonAlreadyExists, `widgets.example.com "taken" already exists`},
		{"empty body", "", "  ", 400, metav1.StatusReasonBadRequest, "unexpected end of JSON input (2020)"},
		{"not json", "", "{", 400, metav1.StatusReasonBadRequest, "unexpected end"},
		{"trailing data", "", meta(`{"name":"a"}`) + "x", 400, metav1.StatusReasonBadRequest, "after top-level value"},
		{"array", "", "[]", 400, metav1.StatusReasonBadRequest, "array"},
		{"null", "", "null", 400, metav1.StatusReasonBadRequest, "null"},
		{"invalid UTF-8", "", meta(`{"name":"a","annotations":{"x":"` + "\xff" + `"}}`), 400, metav1.StatusReasonBadRequest, "UTF-8"},
		{"no kind", "", `{"apiVersion":"example.com/v1","metadata":{"name":"a"}}`, 400, metav1.StatusReasonBadRequest, "Object 'Kind' is missing in"},
		{"no apiVersion", "", `{"kind":"Widget","metadata":{"name":"a"}}`, 400, metav1.StatusReasonBadRequest, "the API version in the data () does not match the expected API version (example.com/v1)"},
		{"other version", "", `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"a"}}`, 400, metav1.StatusReasonBadRequest,
			"the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"},
		{"other kind", "", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"}}`, 422, metav1.StatusReasonInvalid,
			`kind: Invalid value: "Gadget": must be Widget`},
		{"no name", "", meta(`{}`), 422, metav1.StatusReasonInvalid, "name or generateName is required"},
		{"upper case", "", meta(`{"name":"A"}`), 422, metav1.StatusReasonInvalid, "metadata.name"},
		{"long name", "", meta(`{"name":"` + strings.Repeat("a", 254) + `"}`), 422, metav1.StatusReasonInvalid, "metadata.name"},
		{"name with slash", "", meta(`{"name":"../a"}`), 422, metav1.StatusReasonInvalid, "metadata.name"},
		{"name with NUL", "", meta(`{"name":"a\u0000"}`), 422, metav1.StatusReasonInvalid, "metadata.name"},
		{"name of a MiB", "", meta(`{"name":"` + strings.Repeat("a", 1<<20) + `"}`), 422, metav1.StatusReasonInvalid, "metadata.name"},
		{"bad generateName", "", meta(`{"generateName":"A"}`), 422, metav1.StatusReasonInvalid, "metadata.generateName"},
		{"other namespace", "", meta(`{"name":"a","namespace":"kube-system"}`), 400, metav1.StatusReasonBadRequest, "does not match the namespace"},
		{"resourceVersion", "", meta(`{"name":"a","resourceVersion":"1"}`), 500, "", "resourceVersion should not be set on objects to be created"},
		{"label value", "", meta(`{"name":"a","labels":{"x":"ä"}}`), 422, metav1.StatusReasonInvalid, "metadata.labels"},
		{"label not text", "", meta(`{"name":"a","labels":{"x":1}}`), 400, metav1.StatusReasonBadRequest, "labels"},
		{"metadata not an object", "", meta(`"x"`), 400, metav1.StatusReasonBadRequest, "metadata must be an object"},
		{"annotation key", "", meta(`{"name":"a","annotations":{"a b":"x"}}`), 422, metav1.StatusReasonInvalid, "metadata.annotations"},
		{"annotations too large", "", meta(`{"name":"a","annotations":{"x":"` + strings.Repeat("a", 256<<10) + `"}}`), 422, metav1.StatusReasonInvalid, "metadata.annotations"},
		{"finalizer", "", meta(`{"name":"a","finalizers":["a b"]}`), 422, metav1.StatusReasonInvalid, "metadata.finalizers"},
		{"two controllers", "", meta(`{"name":"a","ownerReferences":[` + fmt.Sprintf(owner, "1") + `,` + fmt.Sprintf(owner, "2") + `]}`), 422, metav1.StatusReasonInvalid, "controller"},
		{"too large", "", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"x":"` + strings.Repeat("a", registry.MaxObjectBytes) + `"}}`, 413, metav1.StatusReasonRequestEntityTooLarge, "1572864"},
		{"dryRun", "dryRun=All", meta(`{"name":"taken"}`), 409, metav1.StatusReasonAlreadyExists, "taken"},
		{"unknown dryRun", "dryRun=Some", meta(`{"name":"a"}`), 422, metav1.StatusReasonInvalid, "dryRun"},
		{"unknown fieldValidation", "fieldValidation=Maybe", meta(`{"name":"a"}`), 422, metav1.StatusReasonInvalid, "fieldValidation"},
		{"long fieldManager", "fieldManager=" + strings.Repeat("a", 129), meta(`{"name":"a"}`), 422, metav1.StatusReasonInvalid, "fieldManager"},
		{"strict duplicate", "fieldValidation=Strict", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"a":1,"a":2}}`, 400, metav1.StatusReasonBadRequest,
			`strict decoding error: duplicate field "spec.a"`},
		{"strict unknown metadata", "fieldValidation=Strict", meta(`{"name":"a","nmae":"b"}`), 400, metav1.StatusReasonBadRequest,
			`strict decoding error: unknown field "metadata.nmae"`},
		{"deep", "", `{"apiVersion":"example.com/v1","kind":"Widget","spec":` + strings.Repeat("[", 200_000), 400, metav1.StatusReasonBadRequest, "exceeded max depth"},
		{"number out of range", "", `{"apiVersion":"example.com/v1","kind":"Widget","spec":1e999}`, 400, metav1.StatusReasonBadRequest, "1e999"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := w.Create(s.ctx, "default", params(c.query), []byte(c.body))
			status := wantStatus(t, err, c.code, c.reason, c.part)
			if len(status.Message) > 8<<10 {
				t.Errorf("the message has %d bytes", len(status.Message))
			}
		})
	}
	if got := names(s.list(w, "", nil)); got != "taken" {
		t.Errorf("refused objects are there: %s", got)
	}
}

func TestFieldValidation(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	body := func(name string) []byte {
		return []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","x":1},"spec":{"a":1,"a":2}}`)
	}
	res, err := w.Create(s.ctx, "default", nil, body("warn"))
	if got := s.ok(res, err); got.get("spec.a") != "2" || got.get("metadata.x") != nil {
		t.Errorf("stored %v", got)
	}
	if got := strings.Join(res.Warnings, "; "); got != `duplicate field "spec.a"; unknown field "metadata.x"` {
		t.Errorf("warnings %q", got)
	}
	res, err = w.Create(s.ctx, "default", params("fieldValidation=Ignore"), body("ignore"))
	if s.ok(res, err); len(res.Warnings) > 0 {
		t.Errorf("warnings %q", res.Warnings)
	}
	_, err = s.at("", "v1", "namespaces").Create(s.ctx, "", params("fieldValidation=Strict"), []byte(`{"metadata":{"name":"x"},"spce":{}}`))
	s.refused(err, 400, metav1.StatusReasonBadRequest, `strict decoding error: unknown field "spce"`)
}

// Bodies that would keep a strict decoder busy for minutes are answered, and what they say still counts.
func TestCostOfComplaints(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	body := widget("a", `,"spec":`+strings.Repeat(`{"a":`, 5000)+"{"+strings.Repeat(`"a":1,`, 400_000)+`"a":2}`+strings.Repeat(`}`, 5000))
	res, err := w.Create(s.ctx, "default", nil, body)
	if s.ok(res, err); len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "given twice") {
		t.Errorf("warnings %q", res.Warnings)
	}
	_, err = w.Create(s.ctx, "default", params("fieldValidation=Strict"), body)
	s.refused(err, 400, metav1.StatusReasonBadRequest, "strict decoding error", "given twice")
	unknown := make([]string, 100_000)
	for i := range unknown {
		unknown[i] = fmt.Sprintf(`"u%d":1`, i)
	}
	schema := strings.Repeat(`{"not":`, 80) + "{" + strings.Join(unknown, ",") + "}" + strings.Repeat(`}`, 80)
	_, err = s.crds().Create(s.ctx, "", nil, crdOf(t, "gadgets", "Gadget", `spec.versions.0.schema={"openAPIV3Schema":`+schema+`}`))
	s.refused(err, 422, metav1.StatusReasonInvalid)
	deep := strings.Repeat(`{"not":`, 1000) + `{"description":"` + strings.Repeat("x", 1<<20) + `"}` + strings.Repeat(`}`, 1000)
	_, err = s.crds().Create(s.ctx, "", nil, crdOf(t, "gadgets", "Gadget", `spec.versions.0.schema={"openAPIV3Schema":`+deep+`}`))
	s.refused(err, 400, metav1.StatusReasonBadRequest, "nests too deeply")
}

func TestGenerateName(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	base := strings.Repeat("a", 70)
	body := []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"generateName":"` + base + `"}}`)
	name := s.ok(w.Create(s.ctx, "default", nil, body)).str("metadata.name")
	if len(name) != 63 || name[:58] != base[:58] {
		t.Errorf("generated %q", name)
	}
}

func TestOwnersAndManagedFields(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	owner := `{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1"}`
	body := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","selfLink":"/x","uid":"mine","generation":7,
		"creationTimestamp":"2001-01-01T00:00:00Z","deletionTimestamp":"2001-01-01T00:00:00Z",
		"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}],
		"ownerReferences":[` + owner + `,` + owner + `]}}`
	res, err := w.Create(s.ctx, "default", nil, []byte(body))
	got := s.ok(res, err)
	if owners, _ := got.get("metadata.ownerReferences").([]any); len(owners) != 1 {
		t.Errorf("owners %v", owners)
	}
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "ownerReferences") {
		t.Errorf("warnings %q", res.Warnings)
	}
	for _, path := range []string{"metadata.managedFields", "metadata.selfLink", "metadata.deletionTimestamp"} {
		if v := got.get(path); v != nil {
			t.Errorf("%s = %v", path, v)
		}
	}
	if got.get("metadata.generation") != "1" || got.str("metadata.uid") == "mine" || strings.HasPrefix(got.str("metadata.creationTimestamp"), "2001") {
		t.Errorf("metadata %v", got["metadata"])
	}
}

func TestFinalizers(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	created := s.ok(w.Create(s.ctx, "default", nil, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","finalizers":["example.com/x"]}}`)))
	cursor, _, err := w.Watch(s.ctx, "default", "", params("resourceVersion="+created.str("metadata.resourceVersion")))
	if err != nil {
		t.Fatal(err)
	}
	defer cursor.Close()
	marked := s.ok(w.Delete(s.ctx, "default", "a", nil, nil))
	if marked.str("metadata.deletionTimestamp") == "" || marked.get("metadata.generation") != "2" || marked.get("metadata.deletionGracePeriodSeconds") != "0" {
		t.Errorf("marked %v", marked["metadata"])
	}
	again := s.ok(w.Delete(s.ctx, "default", "a", nil, nil))
	if again.get("metadata.resourceVersion") != marked.get("metadata.resourceVersion") {
		t.Error("deleting again wrote")
	}
	merge := "application/merge-patch+json"
	_, err = w.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"metadata":{"finalizers":["example.com/x","example.com/y"]}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "no new finalizers can be added")
	_, err = w.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"metadata":{"deletionTimestamp":null},"spec":{"size":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	last := s.ok(w.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"metadata":{"finalizers":null}}`)))
	if last.str("kind") != "Widget" {
		t.Errorf("the write that removes the object is answered %v", last)
	}
	_, err = w.Get(s.ctx, "default", "a", "", nil)
	s.refused(err, 404, metav1.StatusReasonNotFound)
	var seen []string
	for _, e := range events(t, s.ctx, cursor, 3) {
		seen = append(seen, e.str("type"))
	}
	if strings.Join(seen, " ") != "MODIFIED MODIFIED DELETED" {
		t.Errorf("events %v", seen)
	}
}

func TestDeleteOptions(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	created := s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
	uid, rv := created.str("metadata.uid"), created.str("metadata.resourceVersion")
	for _, c := range []struct {
		name, query, body string
		code              int32
		reason            metav1.StatusReason
		part              string
	}{
		{"other uid", "", `{"preconditions":{"uid":"x"}}`, 409, metav1.StatusReasonConflict, "the UID in the precondition (x) does not match"},
		{"other version", "", `{"preconditions":{"resourceVersion":"1"}}`, 409, metav1.StatusReasonConflict, "the ResourceVersion in the precondition (1) does not match"},
		{"both", "", `{"propagationPolicy":"Background","orphanDependents":false}`, 422, metav1.StatusReasonInvalid, "cannot be both set"},
		{"unknown dryRun", "dryRun=Some", "", 422, metav1.StatusReasonInvalid, "dryRun"},
		{"unknown policy", "propagationPolicy=Sideways", "", 422, metav1.StatusReasonInvalid, "propagationPolicy"},
		{"grace period", "gracePeriodSeconds=soon", "", 400, metav1.StatusReasonBadRequest, `parsing "soon"`},
		{"not json", "", "{", 400, metav1.StatusReasonBadRequest, "unexpected end of JSON input"},
		{"other kind", "", `{"kind":"Widget","apiVersion":"v1"}`, 400, metav1.StatusReasonBadRequest, `no kind "Widget" is registered for version "v1"`},
		{"other version of options", "", `{"kind":"DeleteOptions","apiVersion":"v2"}`, 400, metav1.StatusReasonBadRequest, "v2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := w.Delete(s.ctx, "default", "a", params(c.query), []byte(c.body))
			wantStatus(t, err, c.code, c.reason, c.part)
		})
	}
	held := []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"held","finalizers":["example.com/x"]}}`)
	s.ok(w.Create(s.ctx, "default", nil, held))
	for _, c := range []struct {
		name, object, query, body string
		accepted                  bool
	}{
		{"held", "held", "", "", false},
		{"held, asked not to orphan", "held", "orphanDependents=false", "", true},
		{"held, asked so in the body", "held", "", `{"orphanDependents":false}`, true},
		{"held, dry run", "held", "orphanDependents=false&dryRun=All", "", true},
		{"held, asked to orphan", "held", "orphanDependents=true&dryRun=All", "", false},
		{"gone", "a", "orphanDependents=false&dryRun=All", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r, err := w.Delete(s.ctx, "default", c.object, params(c.query), []byte(c.body)); err != nil || r.Accepted != c.accepted {
				t.Errorf("accepted %v, %v", r.Accepted, err)
			}
		})
	}
	for _, apiVersion := range []string{"v1", "meta.k8s.io/v1", "example.com/v1"} {
		body := `{"kind":"DeleteOptions","apiVersion":"` + apiVersion + `","gracePeriodSeconds":5,"propagationPolicy":"Background","preconditions":{"uid":"` + uid + `","resourceVersion":"` + rv + `"}}`
		s.ok(w.Delete(s.ctx, "default", "a", nil, []byte(body)))
		created = s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
		uid, rv = created.str("metadata.uid"), created.str("metadata.resourceVersion")
	}
	s.ok(w.Delete(s.ctx, "default", "a", params("propagationPolicy=Background&gracePeriodSeconds=0"), nil))
}

func TestImmutableMetadata(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
	for _, c := range []struct {
		name, patch string
		code        int32
		reason      metav1.StatusReason
		part        string
	}{
		{"name", `{"metadata":{"name":"b"}}`, 400, metav1.StatusReasonBadRequest, "does not match the name on the URL"},
		{"no name", `{"metadata":{"name":null}}`, 400, metav1.StatusReasonBadRequest, "(a based on URL) was undeterminable: name must be provided"},
		{"namespace", `{"metadata":{"namespace":"b"}}`, 400, metav1.StatusReasonBadRequest, "namespace"},
		{"uid", `{"metadata":{"uid":"b"}}`, 422, metav1.StatusReasonInvalid, "metadata.uid"},
		{"kind", `{"kind":"Gadget"}`, 422, metav1.StatusReasonInvalid, "must be Widget"},
		{"apiVersion", `{"apiVersion":"example.com/v9"}`, 422, metav1.StatusReasonInvalid, "apiVersion"},
		{"deletionTimestamp", `{"metadata":{"deletionTimestamp":"2001-01-01T00:00:00Z"}}`, 422, metav1.StatusReasonInvalid, "metadata.deletionTimestamp"},
		{"resourceVersion", `{"metadata":{"resourceVersion":"1"}}`, 409, metav1.StatusReasonConflict, "latest version"},
		{"garbage resourceVersion", `{"metadata":{"resourceVersion":"x"}}`, 500, "", `parsing "x": invalid syntax`},
		{"metadata", `{"metadata":null}`, 400, metav1.StatusReasonBadRequest, "name must be provided"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := w.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(c.patch))
			wantStatus(t, err, c.code, c.reason, c.part)
		})
	}
	before := s.ok(w.Get(s.ctx, "default", "a", "", nil))
	after := s.ok(w.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil,
		[]byte(`{"metadata":{"creationTimestamp":"2001-01-01T00:00:00Z","generation":99,"selfLink":"x","managedFields":[{"manager":"x"}]}}`)))
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("a patch of what the server sets changed\n%v to\n%v", before, after)
	}
}

func TestPatch(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	s.ok(w.Create(s.ctx, "default", nil, widget("a", `,"spec":{"size":1,"tags":["x"],"big":9007199254740993}`)))
	const merge, ops = "application/merge-patch+json", "application/json-patch+json"
	got := s.ok(w.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":2,"tags":null,"html":"<&>"}}`)))
	if got.get("spec.size") != "2" || got.get("spec.tags") != nil || got.get("spec.big") != "9007199254740993" || got.get("spec.html") != "<&>" {
		t.Errorf("merged %v", got["spec"])
	}
	got = s.ok(w.Patch(s.ctx, "default", "a", "", ops, nil, []byte(`[{"op":"test","path":"/spec/size","value":2},{"op":"replace","path":"/spec/size","value":3},{"op":"copy","from":"/spec/size","path":"/spec/copy"}]`)))
	if got.get("spec.size") != "3" || got.get("spec.copy") != "3" || got.get("metadata.generation") != "3" {
		t.Errorf("patched %v", got)
	}
	got = s.ok(w.Patch(s.ctx, "default", "a", "status", merge, nil, []byte(`{"spec":{"size":7},"status":{"ok":true}}`)))
	if got.get("spec.size") != "3" || got.get("status.ok") != true || got.get("metadata.generation") != "3" {
		t.Errorf("patched status %v", got)
	}
	many := "[" + strings.Repeat(`{"op":"test","path":"/kind","value":"Widget"},`, maxPatchOperations) + `{"op":"test","path":"/kind","value":"Widget"}]`
	bomb := `[{"op":"add","path":"/spec/a","value":"` + strings.Repeat("x", 4096) + `"}`
	for i := range 20 {
		bomb += fmt.Sprintf(`,{"op":"copy","from":"/spec","path":"/spec/c%d"}`, i)
	}
	bomb += "]"
	deep := `{"spec":` + strings.Repeat(`{"a":`, 5000) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat(`}`, 5001)
	moves := `[{"op":"add","path":"/spec","value":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`
	for i := range 100 {
		moves += fmt.Sprintf(`,{"op":"add","path":"/n%d","value":{}},{"op":"move","from":"/spec","path":"/n%d/a"},{"op":"move","from":"/n%d","path":"/spec"}`, i, i, i)
	}
	moves += "]"
	const rejected = "the server rejected our request due to an error in our request" // which is all that kube-apiserver says
	pointer := `[{"op":"add","path":"` + strings.Repeat("/a", 9000) + `","value":"` + strings.Repeat("x", 1<<20) + `"}]`
	for _, c := range []struct {
		name, media, query, patch string
		code                      int32
		reason                    metav1.StatusReason
		part                      string
	}{
		{"malformed merge", merge, "", "{", 400, metav1.StatusReasonBadRequest, "invalid JSON patch"},
		{"merge of an array", merge, "", "[]", 400, metav1.StatusReasonBadRequest, "array"},
		{"merge of null", merge, "", "null", 400, metav1.StatusReasonBadRequest, "null"},
		{"merge to no object", merge, "", `{"metadata":"x"}`, 422, metav1.StatusReasonInvalid, "metadata"},
		{"strict merge", merge, "fieldValidation=Strict", `{"spec":{"a":1,"a":2}}`, 422, metav1.StatusReasonInvalid, "duplicate field"},
		{"force", merge, "force=true", `{}`, 422, metav1.StatusReasonInvalid, "force"},
		{"malformed operations", ops, "", "[", 400, metav1.StatusReasonBadRequest, "invalid JSON patch"},
		{"operations in an object", ops, "", "{}", 400, metav1.StatusReasonBadRequest, "object"},
		{"unknown operation", ops, "", `[{"op":"frob","path":"/spec"}]`, 422, metav1.StatusReasonInvalid, rejected},
		{"no path", ops, "", `[{"op":"remove"}]`, 422, metav1.StatusReasonInvalid, rejected},
		{"null operation", ops, "", `[null]`, 400, metav1.StatusReasonBadRequest, "operation 0"},
		{"no value", ops, "", `[{"op":"replace","path":""}]`, 422, metav1.StatusReasonInvalid, rejected},
		{"no from", ops, "", `[{"op":"move","path":"/spec/x"}]`, 422, metav1.StatusReasonInvalid, rejected},
		{"failing test", ops, "", `[{"op":"test","path":"/spec/size","value":99}]`, 422, metav1.StatusReasonInvalid, rejected},
		{"missing path", ops, "", `[{"op":"remove","path":"/spec/none"}]`, 422, metav1.StatusReasonInvalid, rejected},
		{"too many operations", ops, "", many, 413, metav1.StatusReasonRequestEntityTooLarge, "10000"},
		{"copies of copies", ops, "", bomb, 413, metav1.StatusReasonRequestEntityTooLarge, "copy"},
		{"deep and large merge", merge, "", deep, 413, metav1.StatusReasonRequestEntityTooLarge, "nesting"},
		{"deep and large value", ops, "", `[{"op":"add","path":"/spec/a","value":` + deep + `}]`, 413, metav1.StatusReasonRequestEntityTooLarge, "nesting"},
		{"deep by moving", ops, "", moves, 413, metav1.StatusReasonRequestEntityTooLarge, "nesting"},
		{"deep pointer", ops, "", pointer, 413, metav1.StatusReasonRequestEntityTooLarge, "nesting"},
		{"strategic", "application/strategic-merge-patch+json", "", "{}", 415, metav1.StatusReasonUnsupportedMediaType, merge},
		{"apply", "application/apply-patch+yaml", "", "{}", 422, metav1.StatusReasonInvalid, "fieldManager: Required value"},
		{"no type", "", "", "{}", 415, metav1.StatusReasonUnsupportedMediaType, ops},
		{"json", "application/json", "", "{}", 415, metav1.StatusReasonUnsupportedMediaType, ops},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := w.Patch(s.ctx, "default", "a", "", c.media, params(c.query), []byte(c.patch))
			wantStatus(t, err, c.code, c.reason, c.part)
		})
	}
	_, err := w.Patch(s.ctx, "default", "none", "", merge, nil, []byte(`{}`))
	s.refused(err, 404, metav1.StatusReasonNotFound)
	_, err = w.Patch(s.ctx, "default", "a", "scale", merge, nil, []byte(`{}`))
	s.refused(err, 404, metav1.StatusReasonNotFound)
}

// Patches without a version never conflict, however many come at once; every one counts.
func TestConcurrentPatches(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	s.ok(w.Create(s.ctx, "default", nil, widget("a", `,"spec":{}`)))
	const writers, each = 8, 10
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				patch := fmt.Sprintf(`{"spec":{"k%d-%d":1}}`, i, j)
				if _, err := w.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(patch)); err != nil {
					t.Errorf("patch: %v", err)
				}
			}
		})
	}
	wg.Wait()
	got := s.ok(w.Get(s.ctx, "default", "a", "", nil))
	if n := len(got["spec"].(map[string]any)); n != writers*each {
		t.Errorf("%d of %d patches are there", n, writers*each)
	}
	if got.get("metadata.generation") != fmt.Sprint(1+writers*each) {
		t.Errorf("generation %v", got.get("metadata.generation"))
	}
}

// A writer that goes on with the version of its last write isn't refused because the cache is behind.
func TestOwnWritesAreNeverStale(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	rv := s.ok(w.Create(s.ctx, "default", nil, widget("a", ""))).str("metadata.resourceVersion")
	for i := range 300 {
		body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"%s"},"spec":{"size":%d}}`, rv, i)
		rv = s.ok(w.Update(s.ctx, "default", "a", "", nil, []byte(body))).str("metadata.resourceVersion")
	}
	for range 100 {
		s.ok(w.Delete(s.ctx, "default", "a", nil, nil))
		s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
	}
}

func TestPathsAndNames(t *testing.T) {
	s := start(t, "", registry.Options{})
	w, ns := s.widgets(), s.at("", "v1", "namespaces")
	for _, c := range []struct {
		name string
		err  error
		code int32
	}{
		{"namespaced without namespace", errOf(w.Get(s.ctx, "", "a", "", nil)), 404},
		{"cluster with namespace", errOf(ns.Get(s.ctx, "default", "default", "", nil)), 404},
		{"create without namespace", errOf(w.Create(s.ctx, "", nil, widget("a", ""))), 405},
		{"create with namespace", errOf(ns.Create(s.ctx, "default", nil, []byte(`{"metadata":{"name":"x"}}`))), 405},
		{"slash in name", errOf(w.Get(s.ctx, "default", "a/b", "", nil)), 400},
		{"dots", errOf(w.Get(s.ctx, "default", "..", "", nil)), 400},
		{"dots in delete", errOf(w.Delete(s.ctx, "..", "a", nil, nil)), 400},
		{"percent", errOf(w.Update(s.ctx, "default", "a%2fb", "", nil, nil)), 400},
		{"NUL", errOf(w.Patch(s.ctx, "default", "a\x00", "", "application/merge-patch+json", nil, []byte("{}"))), 400},
		{"case", errOf(w.Get(s.ctx, "default", "A", "", nil)), 404},
		{"unknown subresource", errOf(w.Get(s.ctx, "default", "a", "scale", nil)), 404},
		{"put finalize", errOf(w.Update(s.ctx, "default", "a", "finalize", nil, widget("a", ""))), 404},
		{"get finalize", errOf(ns.Get(s.ctx, "", "default", "finalize", nil)), 405},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := wantAny(t, c.err).Code; got != c.code {
				t.Errorf("got %d (%v), want %d", got, c.err, c.code)
			}
		})
	}
	for _, p := range [][3]string{{"example.com", "v1", "Widgets"}, {"example.com", "v2", "widgets"}, {"example.com", "v1alpha1", "widgets"}, {"example.org", "v1", "widgets"}, {"", "v1", "pods"}, {"..", "v1", "a/b"}} {
		_, err := s.Lookup(s.ctx, gvr(p[0], p[1], p[2]))
		s.refused(err, 404, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	}
}

func errOf(_ registry.Result, err error) error { return err }
