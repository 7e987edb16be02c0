package server_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// webhook converts things: v1 has spec.size, a string, and v2 spec.length, a number. It counts the objects that it
// was sent, and can be broken.
type webhook struct {
	*httptest.Server
	converted atomic.Int64
	broken    atomic.Pointer[string] // what it answers then
}

func newWebhook(t *testing.T) *webhook {
	h := &webhook{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := h.broken.Load(); answer != nil {
			http.Error(w, *answer, http.StatusInternalServerError)
			return
		}
		var review struct {
			APIVersion string `json:"apiVersion"`
			Request    struct {
				UID               string           `json:"uid"`
				DesiredAPIVersion string           `json:"desiredAPIVersion"`
				Objects           []map[string]any `json:"objects"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		result := map[string]any{"status": "Success"}
		for _, o := range review.Request.Objects {
			h.converted.Add(1)
			spec, _ := o["spec"].(map[string]any)
			if size, ok := spec["size"].(string); ok && review.Request.DesiredAPIVersion == "example.com/v2" {
				delete(spec, "size")
				spec["length"] = len(size)
				if meta, _ := o["metadata"].(map[string]any); meta["name"] != "c" { // which is applied to
					spec["junk"] = true
				}
				if size == "unconvertible" {
					result = map[string]any{"status": "Failure", "message": "no length for that"}
				}
			}
			if length, ok := spec["length"].(float64); ok && review.Request.DesiredAPIVersion == "example.com/v1" {
				delete(spec, "length")
				spec["size"] = strings.Repeat("x", int(length))
			}
			o["apiVersion"] = review.Request.DesiredAPIVersion
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": "ConversionReview",
			"response": map[string]any{"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": result}})
	}))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

func (h *webhook) caBundle() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}))
}

func (h *webhook) conversion() string {
	return fmt.Sprintf(`{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"%s/convert","caBundle":"%s"}}}`, h.URL, h.caBundle())
}

var things2Path = strings.Replace(thingsPath, "v1", "v2", 1)

// newConverted starts a server whose things are stored in v1 and converted by a webhook.
func newConverted(t *testing.T) (*servertest.Server, *webhook) {
	t.Helper()
	h := newWebhook(t)
	return newConvertedBy(t, h), h
}

// newConvertedBy is newConverted for a webhook of the test's own.
func newConvertedBy(t *testing.T, h *webhook) *servertest.Server {
	t.Helper()
	s := servertest.New(t, func(s *server.Server) {
		s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	s.PostYAML(definitionsPath, defined(t, "things", "Thing", "spec.conversion="+h.conversion(),
		"spec.versions=["+versionOf("v1", true, true, `"size":{"type":"string"},"note":{"type":"string"}`)+","+
			versionOf("v2", true, false, `"length":{"type":"integer","maximum":20},"note":{"type":"string"}`)+"]"))
	return s
}

// bothWatch returns what checks the next event of a watch of v1 and of one of v2, of which without is wanted, too.
func bothWatch(t *testing.T, v1, v2 *servertest.Stream, without string) func(want1, want2 string) {
	return func(want1, want2 string) {
		t.Helper()
		for _, w := range []struct {
			stream *servertest.Stream
			want   string
		}{{v1, "object.apiVersion=example.com/v1 " + want1}, {v2, "object.apiVersion=example.com/v2 " + without + want2}} {
			line, err := w.stream.Next()
			if err != nil {
				t.Fatal(err)
			}
			check(t, line, w.want)
		}
	}
}

func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	s, _ := newConverted(t)
	v1, v2 := thingsPath, things2Path
	w1, w2 := s.Watch(v1+"?watch=true"), s.Watch(v2+"?watch=true")
	both := bothWatch(t, w1, w2, "object.spec.junk= ")
	const in1, in2 = "apiVersion=example.com/v1 ", "apiVersion=example.com/v2 spec.junk= "
	check(t, s.PostYAML(v1, thing("v1", "a", `,"spec":{"size":"abc"}`)), in1+"spec.size=abc metadata.generation=1")
	both("type=ADDED object.spec.size=abc", "type=ADDED object.spec.length=3 object.spec.size=")
	check(t, s.Get(v2+"/a"), in2+"spec.length=3 spec.size= metadata.generation=1")
	check(t, s.Get(v2), "kind=ThingList apiVersion=example.com/v2 items.0.apiVersion=example.com/v2 items.0.spec.length=3 items.0.spec.junk=")
	check(t, s.PostYAML(v2, thing("v2", "b", `,"spec":{"length":2}`)), in2+"spec.length=2")
	both("type=ADDED object.spec.size=xx", "type=ADDED object.spec.length=2")
	check(t, send(t, s, 200, "PUT", v2+"/b", "", strings.Replace(s.Get(v2+"/b"), `"length":2`, `"length":4`, 1)), in2+"spec.length=4 metadata.generation=2")
	both("type=MODIFIED object.spec.size=xxxx", "type=MODIFIED object.spec.length=4")
	check(t, send(t, s, 200, "PATCH", v2+"/b", mergePatch, `{"spec":{"length":5}}`), in2+"spec.length=5 metadata.generation=3")
	both("object.spec.size=xxxxx", "object.spec.length=5")
	check(t, send(t, s, 200, "PATCH", v2+"/b", jsonPatch, `[{"op":"test","path":"/spec/length","value":5},{"op":"add","path":"/spec/note","value":"n"}]`), in2+"spec.note=n")
	both("object.spec.note=n", "object.spec.note=n")
	check(t, send(t, s, 200, "PATCH", v1+"/b", mergePatch, `{"spec":{"size":"z"}}`), in1+"spec.size=z spec.note=n")
	both("object.spec.size=z", "object.spec.length=1")
	check(t, send(t, s, 200, "PATCH", v2+"/b/status", mergePatch, `{"status":{"ok":true}}`), in2+"status.ok=true spec.length=1")
	both("object.status.ok=true", "object.status.ok=true")
	check(t, send(t, s, 201, "PATCH", v2+"/c?fieldManager=m", applyPatch, thing("v2", "c", `,"spec":{"length":6}`)), in2+"spec.length=6 metadata.managedFields.0.apiVersion=example.com/v2")
	both("type=ADDED object.spec.size=xxxxxx", "type=ADDED object.spec.length=6")
	check(t, send(t, s, 200, "PATCH", v2+"/c?fieldManager=n", applyPatch, thing("v2", "c", `,"spec":{"note":"n"}`)), in2+"spec.length=6 spec.note=n")
	both("object.spec.note=n", "object.spec.note=n")
	check(t, send(t, s, 200, "PATCH", v1+"/c?fieldManager=m", applyPatch, thing("v1", "c", `,"spec":{"size":"xx"}`)), in1+"spec.size=xx spec.note=n")
	both("object.spec.size=xx", "object.spec.length=2")

	// What a webhook leaves that the version doesn't know isn't shown, and in the version of an owner it can't be merged.
	send(t, s, 200, "PATCH", v2+"/b?fieldManager=m", applyPatch, thing("v2", "b", `,"spec":{"note":"n"}`))
	both("type=MODIFIED object.spec.note=n", "object.spec.note=n")
	res, body := s.Do("PATCH", v1+"/b?fieldManager=n", thing("v1", "b", `,"spec":{"size":"xx"}`), "Content-Type", applyPatch)
	if got := status(t, res, body); res.StatusCode != 500 || !strings.Contains(got.Message, ".spec.junk: field not declared in schema") {
		t.Errorf("%s %s", res.Status, body)
	}
	// What isn't valid in the version that is asked.
	res, body = s.Do("PATCH", v2+"/b", `{"spec":{"length":21}}`, "Content-Type", mergePatch)
	if got := status(t, res, body); res.StatusCode != 422 || causesOf(got) != "FieldValueInvalid spec.length" {
		t.Errorf("%s %s", res.Status, body)
	}
	// An unchanged object is none in either version.
	for _, path := range []string{v1 + "/c", v2 + "/c"} {
		was := s.Get(path)
		if got := send(t, s, 200, "PUT", path, "", was); got != was {
			t.Errorf("%s is %s\nand was %s", path, got, was)
		}
	}
	check(t, send(t, s, 200, "DELETE", v2+"/a", "", ""), "details.name=a")
	both("type=DELETED object.spec.size=abc", "type=DELETED object.spec.length=3")
	if got := decode[*listed](t, send(t, s, 200, "DELETE", v2, "", "")); got.names() != "b c" {
		t.Errorf("deleted %s", got.names())
	}
}

// TestConversionIsShared: an object is converted once, however many read it.
func TestConversionIsShared(t *testing.T) {
	t.Parallel()
	s, h := newConverted(t)
	const objects = 20
	for i := range objects {
		s.PostYAML(thingsPath, thing("v1", fmt.Sprintf("o%d", i), `,"spec":{"size":"abc"}`))
	}
	before := h.converted.Load()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			switch i % 3 {
			case 0:
				if got := decode[*listed](t, s.Get(things2Path)); len(got.Items) != objects {
					t.Errorf("%d objects", len(got.Items))
				}
			case 1:
				for n := range objects {
					s.Get(fmt.Sprintf("%s/o%d", things2Path, n))
				}
			case 2:
				w := s.Watch(things2Path + "?watch=true")
				defer w.Close()
				for range objects {
					if e := next(t, w); e.Type != "ADDED" {
						t.Errorf("%s", e)
					}
				}
			}
		})
	}
	all.Wait()
	if n := h.converted.Load() - before; n != objects {
		t.Errorf("%d objects were converted %d times", objects, n)
	}
}

// TestConversionFails: what needs no conversion goes on, and all else says what is wrong.
func TestConversionFails(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-of-the-webhook"
	for _, tc := range []struct {
		name, message string
		fail          func(h *webhook)
	}{
		{"down", "conversion webhook for example.com/v1, Kind=Thing failed: ", func(h *webhook) { h.Close() }},
		{"broken", "conversion webhook for example.com/v1, Kind=Thing failed: an error on the server (\"unknown\") has prevented", func(h *webhook) { text := secret; h.broken.Store(&text) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, h := newConverted(t)
			s.PostYAML(thingsPath, thing("v1", "seen", `,"spec":{"size":"a"}`))
			s.Get(things2Path + "/seen")
			old := s.Watch(things2Path + "?watch=true")
			next(t, old)
			tc.fail(h)
			made := s.PostYAML(thingsPath, thing("v1", "a", `,"spec":{"size":"abc"}`))
			for _, step := range []struct {
				method, path, media, body string
				code                      int
				reason                    metav1.StatusReason // of a 500
			}{
				{"GET", thingsPath, "", "", 200, ""},
				{"GET", thingsPath + "/a", "", "", 200, ""},
				{"PUT", thingsPath + "/a", "", made, 200, ""},
				{"PATCH", thingsPath + "/a", mergePatch, `{"spec":{"size":"abcd"}}`, 200, ""},
				{"GET", things2Path + "/seen", "", "", 200, ""}, // was converted before
				{"GET", things2Path + "/a", "", "", 500, metav1.StatusReasonInternalError},
				{"GET", things2Path, "", "", 500, metav1.StatusReasonStoreReadError},
				{"POST", things2Path, "", thing("v2", "b", `,"spec":{"length":1}`), 500, ""},
				{"PUT", things2Path + "/seen", "", thing("v2", "seen", `,"spec":{"length":2}`), 0, ""},
				{"PATCH", things2Path + "/a", mergePatch, `{"spec":{"length":1}}`, 500, ""},
				{"PATCH", things2Path + "/b?fieldManager=m", applyPatch, thing("v2", "b", `,"spec":{"length":1}`), 500, ""},
				{"DELETE", things2Path + "/a", "", "", 500, metav1.StatusReasonInternalError},
				{"DELETE", things2Path, "", "", 500, metav1.StatusReasonStoreReadError},
				{"GET", things2Path + "/missing", "", "", 404, ""},
			} {
				res, body := s.Do(step.method, step.path, step.body, "Content-Type", step.media)
				if step.code != 0 && res.StatusCode != step.code || strings.Contains(body, secret) {
					t.Errorf("%s %s: %s %s", step.method, step.path, res.Status, body)
				}
				if step.code != 500 {
					continue
				}
				if got := status(t, res, body); got.Reason != step.reason || !strings.Contains(strings.Replace(got.Message, "/v2, Kind=Thing failed", "/v1, Kind=Thing failed", 1), tc.message) {
					t.Errorf("%s %s: %s", step.method, step.path, body)
				}
			}
			// Watches of the other version end, with an error event or cleanly; of the stored one they don't.
			for _, w := range []*servertest.Stream{old, s.Watch(things2Path + "?watch=true")} {
				for {
					line, err := w.Next()
					if err == nil && strings.Contains(line, `"name":"seen"`) && !strings.HasPrefix(line, `{"type":"ERROR"`) {
						continue
					}
					if err == nil && strings.HasPrefix(line, `{"type":"ERROR"`) {
						if value(line, "object.kind") != "Status" || value(line, "object.code") != "500" || strings.Contains(line, secret) {
							t.Errorf("the error is %s", line)
						}
						line, err = w.Next()
					}
					if !errors.Is(err, io.EOF) || line != "" {
						t.Errorf("the watch goes on with %q, %v", line, err)
					}
					break
				}
			}
			w := s.Watch(thingsPath + "?watch=true")
			if e := next(t, w); e.String() != "ADDED a" {
				t.Errorf("in the stored version %s", e)
			}
			check(t, send(t, s, 200, "DELETE", thingsPath+"/a", "", ""), "details.name=a")
		})
	}
	t.Run("one object", func(t *testing.T) {
		t.Parallel()
		s, h := newConverted(t)
		s.PostYAML(thingsPath, thing("v1", "a", `,"spec":{"size":"unconvertible"}`))
		res, body := s.Do("GET", things2Path+"/a", "")
		if got := status(t, res, body); res.StatusCode != 500 || !strings.Contains(got.Message, "no length for that") {
			t.Errorf("%s %s", res.Status, body)
		}
		// It's mended: the next one asks again.
		send(t, s, 200, "PATCH", thingsPath+"/a", mergePatch, `{"spec":{"size":"ok"}}`)
		check(t, s.Get(things2Path+"/a"), "spec.length=2")
		text := ""
		h.broken.Store(&text)
		s.PostYAML(thingsPath, thing("v1", "b", `,"spec":{"size":"abc"}`))
		send(t, s, 500, "GET", things2Path+"/b", "", "")
		h.broken.Store(nil)
		check(t, s.Get(things2Path+"/b"), "spec.length=3")
	})
}

// TestWebhookForms: what a definition may not say of its webhook, and where none is called (F60).
func TestWebhookForms(t *testing.T) {
	t.Parallel()
	h := newWebhook(t)
	s := servertest.New(t, func(s *server.Server) {
		s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	const at = "spec.conversion.webhookClientConfig.url" // where kube-apiserver's internal type has it
	closed := servertest.New(t)                          // allows no private address
	for _, tc := range []struct {
		name, url, cause string
		s                *servertest.Server
	}{
		{"http", "http://hooks.example.com/", "FieldValueInvalid " + at, s},
		{"file", "file:///etc/passwd", "FieldValueInvalid " + at, s},
		{"no scheme", "hooks.example.com/x", "FieldValueInvalid " + at, s},
		{"user", "https://user:s3cr3t@hooks.example.com/", "FieldValueForbidden " + at, s},
		{"query", "https://hooks.example.com/?a=b", "FieldValueInvalid " + at, s},
		{"fragment", "https://hooks.example.com/#a", "FieldValueInvalid " + at, s},
		{"no host", "https:///x", "FieldValueInvalid " + at, s},
		{"no URL", "https://a b/s3cr3t", "FieldValueRequired " + at, s},
		{"link-local", "https://169.254.169.254/latest", "FieldValueInvalid " + at, s},
		{"private", "https://10.0.0.1/", "FieldValueInvalid " + at, s},
		{"loopback", "https://127.0.0.1:8443/", "FieldValueInvalid " + at, closed},
		{"localhost", "https://localhost/", "FieldValueInvalid " + at, closed},
		{"loopback in IPv6", "https://[::1]/", "FieldValueInvalid " + at, closed},
		{"loopback as IPv6", "https://[::ffff:127.0.0.1]/", "FieldValueInvalid " + at, closed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conversion := fmt.Sprintf(`{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q}}}`, tc.url)
			res, body := tc.s.Do("POST", definitionsPath, defined(t, "things", "Thing", "spec.conversion="+conversion))
			got := status(t, res, body)
			if res.StatusCode != 422 || !strings.Contains(causesOf(got), tc.cause) || strings.Contains(body, "s3cr3t") {
				t.Errorf("%s, causes %s, want %s: %s", res.Status, causesOf(got), tc.cause, body)
			}
		})
	}
	for name, config := range map[string]string{
		"no service":     `{"conversionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"default"}}}`,
		"no client":      `{"conversionReviewVersions":["v1"]}`,
		"no versions":    `{"conversionReviewVersions":[],"clientConfig":{"url":"https://hooks.example.com/"}}`,
		"other versions": `{"conversionReviewVersions":["v9"],"clientConfig":{"url":"https://hooks.example.com/"}}`,
	} {
		res, body := s.Do("POST", definitionsPath, defined(t, "things", "Thing", `spec.conversion={"strategy":"Webhook","webhook":`+config+`}`))
		if status(t, res, body); res.StatusCode != 422 {
			t.Errorf("%s: %s %s", name, res.Status, body)
		}
	}
	// A service is stored, and can't be called: objects stay what they are in the stored version.
	service := `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"default","name":"x"}}}}`
	both := "spec.versions=[" + versionOf("v1", true, true, "") + "," + versionOf("v2", true, false, "") + "]"
	s.PostYAML(definitionsPath, defined(t, "others", "Other", both, "spec.conversion="+service))
	others := strings.Replace(thingsPath, "things", "others", 1)
	s.PostYAML(others, strings.Replace(thing("v1", "a", ""), "Thing", "Other", 1))
	s.Get(others + "/a")
	if res, body := s.Do("GET", strings.Replace(things2Path, "things", "others", 1)+"/a", ""); res.StatusCode != 500 || !strings.Contains(status(t, res, body).Message, "no services") {
		t.Errorf("a conversion by a service: %s %s", res.Status, body)
	}
	// A certificate that nobody signed.
	two := "spec.versions=[" + versionOf("v1", true, true, "") + "," + versionOf("v2", true, false, "") + "]"
	s.PostYAML(definitionsPath, defined(t, "things", "Thing", two, "spec.conversion="+strings.Replace(h.conversion(), h.caBundle(), "", 1)))
	s.PostYAML(thingsPath, thing("v1", "a", ""))
	res, body := s.Do("GET", things2Path+"/a", "")
	if got := status(t, res, body); res.StatusCode != 500 || !strings.Contains(got.Message, "certificate") || h.converted.Load() != 0 {
		t.Errorf("with an unknown certificate: %s %s", res.Status, body)
	}
	// With the bundle it works at once.
	send(t, s, 200, "PATCH", definitionsPath+"/things.example.com", mergePatch, `{"spec":{"conversion":`+h.conversion()+`}}`)
	check(t, s.Get(things2Path+"/a"), "apiVersion=example.com/v2")
}
