package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	jsoniter "github.com/json-iterator/go"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

const widgetKey = "/registry/example.com/widgets/default/a"

func TestScan(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		labels    []string
		deletion  string
		want      string // with resourceVersion 7, as example.com/v2
	}{
		{"canonical", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"a":"1","b":"2"},"name":"a","uid":"u"},"spec":{}}`,
			[]string{"a", "1", "b", "2"}, "", `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"labels":{"a":"1","b":"2"},"name":"a","resourceVersion":"7","uid":"u"},"spec":{}}`},
		{"no uid", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`,
			nil, "", `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"resourceVersion":"7","name":"a"}}`},
		{"empty metadata", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{}}`,
			nil, "", `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"resourceVersion":"7"}}`},
		{"has a version", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"","uid":"u"}}`,
			nil, "", `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"resourceVersion":"7","uid":"u"}}`},
		{"metadata first, spaces", ` { "metadata" : { "uid" : "u" } , "kind" : "Widget" , "apiVersion" : "example.com/v1" } `,
			nil, "", ` { "metadata" : { "resourceVersion":"7","uid" : "u" } , "kind" : "Widget" , "apiVersion" : "example.com/v2" } `},
		{"labels unsorted, escaped, not strings", `{"apiVersion":"v1","kind":"W","metadata":{"labels":{"z":"1","a\u0062":"x\ny","n":1,"z":"2"},"deletionTimestamp":"2026-01-01T00:00:00Z"}}`,
			[]string{"ab", "x\ny", "z", "2"}, "2026-01-01T00:00:00Z",
			`{"apiVersion":"example.com/v2","kind":"W","metadata":{"resourceVersion":"7","labels":{"z":"1","a\u0062":"x\ny","n":1,"z":"2"},"deletionTimestamp":"2026-01-01T00:00:00Z"}}`},
		{"a label named uid", `{"apiVersion":"v1","kind":"W","metadata":{"labels":{"uid":"x"},"uid":"u"}}`,
			[]string{"uid", "x"}, "", `{"apiVersion":"example.com/v2","kind":"W","metadata":{"labels":{"uid":"x"},"resourceVersion":"7","uid":"u"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := NewObject(widgetKey, []byte(c.raw), 7)
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if got := fmt.Sprint(o.Labels); got != fmt.Sprint(selectors.Set(c.labels)) {
				t.Errorf("labels are %v, want %v", got, c.labels)
			}
			if o.DeletionTimestamp != c.deletion {
				t.Errorf("deletionTimestamp is %q, want %q", o.DeletionTimestamp, c.deletion)
			}
			view := &View{APIVersion: "example.com/v2", Kind: "Widget"}
			if got := string(view.Append(nil, o)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if o.Name() != "a" || o.Namespace() != "default" {
				t.Errorf("name %q in namespace %q", o.Name(), o.Namespace())
			}
		})
	}
}

func TestScanRefuses(t *testing.T) {
	deep := strings.Repeat("[", jsonscan.MaxDepth+1) + strings.Repeat("]", jsonscan.MaxDepth+1)
	for name, raw := range map[string]string{
		"empty":                ``,
		"array":                `[]`,
		"no metadata":          `{"apiVersion":"v1","kind":"W"}`,
		"metadata a string":    `{"apiVersion":"v1","kind":"W","metadata":"x"}`,
		"two metadata":         `{"apiVersion":"v1","kind":"W","metadata":{},"metadata":{}}`,
		"kind a number":        `{"apiVersion":"v1","kind":1,"metadata":{}}`,
		"trailing data":        `{"apiVersion":"v1","kind":"W","metadata":{}}x`,
		"cut":                  `{"apiVersion":"v1","kind":"W","metadata":{`,
		"bad escape":           `{"apiVersion":"v1","kind":"W\q","metadata":{}}`,
		"control character":    "{\"apiVersion\":\"v1\",\"kind\":\"W\n\",\"metadata\":{}}",
		"leading zero":         `{"apiVersion":"v1","kind":"W","metadata":{},"n":01}`,
		"invalid UTF-8":        "{\"apiVersion\":\"v1\",\"kind\":\"W\xff\",\"metadata\":{}}",
		"nested too deeply":    `{"apiVersion":"v1","kind":"W","metadata":{},"d":` + deep + `}`,
		"trailing comma":       `{"apiVersion":"v1","kind":"W","metadata":{},}`,
		"binary of a peer":     "k8s\x00\n\x0b",
		"version not a string": `{"apiVersion":"v1","kind":"W","metadata":{"resourceVersion":7}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if o := NewObject(widgetKey, []byte(raw), 7); o.Err == nil {
				t.Errorf("accepted %q", raw)
			}
		})
	}
}

