package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/admission"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// TestOwnerReferencesPlugin: who sets owners needs the right to delete the object, and for blockOwnerDeletion to
// update the owner's finalizers.
func TestOwnerReferencesPlugin(t *testing.T) {
	t.Parallel()
	s := newRuled(t, func(s *server.Server) {
		s.Plugins = admission.Options{Enable: []string{"OwnerReferencesPermissionEnforcement"}}
	})
	const (
		objects   = inDefault + "/configmaps"
		noDelete  = "cannot set an ownerRef on a resource you can't delete"
		noFinish  = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
		noMapping = "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion example.com/v1 Kind Thing"
	)
	s.role("writer", "bob", "["+aRule("", "configmaps", "create update patch get")+"]")
	s.role("deleter", "eve", "["+aRule("", "configmaps", "create update patch get delete")+"]")
	s.role("finisher", "ann", "["+aRule("", "configmaps", "create update patch get delete")+","+aRule("", "secrets/finalizers", "update")+"]")
	owners := func(kind, uid string, block string) string {
		version := "v1"
		if kind == "Thing" {
			version = "example.com/v1"
		}
		return fmt.Sprintf(`"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":"o","uid":%q%s}]`, version, kind, uid, block)
	}
	const block, unblock = `,"blockOwnerDeletion":true`, `,"blockOwnerDeletion":false`
	var owner struct{ Metadata struct{ UID string } } // a real one: without it the objects would be collected
	if err := json.Unmarshal([]byte(s.expect("root", "POST "+inDefault+"/secrets", `{"metadata":{"name":"o"}}`, 201, "")), &owner); err != nil {
		t.Fatal(err)
	}
	one := owner.Metadata.UID
	s.expect("root", "POST "+objects, `{"metadata":{"name":"free"}}`, 201, "")
	s.expect("root", "POST "+objects, `{"metadata":{"name":"owned",`+owners("Secret", one, "")+`}}`, 201, "")
	s.expect("root", "POST "+objects, `{"metadata":{"name":"blocking",`+owners("Secret", one, block)+`}}`, 201, "")
	for _, test := range []struct {
		name, user, object, metadata string // of the object that is written: a new one, or one of those above
		refused                      string
	}{
		{"created without owners", "bob", "", "", ""},
		{"created with one", "bob", "", owners("Secret", one, ""), ""}, // whoever creates an object could as well not have
		{"created with one", "eve", "", owners("Secret", one, unblock), ""},
		{"created with one that waits", "eve", "", owners("Secret", one, block), noFinish},
		{"created with one that waits", "ann", "", owners("Secret", one, block), ""},
		{"created with one that waits", "ann", "", owners("ConfigMap", "1", block), noFinish},
		{"created with one of no kind that is served", "ann", "", owners("Thing", "1", block), noMapping},
		{"created with one of no kind that is served", "ann", "", owners("Thing", "1", ""), ""},
		{"owned", "bob", "free", owners("Secret", one, ""), noDelete},
		{"owned", "eve", "free", owners("Secret", one, ""), ""},
		{"labelled", "bob", "owned", `"labels":{"a":"b"}`, ""},
		{"the same owner", "bob", "owned", `"labels":{"a":"b"},` + owners("Secret", one, ""), ""},
		{"another owner", "bob", "owned", owners("Secret", "2", ""), noDelete},
		{"freed", "bob", "owned", `"ownerReferences":[]`, noDelete},
		{"waits", "eve", "owned", owners("Secret", one, block), noFinish},
		{"waits", "ann", "owned", owners("Secret", one, block), ""},
		{"waits no more", "eve", "blocking", owners("Secret", one, ""), ""},
		{"waited already", "eve", "blocking", owners("Secret", one, `,"controller":true`+block), ""},
	} {
		method, path, code := "PATCH", objects+"/"+test.object, 200
		if test.object == "" {
			method, path, code = "POST", objects, 201
			test.metadata = strings.TrimSuffix(`"name":"new",`+test.metadata, ",")
		}
		if test.refused != "" {
			code = 403
		}
		res, text := s.Do(method, path+"?dryRun=All", `{"metadata":{`+test.metadata+`}}`, "Authorization", "Bearer "+test.user, "Content-Type", map[string]string{"PATCH": "application/merge-patch+json", "POST": "application/json"}[method])
		if res.StatusCode != code || !strings.Contains(text, test.refused) {
			t.Errorf("%s, by %s: %s %s; want %d with %q", test.name, test.user, res.Status, text, code, test.refused)
		}
	}
}
