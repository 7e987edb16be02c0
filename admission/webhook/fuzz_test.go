package webhook

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// FuzzAnswer has webhooks answer anything. What is taken has the form that Kubernetes asks for: of v1 it has the request's uid, a
// patch with its type or neither, and no patch from a webhook that only judges. What is refused doesn't repeat the answer.
func FuzzAnswer(f *testing.F) {
	const mark = "s3cr3tm4rk" // what an answer has in it
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, "\xff", mark,
		`{"response":{"allowed":true,"patch":"W10="}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"s3cr3tm4rk","allowed":true}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true,"patch":"W10=","patchType":"JSONPatch"}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true,"patchType":"s3cr3tm4rk"}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":false,"status":{"code":99999,"message":"no"},"warnings":["w"],"auditAnnotations":{"a":"b"}}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":"s3cr3tm4rk"}}`,
	} {
		for _, mutating := range []bool{false, true} {
			f.Add(seed, mutating, true)
			f.Add(seed, mutating, false)
		}
	}
	f.Fuzz(func(t *testing.T, answer string, mutating, old bool) {
		version := v1
		if old {
			version = v1beta1
		}
		got, err := checked(&admissionv1.AdmissionRequest{UID: "u"}, version, []byte(answer), mutating)
		if err != nil {
			if strings.Contains(err.Error(), mark) {
				t.Errorf("the error repeats the answer: %v", err)
			}
			return
		}
		typed := got.PatchType != nil
		switch {
		case !mutating && len(got.Patch) > 0:
			t.Error("a patch of a webhook that only judges is taken")
		case !old && (got.UID != "u" || typed != (len(got.Patch) > 0) || typed && *got.PatchType != admissionv1.PatchTypeJSONPatch):
			t.Errorf("taken: %+v", got)
		}
		if got.Allowed {
			if _, err := registry.PatchJSON([]byte(`{"kind":"ConfigMap"}`), got.Patch); len(got.Patch) > 0 && err != nil && strings.Contains(err.Error(), mark) {
				t.Errorf("the error repeats the patch: %v", err)
			}
			return
		}
		if s := refusal("hook.example.com", got.Result).Status(); s.Code < 400 || s.Code > 599 || s.Status != "Failure" || !strings.Contains(s.Message, "hook.example.com") {
			t.Errorf("a refusal is answered as %+v", s)
		}
	})
}
