package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// hooks is a server of admission webhooks. The last part of a path says how it behaves; the URLs are the same for both servers.
type hooks struct {
	*httptest.Server
	ca string // base64 of its certificate as PEM
}

const (
	hookTimeout = 10              // seconds that webhooks have, also on a busy machine
	slowTimeout = 1               // second, that the one has that takes hookDelay
	hookDelay   = 3 * time.Second // of one that is too slow
	hookBig     = 4 << 20         // bytes of an answer that is too big
)

// startHooks starts it. Close ends it.
func startHooks() (*hooks, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hooks"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	h := &hooks{Server: httptest.NewUnstartedServer(http.HandlerFunc(serveHook)), ca: base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	h.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	h.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that don't trust it are meant
	h.StartTLS()
	return h, nil
}

// review is a webhook's answer while it's made.
type review struct {
	answer   map[string]any
	response map[string]any // of the answer
	asked    []byte
}

func (r review) deny(status any) { r.response["allowed"], r.response["status"] = false, status }

func (r review) patch(s string) {
	r.response["patch"], r.response["patchType"] = base64.StdEncoding.EncodeToString([]byte(s)), "JSONPatch"
}

const oldReview = "admission.k8s.io/v1beta1"

// say answers always the same.
func say(code int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// code answers a code and nothing that is text.
func code(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(code)
	}
}

