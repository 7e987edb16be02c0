package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

const (
	// closeWait is how long a client may take to answer that its WebSocket ends. It has all events by then.
	closeWait = time.Second
	// socketRead is the buffer that a WebSocket keeps for what its client sends, in bytes: pings, and the end.
	socketRead = 64
	// socketWrite has room for a control frame: a header and 125 bytes.
	socketWrite = 128
)

// IsWebSocket tells whether a request asks for its connection to become a WebSocket. HTTP/2 has no such requests.
func IsWebSocket(r *http.Request) bool {
	return r.ProtoMajor == 1 && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Connection"), ",")), "upgrade")
}

// webSocket carries the events of a stream as messages, one an event, as kube-apiserver does: text for JSON, binary for
// protobuf. The frames of a batch go out in one write. The client sends nothing but pings, which are answered, and the end;
// what else it sends isn't read. A ping has to wait while the client takes nothing, and after 5 s the library ends the
// connection.
type webSocket struct {
	sink   *chunkSink
	socket *websocket.Conn

	// writing has capacity 1 and guards batch. Whoever has it may send: a batch, or a frame outside of one. It isn't a mutex,
	// because a send waits for the client.
	writing chan struct{}
	batch   *bytes.Buffer // collects the frames that the library writes; nil: they're sent at once
}

// batches hold the frames of a batch on their way to a socket.
var batches = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooledBatch is the largest buffer that goes back to the pool: that of an ordinary batch.
const maxPooledBatch = 2 * watchstream.MaxBatch

// upgrade answers a request for a WebSocket and takes the connection.
func upgrade(w http.ResponseWriter, r *http.Request, to *chunkSink) (ownSink, error) {
	s := &webSocket{sink: to, writing: make(chan struct{}, 1)}
	hand := &handshake{ResponseWriter: w, to: s}
	socket, err := websocket.Accept(hand, r, &websocket.AcceptOptions{
		Subprotocols:       subprotocols(r),
		InsecureSkipVerify: true, // the guard has looked at Origin
	})
	switch {
	case hand.taken && err != nil:
		return nil, Gone(err)
	case err != nil:
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: int32(hand.refusal), Reason: metav1.StatusReasonBadRequest, Message: err.Error(),
		}}
	}
	socket.SetReadLimit(-1) // nothing is kept
	s.socket = socket
	return s, nil
}

// handshake is the ResponseWriter with which the library answers. It keeps refusals back, which become a Status, and
// hands over a connection that has small buffers and belongs to the stream.
type handshake struct {
	http.ResponseWriter
	to      *webSocket
	refusal int // code
	taken   bool
}

func (h *handshake) WriteHeader(code int) {
	if code != http.StatusSwitchingProtocols {
		h.refusal = code
		return
	}
	h.ResponseWriter.WriteHeader(code)
}

func (h *handshake) Write(p []byte) (int, error) { return len(p), nil } // the text of a refusal

// Hijack is the library's way to the connection.
func (h *handshake) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.taken = true
	conn, early, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := h.to.sink.take(conn); err != nil {
		return nil, nil, err
	}
	sent, _ := early.Reader.Peek(early.Reader.Buffered()) // with the request; that many are there
	from := bufio.NewReaderSize(bytes.NewReader(bytes.Clone(sent)), max(socketRead, len(sent)))
	from.Peek(len(sent)) // the library takes over what is buffered, and then reads from the connection
	to := &socketConn{Conn: conn, to: h.to}
	return to, bufio.NewReadWriter(from, bufio.NewWriterSize(to, socketWrite)), nil
}

// socketConn is the connection as the library sees it.
type socketConn struct {
	net.Conn
	to *webSocket
}

// Write sends, or puts into the batch that is being made.
func (c *socketConn) Write(p []byte) (int, error) {
	s := c.to
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	if s.batch != nil {
		return s.batch.Write(p)
	}
	return len(p), s.sink.send(p)
}

// Write sends whole frames as messages.
func (s *webSocket) Write(buf []byte) error {
	events := buf[watchstream.Headroom:]
	s.sink.Events.Add(float64(s.sink.Framing.Count(events)))
	kind := websocket.MessageText
	if s.sink.Framing.Binary {
		kind = websocket.MessageBinary
	}
	batch := batches.Get().(*bytes.Buffer)
	s.writing <- struct{}{}
	s.batch = batch
	<-s.writing
	var err error
	for event := range s.sink.Framing.Messages(events) {
		if err = s.socket.Write(context.Background(), kind, event); err != nil {
			break // closed
		}
	}
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	s.batch = nil
	if err == nil {
		err = s.sink.send(batch.Bytes())
	}
	if batch.Cap() <= maxPooledBatch {
		batch.Reset()
		batches.Put(batch)
	}
	return err
}

// listen answers pings until the client ends the connection.
func (s *webSocket) listen() error {
	for {
		_, message, err := s.socket.Reader(context.Background())
		if err == nil {
			_, err = io.Copy(io.Discard, message)
		}
		if err != nil {
			return errClientLeft
		}
	}
}

func (s *webSocket) end() { s.sink.end() }

// finish says that the stream ends, waits a moment for the client's answer, and closes the connection.
func (s *webSocket) finish() error {
	s.end()
	s.sink.conn.SetReadDeadline(time.Now().Add(closeWait))
	s.socket.Close(websocket.StatusNormalClosure, "") // an error means that the client didn't answer
	return nil
}

func (s *webSocket) cutOff() {
	s.sink.cutOff()
	s.socket.CloseNow()
}

// bearerProtocol begins the subprotocol in which a web page sends its token, because it can't set a header: the token
// follows, as base64url without padding.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// subprotocols returns what a request's WebSocket may speak, in the client's order, without a token. Each means the same
// here, as with kube-apiserver: base64.binary.k8s.io changes the encoding of logs and not that of watches.
func subprotocols(r *http.Request) (names []string) {
	for name := range offered(r) {
		if !strings.HasPrefix(name, bearerProtocol) {
			names = append(names, name)
		}
	}
	return names
}

// offered yields the subprotocols that a request names.
func offered(r *http.Request) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
			for name := range strings.SplitSeq(header, ",") {
				if name = strings.TrimSpace(name); name != "" && !yield(name) {
					return
				}
			}
		}
	}
}

// SocketToken returns the token among the subprotocols of a request for a WebSocket, or "".
func SocketToken(r *http.Request) string {
	if !IsWebSocket(r) {
		return ""
	}
	for name := range offered(r) {
		if encoded, ok := strings.CutPrefix(name, bearerProtocol); ok {
			token, _ := base64.RawURLEncoding.DecodeString(encoded) // of what isn't base64, something that no token is
			return string(token)
		}
	}
	return ""
}
