package guard

import (
	"net/url"
	"strings"
	"testing"
)

func TestCleanPath(t *testing.T) {
	for _, tc := range []struct{ name, path, want string }{
		{"plain", "/api/v1/namespaces", "/api/v1/namespaces"},
		{"root", "/", "/"},
		{"slash at the end", "/api/v1/", "/api/v1/"},
		{"escaped letter", "/api/v1/namespaces/%61", "/api/v1/namespaces/a"},
		{"unicode", "/api/v1/namespaces/%C3%A9", "/api/v1/namespaces/é"},
		{"space", "/api/v1/namespaces/a%20b", "/api/v1/namespaces/a b"},
		{"two slashes", "/api//v1", ""},
		{"slashes at the end", "/api/v1//", ""},
		{"only slashes", "//", ""},
		{"dot", "/api/./v1", ""},
		{"dots", "/api/v1/../../apis", ""},
		{"escaped dot", "/api/%2e/v1", ""},
		{"escaped dots", "/api/v1/namespaces/%2e%2e/secrets", ""},
		{"half escaped dots", "/api/v1/namespaces/.%2E/secrets", ""},
		{"escaped slash", "/api/v1/namespaces/a%2fsecrets", ""},
		{"escaped slash in upper case", "/api/v1/namespaces/a%2Fsecrets", ""},
		{"backslash", `/api/v1/namespaces/..%5csecrets`, ""},
		{"NUL", "/api/v1/namespaces/a%00", ""},
		{"CRLF", "/api/v1/namespaces/a%0d%0aX:1", ""},
		{"semicolon", "/api/v1/namespaces/a;b", ""},
		{"escaped semicolon", "/api/v1/namespaces/a%3bb", ""},
		{"escaped twice", "/api/v1/namespaces/a%252fb", ""},
		{"not UTF-8", "/api/v1/namespaces/%ff", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u, err := url.ParseRequestURI(tc.path)
			if err != nil {
				t.Fatal(err)
			}
			err = CleanPath(u)
			if tc.want == "" {
				if err == nil {
					t.Errorf("%s was taken as %s", tc.path, u.Path)
				}
			} else if err != nil || u.Path != tc.want || u.RawPath != "" {
				t.Errorf("CleanPath(%s) = %s (raw %q), %v, want %s", tc.path, u.Path, u.RawPath, err, tc.want)
			}
		})
	}
}

// FuzzCleanPath holds that a path that is taken has the segments that stand on the wire.
func FuzzCleanPath(f *testing.F) {
	for _, path := range []string{"/a/b", "/%2e%2e/x", "/a%2fb", "//", "/a/./b/", "/%25", "*"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Scheme != "" {
			return
		}
		wire := strings.Count(strings.TrimSuffix(u.EscapedPath(), "/"), "/")
		if CleanPath(u) != nil || u.Path == "/" {
			return
		}
		CutSlash(u)
		if got := strings.Count(u.Path, "/"); got != wire {
			t.Errorf("%q has %d segments on the wire and %d in %q", path, wire, got, u.Path)
		}
		for segment := range strings.SplitSeq(u.Path[1:], "/") {
			if segment == "" || segment == "." || segment == ".." || strings.ContainsAny(segment, "\\\x00\r\n") {
				t.Errorf("%q has the segment %q", path, segment)
			}
		}
	})
}
