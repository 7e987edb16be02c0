// Package suites runs other people's tests against this server: those that start kube-apiserver and etcd by envtest. Each module is
// downloaded by its version in the table, copied, and tested as it is with `go test`; only the directory of KUBEBUILDER_ASSETS is ours.
//
// CI runs the quick suites, and `make suites` all of them, one project at a time, with upstream's kube-apiserver and etcd, too, where
// they were built. What came of that is in results.json, and docs/testing.md has it as a table. What can't pass with either is listed
// in exceptions.txt, a line for each spec with the reason. One that doesn't fail any more is a failure, unless its reason says that it
// may pass.
package suites
