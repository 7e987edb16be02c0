package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// unattended is a server without controllers: what a deletion leaves stays as it is.
func unattended(s *server.Server) { s.API.Controllers = "none" }

// finalizersOf are an object's finalizers, in a list of words.
func finalizersOf(doc string) string {
	return strings.NewReplacer(`"`, "", "[", "", "]", "", ",", " ").Replace(value(doc, "metadata.finalizers"))
}

// finalizing is the part of metadata that has finalizers, given as words.
func finalizing(words string) string {
	if words == "" {
		return ""
	}
	return `,"finalizers":["` + strings.Join(strings.Fields(words), `","`) + `"]`
}

// slug makes an object's name of a test's.
func slug(test string) string {
	return strings.NewReplacer(" ", "-", ",", "", "=", "-", "'", "").Replace(strings.ToLower(test))
}

// TestDeletions: what a deletion with each policy leaves of an object, with which code, and what a deletion after it does.
func TestDeletions(t *testing.T) {
	t.Parallel()
	s := newGizmos(t, unattended)
	const (
		foreground, orphan  = "foregroundDeletion", "orphan"
		background          = "propagationPolicy=Background"
		inForeground        = "propagationPolicy=Foreground"
		orphaning           = "propagationPolicy=Orphan"
		orphanIt, orphanNot = "orphanDependents=true", "orphanDependents=false"
	)
	type step struct {
		options string // a query, or a body
		code    int
		left    string // finalizers; "gone" for an object that isn't there any more
	}
	for _, tc := range []struct {
		name, finalizers string
		steps            []step
	}{
		{"no policy", "", []step{{"", 200, "gone"}, {"", 404, "gone"}}},
		{"background", "", []step{{background, 200, "gone"}}},
		{"foreground", "", []step{{inForeground, 200, foreground}}},
		{"orphan", "", []step{{orphaning, 200, orphan}}},
		{"orphanDependents", "", []step{{orphanIt, 200, orphan}}},
		{"orphanDependents=false", "", []step{{orphanNot, 200, "gone"}}},
		{"foreground, by the body", "", []step{{`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}`, 200, foreground}}},
		{"orphanDependents, by the body", "", []step{{`{"orphanDependents":true}`, 200, orphan}}},
		{"a body hides the query", "", []step{{"propagationPolicy=Orphan {}", 200, "gone"}}},

		{"held", "x.y/z", []step{{"", 200, "x.y/z"}, {"", 200, "x.y/z"}, {background, 200, "x.y/z"}}},
		{"held, orphanDependents=false", "x.y/z", []step{{orphanNot, 202, "x.y/z"}, {orphanNot, 202, "x.y/z"}, {"", 200, "x.y/z"}}},
		{"held, orphanDependents", "x.y/z", []step{{orphanIt, 200, "x.y/z orphan"}}},
		{"held, foreground", "x.y/z", []step{{inForeground, 200, "x.y/z " + foreground}}},
		{"held, grace period", "x.y/z", []step{{"gracePeriodSeconds=30", 200, "x.y/z"}, {"gracePeriodSeconds=0", 200, "x.y/z"}}},

		{"orphan finalizer", orphan, []step{{"", 200, orphan}}},
		{"foreground finalizer", foreground, []step{{"", 200, foreground}}},
		{"orphan finalizer, background", orphan, []step{{background, 200, "gone"}}},
		{"orphan finalizer, foreground", orphan + " x.y/z", []step{{inForeground, 200, "x.y/z " + foreground}}},
		{"orphan finalizer, orphan", orphan + " x.y/z", []step{{orphaning, 200, orphan + " x.y/z"}}},
		{"foreground finalizer, orphanDependents=false", foreground, []step{{orphanNot, 200, "gone"}}},

		{"foreground, then nothing said", "", []step{{inForeground, 200, foreground}, {"", 200, foreground}}},
		{"foreground, then background", "", []step{{inForeground, 200, foreground}, {background, 200, "gone"}}},
		{"foreground, then orphan", "", []step{{inForeground, 200, foreground}, {orphaning, 200, orphan}, {orphanNot, 200, "gone"}}},
		{"held, then foreground", "x.y/z", []step{{"", 200, "x.y/z"}, {inForeground, 200, "x.y/z " + foreground}, {background, 200, "x.y/z"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			name := slug(tc.name)
			path := gizmosPath + "/" + name
			before := s.PostYAML(gizmosPath, applied(name, finalizing(tc.finalizers)))
			events := s.Watch(gizmosPath + "?watch=true&fieldSelector=metadata.name%3D" + name + "&resourceVersion=" + value(before, "metadata.resourceVersion"))
			for _, st := range tc.steps {
				query, body := st.options, ""
				if i := strings.IndexByte(st.options, '{'); i >= 0 {
					query, body = strings.TrimSpace(st.options[:i]), st.options[i:]
				}
				for _, dry := range []bool{true, false} {
					if dry && body != "" {
						continue
					}
					q := query
					if dry {
						q = "dryRun=All&" + query
					}
					res, answer := s.Do("DELETE", path+"?"+q, body)
					if res.StatusCode != st.code {
						t.Fatalf("%q: %s, want %d: %s", st.options, res.Status, st.code, answer)
					}
					switch {
					case st.code == http.StatusNotFound:
					case st.left == "gone":
						check(t, answer, "kind=Status apiVersion=v1 status=Success details.name="+name+" details.group=example.com details.kind=gizmos details.uid="+value(before, "metadata.uid"))
					case finalizersOf(answer) != st.left || value(answer, "metadata.deletionTimestamp") == "":
						t.Errorf("%q leaves %s", st.options, answer)
					}
				}
				before = checkLeft(t, s, events, before, path, st.left)
			}
		})
	}
}

// checkLeft checks what a deletion has left of an object, and which event told it. before is what there was, and the answer
// what there is; "" for nothing.
func checkLeft(t *testing.T, s *servertest.Server, events *servertest.Stream, before, path, left string) string {
	t.Helper()
	if left == "gone" {
		send(t, s, 404, "GET", path, "", "")
		if before != "" {
			if e := next(t, events); e.Type != "DELETED" {
				t.Errorf("there was %s", e)
			}
		}
		return ""
	}
	after := s.Get(path)
	if finalizersOf(after) != left {
		t.Fatalf("left %s, want %s", finalizersOf(after), left)
	}
	at := value(before, "metadata.deletionTimestamp")
	first := at == ""
	if first {
		at = value(after, "metadata.deletionTimestamp")
	}
	generation := value(before, "metadata.generation")
	if first {
		generation = "2"
	}
	check(t, after, "metadata.deletionTimestamp="+at+" metadata.deletionGracePeriodSeconds=0 metadata.generation="+generation)
	wrote := value(before, "metadata.resourceVersion") != value(after, "metadata.resourceVersion")
	if want := first || finalizersOf(before) != left; wrote != want {
		t.Errorf("wrote %v, want %v", wrote, want)
	}
	if wrote {
		if e := next(t, events); e.Type != "MODIFIED" || e.Object.Metadata.ResourceVersion != value(after, "metadata.resourceVersion") {
			t.Errorf("there was %s", e)
		}
	}
	return after
}

// TestDeletionsOfCollections: each object of a collection is deleted by the options' policy.
func TestDeletionsOfCollections(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, options, left string }{
		{"no policy", "", "b: orphan, c: x.y/z"},
		{"background", "propagationPolicy=Background", "c: x.y/z"},
		{"foreground", "propagationPolicy=Foreground", "a: foregroundDeletion, b: foregroundDeletion, c: x.y/z foregroundDeletion"},
		{"orphan", "propagationPolicy=Orphan", "a: orphan, b: orphan, c: x.y/z orphan"},
		{"orphanDependents=false", "orphanDependents=false", "c: x.y/z"},
		{"foreground, by the body", `{"propagationPolicy":"Foreground"}`, "a: foregroundDeletion, b: foregroundDeletion, c: x.y/z foregroundDeletion"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newGizmos(t, unattended)
			for name, finalizers := range map[string]string{"a": "", "b": "orphan", "c": "x.y/z"} {
				s.PostYAML(gizmosPath, applied(name, finalizing(finalizers)))
			}
			query, body := "?"+tc.options, ""
			if strings.HasPrefix(tc.options, "{") {
				query, body = "", tc.options
			}
			answer := send(t, s, 200, "DELETE", gizmosPath+query, "", body) // never 202, as in kube-apiserver
			if got := decode[*listed](t, answer).names(); got != "a b c" {
				t.Errorf("it deleted %s", got)
			}
			left := s.Get(gizmosPath)
			var all []string
			for i := 0; value(left, fmt.Sprintf("items.%d", i)) != ""; i++ {
				item := value(left, fmt.Sprintf("items.%d", i))
				all = append(all, value(item, "metadata.name")+": "+finalizersOf(item))
			}
			if got := strings.Join(all, ", "); got != tc.left {
				t.Errorf("left %s, want %s", got, tc.left)
			}
		})
	}
}

