// Package guard refuses what only an attack would send, or a client that takes the server for something else: hosts that aren't its
// own, web pages of other sites, paths that mean two things.
package guard

import (
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// Guard looks at requests before anything else does.
type Guard struct {
	// hosts are the names that Host may carry; nil means any. Only a loopback listener without
	// credentials has them: there, reaching the port is all it takes, and a web page reaches it by pointing a
	// name of its own at 127.0.0.1.
	hosts     []string
	crossSite *http.CrossOriginProtection
	Options
}

// Options say what a Guard lets in.
type Options struct {
	Address      net.Addr // where the server listens
	Asks         bool     // the server asks for credentials
	Users        bool     // users are told apart, and may impersonate
	Proxies      bool     // front proxies say who a user is
	AllowedHosts []string // names that Host may carry besides
	Origins      Origins
}

// New returns a guard.
func New(o Options) *Guard {
	g := &Guard{crossSite: http.NewCrossOriginProtection(), Options: o}
	if tcp, ok := o.Address.(*net.TCPAddr); ok && tcp.IP.IsLoopback() && !o.Asks {
		g.hosts = []string{"localhost"}
		for _, host := range o.AllowedHosts {
			g.hosts = append(g.hosts, strings.ToLower(HostOnly(host)))
		}
	}
	return g
}

// Check returns nil or the refusal.
func (g *Guard) Check(r *http.Request) error {
	if !g.hostAllowed(r.Host) {
		return statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
			"the host "+Quote(r.Host)+" is not allowed: use localhost, or start the server with --allowed-hosts")
	}
	if g.fromOtherSite(r) {
		return statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
			"a web page of another site must not write here, nor open a WebSocket, unless --cors-allowed-origins allows its origin")
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") && !g.Users || strings.HasPrefix(name, "X-Remote-") && !g.Proxies {
			return statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
				"the header "+Quote(textproto.CanonicalMIMEHeaderKey(name))+" is not allowed: this server takes nobody's word for who you are")
		}
	}
	return nil
}

// fromOtherSite tells whether a request that changes something, or opens a WebSocket, comes from a web page of another site.
// Browsers let pages send any other GET and keep the answer from them, but they hand over what a WebSocket says.
func (g *Guard) fromOtherSite(r *http.Request) bool {
	if wire.IsWebSocket(r) {
		asWrite := *r
		asWrite.Method = http.MethodPost
		r = &asWrite
	}
	return g.crossSite.Check(r) != nil && !g.Origins.allow(r)
}

func (g *Guard) hostAllowed(host string) bool {
	if g.hosts == nil || host == "" { // browsers always send one
		return true
	}
	host = strings.ToLower(HostOnly(host))
	if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.Contains(g.hosts, strings.TrimSuffix(host, "."))
}

// HostOnly cuts the port off, and the brackets of an IPv6 address.
func HostOnly(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return hostport
}

func statusError(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}
