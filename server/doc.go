// Package server is the HTTP side of apiserver-lite: a value that serves the Kubernetes API over an etcd in the same
// process or elsewhere, for main and for Go programs that want an API server inside.
//
//	s := &server.Server{Data: server.Data{Ephemeral: true}, Serving: server.Serving{Listen: "127.0.0.1:0"}}
//	if err := s.Start(ctx); err != nil {
//		return err
//	}
//	defer s.Close()
//	fmt.Println(s.URL())
//
// # Where to begin
//
// server.go has the settings and the life of a Server, and instance.go what runs between Start and Close. Package wire has the
// sockets, package discovery the documents that tell clients what is served. router.go lists the paths. From there, resources.go
// leads to the registry, watch.go to the streams, and errors.go shows how an error is answered. The package servertest
// starts servers for tests.
//
// # The way of a request
//
// Package wire accepts a connection, or gives it a seat in the lobby if there are too many. The handler
// (handler.go) is the outermost function of a request. It gives the request an Audit-Id, recovers panics, and
// writes one log line and one count at the end. Then come, in this order:
//
//   - the checks against browsers and foreign hosts (package guard),
//   - the length of the URI, and the form of its path (package guard),
//   - on a replica, a barrier that all requests of the moment share (fresh.go), because rights change, too; a write of one
//     object without users presumes instead that its caches are new enough, and its transaction checks it
//     (registry.Presume),
//   - who asks (authenticate.go), with the beginning of the audit log's events, and what they may do (authorize.go),
//   - what other servers have: a path of theirs goes to serveAggregated, which takes its own seat (aggregated.go),
//   - the chi routes (router.go),
//   - the query's parse, its body, a seat of its flow, and readiness (limits.go, package fair),
//   - the function of the route.
//
// Bodies come in as JSON, YAML or protobuf (body.go, package markup). YAML reaches the registry as JSON, and protobuf as a message
// if the kind is a Go type (registry.Endpoint.OpenProtobuf). Objects go out as the bytes that the registry hands over.
// They're indented or turned into YAML while they are written (negotiate.go, package markup), and compressed if they're large
// and the client wants it (answer.go). What a route's function returns as an error becomes the response in one place
// (errors.go).
//
// # The way of a watch
//
// serveResource finds what the path names (resources.go), and watch (watch.go) asks Endpoint.Watch for a cursor, which the
// cacher opens (Resource.Open), and makes a watches.Watch of it, which is noted until its end. wire.Port.Begin answers
// with the head, and wire.Stream.Serve has watchstream.Serve read from the cursor and write to the socket, until the client leaves
// or the server closes. Over HTTP/2 it runs on the request's goroutine. Over HTTP/1.1 the stream takes the connection over: the
// handler returns, and the stream has a goroutine of its own (streamOn).
//
// # Goroutines
//
// An instance owns what its wire.Port owns, the cacher's feed, the registry's loop, the controllers (package controllers), the
// aggregator's Run and, where the server acts, Act, the sweeper of the watches' deadlines and, if FreeMemory is set, the tidier (package watches). With users it owns the writer of
// the first rules (bootstrap), the one that looks at credentials of open watches again (package recheck) and the one that reads again who decides
// what users may do (access.Authorizer.Run), and on a replica the
// election, the pulse, the compaction, the one that lists the replicas and those that answer the questions of
// /debug/quiescent (package replica).
//
// Close ends all of these goroutines and waits for them. It gives up after closeTimeout, or after
// brokenTimeout if etcd has failed. What still runs then is left behind, and the process is expected to end.
//
// # Bounds
//
//   - A request: 64 KiB of URI (maxURI), 3 MiB of body (maxBody), which may nest
//     10,000 levels and, as YAML, have 100,000 tokens (package markup).
//   - Bodies at work: what those take together that are estimated to take more than 512 KiB (freeBody) is 512 MiB (maxBodies),
//     of which one user, or one address where users aren't told apart, may have half. Others wait until their deadline.
//   - Requests that are being worked for: 600 (bounds.DefaultMaxReads, DefaultMaxWrites; Bounds.MaxReads and MaxWrites), of which leases have 24 for themselves (package flowcontrol).
//     The deletion of a collection takes collectionWrites of these. A request gives its seat back when its answer begins.
//   - Bodies of more than 64 KiB (trustedBody) as they are sent, until there is room for what is made of them: 128 MiB (maxRaw).
//   - Bodies that are on their way: 400 (maxUploads). Requests whose user isn't known yet: 1,024 (maxArrivals). Requests that
//     wait for the controllers: 256 (maxWaits).
//   - Of each of these, of large answers and of YAML, one user, or where users aren't told apart one address, has at most as
//     many as he leaves free. What gets none waits in turn (package fair): 300 requests of one (maxFlowQueue), 6,400 of all
//     (maxQueue), each for a quarter of its time (waitShare). Then it gets a 429.
//   - Watches: 131,072 (watches.maxWatches), of which one user or address has at most three times as many as are free (watches.Share).
//   - Questions of other replicas whether anything is left to do have their bound in package replica.
//   - Lists whose objects are being written: 32 (bulk.MaxAtOnce), of 20,000 objects each (bulk.MaxItems). Each object is bounded as a request of its own.
//   - Snapshots of the store that are being read: 2 (maxBackups).
//   - Snapshots of an ephemeral server: 64 (package resets) of 128 MiB, 512 MiB together.
//   - Time: 60 s for a read (readDeadline) and 34 s for a write (writeDeadline), both from the headers on and with the time that
//     it takes to know the user. Connections, headers and streams have their bounds in package wire.
//   - Answers of more than 128 KiB (largeAnswer), if they're lists or compressed: 32 at once (maxLargeAnswers). Others
//     wait for up to 20 s (largeAnswerWait) and then get a 429. One whose client takes nothing for 100 ms (stallTime) gives
//     its place to others meanwhile; 256 may (maxStalled).
//   - Answers in YAML: 2 MiB of JSON (maxYAMLSource), 16 MiB of text (maxYAMLText). Of those above 64 KiB of JSON
//     (largeYAML) one is made at a time; others wait as large answers do.
//   - A Status: 64 KiB of message (status.MaxMessage), registry.MaxCauses causes of 4 KiB (maxCauseMessage).
//   - Documents of discovery and OpenAPI have their bounds in package discovery.
//   - Metric series: fixed verbs and codes, and at most 1,024 resources (maxResources) besides those with open watches.
//
// # Locks
//
// resets.Snapshots.resetting is held during a whole reset. No request that holds it waits for another lock of the server's.
// life.mu, inflight.mu, resets.Snapshots.mu, and those of the packages below (fair, watches, metrics, discovery, replica, internal/loglimit) are
// leaves: no other lock of ours is taken while one of them is held. Under that of Metrics Prometheus takes its own. life.closeOnce is
// held through the whole of Close.
package server
