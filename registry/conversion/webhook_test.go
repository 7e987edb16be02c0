package conversion

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	v1, v2 = "example.com/v1", "example.com/v2"
	// secret stands in answers where an error must not repeat it.
	secret = "s3cr3t-of-the-webhook"
)

var loopback = Policy{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}

// received is what a webhook gets.
type received struct {
	APIVersion, Kind string
	Request          struct {
		UID, DesiredAPIVersion string
		Objects                []map[string]any
	}
}

// answering is a webhook that answers with what a function makes of a review.
func answering(t *testing.T, answer func(r *received) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review received
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Errorf("the request isn't JSON: %v", err)
		}
		w.Header().Set("Content-Type", "application/json")
		switch a := answer(&review).(type) {
		case string:
			io.WriteString(w, a)
		default:
			if err := json.NewEncoder(w).Encode(a); err != nil {
				t.Error(err)
			}
		}
	})
}

// converting answers as a good webhook does: each object gets the version, and spec.from its old one.
func converting(r *received) map[string]any {
	converted := []any{}
	for _, o := range r.Request.Objects {
		o["spec"] = map[string]any{"from": o["apiVersion"]}
		o["apiVersion"] = r.Request.DesiredAPIVersion
		converted = append(converted, o)
	}
	return map[string]any{"apiVersion": r.APIVersion, "kind": "ConversionReview", "response": map[string]any{
		"uid": r.Request.UID, "convertedObjects": converted, "result": map[string]any{"status": "Success"},
	}}
}

// changing answers as a good webhook does, except for what change does to the response and its first object.
func changing(change func(response, object map[string]any)) func(*received) any {
	return func(r *received) any {
		review := converting(r)
		response := review["response"].(map[string]any)
		change(response, response["convertedObjects"].([]any)[0].(map[string]any))
		return review
	}
}

func metadata(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }

func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = discard()
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func config(server *httptest.Server, versions ...string) *apiextensionsv1.WebhookConversion {
	url := server.URL + "/convert"
	return &apiextensionsv1.WebhookConversion{
		ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: bundle(server)},
		ConversionReviewVersions: versions,
	}
}

