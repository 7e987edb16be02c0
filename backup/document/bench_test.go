package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
)

// BenchmarkDocument: an object of 1 KB is read as JSON and written as YAML, as each of an export is.
func BenchmarkDocument(b *testing.B) {
	text := fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c0000001","namespace":"default","uid":"6a5a9a46-8b7d-4d1e-9f3e-0c7a0a3a7d11","resourceVersion":"12","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"a1","tier":"front"},"annotations":{"example.com/owner":"team-1"}},"data":{"a.conf":"key = value\nother = 1\n","text":"%s"}}`, strings.Repeat("x", 750))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var to []byte
	for b.Loop() {
		o, err := document.Decode(text)
		if err != nil {
			b.Fatal(err)
		}
		document.ClearMetadata(o)
		to = document.Append(to[:0], o)
	}
}