func TestViewOmitsTypeMeta(t *testing.T) {
	bare := &View{APIVersion: "v1", Kind: "ConfigMap", OmitTypeMeta: true}
	for _, c := range []struct{ raw, want string }{
		{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"u"}}`, `{"metadata":{"resourceVersion":"7","uid":"u"}}`},
		{`{"apiVersion":"v1","data":{"kind":"x"},"kind":"ConfigMap","metadata":{"uid":"u"}}`, `{"data":{"kind":"x"},"metadata":{"resourceVersion":"7","uid":"u"}}`},
		{`{"kind":"ConfigMap","apiVersion":"v1","metadata":{}}`, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`},
	} {
		if got := string(bare.Append(nil, NewObject(widgetKey, []byte(c.raw), 7))); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestViewMetadataOnly(t *testing.T) {
	view := &View{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata", MetadataOnly: true}
	const head = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`
	for _, c := range []struct{ raw, want string }{
		{`{"apiVersion":"v1","kind":"W","metadata":{"name":"a","uid":"u"},"spec":{"x":1}}`, `{"name":"a","resourceVersion":"8","uid":"u"}}`},
		{`{"spec":{"metadata":{}},"metadata" : { "labels" : {} } ,"kind":"W","apiVersion":"v1"}`, `{"resourceVersion":"8", "labels" : {} }}`},
		{`{"metadata":{"resourceVersion":"1","n":{}},"kind":"W","apiVersion":"v1"}`, `{"resourceVersion":"8","n":{}}}`},
		{`{"metadata":{},"kind":"W","apiVersion":"v1"}`, `{"resourceVersion":"8"}}`},
	} {
		if got := string(view.appendAt(nil, NewObject(widgetKey, []byte(c.raw), 7), 8)); got != head+c.want {
			t.Errorf("got  %s\nwant %s", got, head+c.want)
		}
	}
}

func TestViewRenders(t *testing.T) {
	view := &View{Render: func(dst []byte, o *Object) []byte { return fmt.Appendf(dst, "%s at %d", o.Name(), o.Revision) }}
	o := NewObject(widgetKey, []byte(`{"apiVersion":"v1","kind":"W","metadata":{}}`), 7)
	if got := string(view.Append(nil, o)); got != "a at 7" {
		t.Errorf("got %s, want a at 7", got)
	}
	if got := string(view.appendAt(nil, o, 9)); got != "a at 9" || o.Revision != 7 {
		t.Errorf("shown as deleted at 9: got %s and revision %d, want a at 9 and revision 7", got, o.Revision)
	}
}

func TestField(t *testing.T) {
	o := NewObject(widgetKey, []byte(`{"apiVersion":"v1","kind":"W","metadata":{"name":"a"},"spec":{"":{"x":"y"},"color":"red","n":12,"f":1.5,"b":true,"no":false,"null":null,"list":[1],"deep":{"er":"z"}}}`), 7)
	for label, want := range map[string]string{
		"metadata.name": "a", "metadata.namespace": "default", "spec.color": "red", "spec.n": "12", "spec.f": "1.5",
		"spec.b": "true", "spec.no": "false", "spec.null": "", "spec.list": "", "spec.deep.er": "z", "spec.deep": "", "spec.none": "",
		"none.at.all": "", "kind": "W", "spec.color.more": "", "spec.none|spec.color": "red", "spec.n|spec.color": "12",
	} {
		if got := o.Field(label); got != want {
			t.Errorf("%s is %q, want %q", label, got, want)
		}
	}
	together := []string{"spec.color", "spec.none|spec.color", "spec.deep.er", "kind"}
	paths := pathsOf(together)
	if got := paths.read(o.Raw()); !slices.Equal(got, []string{"red", "red", "z", "W"}) {
		t.Errorf("%q are %q", together, got)
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"W","metadata":{"labels":{"a":"b"},"uid":"u"},"spec":{"x":[1,-2.5e3,true,null,"\u00e9\\"]}}`))
	f.Add([]byte(` {"metadata":{"resourceVersion":"1","labels":null},"kind":"W","apiVersion":"v1"}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"W","metadata":{}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"W","metadata":{},"spec":"a`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"W","metadata":{"name":"a`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o := NewObject(widgetKey, bytes.Clone(raw), 42)
		if o.Err != nil {
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("accepted what encoding/json doesn't: %q", raw)
		}
		partial := &View{APIVersion: "example.com/v9", Kind: "W", MetadataOnly: true}
		if out := partial.Append(nil, o); !json.Valid(out) {
			t.Fatalf("metadata is invalid JSON: %s", out)
		}
		view := &View{APIVersion: "example.com/v9", Kind: "W"}
		out := view.Append(nil, o)
		var got struct {
			APIVersion, Kind string
			Metadata         map[string]any
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("spliced into invalid JSON: %v\n%s", err, out)
		}
		if exact := exactMembers(t, out); exact["apiVersion"] != "example.com/v9" {
			t.Fatalf("apiVersion is %v in %s", exact["apiVersion"], out)
		}
		if got.Metadata["resourceVersion"] != "42" {
			t.Fatalf("resourceVersion is %v in %s", got.Metadata["resourceVersion"], out)
		}
		for k, v := range o.Labels.All() {
			if labels, _ := got.Metadata["labels"].(map[string]any); labels[k] != v {
				t.Fatalf("label %q is %q, encoding/json says %v in %s", k, v, labels[k], raw)
			}
		}
		for _, label := range []string{"spec", "spec.x", "kind", "a.b.c", ""} {
			o.Field(label)
		}
	})
}

