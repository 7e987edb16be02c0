// Package conformance tests the server with the clients that people have: kubectl, client-go, controller-runtime,
// @kubernetes/client-node and Python's kubernetes. It's a module of its own, so that the server's doesn't depend on them.
//
// versions.json lists their versions, also those of the clients in directory clients. TestVersions holds it to go.mod, to
// clients/go.mod, to node/package-lock.json, and to Debian's package python3-kubernetes.
//
// TestMain builds the server and kubectl into bin. Every test starts a server process of its own on a
// port that the system picks, and nothing is shared between tests.
package conformance
