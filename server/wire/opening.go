package wire

import (
	"bytes"
	"io"
	"net"
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
