package e2e

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestManagedFields: every object has managed fields if the flag says so, and else those that were applied.
func TestManagedFields(t *testing.T) {
	t.Parallel()
	for flag, created := range map[string]bool{"": false, "--managed-fields=on-apply": false, "--managed-fields=always": true} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			args := []string{"--ephemeral"}
			if flag != "" {
				args = append(args, flag)
			}
			p := start(t, args...)
			p.define()
			a := p.do(http.StatusCreated, "POST", widgets+"?fieldManager=me", widget("created", 1))
			if got := strings.Contains(a.body, `"managedFields":[{"apiVersion":"example.com/v1"`) && strings.Contains(a.body, `"manager":"me"`); got != created {
				t.Errorf("a created object has managed fields: %t, want %t\n%s", got, created, a.body)
			}
			a = p.do(http.StatusCreated, "PATCH", widgets+"/applied?fieldManager=me", widget("applied", 1), "Content-Type", "application/apply-patch+yaml")
			if !strings.Contains(a.body, `"operation":"Apply"`) {
				t.Errorf("an applied object has no managed fields:\n%s", a.body)
			}
			p.stop()
		})
	}
}

// TestWebhookAddresses: a definition whose conversion webhook has a private address is taken, and the webhook called,
// only if the flag names the address.
func TestWebhookAddresses(t *testing.T) {
	t.Parallel()
	webhook := httptest.NewTLSServer(http.HandlerFunc(convert))
	t.Cleanup(webhook.Close)
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}))
	definition, err := os.ReadFile("../testdata/crds/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	converted := strings.Replace(string(definition), "  versions:\n", fmt.Sprintf(`  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {url: "%s/convert", caBundle: %s}}
  versions:
    - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, webhook.URL, bundle), 1)
	v2 := strings.Replace(widgets, "/v1/", "/v2/", 1)
	for flag, code := range map[string]int{"--webhook-addresses=127.0.0.0/8": http.StatusCreated, "--webhook-addresses=10.0.0.0/8": http.StatusUnprocessableEntity, "": http.StatusUnprocessableEntity} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			args := []string{"--ephemeral"}
			if flag != "" {
				args = append(args, flag)
			}
			p := start(t, args...)
			p.do(code, "POST", definitions, converted, "Content-Type", "application/yaml")
			if code == http.StatusCreated {
				p.do(http.StatusCreated, "POST", widgets, widget("a", 1))
				p.do(http.StatusOK, "GET", v2+"/a", "")
			}
			p.stop()
		})
	}
}

// convert answers as a webhook that changes nothing but the version.
func convert(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID, DesiredAPIVersion string
			Objects                []map[string]any
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, o := range review.Request.Objects {
		o["apiVersion"] = review.Request.DesiredAPIVersion
	}
	json.NewEncoder(w).Encode(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"response": map[string]any{"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"}}})
}
