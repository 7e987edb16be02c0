package webhook

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

// FuzzAnswer has webhooks answer anything. What is taken has the form that Kubernetes asks for: of v1 it has the request's uid, a
// patch with its type or neither, and no patch from a webhook that only judges. What is refused has no more of the answer than it may.
func FuzzAnswer(f *testing.F) {
	const mark = "s3cr3tm4rk" // what an answer has in it
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, "\xff", mark,
		`{"response":{"allowed":true,"patch":"W10="}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"s3cr3tm4rk","allowed":true}}`,
		"&s3cr3tm4rk a: *s3cr3tm4rk", "? {s3cr3tm4rk: 1}\n: 2",
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
		var review admissionv1.AdmissionReview
		err := hookclient.Decode([]byte(answer), reviewKind(version), &review)
		var got *admissionv1.AdmissionResponse
		if err == nil {
			got, err = checked(&admissionv1.AdmissionRequest{UID: "u"}, version, &review, mutating)
		}
		if err != nil {
			var named struct {
				metav1.TypeMeta
				Response struct{ UID string }
			}
			_ = yaml.Unmarshal([]byte(answer), &named) // as far as it can be read
			if text := err.Error(); strings.Contains(text, mark) && !strings.Contains(named.APIVersion+named.Kind+named.Response.UID, mark) || len(text) > 8<<10 {
				t.Errorf("the error repeats the answer: %v", err)
			}
			return
		}
		typed := got.PatchType != nil
		switch {
		case !mutating && len(got.Patch) > 0:
			t.Error("a patch of a webhook that only judges is taken")
		case !old && (got.UID != "u" || typed != (len(got.Patch) > 0)):
			t.Errorf("taken: %+v", got)
		}
		if got.Allowed {
			return
		}
		if s := refusal("hook.example.com", got.Result).Status(); s.Code < 400 || s.Code > 599 || s.Status != "Failure" || !strings.Contains(s.Message, "hook.example.com") {
			t.Errorf("a refusal is answered as %+v", s)
		}
	})
}
