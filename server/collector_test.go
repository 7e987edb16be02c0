package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestCollector: what the garbage collector leaves. An object is written "Kind name", and its options after that:
//
//	<Kind/name   it's owned by that object, which is there already
//	<!Kind/name  the same, with blockOwnerDeletion
//	@namespace   default if it's missing
//	+finalizer
//
// Things, Parts and ConfigMaps are namespaced, Roots and Namespaces aren't. A step is an object that is created, or "METHOD
// Kind/name?query body".
func TestCollector(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		objects []string
		steps   []string
		left    string // as "Kind/name", with what is special about each
		then    []string
		end     string // what is left after that
	}{
		{name: "background",
			objects: []string{"Thing a", "Thing b <Thing/a", "Part c <!Thing/a", "Part e"},
			steps:   []string{"DELETE Thing/a?propagationPolicy=Background"}, left: "Part/e"},
		{name: "no policy is background",
			objects: []string{"Thing a", "Thing b <Thing/a"}, steps: []string{"DELETE Thing/a"}},
		{name: "generations",
			objects: []string{"Root a", "Thing b <Root/a", "Part c <Thing/b", "Part d @other <Root/a", "Root e <Root/a"},
			steps:   []string{"DELETE Root/a"}},
		{name: "foreground, nothing blocks",
			objects: []string{"Thing a", "Thing b <Thing/a +x/y"}, steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"},
			left: "Thing/b deleting +x/y <Thing/a"},
		{name: "foreground, a dependent blocks",
			objects: []string{"Thing a", "Thing b <!Thing/a +x/y", "Thing c <!Thing/a"}, steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"},
			left: "Thing/a deleting +foregroundDeletion, Thing/b deleting +x/y <!Thing/a",
			then: []string{release + " Thing/b"}},
		{name: "foreground, and foreground below it",
			objects: []string{"Thing a", "Thing b <!Thing/a", "Part c <!Thing/b +x/y"}, steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"},
			left: "Part/c deleting +x/y <!Thing/b, Thing/a deleting +foregroundDeletion, Thing/b deleting +foregroundDeletion <!Thing/a",
			then: []string{release + " Part/c"}},
		{name: "foreground, the dependent has another owner",
			objects: []string{"Thing a", "Thing b", "Thing c <!Thing/a <!Thing/b"}, steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"},
			left: "Thing/b, Thing/c <!Thing/b"},
		{name: "foreground, nothing depends", objects: []string{"Thing a"}, steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"}},
		{name: "foreground, the owner is held besides",
			objects: []string{"Thing a +x/y", "Thing b <!Thing/a"}, steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"},
			left: "Thing/a deleting +x/y", then: []string{release + " Thing/a"}},
		{name: "foreground, then background",
			objects: []string{"Thing a", "Thing b <!Thing/a +x/y"}, steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"},
			left: "Thing/a deleting +foregroundDeletion, Thing/b deleting +x/y <!Thing/a",
			then: []string{"DELETE Thing/a?propagationPolicy=Background"}, end: "Thing/b deleting +x/y <!Thing/a"},
		{name: "orphan",
			objects: []string{"Thing a", "Thing b <!Thing/a", "Part c <Thing/a +x/y", "Part d <Part/c"}, steps: []string{"DELETE Thing/a?propagationPolicy=Orphan"},
			left: "Part/c +x/y, Part/d <Part/c, Thing/b"},
		{name: "orphanDependents", objects: []string{"Thing a", "Thing b <Thing/a"}, steps: []string{"DELETE Thing/a?orphanDependents=true"}, left: "Thing/b"},
		{name: "orphanDependents=false", objects: []string{"Thing a", "Thing b <Thing/a"}, steps: []string{"DELETE Thing/a?orphanDependents=false"}},
		{name: "orphan, a dependent is being deleted",
			objects: []string{"Thing a", "Thing b <!Thing/a +x/y"}, steps: []string{"DELETE Thing/b", "DELETE Thing/a?propagationPolicy=Orphan"},
			left: "Thing/b deleting +x/y"},
		{name: "orphan, the dependent has another owner",
			objects: []string{"Thing a", "Thing b", "Thing c <Thing/a <Thing/b"}, steps: []string{"DELETE Thing/a?propagationPolicy=Orphan"},
			left: "Thing/b, Thing/c <Thing/b", then: []string{"DELETE Thing/b"}},
		{name: "a dependent that asked to orphan its own",
			objects: []string{"Thing a", "Thing b <Thing/a +orphan", "Thing c <Thing/b"}, steps: []string{"DELETE Thing/a"}, left: "Thing/c"},
		{name: "a dependent that asked for foreground",
			objects: []string{"Thing a", "Thing b <Thing/a +foregroundDeletion", "Thing c <!Thing/b +x/y"}, steps: []string{"DELETE Thing/a"},
			left: "Thing/b deleting +foregroundDeletion <Thing/a, Thing/c deleting +x/y <!Thing/b", then: []string{release + " Thing/c"}},
		{name: "one of several owners goes",
			objects: []string{"Thing a", "Thing b", "Thing c <Thing/a <Thing/b"}, steps: []string{"DELETE Thing/a"},
			left: "Thing/b, Thing/c <Thing/b", then: []string{"DELETE Thing/b"}},
		{name: "all of several owners go",
			objects: []string{"Thing a", "Root b", "Thing c <Thing/a <Root/b"}, steps: []string{"DELETE Thing/a", "DELETE Root/b"}},
		{name: "an owner that never was", steps: []string{`POST Thing {"name":"a","ownerReferences":[` + reference("Root", "none", "u-1") + `]}`}},
		{name: "an owner of another uid", objects: []string{"Thing a"}, left: "Thing/a",
			steps: []string{`POST Thing {"name":"b","ownerReferences":[` + reference("Thing", "a", "u-1") + `]}`}},
		{name: "an owner that never was, besides one that is", objects: []string{"Thing a", "Thing b <Thing/a"}, left: "Thing/a, Thing/b <Thing/a",
			steps: []string{patch + ` Thing/b [{"op":"add","path":"/metadata/ownerReferences/-","value":` + reference("Root", "none", "u-1") + `}]`}},
		{name: "an owner whose name no object can have", steps: []string{`POST Thing {"name":"a","ownerReferences":[` + reference("Thing", "a/b", "u-1") + `]}`}},
		{name: "an owner that is added later", objects: []string{"Thing a"},
			steps: []string{patch + ` Thing/a [{"op":"add","path":"/metadata/ownerReferences","value":[` + reference("Root", "none", "u-1") + `]}]`}},
		{name: "an owner that is taken away in time", objects: []string{"Thing a", "Thing b <Thing/a"}, left: "Thing/b",
			steps: []string{patch + ` Thing/b [{"op":"remove","path":"/metadata/ownerReferences"}]`, "DELETE Thing/a"}},
		{name: "an owner in another namespace", objects: []string{"Thing a @other"}, left: "Thing/other/a", steps: []string{"Thing b <Thing/other/a"}},
		{name: "a namespaced owner of a cluster-scoped object", objects: []string{"Thing a", "Root b <!Thing/a"},
			steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"}, left: "Root/b <!Thing/a"},
		{name: "a namespaced owner that never was of a cluster-scoped object", left: "Root/b <Thing/none",
			steps: []string{`POST Root {"name":"b","ownerReferences":[` + reference("Thing", "none", "u-1") + `]}`}},
		{name: "an owner of a kind that isn't served", left: "Thing/a <Later/l",
			steps: []string{`POST Thing {"name":"a","ownerReferences":[` + reference("Later", "l", "u-1") + `]}`},
			then:  []string{"DEFINE Later"}},
		{name: "owners of kinds that are and aren't served", left: "Thing/b <Later/l <Root/none", // it's left alone
			steps: []string{`POST Thing {"name":"b","ownerReferences":[` + reference("Later", "l", "u-1") + `,` + reference("Root", "none", "u-2") + `]}`},
			then:  []string{"DEFINE Later"}},
		{name: "an owner that can't be looked up, and one that waits", objects: []string{"Thing a", "Thing b <!Thing/a"},
			steps: []string{patch + ` Thing/b [{"op":"add","path":"/metadata/ownerReferences/-","value":` + reference("Later", "l", "u-1") + `}]`,
				"DELETE Thing/a?propagationPolicy=Foreground"},
			left: "Thing/a deleting +foregroundDeletion, Thing/b <!Thing/a <Later/l", then: []string{"DEFINE Later"}},
		{name: "an owner that can't be looked up, and one that leaves its dependents", objects: []string{"Thing a", "Thing b <!Thing/a"},
			steps: []string{patch + ` Thing/b [{"op":"add","path":"/metadata/ownerReferences/-","value":` + reference("Later", "l", "u-1") + `}]`,
				"DELETE Thing/a?propagationPolicy=Orphan"},
			left: "Thing/b <Later/l"},
		{name: "an owner in a version that isn't served", objects: []string{"Thing a"}, steps: []string{"OWN2 Thing/a Thing/b"},
			left: "Thing/a, Thing/b <Thing/a", then: []string{"DELETE Thing/a"}},
		{name: "an owner in a version that isn't served, orphan", objects: []string{"Thing a"},
			steps: []string{"OWN2 Thing/a Thing/b", "DELETE Thing/a?propagationPolicy=Orphan"}, left: "Thing/b"},
		{name: "an owner in a version that isn't served, foreground", objects: []string{"Thing a"},
			steps: []string{"OWN2 Thing/a Thing/b", patch + ` Thing/b [{"op":"add","path":"/metadata/finalizers","value":["x/y"]},{"op":"add","path":"/metadata/ownerReferences/0/blockOwnerDeletion","value":true}]`,
				"DELETE Thing/a?propagationPolicy=Foreground"},
			left: "Thing/a deleting +foregroundDeletion, Thing/b deleting +x/y <!Thing/a", then: []string{release + " Thing/b"}},
		{name: "orphan, a dependent names another kind with the owner's uid", objects: []string{"Thing a"},
			steps: []string{"LIE Thing/a Thing/b", "DELETE Thing/a?propagationPolicy=Orphan"}, left: "Thing/b"},
		{name: "foreground, an object elsewhere names another kind with the owner's uid", objects: []string{"Thing a"},
			steps: []string{"LIE Thing/a Thing/other/b", "DELETE Thing/a?propagationPolicy=Foreground"}, left: "Thing/other/b +x/y <!Nosuch/a"},
		{name: "a definition that goes with an owner", objects: []string{"DEFINE Later", "Later l", "Thing a <Later/l", "Thing b <!Thing/a"},
			steps: []string{"UNDEFINE Later"}},
		{name: "an owner in another version", objects: []string{"Thing a"}, left: "Thing/a, Thing/b <Thing/a",
			steps: []string{"OWN1 Thing/a Thing/b"}, then: []string{"DELETE Thing/a"}},
		{name: "a definition is owned", objects: []string{"Root a", "DEFINE Later", own + "Definition/laters.collected.example.com Root/a", "Later l", "Thing b <Later/l"},
			steps: []string{"DELETE Root/a"}},
		{name: "a definition is owned, foreground", objects: []string{"Root a", "DEFINE Later", own + "Definition/laters.collected.example.com Root/a", "Later l +x/y", "Thing b <Later/l"},
			steps: []string{"DELETE Root/a?propagationPolicy=Foreground"}, left: "Later/l deleting +x/y, Root/a deleting +foregroundDeletion, Thing/b <Later/l",
			then: []string{release + " Later/l"}},
		{name: "built-in kinds own and are owned", objects: []string{"Thing a", "ConfigMap b <!Thing/a", "Thing c <ConfigMap/b", "ConfigMap d <Thing/c", "ConfigMap e"},
			steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"}, left: "ConfigMap/e"},
		{name: "a circle", objects: []string{"Thing a", "Thing b <!Thing/a", "Thing c <!Thing/b", own + "Thing/a Thing/c"},
			steps: []string{"DELETE Thing/b"}},
		{name: "a circle in the foreground", objects: []string{"Thing a", "Thing b <!Thing/a", "Thing c <!Thing/b", own + "Thing/a Thing/c"},
			steps: []string{"DELETE Thing/b?propagationPolicy=Foreground"}},
		{name: "a circle, all of it deleted in the foreground", objects: []string{"Thing a", "Thing b <!Thing/a", "Thing c <!Thing/b", own + "Thing/a Thing/c"},
			steps: []string{"DELETE Thing/a?propagationPolicy=Foreground", "DELETE Thing/b?propagationPolicy=Foreground", "DELETE Thing/c?propagationPolicy=Foreground"}},
		{name: "a circle that something holds", objects: []string{"Thing a", "Thing b <!Thing/a +x/y", own + "Thing/a Thing/b"},
			steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"}, left: "Thing/b deleting +x/y <Thing/a",
			then: []string{release + " Thing/b"}},
		{name: "a circle that nobody deletes", objects: []string{"Thing a", "Thing b <!Thing/a", own + "Thing/a Thing/b"}, left: "Thing/a <!Thing/b, Thing/b <!Thing/a"},
		{name: "its own owner", objects: []string{"Thing a", own + "Thing/a Thing/a"}, steps: []string{"DELETE Thing/a?propagationPolicy=Foreground"}},
		{name: "collections", objects: []string{"Thing a", "Thing b", "Part c <Thing/a", "Part d <!Thing/b"}, steps: []string{"DELETE Thing?propagationPolicy=Orphan"},
			left: "Part/c, Part/d", then: []string{"DELETE Part?propagationPolicy=Foreground"}},
		{name: "a namespace owns", objects: []string{"Namespace n", "Thing a <Namespace/n", "Root b <Namespace/n"}, steps: []string{"DELETE Namespace/n"}},
		{name: "a namespace is owned", objects: []string{"Root a", "Namespace n <!Root/a", "Thing b @n +x/y"}, steps: []string{"DELETE Root/a?propagationPolicy=Foreground"},
			left: "Namespace/n deleting <!Root/a, Root/a deleting +foregroundDeletion, Thing/n/b deleting +x/y", then: []string{release + " Thing/n/b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newCollected(t)
			for _, s := range c.objects {
				w.step(s)
			}
			w.Quiescent()
			for _, s := range c.steps {
				w.step(s)
			}
			w.expect("left", c.left)
			if len(c.then) > 0 {
				for _, s := range c.then {
					w.step(s)
				}
				w.expect("left in the end", c.end)
			}
		})
	}
}

const (
	release = "RELEASE" // takes an object's finalizer x/y away
	patch   = "PATCH"   // with a JSON patch
	own     = "OWN "    // makes the second object an owner of the first, with blockOwnerDeletion
)

func reference(kind, name, uid string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}`, groupVersionOf(kind), kind, name, uid)
}

func groupVersionOf(kind string) string {
	if kind == "Namespace" || kind == "ConfigMap" {
		return "v1"
	}
	return "collected.example.com/v1"
}

// collected is a server whose garbage collector is tested.
type collected struct {
	*servertest.Server
	t *testing.T
}

func newCollected(t *testing.T, options ...func(*server.Server)) collected {
	w := collected{servertest.New(t, options...), t}
	for _, kind := range []string{"Thing", "Part", "Root"} {
		w.step("DEFINE " + kind)
	}
	w.step("Namespace other")
	return w
}

// kinds are those of the objects that are looked at, in order.
var collectedKinds = []string{"ConfigMap", "Later", "Namespace", "Part", "Root", "Thing"}

// path returns that of a kind, or of an object "Kind/name" or "Kind/namespace/name".
func (w collected) path(object string) string {
	f := strings.Split(object, "/")
	namespace := "/namespaces/default"
	if len(f) == 3 {
		namespace, f = "/namespaces/"+f[1], []string{f[0], f[2]}
	}
	if f[0] == "Root" || f[0] == "Namespace" {
		namespace = ""
	}
	path := "/apis/collected.example.com/v1" + namespace
	switch f[0] {
	case "Definition":
		return definitionsPath + "/" + f[1]
	case "Namespace", "ConfigMap":
		path = "/api/v1" + namespace
	}
	path += "/" + strings.ToLower(f[0]) + "s"
	if len(f) == 2 {
		path += "/" + f[1]
	}
	return path
}

func (w collected) step(s string) {
	w.t.Helper()
	verb, rest, _ := strings.Cut(s, " ")
	target, body, _ := strings.Cut(rest, " ")
	switch verb {
	case "DEFINE":
		scope := map[bool]string{true: "Cluster", false: "Namespaced"}[target == "Root"]
		w.PostYAML(definitionsPath, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
			"metadata":{"name":"%[1]ss.collected.example.com"},"spec":{"group":"collected.example.com","scope":%[2]q,"names":{"kind":%[3]q,"plural":"%[1]ss"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
			{"name":"v1beta1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}},
			{"name":"v1alpha1","served":false,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, strings.ToLower(target), scope, target))
	case "UNDEFINE":
		w.must("DELETE", definitionsPath+"/"+strings.ToLower(target)+"s.collected.example.com", "")
	case "DELETE":
		target, query, _ := strings.Cut(target, "?")
		if res, answer := w.Do(verb, w.path(target)+"?"+query, body); res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNotFound {
			w.t.Fatalf("%s: %s\n%s", s, res.Status, answer) // what isn't found was collected already
		}
	case "POST":
		w.PostYAML(w.path(target), fmt.Sprintf(`{"apiVersion":"collected.example.com/v1","kind":%q,"metadata":%s}`, target, body))
	case patch:
		w.must(verb, w.path(target), body, "Content-Type", jsonPatch)
	case release:
		w.must("PATCH", w.path(target), `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch)
	case "OWN":
		ref := strings.TrimSuffix(w.reference(body), "}") + `,"blockOwnerDeletion":true}`
		w.must("PATCH", w.path(target), `{"metadata":{"ownerReferences":[`+ref+`]}}`, "Content-Type", mergePatch)
	case "OWN1": // the first object owns the second, which is created, in the older version
		kind, name, _ := strings.Cut(body, "/")
		w.PostYAML(w.path(kind), fmt.Sprintf(`{"apiVersion":"collected.example.com/v1","kind":%q,"metadata":{"name":%q,"ownerReferences":[%s]}}`,
			kind, name, strings.Replace(w.reference(target), "/v1", "/v1beta1", 1)))
	case "OWN2": // the same in a version that isn't served
		kind, name, _ := strings.Cut(body, "/")
		w.PostYAML(w.path(kind), fmt.Sprintf(`{"apiVersion":"collected.example.com/v1","kind":%q,"metadata":{"name":%q,"ownerReferences":[%s]}}`,
			kind, name, strings.Replace(w.reference(target), "/v1", "/v1alpha1", 1)))
	case "LIE": // the second object, which is created and held, names the first one's uid and a kind that isn't served
		f := strings.Split(body, "/")
		uid := value(w.Get(w.path(target)), "metadata.uid")
		held := ""
		if len(f) == 3 {
			held = `"x/y"`
		}
		w.PostYAML(strings.TrimSuffix(w.path(body), "/"+f[len(f)-1]), fmt.Sprintf(`{"apiVersion":"collected.example.com/v1","kind":%q,"metadata":{"name":%q,"finalizers":[%s],
			"ownerReferences":[{"apiVersion":"nosuch.example/v1","kind":"Nosuch","name":"a","uid":%q,"blockOwnerDeletion":true}]}}`, f[0], f[len(f)-1], held, uid))
	default:
		w.create(s)
	}
}

