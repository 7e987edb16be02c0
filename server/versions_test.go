package server_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const thingsPath = "/apis/example.com/v1/namespaces/default/things"

// versionOf is one version of a definition, with properties of its spec.
func versionOf(name string, served, storage bool, properties string) string {
	return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%s}},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}`,
		name, served, storage, properties)
}

// setVersions replaces a definition's versions.
func setVersions(t *testing.T, s *servertest.Server, code int, versions ...string) string {
	t.Helper()
	return send(t, s, code, "PATCH", definitionsPath+"/things.example.com", mergePatch, `{"spec":{"versions":[`+strings.Join(versions, ",")+`]}}`)
}

func thing(version, name, more string) string {
	return `{"apiVersion":"example.com/` + version + `","kind":"Thing","metadata":{"name":"` + name + `"}` + more + `}`
}

// TestStoredVersions: a version goes only when nothing is stored in it, as the migrator says.
func TestStoredVersions(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, defined(t, "things", "Thing"))
	const def = definitionsPath + "/things.example.com"
	v1, v2 := versionOf("v1", true, true, `"a":{"type":"string"}`), versionOf("v2", true, false, `"a":{"type":"string"}`)
	check(t, setVersions(t, s, 200, v1, v2), `status.storedVersions=["v1"] metadata.generation=2`)
	s.PostYAML(thingsPath, thing("v1", "a", `,"spec":{"a":"x"}`))
	v1Kept, v2Stored := versionOf("v1", true, false, `"a":{"type":"string"}`), versionOf("v2", true, true, `"a":{"type":"string"}`)
	check(t, setVersions(t, s, 200, v1Kept, v2Stored), `status.storedVersions=["v1","v2"]`)
	check(t, s.Get(thingsPath+"/a"), "apiVersion=example.com/v1 spec.a=x")
	refused := func(code int, causes string, path, patch string) {
		t.Helper()
		res, body := s.Do("PATCH", path, patch, "Content-Type", mergePatch)
		if got := status(t, res, body); res.StatusCode != code || causesOf(got) != causes {
			t.Errorf("%s: %s, causes %s: %s", patch, res.Status, causesOf(got), body)
		}
	}
	refused(422, "FieldValueInvalid status.storedVersions[0]", def, `{"spec":{"versions":[`+v2Stored+`]}}`)
	// The status takes any, with which nothing else can be changed.
	check(t, send(t, s, 200, "PATCH", def+"/status", mergePatch, `{"status":{"storedVersions":["v2","v3"]}}`), `status.storedVersions=["v2","v3"]`)
	refused(422, "FieldValueInvalid status.storedVersions[1]", def, `{"metadata":{"labels":{"a":"b"}}}`)
	check(t, send(t, s, 200, "PATCH", def+"/status?dryRun=All", mergePatch, `{"status":{"storedVersions":[]}}`), `status.storedVersions=["v2"]`)
	check(t, send(t, s, 200, "PATCH", def+"/status", mergePatch, `{"status":{"storedVersions":["v1"]}}`), `status.storedVersions=["v1"]`)
	check(t, send(t, s, 200, "PATCH", def, mergePatch, `{"metadata":{"labels":{"a":"b"}}}`), `status.storedVersions=["v1","v2"]`)
	// Written again, it's stored in the new version; then the old one can go.
	rv := value(s.Get(thingsPath+"/a"), "metadata.resourceVersion")
	if got := send(t, s, 200, "PATCH", thingsPath+"/a", mergePatch, `{}`); value(got, "metadata.resourceVersion") == rv {
		t.Errorf("it wasn't stored again: %s", got)
	}
	check(t, send(t, s, 200, "PATCH", def+"/status", mergePatch, `{"status":{"storedVersions":["v2"]}}`), `status.storedVersions=["v2"] status.acceptedNames.kind=Thing`)
	check(t, setVersions(t, s, 200, v2Stored), `status.storedVersions=["v2"]`)
	send(t, s, 404, "GET", thingsPath, "", "")
	check(t, s.Get(strings.Replace(thingsPath, "v1", "v2", 1)+"/a"), "apiVersion=example.com/v2 spec.a=x metadata.generation=1")
	if got := s.Get("/apis/example.com"); strings.Contains(got, "example.com/v1\"") || value(got, "preferredVersion.version") != "v2" {
		t.Errorf("discovery has %s", got)
	}
}

// TestVersionsWithoutConversion: each shows what its own schema knows, in its own apiVersion, by every verb.
func TestVersionsWithoutConversion(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, defined(t, "things", "Thing", "spec.versions=["+versionOf("v1", true, true, `"a":{"type":"string"},"both":{"type":"string","default":"x"}`)+","+
		versionOf("v2", true, false, `"both":{"type":"string"},"b":{"type":"string","default":"y"}`)+","+versionOf("v3", false, false, "")+"]"))
	v1, v2 := thingsPath, strings.Replace(thingsPath, "v1", "v2", 1)
	w1, w2 := s.Watch(v1+"?watch=true"), s.Watch(v2+"?watch=true")
	event := func(want1, want2 string) {
		t.Helper()
		for w, want := range map[*servertest.Stream]string{w1: want1, w2: want2} {
			seek(t, w, "an event", func(kind, object string) bool {
				check(t, `{"type":"`+kind+`","object":`+object+`}`, want)
				return true
			})
		}
	}
	const in1, in2 = "object.apiVersion=example.com/v1 ", "object.apiVersion=example.com/v2 "
	check(t, s.PostYAML(v1, thing("v1", "a", `,"spec":{"a":"1"}`)), "apiVersion=example.com/v1 spec.a=1 spec.both=x")
	event("type=ADDED "+in1+"object.spec.a=1 object.spec.both=x", "type=ADDED "+in2+"object.spec.a= object.spec.both=x object.spec.b=")
	check(t, s.Get(v2+"/a"), "apiVersion=example.com/v2 spec.a= spec.both=x")
	check(t, s.Get(v2), "apiVersion=example.com/v2 items.0.apiVersion=example.com/v2 items.0.spec.a= items.0.spec.both=x")
	check(t, send(t, s, 200, "PATCH", v2+"/a", mergePatch, `{"spec":{"both":"z"}}`), "apiVersion=example.com/v2 spec.both=z metadata.generation=2")
	event("type=MODIFIED "+in1+"object.spec.both=z object.spec.a=", "type=MODIFIED "+in2+"object.spec.both=z")
	check(t, send(t, s, 200, "PATCH", v2+"/a/status", mergePatch, `{"status":{"ok":true}}`), "apiVersion=example.com/v2 status.ok=true")
	event(in1+"object.status.ok=true", in2+"object.status.ok=true")
	body := strings.Replace(s.Get(v2+"/a"), `"z"`, `"put"`, 1)
	check(t, send(t, s, 200, "PUT", v2+"/a", "", body), "apiVersion=example.com/v2 spec.both=put")
	event(in1+"object.spec.both=put", in2+"object.spec.both=put")
	send(t, s, 400, "PUT", v1+"/a", "", body)
	check(t, send(t, s, 200, "PATCH", v2+"/a?fieldManager=m&force=true", applyPatch, thing("v2", "a", `,"spec":{"both":"applied"}`)), "apiVersion=example.com/v2 spec.both=applied metadata.managedFields.0.apiVersion=example.com/v2")
	event(in1+"object.spec.both=applied", in2+"object.spec.both=applied")
	check(t, send(t, s, 200, "PATCH", v1+"/a?fieldManager=m", applyPatch, thing("v1", "a", `,"spec":{"both":"again"}`)), "apiVersion=example.com/v1 spec.both=again metadata.managedFields.0.apiVersion=example.com/v1 metadata.managedFields.1.manager=before-first-apply")
	event(in1+"object.spec.both=again", in2+"object.spec.both=again")
	check(t, send(t, s, 201, "POST", v2, "", thing("v2", "b", `,"spec":{"b":"1","both":"2"}`)), "apiVersion=example.com/v2 spec.both=2")
	check(t, send(t, s, 200, "DELETE", v2+"/a", "", ""), "details.kind=things")
	event("type=ADDED", "type=ADDED")
	event("type=DELETED "+in1, "type=DELETED "+in2)
	send(t, s, 404, "GET", strings.Replace(thingsPath, "v1", "v3", 1), "", "") // isn't served
	send(t, s, 404, "GET", "/apis/example.com/v3", "", "")
}

// TestDefinitionChangesUnderLoad: writers see one version of a definition or the next, never a mixture; watches end
// cleanly and go on where they were.
func TestDefinitionChangesUnderLoad(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	schema := func(n int) string {
		return versionOf("v1", true, true, fmt.Sprintf(`"n":{"type":"integer"},"round":{"type":"integer","default":%d}`, n))
	}
	s.PostYAML(definitionsPath, defined(t, "things", "Thing", "spec.versions=["+schema(0)+"]"))
	v2Path := strings.Replace(thingsPath, "v1", "v2", 1)
	from := value(s.Get(thingsPath), "metadata.resourceVersion") // without it, a watch begins with objects in the order of their names
	var all sync.WaitGroup
	var done atomic.Bool
	var round atomic.Int64 // the definitions that were answered
	const writers, rounds = 3, 12
	for i := range writers {
		all.Go(func() {
			for n := 0; !done.Load(); n++ {
				least := round.Load()
				res, body := s.Do("POST", thingsPath, thing("v1", fmt.Sprintf("w%d-%d", i, n), `,"spec":{}`))
				most := round.Load() + 1 // one may be on its way
				var got int64
				fmt.Sscan(value(body, "spec.round"), &got)
				if res.StatusCode != 201 || got < least || got > most {
					t.Errorf("%s with the default of round %d, between rounds %d and %d: %s", res.Status, got, least, most, body)
					return
				}
				if res, body := s.Do("PATCH", fmt.Sprintf("%s/w%d-%d", thingsPath, i, n), `{"spec":{"n":1}}`, "Content-Type", mergePatch); res.StatusCode != 200 {
					t.Errorf("%s %s", res.Status, body)
					return
				}
			}
		})
	}
	all.Go(func() { // a watcher that comes back
		seen, rv, ends := map[string]bool{}, from, 0
		for {
			stop := done.Load() // what is watched after this is the end
			path := thingsPath + "?watch=true&timeoutSeconds=60&resourceVersion=" + rv
			if stop {
				break
			}
			w := s.Watch(path)
			for {
				line, err := w.Next()
				if errors.Is(err, io.EOF) && line == "" {
					ends++
					break
				}
				if err != nil || strings.HasPrefix(line, `{"type":"ERROR"`) {
					t.Errorf("the watch ended with %v, %q", err, line)
					w.Close()
					return
				}
				object := value(line, "object.metadata.name")
				if strings.HasPrefix(line, `{"type":"ADDED"`) == seen[object] {
					t.Errorf("seen: %t, and now %s", seen[object], line)
				}
				seen[object], rv = true, value(line, "object.metadata.resourceVersion")
			}
			w.Close()
		}
		if ends < rounds/2 {
			t.Errorf("the watch ended %d times in %d rounds", ends, rounds)
		}
	})
	for n := 1; n <= rounds; n++ {
		versions := []string{schema(n)}
		if n%2 == 1 {
			versions = append(versions, versionOf("v2", true, false, `"round":{"type":"integer"}`))
		}
		setVersions(t, s, 200, versions...)
		round.Store(int64(n))
		// From the answer on, this is what is served.
		code := map[bool]int{true: 200, false: 404}[n%2 == 1]
		send(t, s, code, "GET", v2Path+"?limit=1", "", "")
		check(t, s.PostYAML(thingsPath, thing("v1", fmt.Sprintf("d%d", n), `,"spec":{}`)), fmt.Sprintf("spec.round=%d", n))
	}
	done.Store(true)
	setVersions(t, s, 200, schema(rounds+1)) // wakes the watcher
	all.Wait()
	list := decode[struct {
		Items []struct{ Spec map[string]any }
	}](t, s.Get(thingsPath))
	for _, item := range list.Items {
		if item.Spec["round"] == nil {
			t.Errorf("there's an object without a round: %v", item)
		}
	}
}
