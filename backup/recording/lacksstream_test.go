package recording

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// TestLacksStream: by what a server answers it's known whether it has a stream of several kinds.
func TestLacksStream(t *testing.T) {
	for _, test := range []struct {
		name, kind string
		code       int
		body       string
		lacks      bool
	}{
		{"kube-apiserver, to an administrator", "text/plain", 404, "404 page not found\n", true},
		{"kube-apiserver, to others", "application/json", 403, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"forbidden: User \"alice\" cannot get path \"/apiserver-lite/v1/watch\"","reason":"Forbidden","details":{},"code":403}`, true},
		{"apiserver-lite", "application/json", 404, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the parameter resource names \"none.apiserver-lite\", which isn't served","reason":"NotFound","code":404}`, false},
		{"apiserver-lite, to those who may not watch that", "application/json", 403, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"none.apiserver-lite is forbidden","reason":"Forbidden","details":{"group":"apiserver-lite","kind":"none"},"code":403}`, false},
		{"a server that starts", "text/plain", 503, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.code)
				io.WriteString(w, test.body)
			}))
			defer s.Close()
			c, err := client.New(s.URL, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdleConnections()
			if got := (&recorder{server: c}).lacksStream(t.Context()); got != test.lacks {
				t.Errorf("it lacks the stream: %v", got)
			}
		})
	}
}
