// Program differential sends requests to kube-apiserver and to this server under its name, and compares the answers whole: code,
// headers, body, and the events that a watch gets of it. The requests are made from upstream's own OpenAPI documents and from one
// minimal and one full object of each kind (testdata/kinds).
//
//	differential record   asks upstream's programs (--bin) and writes their answers to testdata/oracle
//	differential replay   asks ours, and compares with what was recorded
//	differential live     asks both, and compares
//	differential shrink   as replay, and takes out of testdata/notyet what no longer differs
//
// A scenario is a list of requests that stand on each other, such as all those of one kind. Scenarios share nothing but the server: each
// has its namespace, and names of its own for what has none. So they run side by side, and each alone. What must differ from server to
// server (uids, times, resourceVersions, addresses that are given, random names) is replaced by its order of appearance within the scenario, so
// that equal values stay equal. Nothing else is masked.
//
// A difference is one of three things. It stands in onpurpose.go, with its reason; or it's counted in testdata/notyet, from
// which it goes as it's mended; or it's an error.
//
// Data flows one way: maker.go and its neighbours make scenarios, run.go sends them and normalizes the answers, recording.go keeps them,
// compare.go finds differences, and main.go counts and prints them.
package main