// exactMembers decodes with exact names; encoding/json's structs fold case.
func exactMembers(t *testing.T, b []byte) map[string]any {
	m := map[string]any{}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// widget is a custom resource of about 1.2 KB.
func widget(name string, labels string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":1,"labels":{%s},"name":%q,"namespace":"default","uid":"5b7e63e2-3a51-4a53-a33c-0d5a0a1c62aa"},"spec":{"color":"red","owner":"team-1","payload":%q,"ratio":0.5,"replicas":3,"size":1,"tags":["one","two"]}}`,
		labels, name, strings.Repeat("alpha bravo ", 75))
}

// BenchmarkScan is why the scanner is ours: see iterator, which does the same with json-iterator.
func BenchmarkScan(b *testing.B) {
	raw := widget("a", `"app":"bench","shard":"s1","tier":"t1"`)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			if o := NewObject(widgetKey, raw, 7); o.Err != nil {
				b.Fatal(o.Err)
			}
		}
	})
	b.Run("iterator", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			it := jsoniter.ConfigDefault.BorrowIterator(raw)
			var labels selectors.Set
			for f := it.ReadObject(); f != ""; f = it.ReadObject() {
				switch f {
				case "apiVersion", "kind":
					it.ReadString()
				case "metadata":
					for f := it.ReadObject(); f != ""; f = it.ReadObject() {
						if f != "labels" {
							it.Skip()
							continue
						}
						for k := it.ReadObject(); k != ""; k = it.ReadObject() {
							labels = append(labels, k, it.ReadString())
						}
					}
				default:
					it.Skip()
				}
			}
			if it.Error != nil || len(labels) != 6 {
				b.Fatal(it.Error, labels)
			}
			jsoniter.ConfigDefault.ReturnIterator(it)
		}
	})
}

func BenchmarkViewAppend(b *testing.B) {
	o := NewObject(widgetKey, widget("a", `"app":"bench"`), 7)
	view := &View{APIVersion: "example.com/v1", Kind: "Widget"}
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = view.Append(buf[:0], o)
	}
}
