package guard

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Origins are those of web pages of other sites that may do here what programs may (--cors-allowed-origins). None by
// default: then browsers show no page of another site what we answer, and the guard refuses what it writes.
type Origins []*regexp.Regexp

// What pages that are allowed may send and see: kube-apiserver's lists, and Last-Event-ID. A browser's EventSource sends that without asking, because
// no preflight comes before its requests. What a page does by fetch instead, to send a token, asks.
const (
	corsMethods = "POST, GET, OPTIONS, PUT, DELETE, PATCH"
	corsHeaders = "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since, Last-Event-ID"
	corsExposed = "Date"
)

// noEnd is what has a colon in a pattern and isn't the end of a host: the scheme's, a group's flags, a class of characters.
var noEnd = regexp.MustCompile(`://|\(\?[a-zA-Z-]*:|\[:\^?[a-z]+:\]`)

// ReadOrigins compiles the patterns of --cors-allowed-origins. Like kube-apiserver it wants them to say where the host begins
// and ends, because a pattern such as example.com matches https://example.com.evil.test, too. Unlike there, the colon of https://
// is no end.
func ReadOrigins(patterns []string) (Origins, error) {
	var c Origins
	for _, pattern := range patterns {
		if pattern == "" {
			return nil, errors.New("--cors-allowed-origins has an empty pattern")
		}
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return nil, fmt.Errorf("--cors-allowed-origins: %w", err)
		}
		begins := strings.Contains(pattern, "^") || strings.Contains(pattern, "//")
		ends := strings.ContainsAny(noEnd.ReplaceAllString(pattern, ""), "$:")
		if !begins || !ends {
			return nil, fmt.Errorf("--cors-allowed-origins: %q must say where the host begins (^ or //) and where it ends ($ or :), as //example\\.com(:|$) does", pattern)
		}
		compiled.Longest()
		c = append(c, compiled)
	}
	return c, nil
}

// allow reports whether a request comes from a page that may.
func (c Origins) allow(r *http.Request) bool {
	if len(c) == 0 {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	return slices.ContainsFunc(c, func(pattern *regexp.Regexp) bool {
		at := pattern.FindStringIndex(origin)
		return at != nil && wholeHost(origin, at[0], at[1])
	})
}

// wholeHost tells whether a match covers the host of an origin: what is left out is at most the scheme, and the port. So no
// pattern, whatever it says, lets the host in with something before or after it.
func wholeHost(origin string, from, to int) bool {
	before, after := origin[:from], origin[to:]
	if strings.HasSuffix(origin[:to], ":") {
		after = ":" + after
	}
	port, hasPort := strings.CutPrefix(after, ":")
	return !strings.Contains(before, "//") && (after == "" || hasPort && strings.Trim(port, "0123456789") == "")
}

// Tell sets the headers by which a browser knows that a page may. It reports whether that's all that was asked.
func (c Origins) Tell(header http.Header, r *http.Request) (preflight bool) {
	if len(c) > 0 {
		header.Add("Vary", "Origin") // caches must not show one site what was meant for another
	}
	if !c.allow(r) {
		return false
	}
	header.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	header.Set("Access-Control-Allow-Methods", corsMethods)
	header.Set("Access-Control-Allow-Headers", corsHeaders)
	header.Set("Access-Control-Expose-Headers", corsExposed)
	header.Set("Access-Control-Allow-Credentials", "true")
	return r.Method == http.MethodOptions
}
