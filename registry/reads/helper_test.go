package reads

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func wantStatus(t testing.TB, err error, code int32, reason metav1.StatusReason, parts ...string) *metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got %v, want a Status %d %s", err, code, reason)
	}
	got := status.Status()
	if got.Code != code || got.Reason != reason {
		t.Fatalf("got %d %s %q, want %d %s", got.Code, got.Reason, got.Message, code, reason)
	}
	for _, p := range parts {
		if !strings.Contains(got.Message, p) {
			t.Fatalf("message %q lacks %q", got.Message, p)
		}
	}
	return &got
}

func params(s string) url.Values {
	v, err := url.ParseQuery(s)
	if err != nil {
		panic(err)
	}
	return v
}
