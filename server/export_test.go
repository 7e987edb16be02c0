package server

import clientv3 "go.etcd.io/etcd/client/v3"

// What tests outside of the package may see and bring about.

// HistoryReads returns how many stretches of history the server has read, for its feed and for watchers.
func HistoryReads(s *Server) int64 { return s.in.store.Reads() }

// Etcd returns a client of the server's etcd.
func Etcd(s *Server) *clientv3.Client { return s.in.etcd.Client }
