package etcd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
)

// Options says where the store lives and how much it keeps. The zero value works.
type Options struct {
	DataDir      string
	Ephemeral    bool
	History      time.Duration
	HistoryBytes int64
	QuotaBytes   int64
	Log          *slog.Logger
}

// Server is a running embedded etcd.
type Server struct {
	Client *clientv3.Client
	Local  *etcdserver.EtcdServer
}

// Open starts it.
func Open(ctx context.Context, o Options) (*Server, error) { return nil, errors.New("stub") }

// Dir is the directory the data is in.
func (s *Server) Dir() string { return "" }

// Close stops it.
func (s *Server) Close() error { return nil }

// Health returns nil, or why writes fail now.
func (s *Server) Health() error { return nil }

// Done is closed when etcd stopped by itself.
func (s *Server) Done() <-chan struct{} { return nil }