// TestDeletionsThatFinishByAnUpdate: the write that takes the last finalizer answers 200 with the object, by whichever verb.
func TestDeletionsThatFinishByAnUpdate(t *testing.T) {
	t.Parallel()
	s := newGizmos(t, unattended)
	for _, tc := range []struct{ name, method, query, media, body, left string }{
		{"put", "PUT", "", "", applied("@NAME", `,"resourceVersion":"@RV"`), "gone"},
		{"put, dry run", "PUT", "?dryRun=All", "", applied("@NAME", `,"resourceVersion":"@RV"`), "x.y/z foregroundDeletion"},
		{"merge patch", "PATCH", "", mergePatch, `{"metadata":{"finalizers":null}}`, "gone"},
		{"json patch", "PATCH", "", jsonPatch, `[{"op":"remove","path":"/metadata/finalizers"}]`, "gone"},
		{"one of two", "PATCH", "", jsonPatch, `[{"op":"remove","path":"/metadata/finalizers/0"}]`, "foregroundDeletion"},
		{"by its status, too", "PATCH", "/status", mergePatch, `{"metadata":{"finalizers":null}}`, "x.y/z foregroundDeletion"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			name := slug(tc.name)
			path := gizmosPath + "/" + name
			s.PostYAML(gizmosPath, applied(name, finalizing("x.y/z")))
			marked := send(t, s, 200, "DELETE", path+"?propagationPolicy=Foreground", "", "")
			body := strings.NewReplacer("@NAME", name, "@RV", value(marked, "metadata.resourceVersion")).Replace(tc.body)
			target, query := path, tc.query
			if strings.HasPrefix(query, "/") {
				target, query = path+query, ""
			}
			answer := send(t, s, 200, tc.method, target+query, tc.media, body)
			check(t, answer, "kind=Gizmo metadata.name="+name+" metadata.deletionTimestamp="+value(marked, "metadata.deletionTimestamp"))
			if tc.left == "gone" {
				send(t, s, 404, "GET", path, "", "")
			} else if got := finalizersOf(s.Get(path)); got != tc.left {
				t.Errorf("left %s, want %s", got, tc.left)
			}
		})
	}
}

