package conversionhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/conversionhook"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const annotation = `
  annotations:
    apiserver-lite/conversion: |
      - versions: [v1, v2]
        rules:
        - rename: {from: spec.size, to: spec.length}
        - split: {from: spec.at, to: [spec.host, spec.port], separator: ":"}
        - default: {to: spec.mode, value: auto}
        - rename: {from: "spec.ports[*].port", to: "spec.ports[*].number"}`

// definition is one of widgets, with more in its metadata and spec.
func definition(metadata, spec string) string {
	return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com` + metadata + `
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}` + spec + `
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: string}, at: {type: string}, ports: {type: array, items: {type: object, properties: {port: {type: integer}}}}}}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {length: {type: string}, host: {type: string}, port: {type: integer}, mode: {type: string}, ports: {type: array, items: {type: object, properties: {number: {type: integer}}}}}}}}}
`
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// hook is the command as it runs.
type hook struct {
	url, file, caBundle string
	client              *http.Client
	log                 *await.Log
}

// start runs the command with a file of definitions until the test ends.
func start(t *testing.T, definitions string) *hook {
	t.Helper()
	authority := credentials.NewAuthority(t, "hooks")
	cert, key := credentials.Files(t, authority.Issue(t, "hook", nil, func(c *x509.Certificate) {
		c.IPAddresses, c.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM())
	h := &hook{
		file: write(t, filepath.Join(t.TempDir(), "definitions.yaml"), definitions), caBundle: base64.StdEncoding.EncodeToString(authority.PEM()),
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}, log: &await.Log{},
	}
	out := &await.Log{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if code := commandline.Run(ctx, commandline.Root(conversionhook.Command(out, h.log)),
			[]string{"conversion-webhook", "--definition", h.file, "--listen", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-private-key-file", key}, out, h.log); code != 0 {
			t.Errorf("it ends with %d: %s", code, h.log)
		}
	})
	t.Cleanup(func() {
		h.client.CloseIdleConnections()
		cancel()
		running.Wait()
	})
	await.Until(t, "the command listens", func() bool { return strings.Contains(out.String(), "\n") })
	h.url = strings.TrimSpace(strings.TrimPrefix(out.String(), "listening on "))
	return h
}

// TestWebhook: a server that doesn't look at rules shows by the webhook what one with the rules shows.
func TestWebhook(t *testing.T) {
	t.Parallel()
	h := start(t, "# all of them\n---\n"+definition(annotation, ""))
	byHook := servertest.New(t, func(s *server.Server) {
		s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	byRules := servertest.New(t)
	const definitions, v1, v2 = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/example.com/v1/namespaces/default/widgets", "/apis/example.com/v2/namespaces/default/widgets"
	byHook.PostYAML(definitions, definition("", fmt.Sprintf("\n  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %q}}}", h.url, h.caBundle)))
	byRules.PostYAML(definitions, definition(annotation, ""))
	for i, o := range []struct{ path, version, spec string }{
		{v1, "v1", `{size: "1", at: "h:80", ports: [{port: 1}, {port: 2}]}`}, {v1, "v1", `{}`}, {v2, "v2", `{length: "2", mode: auto}`}, {v2, "v2", `{host: h}`},
	} {
		for _, s := range []*servertest.Server{byHook, byRules} {
			s.PostYAML(o.path, fmt.Sprintf("{apiVersion: example.com/%s, kind: Widget, metadata: {name: w%d}, spec: %s}", o.version, i, o.spec))
		}
	}
	specs := func(s *servertest.Server, path string) string {
		var list struct {
			Items []struct {
				APIVersion string         `json:"apiVersion"`
				Spec       map[string]any `json:"spec"`
			} `json:"items"`
		}
		if err := json.Unmarshal([]byte(s.Get(path)), &list); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(list)
		return string(text)
	}
	for _, path := range []string{v1, v2} {
		if one, other := specs(byHook, path), specs(byRules, path); one != other || !strings.Contains(one, `"spec":{`) {
			t.Errorf("%s has by the webhook\n%s\nand by rules\n%s", path, one, other)
		}
	}
}

// TestReviews: what can't be converted is a failure that says why, and what can't be read isn't answered by a review.
func TestReviews(t *testing.T) {
	t.Parallel()
	h := start(t, definition(annotation, ""))
	review := func(version, objects string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"` + version + `","objects":[` + objects + `]}}`
	}
	const object = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"n"},"spec":{"at":"h:x"}}`
	for _, tc := range []struct {
		name, method, path, body string
		code                     int
		want                     string
	}{
		{"converted", "POST", "/convert", review("example.com/v2", strings.Replace(object, "h:x", "h:1", 1)), 200,
			`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"u","convertedObjects":[{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w","namespace":"n"},"spec":{"host":"h","mode":"auto","port":1}}],"result":{"status":"Success"}}}`},
		{"none", "POST", "/convert", review("example.com/v2", ""), 200, `"convertedObjects":[],"result":{"status":"Success"}`},
		{"unconvertible", "POST", "/convert", review("example.com/v2", object), 200, `"convertedObjects":[],"result":{"status":"Failure","message":"n/w: conversion from v1 to v2 by [0].rules[1].split: spec.port must be an integer, and would be \"x\""}`},
		{"another version", "POST", "/convert", review("example.com/v3", object), 200, `"status":"Failure","message":"n/w: there is no conversion from \"v1\" to \"v3\""`},
		{"another group", "POST", "/convert", review("example.org/v2", object), 200, `no file has a definition`},
		{"another kind", "POST", "/convert", review("example.com/v2", strings.Replace(object, "Widget", "Gadget", 1)), 200, `no file has a definition`},
		{"no object", "POST", "/convert", review("example.com/v2", `1`), 200, `no file has a definition`},
		{"v1beta1", "POST", "/convert", strings.Replace(review("example.com/v2", object), "k8s.io/v1", "k8s.io/v1beta1", 1), 400, `conversionReviewVersions`},
		{"no request", "POST", "/convert", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`, 400, `with a request`},
		{"no JSON", "POST", "/convert", `{`, 400, `can't be read`},
		{"GET", "GET", "/convert", ``, 405, `must be posted`},
		{"elsewhere", "POST", "/", ``, 404, ``},
		{"a probe", "GET", "/healthz", ``, 200, `ok`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, strings.TrimSuffix(h.url, "/convert")+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if res.Body.Close(); err != nil || res.StatusCode != tc.code || !bytes.Contains(body, []byte(tc.want)) {
			t.Errorf("%s: %s %s %v", tc.name, res.Status, body, err)
		}
	}
	// A file that has changed is read again. One that can't be used changes nothing, and is told of.
	write(t, h.file, "{")
	await.Until(t, "the broken file is told of", func() bool { return strings.Contains(h.log.String(), "what was read before still counts") })
	write(t, h.file, strings.Replace(definition(annotation, ""), "value: auto", "value: manual", 1))
	await.Until(t, "the changed file counts", func() bool {
		res, err := h.client.Post(h.url, "application/json", strings.NewReader(review("example.com/v2", strings.Replace(object, "h:x", "h:1", 1))))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return err == nil && bytes.Contains(body, []byte(`"mode":"manual"`))
	})
}

// TestUsage: what can't be served is said in one line.
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := write(t, filepath.Join(dir, "good.yaml"), definition(annotation, ""))
	plain := write(t, filepath.Join(dir, "plain.yaml"), definition("", ""))
	lossy := write(t, filepath.Join(dir, "lossy.yaml"), strings.Replace(definition(annotation, ""), "- rename: {from: spec.size, to: spec.length}", "", 1))
	invalid := write(t, filepath.Join(dir, "invalid.yaml"), strings.Replace(definition(annotation, ""), "scope: Namespaced", "scope: Nowhere", 1))
	none := write(t, filepath.Join(dir, "none.yaml"), "apiVersion: v1\nkind: ConfigMap\n")
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"nothing", nil, 2, "--definition names no file"},
		{"no certificate", []string{"--definition", good}, 2, "--tls-cert-file"},
		{"an argument", []string{good}, 2, "unexpected argument"},
		{"no such file", []string{"--definition", filepath.Join(dir, "x"), "--tls-cert-file", good, "--tls-private-key-file", good}, 1, "no such file"},
		{"no certificate in the file", []string{"--definition", good, "--tls-cert-file", good, "--tls-private-key-file", good}, 1, "PEM"},
		{"no rules", []string{"--definition", plain, "--tls-cert-file", good, "--tls-private-key-file", good}, 1, "widgets.example.com has no annotation apiserver-lite/conversion"},
		{"rules that lose", []string{"--definition", lossy, "--tls-cert-file", good, "--tls-private-key-file", good}, 1, "would lose it"},
		{"an invalid definition", []string{"--definition", invalid, "--tls-cert-file", good, "--tls-private-key-file", good}, 1, "line 1: widgets.example.com: spec.scope"},
		{"no definition", []string{"--definition", none, "--tls-cert-file", good, "--tls-private-key-file", good}, 1, "has no CustomResourceDefinition"},
		{"one twice", []string{"--definition", good, "--definition", good, "--tls-cert-file", good, "--tls-private-key-file", good}, 1, "is defined twice"},
	} {
		var out, stderr bytes.Buffer
		code := commandline.Run(t.Context(), commandline.Root(conversionhook.Command(&out, &stderr)), append([]string{"conversion-webhook"}, tc.args...), &out, &stderr)
		if code != tc.code || !strings.Contains(stderr.String(), tc.want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: %d %s", tc.name, code, stderr.String())
		}
	}
}
