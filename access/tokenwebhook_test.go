package access

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// webhookAt returns a token webhook that asks a handler.
func webhookAt(t *testing.T, handler http.HandlerFunc) *tokenWebhook {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}", s.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := newTokenWebhook(AuthenticationWebhook{ConfigFile: file, Version: reviewV1}, []string{"us"}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// TestTokenWebhookAnswersNonsense: an answer that is no TokenReview tells nothing about a token, whose watches then stay.
func TestTokenWebhookAnswersNonsense(t *testing.T) {
	for name, answer := range map[string]string{
		"a page":          "<html>Bad gateway</html>",
		"nothing":         "",
		"another version": `{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"a"}}}`,
	} {
		w := webhookAt(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answer) })
		if _, _, err := w.authenticate(t.Context(), "t", []string{"us"}); !errors.As(err, new(unasked)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTokenWebhookAskedTooMuch: beyond maxTokenQuestions nobody is asked, and nobody waits: the client is to come back.
func TestTokenWebhookAskedTooMuch(t *testing.T) {
	w := webhookAt(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"a"}}}`)
	})
	for range maxTokenQuestions {
		w.room <- struct{}{}
	}
	if _, _, err := w.authenticate(t.Context(), "t", []string{"us"}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one too many: %v", err)
	}
	<-w.room
	if u, _, err := w.authenticate(t.Context(), "t", []string{"us"}); err != nil || u.GetName() != "a" {
		t.Errorf("when there's room: %v %v", u, err)
	}
	if len(w.room) != maxTokenQuestions-1 {
		t.Errorf("%d questions are under way", len(w.room))
	}
}
