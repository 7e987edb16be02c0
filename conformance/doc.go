// Package conformance tests the server with the clients that people have: kubectl, client-go, controller-runtime,
// @kubernetes/client-node and Python's kubernetes. It's a module of its own, so that the server's doesn't depend on them.
//
// This directory fixes their versions: go.mod for those in Go, node/package-lock.json for Node's. Python's is Debian's
// package python3-kubernetes.
//
// TestMain builds the server and kubectl into bin. Every test starts a server process of its own on a
// port that the system picks, and nothing is shared between tests.
package conformance
