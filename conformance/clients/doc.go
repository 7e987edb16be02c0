// Package clients tests the server with clients that CI leaves out: Helm, and the oldest kubectl that Debian has, 1.20.
// `make clients` runs it. It's a module of its own, because Helm brings many others. ../versions.json has the versions. kubectl is
// Debian's package kubernetes-client, which is downloaded and unpacked, not installed.
package clients
