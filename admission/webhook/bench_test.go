package webhook_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// BenchmarkReviewed is a create of 4 KB without webhooks, and with a mutating and two validating ones that allow it at once. CPU is that of the
// process, client and webhooks included, which read no more of a review than its uid.
func BenchmarkReviewed(b *testing.B) {
	for _, n := range []int{0, 1} {
		b.Run(fmt.Sprint("hooks=", 3*n), func(b *testing.B) {
			h, s := newHook(b), start(b)
			quick := httptest.NewTLSServer(http.HandlerFunc(allow))
			b.Cleanup(quick.Close)
			h.Server.Close()
			h.Server = quick
			if n > 0 {
				must(b, s, 201, "POST", mutatingPath, configurationOf("Mutating", "m", h.webhook("m.example.com", "/m")))
				must(b, s, 201, "POST", validatingPath, configurationOf("Validating", "v", h.webhook("v.example.com", "/v"), h.webhook("w.example.com", "/w")))
			}
			var fields strings.Builder
			for i := range 100 {
				fmt.Fprintf(&fields, `"k%d":%q,`, i, strings.Repeat("v", 30))
			}
			before := cpu(b)
			for i := 0; b.Loop(); i++ {
				must(b, s, 201, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"a%d","labels":{"a":"b","c":"d"}},"data":{%s"i":"%d"}}`, i, &fields, i))
			}
			b.ReportMetric((cpu(b)-before)*1e6/float64(b.N), "cpu-µs/op")
		})
	}
}

// allow allows what it's asked about.
func allow(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	_, rest, _ := bytes.Cut(text, []byte(`"uid":"`))
	uid, _, _ := bytes.Cut(rest, []byte{'"'})
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, uid)
}

// cpu is what the process has used of the processors, in seconds.
func cpu(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}
