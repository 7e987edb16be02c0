package width_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/registry/crd"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// Media types of bodies.
const (
	mediaJSON      = "application/json"
	mediaProtobuf  = "application/vnd.kubernetes.protobuf"
	mediaMerge     = "application/merge-patch+json"
	mediaPatch     = "application/json-patch+json"
	mediaStrategic = "application/strategic-merge-patch+json"
	mediaApply     = "application/apply-patch+yaml"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

// every serves all kinds.
func every(s *server.Server) { s.API.Builtin = builtin.All }

// join makes the elements of a list, in an order that isn't theirs.
func join(n int, element string) string {
	const stride = 7919 // a prime: all numbers below n come once
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if !strings.Contains(element, "%d") {
			b.WriteString(element)
			continue
		}
		fmt.Fprintf(&b, element, i*stride%n)
	}
	return b.String()
}

// TestKnown sends what was costly once.
func TestKnown(t *testing.T) {
	s := servertest.New(t, every)
	object := func(meta string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + meta + `}}`
	}
	send := func(name string, codes string, method, path, media, body string) {
		t.Helper()
		code, answer := 0, ""
		c := measure(t, name, func() {
			res, text := s.Do(method, path, body, "Content-Type", media)
			code, answer = res.StatusCode, text
		})
		t.Logf("%s: %d, %v, %d MB", name, code, c.cpu, c.heap>>20)
		if !strings.Contains(codes, fmt.Sprint(code)) {
			t.Errorf("%s: %d, want %s: %.300s", name, code, codes, answer)
		}
		check(t, name, c)
	}
	s.PostYAML(configMaps, object(`"name":"small","finalizers":["a.example/a"]`))
	s.PostYAML("/api/v1/namespaces/default/pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"b"}]}}`)
	for _, n := range []int{90_000, 210_000} {
		at := func(what string) string { return fmt.Sprintf("%s, %d", what, n) }
		code := "201"
		if n > 100_000 {
			code = "413"
		}
		name := fmt.Sprintf("f%d", n)
		send(at("finalizers"), code, "POST", configMaps, mediaJSON, object(`"name":"`+name+`","finalizers":[`+join(n, `"x.y/%d"`)+`]`))
		if code == "201" {
			send(at("a label of many finalizers"), "200", "PATCH", configMaps+"/"+name, mediaMerge, `{"metadata":{"labels":{"a":"b"}}}`)
			send(at("a strategic patch of many finalizers"), "413", "PATCH", configMaps+"/"+name, mediaStrategic, `{"metadata":{"finalizers":["a.example/b"]}}`)
			send(at("a strategic label of many finalizers"), "200", "PATCH", configMaps+"/"+name, mediaStrategic, `{"metadata":{"labels":{"a":"c"}}}`)
			send(at("apply to many finalizers"), "413", "PATCH", configMaps+"/"+name+"?fieldManager=m", mediaApply, object(`"name":"`+name+`","labels":{"c":"d"}`))
			send(at("no finalizers"), "200", "PATCH", configMaps+"/"+name, mediaMerge, `{"metadata":{"finalizers":null}}`)
		}
		send(at("applied finalizers"), "413", "PATCH", configMaps+"/new?fieldManager=m", mediaApply, object(`"name":"new","finalizers":[`+join(n, `"x.example/%d"`)+`]`))
		send(at("merged finalizers"), "413", "PATCH", configMaps+"/small", mediaStrategic, `{"metadata":{"finalizers":[`+join(n, `"x%d"`)+`]}}`)
		for codes, requirements := range map[string]string{code: join(n/3-10, `{"key":"a","operator":"Exists"}`), "413 422": join(n/2-10, `{}`)} {
			send(at("requirements"), codes, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", mediaJSON,
				`{"kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","labelSelector":{"requirements":[`+requirements+`]}}}}`)
		}
		send(at("owners of a review"), "201 413 422", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", mediaJSON,
			`{"kind":"SelfSubjectAccessReview","metadata":{"ownerReferences":[`+join(n/2-10, `{}`)+`]},"spec":{"nonResourceAttributes":{}}}`)
		send(at("scopes"), "413 422", "POST", "/api/v1/namespaces/default/resourcequotas", mediaJSON, `{"metadata":{"name":"a"},"spec":{"scopes":[`+join(n/2, `"a%d"`)+`]}}`)
		send(at("empty topologies"), "413 422", "POST", "/apis/storage.k8s.io/v1/storageclasses", mediaJSON, `{"metadata":{"name":"a"},"provisioner":"a","allowedTopologies":[`+join(n/2, `{}`)+`]}`)
		send(at("keys of topologies"), "413 422", "POST", "/apis/storage.k8s.io/v1/csinodes", mediaJSON, `{"metadata":{"name":"a"},"spec":{"drivers":[{"name":"a","nodeID":"b","topologyKeys":[`+join(n/2, `"a%d"`)+`,"a"]},{"name":"a","nodeID":"b"}]}}`)
		send(at("versions"), "413 422", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", mediaJSON, `{"metadata":{"name":"a.b.c"},"spec":{"versions":[`+join(n/2, `{"name":"a%d"}`)+`]}}`)
		send(at("ports"), "413 422", "POST", "/api/v1/namespaces/default/services", mediaJSON, `{"metadata":{"name":"a"},"spec":{"ipFamilies":[`+join(n/8, `"a%d"`)+`],"ports":[`+join(n/4, `{"port":%d}`)+`]}}`)
		send(at("containers"), "413 422", "POST", "/api/v1/namespaces/default/pods", mediaJSON, `{"metadata":{"name":"a"},"spec":{"containers":[`+join(n/2-10, `{}`)+`]}}`)
		send(at("unknown"), "201 413", "POST", configMaps, mediaJSON, `{"metadata":{"name":"unknown"},"x":[`+join(n/2, `{"":0}`)+`]}`)
		send(at("shifted"), "413", "PATCH", configMaps+"/small", mediaPatch,
			`[{"op":"add","path":"/x","value":[`+join(n-50_000, `0`)+`]},`+join(9_999, `{"op":"add","path":"/x/0","value":0}`)+`]`)
		send(at("protobuf containers"), "413 422", "POST", "/api/v1/namespaces/default/pods", mediaProtobuf, protobufPod(n))
	}
	owner := `{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"%d"}`
	send("owners twice", "201", "POST", configMaps+"?dryRun=All", mediaJSON, object(`"name":"owners","ownerReferences":[`+join(9_000, owner)+`,`+join(9_000, owner)+`]`))
	send("bad owners", "422", "POST", configMaps+"?dryRun=All", mediaJSON, object(`"name":"owners","ownerReferences":[`+join(45_000, `{}`)+`]`))
}

// TestDefinitions sends definitions of as many schemas as are taken, and of as many as a body may have values.
func TestDefinitions(t *testing.T) {
	s := servertest.New(t)
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	definition := func(schema string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"deeps.example.com"},"spec":{
			"group":"example.com","scope":"Namespaced","names":{"plural":"deeps","kind":"Deep"},"versions":[{"name":"v1","served":true,"storage":true,
			"schema":{"openAPIV3Schema":{"type":"object",` + schema + `}}}]}}`
	}
	for name, schemas := range map[string]func(n int) string{
		"properties": func(n int) string { return `"properties":{` + join(n, `"p%d":{"type":"string"}`) + `}` },
		"anyOf":      func(n int) string { return `"anyOf":[` + join(n, `{}`) + `]` },
	} {
		for _, n := range []int{crd.MaxSchemas - 1, 45_000} {
			code, answer := 0, ""
			body := definition(schemas(n))
			c := measureAgain(t, fmt.Sprintf("%d schemas in %s", n, name), func() { code, answer = send(s, http.MethodPost, path, mediaJSON, body) }, func() {
				if code == http.StatusCreated {
					send(s, http.MethodDelete, path+"/deeps.example.com", mediaJSON, "")
					s.Quiescent()
				}
			})
			t.Logf("%d in %s: %d, %v, %d MB", n, name, code, c.cpu, c.heap>>20)
			check(t, fmt.Sprintf("%d schemas in %s: %d", n, name, code), c)
			want := http.StatusCreated
			if n > crd.MaxSchemas {
				want = http.StatusUnprocessableEntity
			}
			if code != want || code != http.StatusCreated && !strings.Contains(answer, "the schemas of all versions") {
				t.Errorf("%d schemas in %s: %d %.300s", n, name, code, answer)
			}
		}
	}
}

// protobufPod is a Pod of n containers that say nothing.
func protobufPod(n int) string {
	field := func(head byte, content string) string {
		b := []byte{head}
		for size := len(content); ; size >>= 7 {
			if size < 0x80 {
				return string(append(b, byte(size))) + content
			}
			b = append(b, byte(size)|0x80)
		}
	}
	const unknownType, raw, spec, containers = 0x0a, 0x12, 0x12, 0x12
	pod := field(0x0a, field(0x0a, "a")) + field(spec, strings.Repeat(field(containers, ""), n))
	return "k8s\x00" + field(unknownType, field(0x0a, "v1")+field(0x12, "Pod")) + field(raw, pod)
}

// TestProductOfRoles: the rules of a role are counted before they're multiplied out.
func TestProductOfRoles(t *testing.T) {
	const admin, team = "token-of-the-administrator", "token-of-the-team"
	dir := t.TempDir() + "/tokens"
	writeFile(t, dir, admin+",root,1,system:masters\n"+team+",ann,2\n")
	s := servertest.New(t, every, func(s *server.Server) {
		s.Access = access.Options{TokenAuthFile: dir, AuthorizationMode: "RBAC"}
	})
	post := func(token, path, body string) int {
		res, answer := s.Do("POST", path, body, "Content-Type", mediaJSON, "Authorization", "Bearer "+token)
		if res.StatusCode >= 400 {
			t.Logf("%d: %.300s", res.StatusCode, answer)
		}
		return res.StatusCode
	}
	const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
	const bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
	if code := post(admin, bindings, `{"metadata":{"name":"a"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"ann"}]}`); code != 201 {
		t.Fatalf("bind: %d", code)
	}
	// What the role allows is made by a controller of the roles that are aggregated in it.
	small := `{"metadata":{"generateName":"small-"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`
	for begun := time.Now(); post(team, roles, small) != 201; {
		if time.Since(begun) > time.Minute {
			t.Fatal("who has the role admin can't create roles")
		}
	}
	many := join(300, `"a%d"`)
	wide := `{"metadata":{"name":"wide"},"rules":[{"apiGroups":[` + many + `],"resources":[` + many + `],"verbs":[` + many + `],"resourceNames":[` + many + `]}]}`
	code := 0
	check(t, "a role", measure(t, "a role", func() { code = post(team, roles, wide) }))
	if code != 422 {
		t.Errorf("a role of 300 to the fourth rights: %d, want 422", code)
	}
	if code := post(admin, roles, wide); code != 201 {
		t.Errorf("for an administrator: %d, want 201", code)
	}
	check(t, "a binding", measure(t, "a binding", func() {
		code = post(team, bindings, `{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"wide"}}`)
	}))
	if code != 422 {
		t.Errorf("a binding of it: %d, want 422", code)
	}
	if code := post(team, roles, `{"metadata":{"name":"few"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]}`); code != 201 {
		t.Errorf("a role of what the user holds: %d, want 201", code)
	}
}

// TestEightAtOnce: bodies of 3 MiB, or of as many values as are taken, don't add up, whatever they look like.
func TestEightAtOnce(t *testing.T) {
	const most = 1 << 30
	s := servertest.New(t, every)
	s.PostYAML("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widesDefinition)
	s.Quiescent()
	const size = 3<<20 - 200
	for name, element := range map[string]string{"objects": `{}`, "numbers": `0`, "lists": `[]`, "members": `{"":0}`, "texts": `"` + strings.Repeat("x", 1000) + `"`} {
		for _, path := range []string{"/apis/example.com/v1/namespaces/default/wides", configMaps, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"} {
			elements := min(size/(len(element)+1), 49_000) // which with their members are taken of a built-in kind
			kind := ""
			if strings.Contains(path, "wides") {
				elements = min(size/(len(element)+1), 199_000)
				kind = `"apiVersion":"example.com/v1","kind":"Wide",`
			}
			body := `{` + kind + `"metadata":{"name":"a"},"any":[` + join(elements, element) + `]}`
			c := measure(t, name+" to "+path, func() {
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() { s.Do("POST", path, body, "Content-Type", mediaJSON) })
				}
				all.Wait()
			})
			t.Logf("%d %s to %s: %v, %d MB", elements, name, path, c.cpu, c.heap>>20)
			if c.heap > most-100<<20 { // the rest is the process's
				t.Errorf("eight of %s to %s: %d MB", name, path, c.heap>>20)
			}
		}
	}
}

const widesDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"wides.example.com"},"spec":{
	"group":"example.com","scope":"Namespaced","names":{"plural":"wides","kind":"Wide"},"versions":[{"name":"v1","served":true,"storage":true,
	"schema":{"openAPIV3Schema":{"type":"object","properties":{
		"any":{"x-kubernetes-preserve-unknown-fields":true},
		"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
		"map":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}},
		"list":{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer","default":1}}}},
		"members":{"type":"object","additionalProperties":{"type":"string"}}}}}}]}}`
