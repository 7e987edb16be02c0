package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

const whereObject = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"a.b/c":"dotted","quo\"te":"x"},"name":"a","namespace":"ns1","uid":"u1"},
	"spec":{"big":9007199254740993,"host":"eu-west","list":[{"n":1,"on":false},{"n":2,"tags":["x","y"]},{}],"nothing":null,"object":{"size":9},"on":true,"port":"http","ratio":0.5,"size":3,"text":"a\nb\u00e9","when":"2026-01-01T12:00:00+01:00"}}`

// whereTypes are the types of the fields of whereObject, by their last names.
func whereTypes(p selectors.Path, _ int) (selectors.Type, error) {
	t, ok := map[string]selectors.Type{
		"big": selectors.Integer, "size": selectors.Integer, "n": selectors.Integer, "ratio": selectors.Number, "on": selectors.Boolean, "when": selectors.Time,
		"port": selectors.IntOrText, "object": selectors.Composite, "spec": selectors.Composite, "resourceVersion": selectors.Integer,
	}[p[len(p)-1].Name]
	if last := p[len(p)-1]; last.Name == "list" || last.Elements && p[len(p)-2].Name == "list" {
		return selectors.Composite, nil
	}
	if !ok {
		return selectors.Text, nil
	}
	return t, nil
}

func where(t testing.TB, text, shards string) *Where {
	t.Helper()
	e, err := selectors.ParseExpression(text)
	if err == nil {
		e, err = e.Resolve(text, whereTypes)
	}
	var s selectors.Shards
	if err == nil && shards != "" {
		s, err = selectors.ParseShards(shards)
	}
	if err != nil {
		t.Fatal(err)
	}
	return NewWhere(e, s)
}

func TestWhere(t *testing.T) {
	o := NewObject("/registry/example.com/widgets/ns1/a", []byte(whereObject), 17)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	for text, want := range map[string]bool{
		"": true,
		// each operator, met and not
		"spec.size=3": true, "spec.size=4": false, "spec.size!=3": false, "spec.size!=4": true, "spec.size>2": true, "spec.size>3": false,
		"spec.size>=3": true, "spec.size<3": false, "spec.size<=3": true, "spec.size<10": true, "spec.size in (1,3)": true, "spec.size notin (1,3)": false,
		"spec.size notin (1,2)": true, "spec.host^=eu-": true, "spec.host^=us-": false, "spec.host^=eu-west-1": false, "spec.size": true, "!spec.size": false,
		// types
		"spec.big=9007199254740993": true, "spec.big=9007199254740992": false, "spec.ratio=0.50": true, "spec.ratio<0.6": true, "spec.on=true": true,
		"spec.on=false": false, "spec.when=2026-01-01T11:00:00Z": true, "spec.when>2026-01-01T11:30:00Z": false, "spec.port=http": true, "spec.port=80": false,
		`spec.text='a` + "\n" + `bé'`: true, "spec.host>eu": true, "spec.host<f": true,
		// what isn't there
		"spec.none=x": false, "spec.none!=x": true, "spec.none notin (x)": true, "spec.none>x": false, "spec.none^=x": false, "spec.none": false, "!spec.none": true,
		"spec.nothing": false, "!spec.nothing": true, "spec.nothing!=x": true, "spec.size.deeper": false, "!spec.size.deeper": true,
		// objects and lists
		"spec.object": true, "!spec.object": false, "spec.list": true, "spec.object.size=9": true, "spec.list[*]": true, "spec.list[*].n=2": true, "spec.list[*].n=3": false,
		"spec.list[*].n!=2": false, "spec.list[*].n!=3": true, "spec.list[*].n>1,spec.list[*].n<2": true, "spec.list[*].tags[*]=y": true, "spec.list[*].tags[*]=z": false,
		"spec.list.n=2": false, "spec.object[*]=2": false, "spec.list[*].on=false": true,
		// names
		"metadata.annotations['a.b/c']=dotted": true, `metadata.annotations['quo"te']=x`: true, "metadata.name=a,metadata.namespace=ns1": true, "metadata.name=b": false,
		"metadata.resourceVersion=17": true, "metadata.resourceVersion>17": false, "metadata.resourceVersion>9,spec.size=3": true, "metadata.resourceVersion": true,
		// together
		"spec.size=3,spec.host=x": false, "spec.size=3,spec.host=x||spec.on=true": true, "spec.size=4||spec.size=5||!spec.none": true, "spec.size=1,spec.size=3": false,
	} {
		if got := where(t, text, "").Matches(o); got != want {
			t.Errorf("%q matches: %v, want %v", text, got, want)
		}
	}
	broken := NewObject("/registry/example.com/widgets/ns1/a", []byte(`{`), 17)
	if w := where(t, "!spec.size", ""); w.Matches(broken) {
		t.Error("what is no object is selected")
	}
}

func TestWhereInShards(t *testing.T) {
	const halves = "shardRange(object.metadata.%s, '0x%s', '0x%s')"
	o := NewObject("/registry/example.com/widgets/ns1/a", []byte(whereObject), 17)
	for _, field := range []string{"uid", "namespace"} {
		first := where(t, "", fmt.Sprintf(halves, field, "0000000000000000", "8000000000000000"))
		second := where(t, "", fmt.Sprintf(halves, field, "8000000000000000", "10000000000000000"))
		if first.Matches(o) == second.Matches(o) {
			t.Errorf("by %s: the object is in both halves, or none", field)
		}
		if both := where(t, "spec.size=4", fmt.Sprintf(halves, field, "0000000000000000", "10000000000000000")); both.Matches(o) {
			t.Error("the selector doesn't count")
		}
	}
}

// TestWhereDoesNotAllocate: neither the feed nor a scan makes garbage.
func TestWhereDoesNotAllocate(t *testing.T) {
	o := NewObject("/registry/example.com/widgets/ns1/a", []byte(whereObject), 17)
	for _, text := range []string{"spec.size>3", "spec.host^=us,spec.on=true||spec.list[*].n=5", "metadata.resourceVersion=1", "spec.when>2026-01-01T11:30:00Z", "spec.ratio=7"} {
		w := where(t, text, "")
		if n := testing.AllocsPerRun(100, func() { w.Matches(o) }); n > 0 {
			t.Errorf("%q allocates %v times", text, n)
		}
	}
}

func TestLookups(t *testing.T) {
	for text, want := range map[string]string{
		"spec.size=3":              "spec.size as an integer",
		"spec.size>3,spec.host=x":  "spec.host as a text",
		"spec.size>3,spec.host^=x": "spec.host as a text",
		"spec.size=3||spec.host=x": "spec.host as a text,spec.size as an integer",
		"spec.size=3||spec.none":   "",
		"spec.size!=3":             "",
		"spec.size=1,spec.size=2":  "",
		"":                         "",
	} {
		lookups, _ := where(t, text, "").Lookups()
		var names []string
		for _, l := range lookups {
			names = append(names, l.Column.Name())
		}
		if got := strings.Join(names, ","); got != want {
			t.Errorf("%q is looked up by %q, want %q", text, got, want)
		}
	}
}

// TestLookupsFindWhatMatches: the keys of each object that is selected are in the ranges, also those of long texts, which are cut off.
func TestLookupsFindWhatMatches(t *testing.T) {
	long := strings.Repeat("x", maxColumnKey)
	for _, value := range []string{"", "a", "ab", long[1:], long, long + "a", long + "b"} {
		o := NewObject("/registry/example.com/widgets/ns1/a", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"W","metadata":{},"spec":{"host":%q}}`, value), 1)
		for _, operator := range []string{"=", "^=", ">", ">=", "<", "<="} {
			for _, with := range []string{"", "a", "ab", long, long + "a", long + "b"} {
				w := where(t, "spec.host"+operator+"'"+with+"'", "")
				lookups, ok := w.Lookups()
				if !ok || !w.Matches(o) {
					continue
				}
				found := false
				for _, key := range lookups[0].Column.Keys(nil, o) {
					for _, r := range lookups[0].Ranges {
						found = found || r.Has(key)
					}
				}
				if !found {
					t.Errorf("%.20q is %s %.20q, but isn't found", value, operator, with)
				}
			}
		}
	}
}

func BenchmarkWhere(b *testing.B) {
	o := NewObject("/registry/example.com/widgets/ns1/a", []byte(whereObject), 17)
	for _, text := range []string{"spec.size=4", "spec.list[*].n>5", "spec.size=4,spec.host^=eu-||spec.when>2027-01-01T00:00:00Z"} {
		b.Run(text, func(b *testing.B) {
			w := where(b, text, "")
			b.ReportAllocs()
			for b.Loop() {
				w.Matches(o)
			}
		})
	}
}