// TestDeletionPreconditions: a deletion that names a uid or a version is only of that.
func TestDeletionPreconditions(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	made := s.PostYAML(gizmosPath, applied("a", finalizing("x.y/z")))
	uid, version := value(made, "metadata.uid"), value(made, "metadata.resourceVersion")
	on := func(uid, version string) string {
		return fmt.Sprintf(`{"preconditions":{"uid":%q,"resourceVersion":%q}}`, uid, version)
	}
	for _, path := range []string{"", "/a"} { // of the collection, and of the object
		for _, body := range []string{on("x", version), on(uid, "1"), on("x", "1"), `{"preconditions":{"uid":""}}`} {
			res, answer := s.Do("DELETE", gizmosPath+path, body)
			if got := status(t, res, answer); res.StatusCode != 409 || got.Reason != "Conflict" || got.Details.Kind != "Gizmo" || got.Details.Name != "a" {
				t.Errorf("DELETE %s %s: %s", path, body, answer)
			}
		}
	}
	if s.Get(gizmosPath+"/a") != made {
		t.Error("what was refused was done")
	}
	marked := send(t, s, 200, "DELETE", gizmosPath+"/a", "", on(uid, version))
	send(t, s, 409, "DELETE", gizmosPath+"/a", "", on(uid, version)) // it's another version now
	send(t, s, 200, "DELETE", gizmosPath+"/a", "", on(uid, value(marked, "metadata.resourceVersion")))
	send(t, s, 200, "DELETE", gizmosPath+"/a", "", `{"preconditions":{}}`)
}

