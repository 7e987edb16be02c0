package server

import (
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// guard refuses what only an attack, or a client that takes us for something else, would send.
type guard struct {
	// hosts are the names that Host may carry; nil means any. Only a loopback listener without
	// credentials has them: there, reaching the port is all it takes, and a web page reaches it by pointing a
	// name of its own at 127.0.0.1.
	hosts     []string
	crossSite *http.CrossOriginProtection
	identity  *identity
	cors      cors
}

func newGuard(address net.Addr, identity *identity, allowedHosts []string) *guard {
	g := &guard{crossSite: http.NewCrossOriginProtection(), identity: identity}
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsLoopback() && !identity.asks() {
		g.hosts = []string{"localhost"}
		for _, host := range allowedHosts {
			g.hosts = append(g.hosts, strings.ToLower(hostOnly(host)))
		}
	}
	return g
}

// check returns nil or the refusal.
func (g *guard) check(r *http.Request) error {
	if !g.hostAllowed(r.Host) {
		return statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
			"the host "+quote(r.Host)+" is not allowed: use localhost, or start the server with --allowed-hosts")
	}
	if g.fromOtherSite(r) {
		return statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
			"a web page of another site must not write here, nor open a WebSocket, unless --cors-allowed-origins allows its origin")
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") && !g.identity.on || strings.HasPrefix(name, "X-Remote-") && !g.identity.proxies {
			return statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
				"the header "+quote(textproto.CanonicalMIMEHeaderKey(name))+" is not allowed: this server takes nobody's word for who you are")
		}
	}
	return nil
}

// fromOtherSite tells whether a request that changes something, or opens a WebSocket, comes from a web page of another site.
// Browsers let pages send any other GET and keep the answer from them, but they hand over what a WebSocket says.
func (g *guard) fromOtherSite(r *http.Request) bool {
	if wire.IsWebSocket(r) {
		asWrite := *r
		asWrite.Method = http.MethodPost
		r = &asWrite
	}
	return g.crossSite.Check(r) != nil && !g.cors.allow(r)
}

func (g *guard) hostAllowed(host string) bool {
	if g.hosts == nil || host == "" { // browsers always send one
		return true
	}
	host = strings.ToLower(hostOnly(host))
	if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.Contains(g.hosts, strings.TrimSuffix(host, "."))
}

// hostOnly cuts the port off, and the brackets of an IPv6 address.
func hostOnly(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return hostport
}
