// Package server is the HTTP side of apiserver-lite: a value that serves the Kubernetes API over an
// embedded etcd, for main and for Go programs that want an API server inside.
//
//	s := &server.Server{Ephemeral: true, Listen: "127.0.0.1:0"}
//	if err := s.Start(ctx); err != nil {
//		return err
//	}
//	defer s.Close()
//	fmt.Println(s.URL())
//
// # The way of a request
//
// handler (handler.go) is the outermost: it gives the request an Audit-Id, recovers panics, and writes
// one log line and one count at the end. Then come, in this order, the length of the URI, the checks
// against browsers and foreign hosts (security.go), the path (path.go), the bearer token (token.go),
// readiness and the bounds on requests in flight (limits.go), and the chi routes (router.go). What a
// route's function returns as an error becomes the response in one place (errors.go). Objects go out
// as the bytes that the registry hands over, indented or turned into YAML while they are written
// (negotiate.go, indent.go), compressed if they're large and the client wants it (answer.go); bodies come in as JSON or YAML (body.go, yaml.go) and reach the registry
// as JSON.
//
// # Goroutines
//
// An instance (instance.go) owns the listener's loop, the cacher's feed, the registry's controllers and
// the sweeper of the watches' deadlines, and waits for all of them in Close; net/http owns one goroutine per connection, which Close waits
// for too. A watch costs its request's goroutine and no other.
//
// # Bounds
//
// Bodies: 3 MiB. Request line: 64 KiB. Headers: 128 KiB. Requests in flight: 400 reads, 200 writes.
// Connections: MaxConnections, a quarter of them for others than the address that has most (connections.go); 64 more
// for a moment, to be told to come back. Watches: 65,536.
// YAML: 100,000 tokens. JSON depth: 10,000. Time: 30 s for headers, 55 s for a body, 60 s for a read,
// 34 s for a write, 120 s for an idle connection, WatchWriteTimeout for a watcher that takes nothing.
// Answers of more than 128 KiB: 32 at once if they're lists or compressed; others wait for up to 20 s, then 429.
// Metric series: fixed verbs and codes, and at most 1,024 resources.
//
// # Locks
//
// Server.mu, inflight.mu, connections.mu, watchers.mu, metrics.mu and documents.mu are leaves: no other lock is taken under one.
package server