// behaviours are what a webhook does, right and wrong.
var behaviours = []struct {
	name   string
	change func(r review)   // of an answer that allows; nil: none
	serve  http.HandlerFunc // instead of it
}{
	{name: "allow"},
	{name: "deny", change: func(r review) { r.deny(map[string]any{"message": "not this one"}) }},
	{name: "deny-code", change: func(r review) { r.deny(map[string]any{"code": 418, "reason": "Teapot", "message": "I'm one"}) }},
	{name: "deny-details", change: func(r review) {
		r.deny(map[string]any{"code": 422, "reason": "Invalid", "message": "m", "details": map[string]any{"name": "n", "kind": "k", "causes": []any{map[string]any{"field": "f", "reason": "r", "message": "m"}}}, "metadata": map[string]any{"resourceVersion": "7"}})
	}},
	{name: "deny-empty", change: func(r review) { r.response["allowed"] = false }},
	{name: "warn", change: func(r review) { r.response["warnings"] = []string{"one", "two \"quoted\"", "a\nb", ""} }},
	{name: "long-warning", change: func(r review) {
		r.response["warnings"] = []string{strings.Repeat("w", 300), strings.Repeat("x", 5000)}
	}},
	{name: "audit", change: func(r review) { r.response["auditAnnotations"] = map[string]string{"a": "b", "wrong key": "c"} }},
	{name: "patch", change: func(r review) { r.patch(`[{"op":"add","path":"/metadata/labels/patched","value":"yes"}]`) }},
	{name: "patch-wrong", change: func(r review) { r.patch(`[{"op":"remove","path":"/data/none"}]`) }},
	{name: "patch-no-type", change: func(r review) { r.patch(`[]`); delete(r.response, "patchType") }},
	{name: "patch-type", change: func(r review) { r.patch(`{}`); r.response["patchType"] = "MergePatch" }},
	{name: "patch-no-json", change: func(r review) { r.patch(`{`) }},
	{name: "patch-missing", change: func(r review) { r.response["patchType"] = "JSONPatch" }},
	{name: "patch-kind", change: func(r review) { r.patch(`[{"op":"replace","path":"/kind","value":"Secret"}]`) }},
	{name: "patch-invalid", change: func(r review) { r.patch(`[{"op":"add","path":"/metadata/labels/a b","value":"c"}]`) }},
	{name: "patch-unknown-operation", change: func(r review) { r.patch(`[{"op":"grow","path":"/data/x"}]`) }},
	{name: "patch-no-path", change: func(r review) { r.patch(`[{"op":"remove"}]`) }},
	{name: "patch-bad-path", change: func(r review) { r.patch(`[{"op":"add","path":"data","value":{}}]`) }},
	{name: "patch-no-value", change: func(r review) { r.patch(`[{"op":"add","path":"/data/z"}]`) }},
	{name: "patch-test-fails", change: func(r review) { r.patch(`[{"op":"test","path":"/data/x","value":"z"}]`) }},
	{name: "patch-no-list", change: func(r review) { r.patch(`[1]`) }},
	{name: "patch-nothing", change: func(r review) { r.patch(`[]`) }},
	{name: "patch-null", change: func(r review) { r.patch(`null`) }},
	{name: "patch-same", change: func(r review) { r.patch(`[{"op":"replace","path":"/data/x","value":"y"}]`) }},
	{name: "patch-form", change: func(r review) { r.patch(`[{"op":"replace","path":"/data","value":[1]}]`) }},
	{name: "patch-empty-type", change: func(r review) { r.patch(`[]`); r.response["patchType"] = "" }},
	{name: "patch-other-type", change: func(r review) { r.patch(`[{"op":"remove","path":"/data"}]`); r.response["patchType"] = "MergePatch" }},
	{name: "patch-no-base64", change: func(r review) { r.response["patch"], r.response["patchType"] = "!", "JSONPatch" }},
	{name: "uid", change: func(r review) { r.response["uid"] = "other" }},
	{name: "no-uid", change: func(r review) { delete(r.response, "uid") }},
	{name: "wrong-type", change: func(r review) { r.response["allowed"] = "yes" }},
	{name: "no-response", change: func(r review) { delete(r.answer, "response") }},
	{name: "empty", serve: func(http.ResponseWriter, *http.Request) {}},
	{name: "text", serve: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }},
	{name: "html"}, // says that it's that
	{name: "error", serve: func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "it hurts", http.StatusInternalServerError)
	}},
	{name: "not-found", serve: http.NotFound},
	{name: "error-silent", serve: code(http.StatusInternalServerError)},
	{name: "forbidden", serve: code(http.StatusForbidden)},
	{name: "unauthorized", serve: code(http.StatusUnauthorized)},
	{name: "bad-request", serve: code(http.StatusBadRequest)},
	{name: "conflict", serve: code(http.StatusConflict)},
	{name: "too-many", serve: code(http.StatusTooManyRequests)},
	{name: "unavailable", serve: code(http.StatusServiceUnavailable)},
	{name: "teapot", serve: code(http.StatusTeapot)},
	{name: "no-content", serve: code(http.StatusNoContent)},
	{name: "created"}, // with that code
	{name: "status", serve: say(http.StatusOK, asJSON, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"it failed","code":409}`)},
	{name: "status-success", serve: say(http.StatusOK, asJSON, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)},
	{name: "yaml"}, // says it so
	{name: "no-yaml", serve: say(http.StatusOK, asYAML, "a: b: c")},
	{name: "cut-off", serve: say(http.StatusOK, asJSON, `{"response":`)},
	{name: "null", serve: say(http.StatusOK, asJSON, "null")},
	{name: "number", serve: say(http.StatusOK, asJSON, "7")},
	{name: "kind-number", serve: say(http.StatusOK, asJSON, `{"kind":7}`)},
	{name: "half", serve: func(w http.ResponseWriter, _ *http.Request) { // of what it announces
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "{}")
	}},
	{name: "redirect", serve: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/allow", http.StatusFound) }},
	{name: "slow", serve: func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(hookDelay):
		}
	}},
	{name: "close", serve: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{name: "other-kind", change: func(r review) { r.answer["kind"] = "Other" }},
	{name: "other-version", change: func(r review) { r.answer["apiVersion"] = oldReview }},
	{name: "no-kind", change: func(r review) { delete(r.answer, "kind") }},
	{name: "other-group", change: func(r review) { r.answer["apiVersion"] = "example.com/v1" }},
	{name: "bad-version", change: func(r review) { r.answer["apiVersion"] = "a/b/c" }},
	{name: "old-version", change: func(r review) { r.answer["apiVersion"] = oldReview }},
	{name: "old-patch", change: func(r review) { // as webhooks of v1beta1 do
		r.answer["apiVersion"] = oldReview
		r.patch(`[{"op":"add","path":"/metadata/labels/patched","value":"yes"}]`)
		delete(r.response, "patchType")
		delete(r.response, "uid")
	}},
	{name: "no-version", change: func(r review) { delete(r.answer, "apiVersion"); delete(r.answer, "kind") }},
	{name: "list", serve: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", asJSON)
		fmt.Fprint(w, "[]")
	}},
	{name: "big", change: func(r review) { r.response["warnings"] = []string{strings.Repeat("w", hookBig)} }},
	{name: "twice"}, // is sent twice
	{name: "unknown-field", change: func(r review) { r.response["unknown"], r.answer["unknown"] = 1, 1 }},
	{name: "echo", change: func(r review) { // what was asked, whole, in the message of the refusal
		var asked any
		newDecoder(r.asked).Decode(&asked)
		r.deny(map[string]any{"message": text(asked)})
	}},
}

// asked is what a webhook looks at of a question.
type asked struct {
	Request struct {
		UID               string
		DesiredAPIVersion string
		Objects           []map[string]any
		Object, OldObject struct {
			Metadata struct {
				UID, ResourceVersion string
				Annotations          map[string]string
			}
		}
	}
}

// serveHook is the webhook. The path is /BEHAVIOUR, or /patch/PATCH with a patch in base64, or /trace/WORD of one that adds a word to an
// annotation, or /convert/BEHAVIOUR.
func serveHook(w http.ResponseWriter, r *http.Request) {
	var question asked
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &question) != nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	response := map[string]any{"uid": question.Request.UID, "allowed": true}
	made := review{response: response, answer: map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}, asked: body}
	name := path.Base(r.URL.Path)
	switch path.Dir(r.URL.Path) {
	case "/convert":
		serveConversion(w, r, name, question, body)
		return
	case "/patch":
		patch, _ := base64.RawURLEncoding.DecodeString(name)
		old := question.Request.OldObject.Metadata
		made.patch(strings.NewReplacer("OLD-UID", old.UID, "OLD-VERSION", old.ResourceVersion).Replace(string(patch)))
	case "/trace":
		made.patch(text([]any{map[string]any{"op": "add", "path": "/metadata/annotations/trace", "value": question.Request.Object.Metadata.Annotations["trace"] + name}}))
	default:
		for _, b := range behaviours {
			if b.name != name {
				continue
			}
			if b.serve != nil {
				b.serve(w, r)
				return
			}
			if b.change != nil {
				b.change(made)
			}
		}
	}
	answerReview(w, name, made.answer)
}

// answerReview answers a review, which a behaviour may want otherwise.
func answerReview(w http.ResponseWriter, name string, answer any) {
	contentType, times := asJSON, 1
	encoded, _ := json.Marshal(answer)
	switch name {
	case "html":
		contentType = "text/html"
	case "twice":
		times = 2
	case "yaml":
		contentType = asYAML
		encoded, _ = yaml.JSONToYAML(encoded)
	}
	w.Header().Set("Content-Type", contentType)
	if name == "created" {
		w.WriteHeader(http.StatusCreated)
	}
	w.Write(bytes.Repeat(encoded, times))
}