func bundle(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func client(t testing.TB, c *apiextensionsv1.WebhookConversion) *Webhook {
	t.Helper()
	w, err := New(c, hookclient.Network{Policy: loopback})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func widget(apiVersion, name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Widget","metadata":{"annotations":{"a":"1"},"labels":{"l":"1"},"name":%q,"namespace":"ns","resourceVersion":"7","uid":"u-%s"},"spec":{"n":1}}`, apiVersion, name, name)
}

func widgetFrom(from, name string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"Widget","metadata":{"annotations":{"a":"1"},"labels":{"l":"1"},"name":%q,"namespace":"ns","uid":"u-%s"},"spec":{"from":%q}}`, v2, name, name, from)
}

func TestConvert(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			var requests atomic.Int32
			server := serve(t, answering(t, func(r *received) any {
				requests.Add(1)
				if r.APIVersion != "apiextensions.k8s.io/"+version || r.Kind != "ConversionReview" || r.Request.DesiredAPIVersion != v2 {
					t.Errorf("the webhook got %s %s to %s", r.APIVersion, r.Kind, r.Request.DesiredAPIVersion)
				}
				if len(r.Request.Objects) != 2 || metadata(r.Request.Objects[0])["resourceVersion"] != "7" {
					t.Errorf("the webhook got %v", r.Request.Objects)
				}
				return converting(r)
			}))
			w := client(t, config(server, "v9", version))

			given := [][]byte{widget(v1, "a"), widget(v2, "b"), widget("example.com/v1beta1", "c")}
			got, err := w.Convert(t.Context(), v2, given)
			if err != nil {
				t.Fatal(err)
			}
			if want := widgetFrom(v1, "a"); string(got[0]) != want {
				t.Errorf("got  %s\nwant %s", got[0], want)
			}
			if got[1] != nil {
				t.Errorf("what needs no conversion came back as %s", got[1])
			}
			if want := widgetFrom("example.com/v1beta1", "c"); string(got[2]) != want {
				t.Errorf("got  %s\nwant %s", got[2], want)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("it took %d requests, want 1", n)
			}
		})
	}
}

func TestConvertNothing(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the webhook was called") }))
	w := client(t, config(server, "v1"))
	for _, objects := range [][][]byte{nil, {widget(v2, "a")}} {
		got, err := w.Convert(t.Context(), v2, objects)
		if err != nil || len(got) != len(objects) || len(got) == 1 && got[0] != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, err := w.Convert(t.Context(), v2, [][]byte{[]byte(`{"apiVersion":`)}); err == nil {
		t.Error("what isn't JSON was taken")
	}
}

// TestGrowing: objects that grow by conversion beyond what one answer may have are sent in smaller batches. One that is too
// large alone is an error.
func TestGrowing(t *testing.T) {
	var largest atomic.Int64
	h := answering(t, func(r *received) any {
		largest.Store(max(largest.Load(), int64(len(r.Request.Objects))))
		answer := converting(r)
		for _, o := range r.Request.Objects {
			size := 1 << 20
			if metadata(o)["name"] == "huge" {
				size = maxAnswerBytes
			}
			o["spec"] = strings.Repeat("x", size)
		}
		return answer
	})
	w := client(t, config(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		whole := httptest.NewRecorder()
		h.ServeHTTP(whole, r)
		_, _ = whole.Body.WriteTo(w) // the client stops reading
	})), "v1"))
	var objects [][]byte
	for i := range 6 {
		objects = append(objects, widget(v1, fmt.Sprint("w", i)))
	}
	got, err := w.Convert(t.Context(), v2, objects)
	if err != nil || largest.Load() != 6 {
		t.Fatalf("%v, at most %d objects at once", err, largest.Load())
	}
	for i, o := range got {
		if !strings.Contains(string(o), fmt.Sprintf(`"name":"w%d"`, i)) {
			t.Errorf("object %d is %.200s", i, o)
		}
	}
	if _, err := w.Convert(t.Context(), v2, append(objects, widget(v1, "huge"))); err == nil || !strings.Contains(err.Error(), "its answer is larger than 3145728 bytes") {
		t.Errorf("the error is %.200v", err)
	}
}

// TestContentType: whatever type an answer says that it has, it's taken, as by kube-apiserver. A Go server that sets none says
// text/plain, and a script that returns a text, text/html.
func TestContentType(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "text/plain; charset=utf-8", "text/html; charset=utf-8", "nonsense"} {
		t.Run(contentType, func(t *testing.T) {
			h := answering(t, func(r *received) any { return converting(r) })
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(typed{w, contentType}, r)
			}))
			if _, err := client(t, config(server, "v1")).Convert(t.Context(), v2, [][]byte{widget(v1, "a")}); err != nil {
				t.Error(err)
			}
		})
	}
}

// typed sets the Content-Type when the answer is written.
type typed struct {
	http.ResponseWriter
	contentType string
}

func (w typed) Write(b []byte) (int, error) {
	w.Header().Set("Content-Type", w.contentType)
	return w.ResponseWriter.Write(b)
}

func TestMetadata(t *testing.T) {
	tests := []struct {
		name   string
		change func(meta map[string]any)
		want   string // in metadata
	}{
		{"labels and annotations changed", func(m map[string]any) {
			m["labels"] = map[string]any{"x": "2", "l": "1"}
			m["annotations"] = map[string]any{"b": "<"}
		}, `{"annotations":{"b":"\u003c"},"labels":{"l":"1","x":"2"},"name":"a","namespace":"ns","uid":"u-a"}`},
		{"labels and annotations removed", func(m map[string]any) {
			delete(m, "labels")
			m["annotations"] = nil
		}, `{"name":"a","namespace":"ns","uid":"u-a"}`},
		{"labels emptied", func(m map[string]any) { m["labels"] = map[string]any{} },
			`{"annotations":{"a":"1"},"labels":{},"name":"a","namespace":"ns","uid":"u-a"}`},
		{"what is no webhook's business", func(m map[string]any) {
			m["finalizers"] = []any{"x"}
			m["generation"] = 9
			m["resourceVersion"] = "8"
		}, `{"annotations":{"a":"1"},"labels":{"l":"1"},"name":"a","namespace":"ns","uid":"u-a"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := serve(t, answering(t, changing(func(_, object map[string]any) { test.change(metadata(object)) })))
			got, err := client(t, config(server, "v1")).Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
			if err != nil {
				t.Fatal(err)
			}
			var object struct{ Metadata json.RawMessage }
			if err := json.Unmarshal(got[0], &object); err != nil || string(object.Metadata) != test.want {
				t.Errorf("metadata is %s (%v), want %s", object.Metadata, err, test.want)
			}
		})
	}
}