// TestOwnersThatCantBe: what owner references and finalizers may not be, in every verb that writes them.
func TestOwnersThatCantBe(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	owner := func(without, more string) string {
		var members []string
		for _, name := range []string{"apiVersion", "kind", "name", "uid"} {
			if name != without {
				members = append(members, fmt.Sprintf("%q:%q", name, map[string]string{"apiVersion": "example.com/v1"}[name]+"x"))
			}
		}
		return "{" + strings.Join(members, ",") + more + "}"
	}
	another := strings.Replace(owner("", `,"controller":true`), `"uid":"x"`, `"uid":"y"`, 1)
	const unchecked = "FieldValueInvalid <nil>, " // rules aren't looked at then
	for _, tc := range []struct{ name, metadata, causes string }{
		{"no uid", `"ownerReferences":[` + owner("uid", "") + `]`, unchecked + "FieldValueRequired metadata.ownerReferences[0].uid"},
		{"no name", `"ownerReferences":[` + owner("name", "") + `]`, unchecked + "FieldValueRequired metadata.ownerReferences[0].name"},
		{"no kind", `"ownerReferences":[` + owner("kind", "") + `]`, unchecked + "FieldValueRequired metadata.ownerReferences[0].kind"},
		{"no apiVersion", `"ownerReferences":[` + owner("apiVersion", "") + `]`, unchecked + "FieldValueRequired metadata.ownerReferences[0].apiVersion"},
		{"the second", `"ownerReferences":[` + another + `,` + owner("name", "") + `]`, unchecked + "FieldValueRequired metadata.ownerReferences[1].name"},
		{"nothing", `"ownerReferences":[{}]`, unchecked + "FieldValueRequired metadata.ownerReferences[0].apiVersion, FieldValueRequired metadata.ownerReferences[0].kind, " +
			"FieldValueRequired metadata.ownerReferences[0].name, FieldValueRequired metadata.ownerReferences[0].uid"},
		{"an apiVersion that isn't one", `"ownerReferences":[` + strings.Replace(owner("", ""), "example.com/v1x", "a/b/c", 1) + `]`, "FieldValueInvalid metadata.ownerReferences[0].apiVersion"},
		{"an event", `"ownerReferences":[{"apiVersion":"v1","kind":"Event","name":"x","uid":"x"}]`, "FieldValueInvalid metadata.ownerReferences[0]"},
		{"two controllers", `"ownerReferences":[` + owner("", `,"controller":true`) + `,` + another + `]`, "FieldValueInvalid metadata.ownerReferences"},
		{"foreground and orphan", `"finalizers":["foregroundDeletion","orphan"]`, "FieldValueInvalid metadata.finalizers"},
		{"a finalizer that isn't a name", `"finalizers":["a b"]`, "FieldValueInvalid metadata.finalizers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			name := slug(tc.name)
			made := s.PostYAML(gizmosPath, applied(name, ""))
			for _, w := range []struct{ method, path, media, body string }{
				{"POST", gizmosPath, "", applied("new", ","+tc.metadata)},
				{"PUT", gizmosPath + "/" + name, "", applied(name, `,"resourceVersion":"`+value(made, "metadata.resourceVersion")+`",`+tc.metadata)},
				{"PATCH", gizmosPath + "/" + name, mergePatch, `{"metadata":{` + tc.metadata + `}}`},
			} {
				res, answer := s.Do(w.method, w.path, w.body, "Content-Type", w.media)
				got := status(t, res, answer)
				if res.StatusCode != 422 || causesOf(got) != tc.causes || got.Details.Kind != "Gizmo" {
					t.Errorf("%s: %s: %s", w.method, res.Status, answer)
				}
			}
			if s.Get(gizmosPath+"/"+name) != made {
				t.Error("what was refused was done")
			}
		})
	}
}

