package guard

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
)

// CleanPath makes sure that a path means one thing: its segments are what is between the slashes on
// the wire, and none of them decodes to something that would add or remove a segment, here or in a proxy.
// After it, u.Path has exactly those segments and u.RawPath is empty, so that routing can't see
// anything else. A slash at the end stays: authorization and audit are about the path as it was sent.
func CleanPath(u *url.URL) error {
	path := u.EscapedPath()
	if u.Opaque != "" || path == "" || path[0] != '/' {
		return badPath("it must begin with a slash")
	}
	if path == "/" {
		return nil
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			return ErrEmptySegment
		}
		name, err := url.PathUnescape(segment)
		if err != nil {
			return badPath("the segment " + Quote(segment) + " has a bad escape")
		}
		if name == "." || name == ".." || !utf8.ValidString(name) || strings.ContainsFunc(name, registry.NeverInPaths) {
			return badPath("no name is " + Quote(segment))
		}
	}
	u.RawPath = ""
	return nil
}

// CutSlash takes the slash off the end of a clean path, where what is served is the same without it: as with kube-apiserver, in the
// API and at what it serves in the way of the API. Elsewhere nothing is at a path with the slash.
func CutSlash(u *url.URL) {
	switch first, _, _ := strings.Cut(u.Path[1:], "/"); first {
	case "api", "apis", "version", ".well-known", "openid":
		u.Path = strings.TrimSuffix(u.Path, "/")
	}
}

// ErrEmptySegment says of a path that it leads nowhere.
var ErrEmptySegment = badPath("a segment is empty")

func badPath(why string) error {
	return statusError(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the path can't be right: "+why)
}

// Quote shows what a client sent in a message: printable and short.
func Quote(s string) string {
	const most = 80
	return strconv.QuoteToASCII(clip.To(s, most))
}