// TestStoredInvalidLabels: what an object had before may stay, whatever the rules say now.
func TestStoredInvalidLabels(t *testing.T) {
	server := serve(t, answering(t, func(r *received) any { return converting(r) }))
	raw := bytes.Replace(widget(v1, "a"), []byte(`"l":"1"`), []byte(`"l":"not valid!"`), 1)
	got, err := client(t, config(server, "v1")).Convert(t.Context(), v2, [][]byte{raw})
	if err != nil || !bytes.Contains(got[0], []byte(`"l":"not valid!"`)) {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestBadAnswers: each says what's wrong, and none repeats what came.
func TestBadAnswers(t *testing.T) {
	const (
		call   = "conversion webhook for example.com/v1, Kind=Widget failed: "
		object = "conversion webhook for example.com/v1, Kind=Widget returned invalid converted object at index 0 (ns/a): "
	)
	object1 := func(change func(object map[string]any)) func(*received) any {
		return changing(func(_, object map[string]any) { change(object) })
	}
	response := func(change func(response map[string]any)) func(*received) any {
		return changing(func(response, _ map[string]any) { change(response) })
	}
	text := func(s string) func(*received) any { return func(*received) any { return s } }
	tests := []struct {
		name   string
		answer func(*received) any
		want   string
	}{
		{"empty", text(""), call + "0-length response with status code: 200 and content type: "},
		{"not JSON", text(secret), call + "couldn't get version/kind; json parse error: json: cannot unmarshal string"},
		{"cut off", text(`{"response":{"uid":"` + secret), call + "couldn't get version/kind; json parse error: unexpected end of JSON input"},
		{"trailing data", text(`{} "` + secret + `"`), call + "couldn't get version/kind; json parse error: invalid character '\"' after top-level value"},
		{"a string", text(`"` + secret + `"`), call + "couldn't get version/kind; json parse error: json: cannot unmarshal string"},
		{"a list", text(`["` + secret + `"]`), call + "couldn't get version/kind; json parse error: json: cannot unmarshal array"},
		{"neither JSON nor YAML", text("*" + secret), call + "it's neither JSON nor YAML"},
		{"null", text(`null`), call + "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind="},
		{"wrong type within", text(`{"response":{"uid":7}}`), call + "json: cannot unmarshal number into Go struct field"},
		{"another kind", func(r *received) any { a := converting(r); a["kind"] = "Other"; return a },
			call + `no kind "Other" is registered for version "apiextensions.k8s.io/v1" in scheme`},
		{"another version", func(r *received) any { a := converting(r); a["apiVersion"] = "apiextensions.k8s.io/v1beta1"; return a },
			call + "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion"},
		{"no response", func(r *received) any { a := converting(r); a["response"] = nil; return a }, call + "no response provided"},
		{"field in other case", func(r *received) any {
			a := converting(r)
			a["Response"] = a["response"]
			delete(a, "response")
			return a
		}, call + "no response provided"},
		{"wrong uid", response(func(r map[string]any) { r["uid"] = "other" }), call + "expected response.uid="},
		{"no uid", response(func(r map[string]any) { delete(r, "uid") }), call + "expected response.uid="},
		{"failure", response(func(r map[string]any) {
			r["result"] = map[string]any{"status": "Failure", "message": "no colour \x00in v2", "details": secret}
		}), call + "no colour \x00in v2"},
		{"failure with a long message", response(func(r map[string]any) {
			r["result"] = map[string]any{"status": "Failure", "message": strings.Repeat("é", 1024) + secret}
		}), call + strings.Repeat("é", 1024/2) + "..."},
		{"failure without a message", response(func(r map[string]any) { r["result"] = map[string]any{"status": "Failure"} }),
			call + "response.result.status was 'Failure', not 'Success'"},
		{"other status", response(func(r map[string]any) { r["result"] = map[string]any{"status": "Other"} }),
			call + "response.result.status was 'Other', not 'Success'"},
		{"no result", response(func(r map[string]any) { delete(r, "result") }), call + "response.result.status was '', not 'Success'"},
		{"no objects", response(func(r map[string]any) { delete(r, "convertedObjects") }),
			"conversion webhook for example.com/v1, Kind=Widget returned 0 objects, expected 1"},
		{"too many objects", response(func(r map[string]any) { r["convertedObjects"] = []any{secret, secret} }),
			"conversion webhook for example.com/v1, Kind=Widget returned 2 objects, expected 1"},
		{"object is a string", response(func(r map[string]any) { r["convertedObjects"] = []any{secret} }), object + "must be an object"},
		{"object is null", response(func(r map[string]any) { r["convertedObjects"] = []any{nil} }), object + "invalid groupVersion"},
		{"object unconverted", object1(func(o map[string]any) { o["apiVersion"] = v1 }),
			object + "invalid groupVersion (expected example.com/v2, received example.com/v1 as it was sent)"},
		{"object of another version", object1(func(o map[string]any) { o["apiVersion"] = secret }),
			object + "invalid groupVersion (expected example.com/v2, received another or none)"},
		{"apiVersion is a number", object1(func(o map[string]any) { o["apiVersion"] = 31337000 }), object + "invalid groupVersion"},
		{"object of another kind", object1(func(o map[string]any) { o["kind"] = secret }), object + "invalid kind (expected Widget, received another or none)"},
		{"no metadata", object1(func(o map[string]any) { delete(o, "metadata") }), object + "missing metadata"},
		{"metadata is null", object1(func(o map[string]any) { o["metadata"] = nil }), object + "invalid metadata"},
		{"metadata is a string", object1(func(o map[string]any) { o["metadata"] = secret }), object + "invalid metadata"},
		{"changed name", object1(func(o map[string]any) { metadata(o)["name"] = secret }), object + `must have the same metadata.name: expected "a"`},
		{"changed namespace", object1(func(o map[string]any) { metadata(o)["namespace"] = secret }), object + `must have the same metadata.namespace: expected "ns"`},
		{"changed uid", object1(func(o map[string]any) { metadata(o)["uid"] = secret }), object + `must have the same metadata.uid: expected "u-a"`},
		{"removed uid", object1(func(o map[string]any) { delete(metadata(o), "uid") }), object + `must have the same metadata.uid: expected "u-a"`},
		{"labels are a string", object1(func(o map[string]any) { metadata(o)["labels"] = secret }), object + "invalid metadata.labels"},
		{"a label is a number", object1(func(o map[string]any) { metadata(o)["labels"] = map[string]any{secret: 31337000} }), object + "invalid metadata.labels"},
		{"a label is null", object1(func(o map[string]any) { metadata(o)["labels"] = map[string]any{secret: nil} }), object + "invalid metadata.labels"},
		{"invalid label name", object1(func(o map[string]any) { metadata(o)["labels"] = map[string]any{secret + "!": "x"} }), object + "invalid metadata.labels"},
		{"invalid label value", object1(func(o map[string]any) { metadata(o)["labels"] = map[string]any{"x": secret + "!"} }), object + "invalid metadata.labels"},
		{"invalid annotation", object1(func(o map[string]any) { metadata(o)["annotations"] = map[string]any{secret + "!": "x"} }), object + "invalid metadata.annotations"},
		{"large annotation", object1(func(o map[string]any) {
			metadata(o)["annotations"] = map[string]any{"x": secret + strings.Repeat("x", 256<<10)}
		}), object + "invalid metadata.annotations"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := client(t, config(serve(t, answering(t, test.answer)), "v1"))
			_, err := w.Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
			expect(t, err, test.want)
		})
	}
}

// expect checks an error, and that it's short and has nothing of the answer.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the error is %v\nwant %s...", err, want)
	}
	if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "31337")) {
		t.Errorf("the error repeats the answer: %v", err)
	}
	if err != nil && len(err.Error()) > 2*1024 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

