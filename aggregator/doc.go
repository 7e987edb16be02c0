// Package aggregator serves what APIServices say that other servers serve.
//
// An APIService that names a service hands a group version over to the server behind that service. The package owns who
// serves which group version (routes.go), the proxy (proxy.go), whether a server is available (availability.go), and what
// the servers say about themselves (discovery.go, openapi.go). Package server asks it for the Route of a path, and for what
// discovery and OpenAPI have besides what this server has. The rules are those of k8s.io/kube-aggregator.
//
// Routes are made of the APIServices in the caches, and made anew by the first request after a change. A request that finds
// no APIService with a service pays for a look at the caches' revision and nothing else.
//
// # The servers are strangers
//
// Whoever may write APIServices and Services decides which addresses are dialled. So each dial asks the policy by which
// webhooks are called, with the address that a name has resolved to. Redirects are neither followed nor passed on. The
// headers by which a server is told who asks are taken from no client. What is read into memory is bounded: discovery
// (maxDiscovery) and OpenAPI (maxOpenAPI); everything else is streamed.
//
// A server that is slow or gone keeps nobody else waiting. Each one has requests under way of its own (maxCalls), and a
// request that waits for one has no seat among those of this server.
//
// # Goroutines
//
// Run has one goroutine that follows the APIServices and two for each server, one for its discovery and one for its OpenAPI
// documents. Act, which one of several replicas calls, has one that follows, too, and one for each server, which looks
// whether it's available, with checkAttempts more for a moment. While there is any server each of the two has two more, which
// follow Services and EndpointSlices. net/http has some for each connection. Close ends the connections and waits for dials.
//
// Locks: Certificate.mu is a leaf.
package aggregator