// TestDeletionsOfNamespaces: what a deletion with each policy leaves of a namespace, and how it ends when somebody finalizes
// it.
func TestDeletionsOfNamespaces(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, unattended)
	for _, tc := range []struct {
		name, finalizers, query string
		code                    int
		left                    string // finalizers in metadata
		again                   string // the query of a deletion after it is finalized, if finalizers hold it then
	}{
		{"no policy", "", "", 200, "", ""},
		{"background", "", "propagationPolicy=Background", 200, "", ""},
		{"foreground", "", "propagationPolicy=Foreground", 200, "foregroundDeletion", "propagationPolicy=Background"},
		{"orphan", "foregroundDeletion", "propagationPolicy=Orphan", 200, "orphan", "orphanDependents=false"},
		{"orphanDependents", "", "orphanDependents=true", 200, "orphan", "propagationPolicy=Background"},
		{"no orphans", "", "orphanDependents=false", 202, "foregroundDeletion", "orphanDependents=false"}, // for namespaces alone
		{"dry run", "", "dryRun=All&propagationPolicy=Foreground", 200, "foregroundDeletion", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			name := slug(tc.name)
			path := "/api/v1/namespaces/" + name
			made := s.PostYAML("/api/v1/namespaces", `{"metadata":{"name":"`+name+`"`+finalizing(tc.finalizers)+`},"spec":{"finalizers":["x.y/z"]}}`)
			marked := send(t, s, tc.code, "DELETE", path+"?"+tc.query, "", "")
			check(t, marked, `kind=Namespace status.phase=Terminating metadata.deletionTimestamp!= metadata.deletionGracePeriodSeconds= spec.finalizers=["x.y/z","kubernetes"]`)
			if got := finalizersOf(marked); got != tc.left {
				t.Errorf("left %s, want %s", got, tc.left)
			}
			if strings.HasPrefix(tc.query, "dryRun") {
				if s.Get(path) != made {
					t.Error("a dry run was stored")
				}
				return
			}
			// While spec has finalizers, deleting again changes nothing, whatever the policy.
			for _, query := range []string{"", "?propagationPolicy=Orphan", "?propagationPolicy=Background"} {
				if again := send(t, s, 200, "DELETE", path+query, "", ""); again != marked {
					t.Errorf("%q leaves %s", query, again)
				}
			}
			check(t, send(t, s, 409, "DELETE", path, "", `{"preconditions":{"uid":"x"}}`), "reason=Conflict details.kind=namespaces details.name="+name)
			finalize := func(finalizers string) string {
				return send(t, s, 200, "PUT", path+"/finalize", "", `{"metadata":{"name":"`+name+`"`+finalizing(tc.left)+`},"spec":{"finalizers":[`+finalizers+`]}}`)
			}
			check(t, finalize(`"x.y/z"`), `kind=Namespace spec.finalizers=["x.y/z"]`)
			s.Get(path)
			check(t, finalize(""), "kind=Namespace status.phase=Terminating")
			if tc.again != "" { // the collector's finalizer holds it
				if got := finalizersOf(s.Get(path)); got != tc.left {
					t.Errorf("after it was finalized there is %s, want %s", got, tc.left)
				}
				check(t, send(t, s, 200, "DELETE", path+"?"+tc.again, "", ""), "kind=Namespace metadata.name="+name)
			}
			send(t, s, 404, "GET", path, "", "")
		})
	}
}

