package aggregator

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// The headers by which a server is told who asks.
const (
	headerPrefix = "X-Remote-"
	headerUser   = headerPrefix + "User"
	headerUID    = headerPrefix + "Uid"
	headerGroup  = headerPrefix + "Group"
	headerExtra  = headerPrefix + "Extra-"
)

// setUser says in headers who asks, and nothing that they said before.
func setUser(h http.Header, u user.Info) {
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		return len(name) >= len(headerPrefix) && strings.EqualFold(name[:len(headerPrefix)], headerPrefix)
	})
	h.Set(headerUser, u.GetName())
	if uid := u.GetUID(); uid != "" {
		h.Set(headerUID, uid)
	}
	for _, group := range u.GetGroups() {
		h.Add(headerGroup, group)
	}
	for key, values := range u.GetExtra() {
		for _, value := range values {
			h.Add(headerExtra+escapeKey(key), value)
		}
	}
}

// escapeKey makes part of a header's name of a key: what can't be in one is escaped as in a URL, as is the percent sign.
func escapeKey(key string) string {
	var out strings.Builder
	for i := range len(key) {
		c := key[i]
		if c != '%' && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0) {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// Call is a request that goes on to a server.
type Call struct {
	User    user.Info
	AuditID string
	// Began is called when the server has answered with its headers, before anything of it goes to the client.
	Began func(code int)
	// Failed answers the client instead of the server, if the request has ended before the server did: err is that of its
	// context.
	Failed func(err error)
}

// Refusal is why a request can't go to a server: what the client is told, as text, with a code.
type Refusal struct {
	Code    int
	Message string
}

func (r *Refusal) Error() string { return r.Message }

var unavailable = &Refusal{http.StatusServiceUnavailable, "service unavailable"}

// Ready returns nil if requests can go to the server, and else a Refusal.
func (r *Route) Ready() error {
	switch {
	case !r.available:
		return unavailable
	case r.clients.err != nil:
		return &Refusal{http.StatusInternalServerError, r.clients.err.Error()}
	}
	return nil
}

// Serve lets the server answer a request whose context has the user's deadline. The answer is streamed. It panics with
// http.ErrAbortHandler if an answer that has begun breaks off. The error is a Refusal; then nothing is answered.
func (r *Route) Serve(w http.ResponseWriter, request *http.Request, c Call) error {
	if err := r.Ready(); err != nil {
		return err
	}
	host, err := r.aggregator.resolve(r.Backend)
	if err != nil {
		r.aggregator.log.Warn("an aggregated API server can't be found", "apiservice", r.Name, "error", err)
		return unavailable
	}
	transport := r.clients.any
	if Upgrades(request) {
		transport = r.clients.upgrade
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:    func(p *httputil.ProxyRequest) { rewrite(p, host, c) },
		Transport:  transport,
		BufferPool: buffers{},
		ErrorLog:   log.New(io.Discard, "", 0), // what breaks off is known to whoever it's about
		ModifyResponse: func(response *http.Response) error {
			bounceRedirect(response)
			for _, name := range []string{"Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Allow-Origin"} {
				response.Header.Del(name) // who may read the answer is for this server to say
			}
			c.Began(response.StatusCode)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, request *http.Request, err error) {
			if ended := context.Cause(request.Context()); ended != nil {
				c.Failed(ended)
				return
			}
			r.aggregator.log.Debug("an aggregated API server didn't answer", slog.String("apiservice", r.Name), slog.Any("error", err))
			status := apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err))
			http.Error(w, status.Error(), http.StatusServiceUnavailable)
		},
	}
	proxy.ServeHTTP(w, request)
	return nil
}

// Upgrades tells whether a request asks for its connection to become a WebSocket, SPDY or something else.
func Upgrades(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Connection"), func(value string) bool { return strings.Contains(strings.ToLower(value), "upgrade") })
}

// rewrite makes the request that the server gets.
func rewrite(p *httputil.ProxyRequest, host string, c Call) {
	out := p.Out
	out.URL.Scheme, out.URL.Host, out.Host = "https", host, host
	out.URL.RawQuery = p.In.URL.Query().Encode()
	setUser(out.Header, c.User)
	for name := range out.Header { // they were for this server
		if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") {
			delete(out.Header, name)
		}
	}
	dropBearer(out.Header)
	out.Header.Set("Audit-Id", c.AuditID)
	if from, _, err := net.SplitHostPort(p.In.RemoteAddr); err == nil {
		out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
		if before := strings.Join(p.In.Header["X-Forwarded-For"], ", "); before != "" {
			from = before + ", " + from
		}
		out.Header.Set("X-Forwarded-For", from)
	}
	out.Header.Set("X-Forwarded-Host", host)
	out.Header.Set("X-Forwarded-Proto", "https")
	out.Header.Set("X-Forwarded-Uri", p.In.URL.EscapedPath())
}

// bearerProtocol begins the subprotocol of a WebSocket that is a bearer token.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// dropBearer takes the token out of the subprotocols of a request for a WebSocket.
func dropBearer(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	if !strings.Contains(strings.Join(h[name], ","), bearerProtocol) {
		return
	}
	var kept []string
	for one := range strings.SplitSeq(strings.Join(h[name], ","), ",") {
		if one = strings.TrimSpace(one); !strings.HasPrefix(one, bearerProtocol) {
			kept = append(kept, one)
		}
	}
	h.Del(name)
	if len(kept) > 0 {
		h.Set(name, strings.Join(kept, ","))
	}
}

// bounceRedirect makes 502 of a redirect: it would lead the client past this server.
func bounceRedirect(response *http.Response) {
	if code := response.StatusCode; code < 300 || code > 399 || response.Header.Get("Location") == "" {
		return
	}
	const message = "the backend attempted to redirect this request, which is not permitted"
	response.Body.Close()
	response.Status = fmt.Sprintf("%d %s", http.StatusBadGateway, http.StatusText(http.StatusBadGateway))
	response.StatusCode = http.StatusBadGateway
	response.Header = http.Header{}
	response.Trailer = nil
	response.Body, response.ContentLength = http.NoBody, 0
	if response.Request == nil || response.Request.Method != http.MethodHead {
		response.Body, response.ContentLength = io.NopCloser(strings.NewReader(message)), int64(len(message))
	}
}

// copyBuffer is how much of an answer is copied at once, in bytes.
const copyBuffer = 32 << 10

var bufferPool = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

type buffers struct{}

func (buffers) Get() []byte  { return bufferPool.Get().(*[copyBuffer]byte)[:] }
func (buffers) Put(b []byte) { bufferPool.Put((*[copyBuffer]byte)(b)) }
