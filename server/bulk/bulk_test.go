package bulk_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/server/bulk"
)

// FuzzList: whatever comes, the answer is JSON, has a result for each object, in order, and each object that has a request comes to
// the path of its kind, whatever its name is.
func FuzzList(f *testing.F) {
	for _, items := range []string{
		``, `{}`, `7, null, "x", [1]`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a/../b","namespace":"%2e%2e"}}`, ` {"metadata":7} , {"metadata":{"name":"?"}}`,
		"{\"kind\":\"\xff\"}", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"..","namespace":"."}}`,
	} {
		f.Add(items)
	}
	find := func(string, string) bulk.Place {
		return bulk.Place{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true}
	}
	f.Fuzz(func(t *testing.T, items string) {
		for _, path := range []string{bulk.ApplyPath, bulk.CreatePath} {
			r := httptest.NewRequest(http.MethodPost, path+"?fieldManager=me", nil)
			list, err := bulk.Parse(r, r.URL.Query(), []byte(`{"apiVersion":"v1","kind":"List","items":[`+items+`]}`))
			if err != nil {
				continue
			}
			var out bytes.Buffer
			err = list.Write(t.Context(), find, func(w http.ResponseWriter, r *http.Request, body []byte) []string {
				parts := strings.Split(r.URL.Path, "/")
				if want := map[string]int{http.MethodPost: 6, http.MethodPatch: 7}[r.Method]; len(parts) != want || parts[5] != "configmaps" || r.URL.RawPath != "" {
					t.Errorf("%s goes to %s", body, r.URL.Path)
				}
				w.Write(body)
				return nil
			}, &out)
			var got struct{ Results []struct{ Code int } }
			if err != nil || json.Unmarshal(out.Bytes(), &got) != nil || len(got.Results) != len(list.Items) {
				t.Fatalf("%v: %d objects, and the answer is %q", err, len(list.Items), &out)
			}
		}
	})
}