// TestDeletionsOfBuiltInKinds: those that are deleted by rules of their own, and others.
func TestDeletionsOfBuiltInKinds(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, unattended, func(s *server.Server) { s.API.Builtin = builtin.All })
	const (
		core, batch = "/api/v1/namespaces/default/", "/apis/batch/v1/namespaces/default/"
		containers  = `"containers":[{"name":"c","image":"i"}]`
		running     = `"spec":{"nodeName":"n",` + containers + `}`
		template    = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{` + containers + `,"restartPolicy":"%s"}}`
		event       = `"involvedObject":{"namespace":"default"}`
	)
	replicating, working := `"spec":{`+fmt.Sprintf(template, "Always")+`}`, `"spec":{`+fmt.Sprintf(template, "Never")+`}`
	for _, tc := range []struct{ name, path, body, status, query, left string }{
		{"a pod that runs nowhere", core + "pods", `"spec":{` + containers + `}`, "", "", "gone"},
		{"a pod that runs", core + "pods", running, "", "", "30"},
		{"a pod with less time", core + "pods", running, "", "gracePeriodSeconds=5", "5"},
		{"a pod that goes at once", core + "pods", running, "", "gracePeriodSeconds=0", "gone"},
		{"a pod that has ended", core + "pods", running, "Succeeded", "", "gone"},
		{"a pod that has failed", core + "pods", running, "Failed", "gracePeriodSeconds=5", "gone"},
		{"a pod, foreground", core + "pods", running, "", "propagationPolicy=Foreground", "30 foregroundDeletion"},
		{"a job", batch + "jobs", working, "", "", "0 orphan"},
		{"a job, background", batch + "jobs", working, "", "propagationPolicy=Background", "gone"},
		{"a replication controller", core + "replicationcontrollers", replicating, "", "", "0 orphan"},
		{"a config map", core + "configmaps", `"data":{}`, "", "", "gone"},
		{"a config map, orphan", core + "configmaps", `"data":{}`, "", "propagationPolicy=Orphan", "0 orphan"},
		{"an event", core + "events", event, "", "propagationPolicy=Foreground", "gone"},
		{"an event, by its other group", "/apis/events.k8s.io/v1/namespaces/default/events", `"note":"x","reason":"R","action":"A","type":"Normal",` +
			`"eventTime":"2026-01-01T00:00:00.000000Z","reportingController":"a.b/c","reportingInstance":"i"`, "", "propagationPolicy=Orphan", "gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			name := slug(tc.name)
			path := tc.path + "/" + name
			s.PostYAML(tc.path, `{"metadata":{"name":"`+name+`"},`+tc.body+`}`)
			if tc.status != "" {
				send(t, s, 200, "PATCH", path+"/status", mergePatch, `{"status":{"phase":"`+tc.status+`"}}`)
			}
			answer := send(t, s, 200, "DELETE", path+"?"+tc.query, "", "")
			if tc.left == "gone" {
				gone := "kind=Status status=Success"
				if strings.HasSuffix(tc.path, "/pods") { // Kubernetes shows what it was
					gone = "kind=Pod metadata.name=" + name
				}
				check(t, answer, gone)
				send(t, s, 404, "GET", path, "", "")
				return
			}
			if got := strings.TrimSpace(value(answer, "metadata.deletionGracePeriodSeconds") + " " + finalizersOf(answer)); got != tc.left {
				t.Errorf("left %s, want %s", got, tc.left)
			}
			check(t, s.Get(path), "metadata.deletionTimestamp="+value(answer, "metadata.deletionTimestamp"))
		})
	}
}