// TestV1beta1Leniency: webhooks of v1beta1 needn't repeat version and uid, as in Kubernetes.
func TestV1beta1Leniency(t *testing.T) {
	server := serve(t, answering(t, func(r *received) any {
		a := converting(r)
		delete(a, "apiVersion")
		delete(a, "kind")
		delete(a["response"].(map[string]any), "uid")
		return a
	}))
	if _, err := client(t, config(server, "v1beta1", "v1")).Convert(t.Context(), v2, [][]byte{widget(v1, "a")}); err != nil {
		t.Error(err)
	}
}

func TestBadHeads(t *testing.T) {
	const call = "conversion webhook for example.com/v1, Kind=Widget failed: "
	var elsewhere atomic.Int32
	other := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	tests := []struct {
		name string
		h    http.HandlerFunc
		want string
	}{
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/"+secret, http.StatusFound)
		}, call + "it answered with a redirect (302), which isn't followed"},
		{"redirect that keeps the body", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/"+secret, http.StatusTemporaryRedirect)
		}, call + "it answered with a redirect (307), which isn't followed"},
		{"not found", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, http.StatusNotFound) },
			call + "the server could not find the requested resource"},
		{"internal error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, 500) },
			call + `an error on the server ("unknown") has prevented the request from succeeding`},
		{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
			call + "0-length response with status code: 204"},
		{"unknown status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(999) }, call + "an error on the server"},
		{"HTML", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; x="+secret)
			io.WriteString(w, secret)
		}, call + "couldn't get version/kind; json parse error: json: cannot unmarshal string"},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, secret)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, call + "unexpected error when reading response body. Please retry. Original error: unexpected EOF"},
		{"large headers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat(secret, 64<<10/10))
		}, call + "Post"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := client(t, config(serve(t, test.h), "v1")).Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
			expect(t, err, test.want)
		})
	}
	if elsewhere.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