func (w collected) must(method, path, body string, headers ...string) {
	w.t.Helper()
	if res, answer := w.Do(method, path, body, headers...); res.StatusCode > http.StatusAccepted {
		w.t.Fatalf("%s %s: %s\n%s", method, path, res.Status, answer)
	}
}

// reference returns a reference to an object that is there.
func (w collected) reference(object string) string {
	w.t.Helper()
	f := strings.Split(object, "/")
	return reference(f[0], f[len(f)-1], value(w.Get(w.path(object)), "metadata.uid"))
}

// create creates what TestCollector describes.
func (w collected) create(s string) {
	w.t.Helper()
	f := strings.Fields(s)
	kind, name, namespace := f[0], f[1], "default"
	var owners, finalizers []string
	for _, option := range f[2:] {
		switch option[0] {
		case '@':
			namespace = option[1:]
		case '+':
			finalizers = append(finalizers, fmt.Sprintf("%q", option[1:]))
		case '<':
			owner, blocks := strings.CutPrefix(option[1:], "!")
			ref := strings.TrimSuffix(w.reference(owner), "}")
			owners = append(owners, fmt.Sprintf(`%s,"blockOwnerDeletion":%v}`, ref, blocks))
		}
	}
	w.PostYAML(strings.TrimSuffix(w.path(kind+"/"+namespace+"/x"), "/x"), fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"finalizers":[%s],"ownerReferences":[%s]}}`,
		groupVersionOf(kind), kind, name, strings.Join(finalizers, ","), strings.Join(owners, ",")))
}

// expect waits until the server is quiescent, and compares what is left then.
func (w collected) expect(what, want string) {
	w.t.Helper()
	w.Quiescent()
	var left []string
	for _, kind := range collectedKinds {
		res, answer := w.Do("GET", strings.Replace(w.path(kind), "/namespaces/default", "", 1), "")
		if res.StatusCode == http.StatusNotFound {
			continue
		}
		var list struct{ Items []collectedObject }
		if err := json.Unmarshal([]byte(answer), &list); err != nil {
			w.t.Fatal(err)
		}
		for _, o := range list.Items {
			if len(o.Metadata.Name) > 1 { // a server has namespaces and the like of its own
				continue
			}
			left = append(left, kind+"/"+o.String())
		}
	}
	slices.Sort(left)
	if got := strings.Join(left, ", "); got != want {
		w.t.Errorf("%s is\n\t%s\nwant\n\t%s", what, got, want)
	}
}

type collectedObject struct {
	Metadata struct {
		Name, Namespace, DeletionTimestamp string
		Finalizers                         []string
		OwnerReferences                    []struct {
			Kind, Name         string
			BlockOwnerDeletion bool
		}
	}
}

func (o collectedObject) String() string {
	m := o.Metadata
	s := m.Name
	if m.Namespace != "" && m.Namespace != "default" {
		s = m.Namespace + "/" + s
	}
	if m.DeletionTimestamp != "" {
		s += " deleting"
	}
	for _, f := range m.Finalizers {
		s += " +" + f
	}
	for _, r := range m.OwnerReferences {
		s += " <" + map[bool]string{true: "!"}[r.BlockOwnerDeletion] + r.Kind + "/" + r.Name
	}
	return s
}

// TestCollectorRefused: what can't be deleted is tried again and holds up no other, and the barrier says what it is.
func TestCollectorRefused(t *testing.T) {
	t.Parallel()
	w := newCollected(t)
	w.step(patch + ` Namespace/default [{"op":"add","path":"/metadata/ownerReferences","value":[` + reference("Root", "none", "u-1") + `]}]`)
	w.step("Thing a")
	for i := range 40 { // more than there are workers
		w.step(fmt.Sprintf("Thing b%d <Thing/a", i))
	}
	w.step("DELETE Thing/a")
	until(t, "the dependents are gone", func() bool { return !strings.Contains(w.Get(w.path("Thing")), `"name"`) })
	res, body := w.Do("GET", "/debug/quiescent?timeout=100ms", "")
	var answer struct {
		Details struct {
			Causes []struct{ Field, Message string }
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	if c := answer.Details.Causes; res.StatusCode != http.StatusGatewayTimeout || len(c) != 1 || c[0].Field != "v1 Namespace default" || !strings.Contains(c[0].Message, "may not be deleted") {
		t.Errorf("the barrier says %s\n%s", res.Status, body)
	}
	for _, metric := range []string{"apiserver_lite_collector_queue 1\n", "apiserver_lite_owned_objects 1\n"} {
		if !strings.Contains(w.Get("/metrics"), metric) {
			t.Errorf("the metrics lack %q", metric)
		}
	}
	w.must("PATCH", w.path("Namespace/default"), `{"metadata":{"ownerReferences":null}}`, "Content-Type", mergePatch)
	w.expect("left", "")
}

var orphanRounds = flag.Int("orphan-rounds", 150, "how many owners TestOrphanInUnservedVersion deletes")

// TestOrphanInUnservedVersion: an owner that leaves its dependents loses none, although they name it by a version that its
// definition no longer serves. The owner's worker and the dependent's begin together, so that they race.
func TestOrphanInUnservedVersion(t *testing.T) {
	t.Parallel()
	w := newCollected(t)
	for i := range *orphanRounds {
		// By another kind nobody can look the owner up, and it waits for its uid alone.
		owner, dependent := fmt.Sprintf("Thing/o%d", i), fmt.Sprintf("Part/d%d", i)
		w.step(fmt.Sprintf("Thing o%d", i))
		w.step("OWN2 " + owner + " " + dependent)
		lies := strings.Replace(dependent, "d", "l", 1)
		w.step("LIE " + owner + " " + lies)
		w.step("DELETE " + owner + "?propagationPolicy=Orphan")
		w.Quiescent()
		for _, path := range []string{w.path(dependent), w.path(lies)} {
			if got := w.Get(path); strings.Contains(got, "ownerReferences") || strings.Contains(got, "deletionTimestamp") {
				t.Fatalf("round %d: %s", i, got)
			}
		}
		if res, _ := w.Do("GET", w.path(owner), ""); res.StatusCode != http.StatusNotFound {
			t.Fatalf("round %d: the owner is still there: %s", i, res.Status)
		}
	}
}

// TestBusyDependent: a dependent that clients write all the time is collected all the same, and then nothing is left to do.
func TestBusyDependent(t *testing.T) {
	t.Parallel()
	w := newCollected(t)
	w.step("Thing a")
	w.step("Thing b <Thing/a")
	w.Quiescent()
	var writing sync.WaitGroup
	var wrote atomic.Int64
	for i := range 8 {
		writing.Go(func() {
			for n := 0; ; n++ { // until it's gone
				wrote.Add(1)
				res, answer := w.Do("PATCH", w.path("Thing/b"), fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d-%d"}}}`, i, n), "Content-Type", mergePatch)
				if res.StatusCode == http.StatusNotFound || t.Context().Err() != nil {
					return
				}
				if res.StatusCode != http.StatusOK {
					t.Errorf("%s\n%s", res.Status, answer)
					return
				}
			}
		})
	}
	defer writing.Wait()
	until(t, "all clients write", func() bool { return wrote.Load() > 500 })
	w.step("DELETE Thing/a")
	until(t, "the dependent is gone", func() bool {
		res, _ := w.Do("GET", w.path("Thing/b"), "")
		return res.StatusCode == http.StatusNotFound
	})
	w.expect("left", "")
}

