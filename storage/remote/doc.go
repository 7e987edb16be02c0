// Package remote keeps objects in an etcd cluster that runs elsewhere.
//
// Options say where the cluster is, Connect makes a client whose keys all are below the prefix, and Claim refuses a
// prefix that holds somebody else's data.
package remote