// TestHugeAnswer: reading stops, so the webhook can't write its gigabyte.
func TestHugeAnswer(t *testing.T) {
	tests := []struct{ name, length string }{{"of unknown length", ""}, {"that says so", fmt.Sprint(1 << 30)}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wrote := make(chan int, 1)
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if test.length != "" {
					w.Header().Set("Content-Length", test.length)
				}
				chunk, n := bytes.Repeat([]byte(secret), 1<<12), 0
				for err := error(nil); err == nil && n < 1<<30-len(chunk); n += len(chunk) {
					_, err = w.Write(chunk)
				}
				wrote <- n
			}))
			_, err := client(t, config(server, "v1")).Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
			expect(t, err, "conversion webhook for example.com/v1, Kind=Widget failed: unexpected error when reading response body. Please retry. Original error: its answer is larger than 3145728 bytes")
			if n := <-wrote; n > 64<<20 {
				t.Errorf("the webhook wrote %d bytes", n)
			}
		})
	}
}

// TestNotHTTP: net/http quotes what it can't parse.
func TestNotHTTP(t *testing.T) {
	certificate := serve(t, http.NotFoundHandler())
	for _, answer := range []string{secret, "HTTP/1.1 " + secret + "\r\n\r\n", "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n", ""} {
		t.Run(answer, func(t *testing.T) {
			c := rawServer(t, func(raw net.Conn) {
				conn := tls.Server(raw, &tls.Config{Certificates: certificate.TLS.Certificates})
				if conn.Handshake() == nil {
					conn.Read(make([]byte, 1))
					io.WriteString(conn, answer)
				}
				conn.Close()
			})
			c.ClientConfig.CABundle = bundle(certificate)
			_, err := client(t, c).Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
			expect(t, err, "conversion webhook for example.com/v1, Kind=Widget failed: ")
		})
	}
}

func TestNotTLS(t *testing.T) {
	for _, answer := range []string{secret, "HTTP/1.1 200 OK\r\n\r\n" + secret} {
		c := rawServer(t, func(conn net.Conn) {
			conn.Read(make([]byte, 1<<10))
			io.WriteString(conn, answer)
			conn.Close()
		})
		_, err := client(t, c).Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
		expect(t, err, "conversion webhook for example.com/v1, Kind=Widget failed: ")
	}
}

