package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// opening looks at what comes first on a connection without TLS. net/http waits for as many bytes as HTTP/2 begins
// with before it reads a request. A request without a version, as "GET /api" and an empty line, can be shorter, and
// would get no answer. After such a request, read reports the end of the stream, and net/http answers 400.
type opening struct {
	over bool   // there's nothing to look for any more
	seen []byte // what came so far
}

// http2Begins is what net/http waits for. No request of HTTP/1 with a version is shorter.
const http2Begins = "PRI * HTTP/2.0"

func (o *opening) read(conn net.Conn, p []byte) (int, error) {
	if o.over {
		return conn.Read(p)
	}
	if bytes.HasSuffix(o.seen, []byte("\n\n")) || bytes.HasSuffix(o.seen, []byte("\n\r\n")) {
		o.over = true
		return 0, io.EOF
	}
	n, err := conn.Read(p)
	if err != nil || len(o.seen)+n >= len(http2Begins) {
		o.over, o.seen = true, nil
	} else {
		o.seen = append(o.seen, p[:n]...)
	}
	return n, err
}

// What net/http answers by itself, to a request that it can't parse: a line, these headers, and a text.
const (
	refusalHeaders = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	maxRefusal     = 1 << 10 // bytes
)

// refusalStatus returns an answer of net/http's own with a Status instead of the text, or nil for any other answer.
func refusalStatus(answer []byte) []byte {
	if len(answer) > maxRefusal || !bytes.HasPrefix(answer, []byte("HTTP/1.1 ")) {
		return nil
	}
	line, text, found := bytes.Cut(answer, []byte(refusalHeaders))
	if !found || bytes.ContainsAny(line, "\r\n") {
		return nil
	}
	fields := strings.SplitN(string(line), " ", 3)
	code, err := strconv.Atoi(fields[1])
	if err != nil || code < http.StatusBadRequest {
		return nil
	}
	status := statusError(int32(code), metav1.StatusReasonBadRequest, strings.TrimPrefix(string(text), fields[1]+" ")).ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil
	}
	return fmt.Appendf(nil, "%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", line, len(body), body)
}
