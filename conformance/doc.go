// Package conformance tests the server with the clients that people have: kubectl, client-go and
// controller-runtime. It's a module of its own, so that the server's doesn't depend on them.
//
// TestMain builds the server and kubectl into bin. Every test starts a server process of its own on a
// port that the system picks, and nothing is shared between tests.
package conformance