// rawServer serves connections until the test ends.
func rawServer(t *testing.T, handle func(net.Conn)) *apiextensionsv1.WebhookConversion {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { handle(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	url := "https://" + listener.Addr().String()
	return &apiextensionsv1.WebhookConversion{
		ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url},
		ConversionReviewVersions: []string{"v1"},
	}
}

func TestTLS(t *testing.T) {
	good := answering(t, func(r *received) any { return converting(r) })
	server := serve(t, good)
	old := httptest.NewUnstartedServer(good)
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.Config.ErrorLog = discard()
	old.StartTLS()
	defer old.Close()

	unknown := config(server, "v1")
	unknown.ClientConfig.CABundle = nil // the system's certificates don't have this one
	spaces := config(server, "v1")
	spaces.ClientConfig.CABundle = []byte(" \n")
	wrongName := config(server, "v1")
	*wrongName.ClientConfig.URL = strings.Replace(*wrongName.ClientConfig.URL, "127.0.0.1", "localhost", 1)
	tests := []struct {
		name string
		c    *apiextensionsv1.WebhookConversion
		want string
	}{
		{"unknown authority", unknown, "tls: failed to verify certificate"},
		{"bundle of spaces is the system's", spaces, "tls: failed to verify certificate"},
		{"another name", wrongName, "tls: failed to verify certificate: x509: certificate is valid for example.com"},
		{"old version", config(old, "v1"), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := client(t, test.c).Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
			expect(t, err, fmt.Sprintf("conversion webhook for example.com/v1, Kind=Widget failed: Post %q: %s", *test.c.ClientConfig.URL+"?timeout=30s", test.want))
		})
	}
}

func TestSlowWebhook(t *testing.T) {
	for _, where := range []string{"before the answer", "within the answer"} {
		t.Run(where, func(t *testing.T) {
			called := make(chan struct{}, 8)
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if where == "within the answer" {
					w.Header().Set("Content-Type", "application/json")
					io.WriteString(w, `{"`+secret)
					http.NewResponseController(w).Flush()
				}
				called <- struct{}{}
				<-r.Context().Done()
				panic(http.ErrAbortHandler) // a return would end the answer properly, maybe just in time
			}))
			w := client(t, config(server, "v1"))

			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-called
				cancel()
			}()
			_, err := w.Convert(ctx, v2, [][]byte{widget(v1, "a")})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the error is %v, want that of the context", err)
			}
			expect(t, err, "conversion webhook for example.com/v1, Kind=Widget failed: ")

			w.timeout = 50 * time.Millisecond
			_, err = w.Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
			expect(t, err, "conversion webhook for example.com/v1, Kind=Widget failed: ")
			if !strings.HasSuffix(err.Error(), ": context deadline exceeded") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestBatches: many objects and large ones are cut into several requests, and come back in order.
func TestBatches(t *testing.T) {
	large := strings.Repeat("x", maxBatchBytes*2/5)
	tests := []struct {
		name  string
		sizes []int // of padding, by object
		want  []int // objects by request
	}{
		{"one page", make([]int, maxBatchObjects), []int{maxBatchObjects}},
		{"more than a page", make([]int, 2*maxBatchObjects+1), []int{maxBatchObjects, maxBatchObjects, 1}},
		{"two fit", []int{len(large), len(large), len(large), 0, len(large), len(large)}, []int{2, 3, 1}},
		{"larger than a batch", []int{0, 3 * len(large), 0}, []int{1, 1, 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []int
			server := serve(t, answering(t, func(r *received) any {
				got = append(got, len(r.Request.Objects)) // requests come one after the other
				return converting(r)
			}))
			objects := make([][]byte, len(test.sizes))
			for i, size := range test.sizes {
				objects[i] = fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Widget","metadata":{"name":"w%d"},"x":%q}`, v1, i, strings.Repeat("x", size))
			}
			converted, err := client(t, config(server, "v1")).Convert(t.Context(), v2, objects)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("objects by request are %v, want %v", got, test.want)
			}
			for i, raw := range converted {
				if prefix := fmt.Sprintf(`{"apiVersion":%q,"kind":"Widget","metadata":{"name":"w%d"},`, v2, i); !strings.HasPrefix(string(raw), prefix) {
					t.Errorf("object %d is %.100s, want %s...", i, raw, prefix)
				}
			}
		})
	}
}

