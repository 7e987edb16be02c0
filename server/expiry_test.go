package server_test

import (
	"fmt"
	"strconv"
	"testing"
)

// TestTTLRefusals: what the annotation apiserver-lite/ttl may say.
func TestTTLRefusals(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	const field = "FieldValueInvalid metadata.annotations[apiserver-lite/ttl]"
	annotated := func(ttl string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"apiserver-lite/ttl":%s}}}`, ttl)
	}
	var attempts []attempt
	for _, tc := range []struct {
		name, ttl string
		code      int
		message   string
	}{
		{"an hour", "1h", 200, ""},
		{"in parts", "1h30m0.5s", 200, ""},
		{"ten years", "87600h", 200, ""},
		{"over ten years", "87600h1s", 422, "must not be over ten years"},
		{"more than fits", "9999999h", 422, "must be a duration"},
		{"negative", "-1s", 422, "must not be negative"},
		{"a number", "3600", 422, "must be a duration as Go writes it, such as 90s or 1h30m"},
		{"days", "7d", 422, "must be a duration"},
		{"a space", "1 h", 422, "must be a duration"},
		{"nothing", "", 422, "must be a duration"},
	} {
		causes := ""
		if tc.code == 422 {
			causes = field
		}
		attempts = append(attempts,
			attempt{name: tc.name, method: "PATCH", media: mergePatch, body: annotated(strconv.Quote(tc.ttl)), code: tc.code, message: tc.message, causes: causes})
	}
	gizmoCollection.try(t, s, append(attempts,
		attempt{name: "in a new object", method: "POST", code: 422, message: "must not be negative", causes: field,
			body: aMeta + `{"name":"new","annotations":{"apiserver-lite/ttl":"-1h"}}}`},
		attempt{name: "in a new object, dry", method: "POST", path: "?dryRun=All", code: 422, message: "must be a duration", causes: field,
			body: aMeta + `{"name":"new","annotations":{"apiserver-lite/ttl":"x"}}}`},
		attempt{name: "in a label", method: "PATCH", media: mergePatch, code: 200, body: `{"metadata":{"labels":{"apiserver-lite/ttl":"x"}}}`},
	))
	if res, body := s.Do("POST", namespacesPath, `{"metadata":{"name":"shop","annotations":{"apiserver-lite/ttl":"soon"}}}`, "Content-Type", "application/json"); res.StatusCode != 422 {
		t.Errorf("a Go type: %s %s", res.Status, body)
	}
}
