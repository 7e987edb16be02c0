package conversion

import (
	"encoding/json"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
)

// FuzzAnswer: whatever a webhook answers, what is taken is a valid object with the identity of the one that was
// sent, and an error isn't long.
func FuzzAnswer(f *testing.F) {
	good := strings.Replace(widgetFrom(v1, "a"), `"uid"`, `"resourceVersion":"9","uid"`, 1)
	wrap := func(object string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"1","convertedObjects":[` + object + `],"result":{"status":"Success"}}}`
	}
	for _, seed := range []string{
		"", "null", "{}", "[]", `""`, wrap(""), wrap("null"), wrap("{}"), wrap("1"), wrap(good), wrap(good + "," + good),
		wrap(`{"apiVersion":"example.com/v2","kind":"Widget","metadata":null}`),
		wrap(strings.Replace(good, `{"l":"1"}`, `null`, 1)),
		wrap(strings.Replace(good, `{"l":"1"}`, `{"l":null}`, 1)),
		wrap(strings.Replace(good, `"name"`, `"name":"b","name"`, 1)),
		wrap(strings.Replace(good, `"spec"`, `"metadata":{},"spec"`, 1)),
		wrap(strings.Replace(good, `"spec"`, `"x":1e999,"spec"`, 1)),
		wrap(strings.Replace(good, `"spec"`, `"\ud800":"\ud800","spec"`, 1)),
		wrap(strings.Repeat(`{"a":`, 11000)), strings.Repeat("[", 11000),
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"1","result":{"status":"Failure","message":"no"}}}`,
	} {
		f.Add([]byte(seed))
	}
	sources, err := toConvert(v2, [][]byte{widget(v1, "a")})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, version := range []string{"v1", "v1beta1"} {
			objects, err := (&request{version: version, uid: "1"}).objects(answer)
			checkLength(t, err)
			for _, raw := range objects {
				accepted, err := sources[0].accept(raw, v2)
				checkLength(t, err)
				if err == nil {
					checkAccepted(t, accepted)
				}
			}
		}
	})
}

func checkLength(t *testing.T, err error) {
	t.Helper()
	if err != nil && len(err.Error()) > 2*1024 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

func checkAccepted(t *testing.T, raw []byte) {
	t.Helper()
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name            string            `json:"name"`
			Namespace       string            `json:"namespace"`
			UID             string            `json:"uid"`
			ResourceVersion string            `json:"resourceVersion"`
			Labels          map[string]string `json:"labels"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil || !json.Valid(raw) {
		t.Fatalf("%q was accepted: %v", raw, err)
	}
	m := object.Metadata
	if object.APIVersion != v2 || object.Kind != "Widget" || m.Name != "a" || m.Namespace != "ns" || m.UID != "u-a" || m.ResourceVersion != "" {
		t.Errorf("%q was accepted", raw)
	}
}