// TestConcurrency: Converts and Closes at once; no more than maxCalls requests are under way.
func TestConcurrency(t *testing.T) {
	var underWay, most atomic.Int32
	server := serve(t, answering(t, func(r *received) any {
		n := underWay.Add(1)
		defer underWay.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		return converting(r)
	}))
	w := client(t, config(server, "v1"))
	var group sync.WaitGroup
	for i := range 4 * maxCalls {
		group.Go(func() {
			for j := range 5 {
				name := fmt.Sprintf("w%d-%d", i, j)
				got, err := w.Convert(t.Context(), v2, [][]byte{widget(v1, name)})
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
				if err == nil && string(got[0]) != widgetFrom(v1, name) {
					t.Errorf("got %s for %s", got[0], name)
				}
				if i == 0 && j == 3 {
					w.Close()
				}
			}
		})
	}
	group.Wait()
	w.Close()
	if n := most.Load(); n > maxCalls {
		t.Errorf("%d requests were under way at once", n)
	}
}

// TestClose: a call that is under way is answered, the next one refused, and no connection is left.
func TestClose(t *testing.T) {
	called, proceed := make(chan struct{}), make(chan struct{})
	server := serve(t, answering(t, func(r *received) any {
		called <- struct{}{}
		<-proceed
		return converting(r)
	}))
	w := client(t, config(server, "v1"))

	done := make(chan error)
	go func() {
		_, err := w.Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
		done <- err
	}()
	<-called
	closed := make(chan struct{})
	go func() {
		w.Close()
		close(closed)
	}()
	for {
		if _, err := w.Convert(t.Context(), v2, nil); errors.Is(err, ErrClosed) {
			break
		}
	}
	select {
	case <-closed:
		t.Error("Close didn't wait for the call")
	default:
	}
	close(proceed)
	if err := <-done; err != nil {
		t.Errorf("the call under way failed: %v", err)
	}
	<-closed
	if n := w.client.Connections(); n > 0 {
		t.Errorf("%d connections are left", n)
	}
}

// TestCloseEndsAbandonedDials: net/http goes on dialling for a request that was given up.
func TestCloseEndsAbandonedDials(t *testing.T) {
	accepted := make(chan struct{}, 1)
	c := rawServer(t, func(conn net.Conn) { // takes connections and says nothing
		accepted <- struct{}{}
		io.Copy(io.Discard, conn)
		conn.Close()
	})
	w := client(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-accepted
		cancel()
	}()
	if _, err := w.Convert(ctx, v2, [][]byte{widget(v1, "a")}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	w.Close()
	if n := w.client.Connections(); n > 0 {
		t.Errorf("%d connections are left", n)
	}
}

// TestRestartedWebhook: a kept connection that the webhook has closed isn't an error.
func TestRestartedWebhook(t *testing.T) {
	server := serve(t, answering(t, func(r *received) any { return converting(r) }))
	w := client(t, config(server, "v1"))
	for range 50 {
		if _, err := w.Convert(t.Context(), v2, [][]byte{widget(v1, "a")}); err != nil {
			t.Fatal(err)
		}
		server.CloseClientConnections()
	}
}

func BenchmarkConvert(b *testing.B) {
	objects := make([][]byte, maxBatchObjects)
	for i := range objects {
		objects[i] = fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Widget","metadata":{"labels":{"l":"1"},"name":"w%d","namespace":"ns","uid":"u"},"spec":{"text":%q}}`, v1, i, strings.Repeat("x", 800))
	}
	b.ReportAllocs()
	for b.Loop() {
		todo, err := toConvert(v2, objects)
		if err != nil {
			b.Fatal(err)
		}
		r := newRequest("v1", v2, todo)
		answer := bytes.ReplaceAll(r.body, []byte(v1), []byte(v2))
		for i := range todo {
			if _, err := todo[i].accept(bytes.Replace(todo[i].raw, []byte(v1), []byte(v2), 1), v2); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := r.objects(answer); err == nil {
			b.Fatal("a request was taken for an answer")
		}
	}
}
