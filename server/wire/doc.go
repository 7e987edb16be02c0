// Package wire owns the sockets of a server, from accept to the last byte: it listens, bounds the connections, has net/http
// serve requests on them, and carries streams, which are answers that don't end by themselves. It knows nothing of Kubernetes
// but the Status of a refused WebSocket.
//
// # The way of a connection
//
// Open takes the port (listen.go). Accept gives a connection its place, or a seat in the lobby if there are too many
// (connections.go), and Serve (port.go) has net/http read requests from it.
//
// # The way of a stream
//
// A handler calls Port.Begin (stream.go), which answers with the head, and Stream.Serve, which writes until the client leaves
// or the context ends. Over HTTP/2 (http2.go) it runs on the request's goroutine, and writes through net/http. Over HTTP/1.1 the stream takes
// the connection over (chunks.go): the handler returns, and net/http's buffers and its goroutine, which would be most of the
// memory of an idle watch, are free. A WebSocket (websocket.go) is such a connection, too, with messages instead of chunks.
//
// # Goroutines
//
// A Port owns the listener's loop, and for each stream that has taken its connection over one that writes and one that notices when the client
// leaves. net/http has one for each connection, and over HTTP/2 one more for its frames and one for each request. Connections
// in the lobby have a timer each, and so do their seats for a moment after that; no goroutine waits for those. Close ends all
// of these and waits for them.
//
// # Bounds
//
//   - Connections: Options.MaxConnections, a quarter of them for others than the address that has most (addressShare). What an
//     address asks for beyond that is closed while there's no seat. lobbySeats more get a place for a moment, to be told to
//     come back.
//   - Headers: 128 KiB (maxHeaderBytes). Time: 30 s for headers (headerTimeout), 55 s for headers and body (bodyTimeout),
//     120 s for an idle connection (idleTimeout), and Options.StreamTimeout for a stream whose client takes nothing.
//
// # Locks
//
// listener.mu is a leaf. A WebSocket's connection is written to under a channel (webSocket.writing).
package wire
