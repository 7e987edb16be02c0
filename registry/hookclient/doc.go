// Package hookclient is the HTTP client of webhooks, of those that convert objects and of those that admit them.
//
// A webhook is software of others at an address that a client chose. So Policy says which addresses are called, redirects
// aren't followed, answers are bounded, and an error has of an answer at most what it says of itself: kind, version, uid. A Service is called by its name in the
// cluster, at an address that Network.Resolve finds for each connection.
//
// The package starts no goroutine; net/http starts some for each connection. They end with the connection, and Close ends
// the connections. Client.mu is a leaf, and nothing is waited for under it.
//
// Bounds: for each Client requests at once (Config.MaxCalls), of which one flow leaves others a quarter (callShare), connections (as many), idle ones (maxIdle, for idleTimeout);
// for each request the answer (Config.MaxAnswer, and maxHeaderBytes of headers), and what is quoted of it (maxQuoted). How
// long a request may take is the matter of its context.
package hookclient
