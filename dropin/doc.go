// Package dropin lets this program stand in for kube-apiserver and etcd in the tests of controllers: envtest starts two
// binaries of these names, and either of them may be this one. It reads their flags and gives main what to run: a
// server.Server for the name kube-apiserver, and a port that answers /health for the name etcd, because the store is inside
// the former. At any other address --etcd-servers names an etcd cluster, which keeps the data (store.go). Envtest makes the
// directory that KUBEBUILDER_ASSETS names.
//
// A flag of kube-apiserver belongs to one of four kinds. Those that have a meaning here mean the same. Those that would protect
// something and don't here are an error, so that nobody relies on them. All others of Kubernetes 1.37 are read, checked by their
// type, and named in one line of the log. A name that kube-apiserver doesn't know is an error, too.
package dropin
