package wire

import "net/http"

// Part has the connection of a stranger over HTTP/2 end. net/http says GOAWAY, and closes the connection when what the client had sent by that time is
// answered. What the stranger sends next takes another handshake, as with kube-apiserver. header is that of the answer.
func Part(header http.Header, r *http.Request, stranger bool) {
	if stranger && r.ProtoMajor == 2 {
		header.Set("Connection", "close")
	}
}