// TestReplicasNewKinds: where several replicas share a store, the one that acts hears of a definition by the store. It has the
// definition's catalog all the same before it acts on anything that came after it: no object stays in a namespace that is
// gone, none stays whose owner isn't there, and the barrier says so when it returns.
func TestReplicasNewKinds(t *testing.T) {
	t.Parallel()
	all := newReplicas(t, 2)
	b := all[1-leader(t, all)] // it doesn't act
	const rounds = 25
	for i := range rounds {
		group, space := fmt.Sprintf("g%d.example.com", i), fmt.Sprintf("space-%d", i)
		b.PostYAML("/api/v1/namespaces", "metadata: {name: "+space+"}")
		b.PostYAML(definitionsPath, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"news.`+group+`"},
			"spec":{"group":"`+group+`","scope":"Namespaced","names":{"kind":"New","plural":"news"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
		body := `{"apiVersion":"` + group + `/v1","kind":"New","metadata":{"name":"x"`
		if i%2 == 0 {
			b.PostYAML("/apis/"+group+"/v1/namespaces/"+space+"/news", body+`}}`)
			if res, answer := b.Do("DELETE", "/api/v1/namespaces/"+space, ""); res.StatusCode != http.StatusOK {
				t.Fatalf("%s\n%s", res.Status, answer)
			}
		} else {
			b.PostYAML("/apis/"+group+"/v1/namespaces/"+space+"/news", body+`,"ownerReferences":[`+reference("ConfigMap", "none", "u-1")+`]}}`)
		}
		b.Quiescent()
		if text := b.Get("/apis/" + group + "/v1/news"); strings.Contains(text, `"name":"x"`) {
			t.Errorf("round %d: when nothing is left to do, the object is still there: %s", i, text)
		}
		if res, _ := b.Do("GET", "/api/v1/namespaces/"+space, ""); i%2 == 0 && res.StatusCode != http.StatusNotFound {
			t.Errorf("round %d: when nothing is left to do, the namespace is still there: %s", i, res.Status)
		}
	}
}

// TestCollectorOff: without the collector, finalizers and dependents wait for whoever acts.
func TestCollectorOff(t *testing.T) {
	t.Parallel()
	for _, controllers := range []string{"none", "namespace,expiry"} {
		t.Run(controllers, func(t *testing.T) {
			t.Parallel()
			w := newCollected(t, func(s *server.Server) { s.API.Controllers = controllers })
			for _, s := range []string{"Thing a", "Thing b <!Thing/a", "Thing c", "Thing d <!Thing/c", "Thing e", "Thing f <Thing/e", "DELETE Thing/a",
				"DELETE Thing/c?propagationPolicy=Foreground", "DELETE Thing/e?propagationPolicy=Orphan"} {
				w.step(s)
			}
			w.expect("left", "Thing/b <!Thing/a, Thing/c deleting +foregroundDeletion, Thing/d <!Thing/c, Thing/e deleting +orphan, Thing/f <Thing/e")
		})
	}
}

// TestCollectorDryRun: a deletion that isn't done has no consequences.
func TestCollectorDryRun(t *testing.T) {
	t.Parallel()
	w := newCollected(t)
	for _, s := range []string{"Thing a", "Thing b <!Thing/a", "DELETE Thing/a?dryRun=All", "DELETE Thing/a?dryRun=All&propagationPolicy=Foreground",
		"DELETE Thing?dryRun=All&propagationPolicy=Orphan"} {
		w.step(s)
	}
	w.expect("left", "Thing/a, Thing/b <!Thing/a")
}
