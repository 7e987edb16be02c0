package storage

import (
	"errors"
	"strings"
	"testing"
)

func TestKey(t *testing.T) {
	p := PrefixOf("example.com", "widgets")
	for _, c := range []struct{ name, namespace, object, want string }{
		{"namespaced", "default", "a", "/registry/example.com/widgets/default/a"},
		{"cluster scope", "", "a", "/registry/example.com/widgets/a"},
		{"dots inside", "n.s", "a..b", "/registry/example.com/widgets/n.s/a..b"},
		{"no name", "default", "", ""},
		{"parent as name", "default", "..", ""},
		{"parent as namespace", "..", "a", ""},
		{"self", "default", ".", ""},
		{"slash in name", "default", "a/b", ""},
		{"slash in namespace", "a/b", "c", ""},
		{"escaped slash", "default", "a%2fb", ""},
		{"NUL", "default", "a\x00", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := p.Key(c.namespace, c.object)
			if got != c.want || (err != nil) != (c.want == "") || err != nil && !errors.Is(err, ErrBadKey) {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	if got := PrefixOf("", "namespaces"); got != "/registry/core/namespaces/" {
		t.Errorf("the core group's prefix is %q", got)
	}
}

func TestSplitKeyRefuses(t *testing.T) {
	for _, key := range []string{"", "/", "/registry", "/registry/", "/registry/g", "/registry/g/r", "/registry/g/r/", "/registry//r/a",
		"/registry/g//a", "/registry/g/r/ns/", "/registry/g/r//a", "/registry/g/r/ns/a/b", "/other/g/r/ns/a"} {
		if p, ns, name, ok := SplitKey(key); ok {
			t.Errorf("%q was split into %q, %q, %q", key, p, ns, name)
		}
	}
}

// FuzzKey: whatever the bytes of a name and a namespace, the key stays in its prefix and in its namespace,
// and comes apart into what it was made of.
func FuzzKey(f *testing.F) {
	f.Add("default", "a")
	f.Add("", "..")
	f.Add("a/../b", "%2e%2e")
	f.Add("ns", "é\xff")
	f.Fuzz(func(t *testing.T, namespace, name string) {
		p := PrefixOf("example.com", "widgets")
		key, err := p.Key(namespace, name)
		if err != nil {
			return
		}
		within, err := p.Namespace(namespace)
		if err != nil || !strings.HasPrefix(key, within) || !strings.HasPrefix(key, string(p)) {
			t.Fatalf("key %q isn't within %q", key, within)
		}
		gotPrefix, gotNS, gotName, ok := SplitKey(key)
		if !ok || gotPrefix != p || gotNS != namespace || gotName != name {
			t.Fatalf("%q came apart into %q, %q, %q", key, gotPrefix, gotNS, gotName)
		}
	})
}
