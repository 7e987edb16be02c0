// Package aggregation tries the server with upstream's sample-apiserver behind it, as an aggregated API server: once behind a
// Service of type ExternalName and once behind an EndpointSlice. It's a module of its own, because that server's dependencies
// take long to build, and no part of CI: `make aggregation` runs it. sample-apiserver stores in upstream's etcd (bin/peer/etcd).
package aggregation
