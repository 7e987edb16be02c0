package main

import (
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
	h := &hooks{Server: httptest.NewUnstartedServer(http.HandlerFunc(answerHook)), ca: base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	h.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	h.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that don't trust it are meant
	h.StartTLS()
	return h, nil
}

// behaviours are what a webhook does, right and wrong.
var behaviours = []string{"allow", "deny", "deny-code", "deny-details", "deny-empty", "warn", "long-warning", "audit", "patch", "patch-wrong", "patch-no-type", "patch-type", "patch-no-json", "patch-missing", "patch-kind", "patch-invalid",
	"uid", "no-uid", "no-response", "empty", "text", "html", "error", "not-found", "redirect", "slow", "close", "other-kind", "other-version", "no-version", "list", "big", "twice", "unknown-field", "echo"}

// answerHook is the webhook.
func answerHook(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string
		Request    struct {
			UID string
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &review) != nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	response := map[string]any{"uid": review.Request.UID, "allowed": true}
	answer := map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
	patch := func(s string) {
		response["patch"], response["patchType"] = base64.StdEncoding.EncodeToString([]byte(s)), "JSONPatch"
	}
	deny := func(status any) { response["allowed"], response["status"] = false, status }
	contentType := "application/json"
	switch path.Base(r.URL.Path) {
	case "deny":
		deny(map[string]any{"message": "not this one"})
	case "deny-code":
		deny(map[string]any{"code": 418, "reason": "Teapot", "message": "I'm one"})
	case "deny-details":
		deny(map[string]any{"code": 422, "reason": "Invalid", "message": "m", "details": map[string]any{"name": "n", "kind": "k", "causes": []any{map[string]any{"field": "f", "reason": "r", "message": "m"}}}, "metadata": map[string]any{"resourceVersion": "7"}})
	case "deny-empty":
		response["allowed"] = false
	case "warn":
		response["warnings"] = []string{"one", "two \"quoted\"", "a\nb", ""}
	case "long-warning":
		response["warnings"] = []string{strings.Repeat("w", 300), strings.Repeat("x", 5000)}
	case "audit":
		response["auditAnnotations"] = map[string]string{"a": "b", "wrong key": "c"}
	case "patch":
		patch(`[{"op":"add","path":"/metadata/labels/patched","value":"yes"}]`)
	case "patch-wrong":
		patch(`[{"op":"remove","path":"/data/none"}]`)
	case "patch-no-type":
		patch(`[]`)
		delete(response, "patchType")
	case "patch-type":
		patch(`{}`)
		response["patchType"] = "MergePatch"
	case "patch-no-json":
		patch(`{`)
	case "patch-missing":
		response["patchType"] = "JSONPatch"
	case "patch-kind":
		patch(`[{"op":"replace","path":"/kind","value":"Secret"}]`)
	case "patch-invalid":
		patch(`[{"op":"add","path":"/metadata/labels/a b","value":"c"}]`)
	case "uid":
		response["uid"] = "other"
	case "no-uid":
		delete(response, "uid")
	case "no-response":
		delete(answer, "response")
	case "empty":
		return
	case "text":
		fmt.Fprint(w, "ok")
		return
	case "html":
		contentType = "text/html"
	case "error":
		http.Error(w, "it hurts", http.StatusInternalServerError)
		return
	case "not-found":
		http.NotFound(w, r)
		return
	case "redirect":
		http.Redirect(w, r, "/allow", http.StatusFound)
		return
	case "slow":
		select {
		case <-r.Context().Done():
		case <-time.After(hookDelay):
		}
		return
	case "close":
		panic(http.ErrAbortHandler)
	case "other-kind":
		answer["kind"] = "Other"
	case "other-version":
		answer["apiVersion"] = "admission.k8s.io/v1beta1"
	case "no-version":
		delete(answer, "apiVersion")
		delete(answer, "kind")
	case "list":
		w.Header().Set("Content-Type", contentType)
		fmt.Fprint(w, "[]")
		return
	case "big":
		response["warnings"] = []string{strings.Repeat("w", hookBig)}
	case "unknown-field":
		response["unknown"], answer["unknown"] = 1, 1
	case "echo": // what was asked, whole, in the message of the refusal
		var asked any
		newDecoder(body).Decode(&asked)
		deny(map[string]any{"message": text(asked)})
	}
	w.Header().Set("Content-Type", contentType)
	encoded, _ := json.Marshal(answer)
	w.Write(encoded)
	if path.Base(r.URL.Path) == "twice" {
		w.Write(encoded)
	}
}

// webhookScenario has a webhook of each behaviour, for one object each, mutating and validating, with both failure policies.
func webhookScenario() scenario {
	sc := scenario{name: "webhooks"}
	send := func(name, method, path, body string) {
		sc.add(step{name: name, method: method, path: path, body: body, header: map[string]string{"Content-Type": asJSON}})
	}
	const namespace = "webhooks"
	configMaps := "/api/v1/namespaces/" + namespace + "/configmaps"
	send("setup/namespace", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)
	configuration := func(kind, name string, hook map[string]any) {
		webhook := map[string]any{
			"name": name + ".example.com", "clientConfig": map[string]any{"url": "${cap:hook}/" + name, "caBundle": "${cap:ca}"},
			"rules":             []any{map[string]any{"operations": []string{"*"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"}}},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}},
			"objectSelector":    map[string]any{"matchLabels": map[string]any{"hook": strings.ToLower(kind[:1]) + "-" + name}},
			"sideEffects":       "None", "timeoutSeconds": hookTimeout, "admissionReviewVersions": []string{"v1", "v1beta1"}, "failurePolicy": "Fail",
		}
		if strings.HasPrefix(name, "slow") {
			webhook["timeoutSeconds"] = slowTimeout
		}
		for k, v := range hook {
			webhook[k] = v
		}
		plural := strings.ToLower(kind) + "webhookconfigurations"
		send("setup/"+kind+" "+name, "POST", "/apis/admissionregistration.k8s.io/v1/"+plural, text(map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind + "WebhookConfiguration", "metadata": map[string]any{"name": "webhooks-" + strings.ToLower(kind[:1]) + "-" + name}, "webhooks": []any{webhook}}))
	}
	selected := func(name string) map[string]any {
		return map[string]any{"objectSelector": map[string]any{"matchLabels": map[string]any{"hook": name}}, "failurePolicy": "Ignore"}
	}
	for _, kind := range []string{"Validating", "Mutating"} {
		letter := strings.ToLower(kind[:1])
		for _, name := range behaviours {
			configuration(kind, name, nil)
			ignored := selected(letter + "-" + name + "-ignored")
			ignored["name"], ignored["clientConfig"] = name+"-ignored.example.com", map[string]any{"url": "${cap:hook}/" + name, "caBundle": "${cap:ca}"}
			configuration(kind, name+"-ignored", ignored)
		}
		configuration(kind, "untrusted", map[string]any{"clientConfig": map[string]any{"url": "${cap:hook}/allow"}})
		configuration(kind, "nobody", map[string]any{"clientConfig": map[string]any{"url": "https://127.0.0.1:1/allow", "caBundle": "${cap:ca}"}})
		configuration(kind, "no-service", map[string]any{"clientConfig": map[string]any{"service": map[string]any{"namespace": namespace, "name": "none", "path": "/allow"}, "caBundle": "${cap:ca}"}})
		configuration(kind, "condition", map[string]any{"matchConditions": []any{map[string]any{"name": "c", "expression": "object.data['a'] == 'b'"}}})
		configuration(kind, "condition-false", map[string]any{"matchConditions": []any{map[string]any{"name": "c", "expression": "request.operation == 'DELETE'"}}})
		configuration(kind, "old-review", map[string]any{"admissionReviewVersions": []string{"v1beta1"}})
		configuration(kind, "some-effects", map[string]any{"sideEffects": "NoneOnDryRun"})
	}
	sc.add(step{name: "setup/effect", method: untilEffect, path: "/"})
	try := func(kind, name string) {
		object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","labels":{"hook":"` + strings.ToLower(kind[:1]) + "-" + name + `"}},"data":{"x":"y"}}`
		send("hook "+kind+"/"+name, "POST", configMaps+"?dryRun=All", object)
	}
	for _, kind := range []string{"Validating", "Mutating"} {
		for _, name := range behaviours {
			try(kind, name)
			try(kind, name+"-ignored")
		}
		for _, name := range []string{"untrusted", "nobody", "no-service", "condition", "condition-false", "old-review", "some-effects"} {
			try(kind, name)
		}
		letter := strings.ToLower(kind[:1])
		// What a webhook is asked at each verb.
		body := func(name, data string) string {
			return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"` + data + `}}`
		}
		name := letter + "-asked"
		send("hook asked/"+kind+" POST", "POST", configMaps, body(name, ""))
		label := `,"labels":{"hook":"` + letter + `-echo"}`
		sc.add(step{name: "hook asked/" + kind + " PUT", method: "PUT", path: configMaps + "/" + name, body: body(name, label), header: map[string]string{"Content-Type": asJSON}},
			step{name: "hook asked/" + kind + " PATCH", method: "PATCH", path: configMaps + "/" + name, body: `{"metadata":{"labels":{"hook":"` + letter + `-echo"}}}`, header: map[string]string{"Content-Type": mergePatch}},
			step{name: "hook asked/" + kind + " apply", method: "PATCH", path: configMaps + "/" + name + "?fieldManager=a&force=true", body: body(name, label), header: map[string]string{"Content-Type": applyPatch}},
			step{name: "hook asked/" + kind + " apply create", method: "PATCH", path: configMaps + "/" + name + "-new?fieldManager=a", body: body(name+"-new", label), header: map[string]string{"Content-Type": applyPatch}},
			step{name: "hook asked/" + kind + " generated", method: "POST", path: configMaps + "?dryRun=All", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"g-","labels":{"hook":"` + letter + `-echo"}}}`, header: map[string]string{"Content-Type": asJSON}})
	}
	for _, kind := range []string{"validating", "mutating"} {
		for _, name := range append([]string{"untrusted", "nobody", "no-service", "condition", "condition-false", "old-review", "some-effects"}, behaviours...) {
			send("end/"+kind+" "+name, "DELETE", "/apis/admissionregistration.k8s.io/v1/"+kind+"webhookconfigurations/webhooks-"+kind[:1]+"-"+name, "")
		}
	}
	return sc
}
