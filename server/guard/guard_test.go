package guard

import (
	"net"
	"net/http/httptest"
	"testing"
)

var (
	loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	public   = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8080}
	socket   = &net.UnixAddr{Name: "/run/x", Net: "unix"}
)

func TestGuardHost(t *testing.T) {
	for _, tc := range []struct {
		name      string
		address   net.Addr
		hasTokens bool
		host      string
		want      bool
	}{
		{"loopback address", loopback, false, "127.0.0.1:8080", true},
		{"another loopback address", loopback, false, "127.1.2.3", true},
		{"IPv6 loopback", loopback, false, "[::1]:8080", true},
		{"IPv6 loopback without a port", loopback, false, "[::1]", true},
		{"localhost", loopback, false, "localhost:8080", true},
		{"localhost, however written", loopback, false, "LocalHost.", true},
		{"none, as HTTP/1.0 may", loopback, false, "", true},
		{"allowed", loopback, false, "api.test:99", true},
		{"allowed in upper case", loopback, false, "API.test", true},
		{"foreign", loopback, false, "evil.example:8080", false},
		{"begins like ours", loopback, false, "localhost.evil.example", false},
		{"begins like our address", loopback, false, "127.0.0.1.evil.example", false},
		{"all interfaces", loopback, false, "0.0.0.0:8080", false},
		{"public address", loopback, false, "192.0.2.1", false},
		{"foreign, with a token asked for", loopback, true, "evil.example", true},
		{"public listener, which has a token", public, true, "api.example", true},
		{"socket, which no web page reaches", socket, false, "anything", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := New(Options{Address: tc.address, Asks: tc.hasTokens, AllowedHosts: []string{"api.test:8080"}})
			if got := g.hostAllowed(tc.host); got != tc.want {
				t.Errorf("hostAllowed(%q) = %v, want %v", tc.host, got, tc.want)
			}
		})
	}
}

func TestGuardHeaders(t *testing.T) {
	for _, tc := range []struct {
		name, method, header, value string
		want                        bool
	}{
		{"program", "POST", "User-Agent", "x", true},
		{"own page", "POST", "Sec-Fetch-Site", "same-origin", true},
		{"address bar", "POST", "Sec-Fetch-Site", "none", true},
		{"own origin", "POST", "Origin", "http://127.0.0.1:8080", true},
		{"cross-site write", "POST", "Sec-Fetch-Site", "cross-site", false},
		{"same-site write", "DELETE", "Sec-Fetch-Site", "same-site", false},
		{"foreign origin", "PUT", "Origin", "https://evil.example", false},
		{"null origin", "PATCH", "Origin", "null", false},
		{"cross-site read, which the browser won't show", "GET", "Sec-Fetch-Site", "cross-site", true},
		{"impersonation", "GET", "Impersonate-User", "admin", false},
		{"impersonated extra", "GET", "Impersonate-Extra-Scopes", "x", false},
		{"front proxy", "GET", "X-Remote-User", "admin", false},
		{"front proxy's group", "GET", "x-remote-group", "system:masters", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(tc.method, "http://127.0.0.1:8080/api", nil)
			r.Header.Set(tc.header, tc.value)
			err := New(Options{Address: loopback}).Check(r)
			if (err == nil) != tc.want {
				t.Errorf("check = %v, want it allowed: %v", err, tc.want)
			}
		})
	}
}
