package kube

import (
	"bytes"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// TestServerSentLine: the object in a server-sent event is one line, also if somebody has put several into etcd.
func TestServerSentLine(t *testing.T) {
	const stored = "{\n \"apiVersion\": \"example.com/v1\",\r \"kind\": \"Widget\",\r\n \"metadata\": {\"name\": \"a\", \"namespace\": \"default\"}\n}"
	v := (&View{APIVersion: "example.com/v1", Kind: "Widget"}).AsServerSent()
	o := NewObject("/registry/example.com/widgets/default/a", []byte(stored), 7)
	const object = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"7","name":"a","namespace":"default"}}`
	got, err := v.NewFrame(watchstream.Modified, o, o.Revision)
	if want := "event: MODIFIED\nid: 7\ndata: " + object + "\n\n"; err != nil || string(got) != want {
		t.Errorf("an event is %q, %v, want %q", got, err, want)
	}
	got, err = v.AppendState(nil, o)
	if want := "event: ADDED\ndata: " + object + "\n\n"; err != nil || string(got) != want {
		t.Errorf("of a state it is %q, %v, want %q", got, err, want)
	}
}

// BenchmarkFrame makes an event of 1 KB, as a line and as a server-sent event.
func BenchmarkFrame(b *testing.B) {
	raw := []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"default"},"spec":{"text":"` + string(bytes.Repeat([]byte("x"), 1024)) + `"}}`)
	o := NewObject("/registry/example.com/widgets/default/a", raw, 7)
	lines := &View{APIVersion: "example.com/v1", Kind: "Widget"}
	for _, c := range []struct {
		name string
		view *View
	}{{"line", lines}, {"server-sent", lines.AsServerSent()}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, err := c.view.NewFrame(watchstream.Modified, o, o.Revision); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
